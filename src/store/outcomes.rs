//! What an execution writes: progress, and its one outcome. Each statement is fenced by id, token and state.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use sqlx::{PgConnection, PgExecutor};

use super::claims::micros;
use super::{LeaseRef, Store, StoreError};
use crate::failure::{clean_code, clean_params};
use crate::{AttemptOutcome, FailureClass, JobError, JobId, JobState, LeaseLost, clean_error_text};

/// An outcome the database took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// What the job became.
    pub state: JobState,
    /// True when this very outcome had been taken before and the reply was lost; nothing changed this time.
    pub repeated: bool,
}

/// How an execution ended that did not succeed.
#[derive(Clone, Debug)]
pub enum Outcome<'a> {
    /// It went wrong. `delay` is the wait before the next start, if the class and the attempts left allow one.
    Failed {
        /// What went wrong.
        error: &'a JobError,
        /// Wait before the next start.
        delay: Duration,
    },
    /// A provider or the handler asked to wait. The attempt is given back.
    Waits {
        /// Who asked, and why.
        error: &'a JobError,
        /// Wait before the next start.
        delay: Duration,
    },
    /// A stopping worker hands it back. The attempt is given back.
    Released,
    /// The handler stopped because a person asked.
    Canceled,
}

/// A success to be recorded: checked, and in a form that Postgres can hold.
#[derive(Clone, Debug)]
pub struct Completion {
    lease: LeaseRef,
    result: String,
    last_stage: Option<String>,
}

impl Completion {
    /// Checks `result`. `last_stage` is the stage shown while succeeded; `None` leaves it where the execution put it.
    ///
    /// # Errors
    /// [`StoreError::InvalidValue`] if the result is nested too deep, or longer than 64 MiB as JSON.
    pub fn new(lease: LeaseRef, result: &Value, last_stage: Option<&str>) -> Result<Self, StoreError> {
        Ok(Self { lease, result: result_text(result)?, last_stage: last_stage.map(str::to_owned) })
    }

    /// Bytes of the result.
    pub(crate) fn size(&self) -> usize {
        self.result.len()
    }

    /// The execution that succeeded.
    pub fn lease(&self) -> LeaseRef {
        self.lease
    }
}

#[derive(sqlx::FromRow)]
struct OutcomeRow {
    state: Option<String>,
    repeated: bool,
}

impl OutcomeRow {
    fn accept(self, lease: LeaseRef) -> Result<Accepted, StoreError> {
        let state = self.state.ok_or(LeaseLost { job_id: lease.job_id, token: lease.token })?;
        let state = state.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        Ok(Accepted { state, repeated: self.repeated })
    }
}

/// Puts a fact that Postgres cannot hold into a form it can: NUL becomes its Unicode picture.
pub(super) fn storable(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace('\0', "\u{2400}")),
        Value::Array(items) => items.iter().map(storable).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.replace('\0', "\u{2400}"), storable(field))).collect()
        }
        other => other.clone(),
    }
}

/// A text that is too long for one row may cost a worker its memory, or be refused by Postgres with the whole connection.
const MAX_RESULT_BYTES: usize = 64 << 20;

/// What is stored of a handler's result.
fn result_text(result: &Value) -> Result<String, StoreError> {
    let result = storable(result);
    let mut path = "result".to_owned();
    super::enqueue::check_value(&mut path, 0, &result)?;
    let text = result.to_string();
    if text.len() > MAX_RESULT_BYTES {
        return Err(StoreError::InvalidValue { path, problem: "is longer than 64 MiB" });
    }
    Ok(text)
}

impl Store {
    /// Notes that the execution entered `stage`, at 0 percent.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if the execution no longer holds the job.
    pub async fn job_set_stage(&self, lease: LeaseRef, stage: &str) -> Result<(), StoreError> {
        let done = sqlx::query(
            "update jobdeck.jobs set stage = $3, progress = null,
               stages_at = stages_at || jsonb_build_object($3::text, now()), version = version + 1, updated_at = now()
             where id = $1 and token = $2 and status = 'running'",
        )
        .bind(lease.job_id)
        .bind(lease.token)
        .bind(stage)
        .execute(&self.pool)
        .await?;
        held(done.rows_affected(), lease)
    }

    /// Notes how far the present stage is. Never falls within a stage.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if the execution no longer holds the job.
    pub async fn job_set_progress(&self, lease: LeaseRef, percent: u8) -> Result<(), StoreError> {
        let done = sqlx::query(
            "update jobdeck.jobs set progress = greatest(progress, $3), version = version + 1, updated_at = now()
             where id = $1 and token = $2 and status = 'running'",
        )
        .bind(lease.job_id)
        .bind(lease.token)
        .bind(i16::from(percent.min(100)))
        .execute(&self.pool)
        .await?;
        held(done.rows_affected(), lease)
    }

    /// Ends the execution with a result. The same outcome sent again is answered with yes and changes nothing.
    ///
    /// With a transaction as `executor` the job succeeds if and only if it commits; the caller must roll back on an
    /// error. [`crate::Ctx::complete_in`] does both.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if the execution no longer holds the job; [`StoreError::InvalidValue`] if the result is
    /// nested too deep, or longer than 64 MiB as JSON.
    pub async fn job_complete<'e>(
        &self,
        executor: impl PgExecutor<'e>,
        lease: LeaseRef,
        result: &Value,
        last_stage: Option<&str>,
    ) -> Result<Accepted, StoreError> {
        let result = result_text(result)?;
        let row: OutcomeRow = sqlx::query_as(
            "with ended as (
               update jobdeck.jobs set status = 'succeeded', result = $3::jsonb, finished_at = now(),
                 locked_at = null, locked_by = null, lease_expires_at = null,
                 stage = coalesce($4, stage), progress = null,
                 stages_at = case when $4 is null then stages_at
                   else stages_at || jsonb_build_object($4::text, now()) end,
                 version = version + 1, updated_at = now()
               where id = $1 and token = $2 and status = 'running'
               returning id, type, idempotency_key),
             kept as materialized (
               select k.type, k.key, t.key_keep
               from ended e join jobdeck.job_types t on t.type = e.type and t.key_keep is not null
               join jobdeck.idempotency_keys k on k.type = e.type and k.key = e.idempotency_key and k.job_id = e.id
               for update of k skip locked),
             expiring as (
               update jobdeck.idempotency_keys k set expires_at = now() + p.key_keep
               from kept p where k.type = p.type and k.key = p.key)
             select case when exists (select 1 from ended) then 'succeeded'
                 else (select status::text from jobdeck.jobs where id = $1 and token = $2 and status = 'succeeded')
               end as state,
               not exists (select 1 from ended) as repeated",
        )
        .bind(lease.job_id)
        .bind(lease.token)
        .bind(result)
        .bind(last_stage)
        .fetch_one(executor)
        .await?;
        row.accept(lease)
    }

    /// Ends many executions with their results in one statement. An execution that is not in the answer no longer held its
    /// job. As with [`Store::job_complete`], the same outcome sent again is answered with yes and changes nothing.
    ///
    /// # Errors
    /// If the database does; none of them is recorded then.
    pub async fn job_complete_many(
        &self,
        completions: &[&Completion],
    ) -> Result<HashMap<LeaseRef, Accepted>, StoreError> {
        let mut connection = self.pool.acquire().await?;
        Self::job_complete_many_on(&mut connection, completions).await
    }

    /// As [`Store::job_complete_many`], on a connection of the caller's.
    pub(crate) async fn job_complete_many_on(
        connection: &mut PgConnection,
        completions: &[&Completion],
    ) -> Result<HashMap<LeaseRef, Accepted>, StoreError> {
        let mut ordered = completions.to_vec();
        // One order for all who lock several jobs.
        ordered.sort_unstable_by_key(|completion| completion.lease.job_id);
        let ids: Vec<JobId> = ordered.iter().map(|completion| completion.lease.job_id).collect();
        let tokens: Vec<i64> = ordered.iter().map(|completion| completion.lease.token).collect();
        let results: Vec<&str> = ordered.iter().map(|completion| completion.result.as_str()).collect();
        let stages: Vec<Option<&str>> = ordered.iter().map(|completion| completion.last_stage.as_deref()).collect();
        let taken: Vec<(JobId, i64)> = sqlx::query_as(
            "with ended as (
             update jobdeck.jobs j set status = 'succeeded', result = i.result::jsonb, finished_at = now(),
               locked_at = null, locked_by = null, lease_expires_at = null,
               stage = coalesce(i.last_stage, j.stage), progress = null,
               stages_at = case when i.last_stage is null then j.stages_at
                 else j.stages_at || jsonb_build_object(i.last_stage, now()) end,
               version = j.version + 1, updated_at = now()
             from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[]) as i (id, token, result, last_stage)
             where j.id = i.id and j.token = i.token and j.status = 'running'
             returning j.id, j.token, j.type, j.idempotency_key),
             -- A key whose type keeps it for a time begins to run out. Few types do, so they are sorted out before a key is
             -- looked for. A key that someone's open transaction holds is left alone, since no end of a job may wait for it:
             -- jobdeck.key_is_free works such a key out.
             due as materialized (
               select e.id, e.type, e.idempotency_key from ended e
               where e.idempotency_key is not null
                 and e.type = any (array(select t.type from jobdeck.job_types t where t.key_keep is not null))),
             kept as materialized (
               select k.type, k.key, t.key_keep
               from due d join jobdeck.job_types t on t.type = d.type
               join jobdeck.idempotency_keys k on k.type = d.type and k.key = d.idempotency_key and k.job_id = d.id
               for update of k skip locked),
             expiring as (
               update jobdeck.idempotency_keys k set expires_at = now() + p.key_keep
               from kept p where k.type = p.type and k.key = p.key)
             select id, token from ended",
        )
        .bind(&ids)
        .bind(&tokens)
        .bind(results)
        .bind(stages)
        .fetch_all(&mut *connection)
        .await?;
        let accepted =
            |(job_id, token), repeated| (LeaseRef { job_id, token }, Accepted { state: JobState::Succeeded, repeated });
        let mut answers: HashMap<_, _> = taken.into_iter().map(|pair| accepted(pair, false)).collect();
        if answers.len() < completions.len() {
            let before: Vec<(JobId, i64)> = sqlx::query_as(
                "select j.id, j.token from jobdeck.jobs j
                 join unnest($1::uuid[], $2::bigint[]) as i (id, token) on j.id = i.id and j.token = i.token
                 where j.status = 'succeeded'",
            )
            .bind(&ids)
            .bind(&tokens)
            .fetch_all(&mut *connection)
            .await?;
            for pair in before {
                let (lease, repeated) = accepted(pair, true);
                answers.entry(lease).or_insert(repeated);
            }
        }
        Ok(answers)
    }

    /// Ends the execution without success. The same outcome sent again is answered with yes and changes nothing.
    ///
    /// A job that a person asked to stop becomes canceled, whatever the outcome.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if the execution no longer holds the job.
    pub async fn job_end(&self, lease: LeaseRef, outcome: Outcome<'_>) -> Result<Accepted, StoreError> {
        // What the state becomes, whether the attempt is given back, and what is noted.
        let (target, gives_back, noted, error, delay) = match &outcome {
            Outcome::Failed { error, delay } => {
                let target = if error.class == FailureClass::Unrecoverable { "failed" } else { "retrying" };
                (target, false, AttemptOutcome::Failed, Some(*error), *delay)
            }
            Outcome::Waits { error, delay } => {
                let noted = if error.snooze { AttemptOutcome::Snoozed } else { AttemptOutcome::RateLimited };
                ("retrying", true, noted, Some(*error), *delay)
            }
            Outcome::Released => ("pending", true, AttemptOutcome::Released, None, Duration::ZERO),
            Outcome::Canceled => ("canceled", false, AttemptOutcome::Canceled, None, Duration::ZERO),
        };
        let class = error.filter(|error| !error.snooze).map(|error| error.class.as_str());
        let row: OutcomeRow = sqlx::query_as(
            "with ended as (
               update jobdeck.jobs j set status = next.state,
                 attempts = j.attempts - case when $4 and next.state <> 'failed' then 1 else 0 end,
                 run_after = case when next.state in ('retrying', 'pending')
                   then now() + $6 * interval '1 microsecond' else j.run_after end,
                 finished_at = case when next.state in ('failed', 'canceled') then now() end,
                 locked_at = null, locked_by = null, lease_expires_at = null,
                 last_error = coalesce($7, j.last_error),
                 error_class = case when $7 is null then j.error_class else $8::jobdeck.failure_class end,
                 error_code = case when $7 is null then j.error_code else $9 end,
                 error_params = case when $7 is null then j.error_params else $10 end,
                 version = j.version + 1, updated_at = now()
               from (
                 select id, attempts as attempt_before, (case
                   when cancel_requested_at is not null then 'canceled'
                   when $3 = 'retrying' and not $4 and attempts >= max_attempts then 'failed'
                   else $3 end)::jobdeck.job_state as state
                 from jobdeck.jobs where id = $1 and token = $2 and status = 'running' for update) next
               -- The row is locked by the guarded select above; the guard stands there alone.
               where j.id = next.id
               returning j.*, next.attempt_before),
             noted as (
               insert into jobdeck.attempts (job_id, token, attempt, outcome, worker, stage, started_at, error_class,
                 error_code, error, error_params, next_run_at)
               select id, token, attempt_before,
                 (case when status = 'canceled' then 'canceled' else $5 end)::jobdeck.attempt_outcome,
                 last_worker, stage, started_at, $8::jobdeck.failure_class, $9, $7, $10,
                 case when status in ('retrying', 'pending') then run_after end
               from ended),
             held as materialized (
               select k.type, k.key from ended e
               join jobdeck.idempotency_keys k on k.type = e.type and k.key = e.idempotency_key and k.job_id = e.id
               where e.status in ('failed', 'canceled')
               -- No end waits for a key that someone's open transaction holds; jobdeck.key_is_free gives it away all the same.
               for update of k skip locked),
             freed as (
               delete from jobdeck.idempotency_keys k using held h where k.type = h.type and k.key = h.key),
             cooled as (
               insert into jobdeck.cool_downs as c (provider, until, reason)
               select p.provider, e.run_after, $7 from ended e
               join lateral (select coalesce($11, (
                 select t.provider from jobdeck.job_types t where t.type = e.type)) as provider) p on p.provider is not null
               where $5 = 'rate_limited' and e.status = 'retrying'
               on conflict (provider) do update set until = greatest(c.until, excluded.until), reason = excluded.reason,
                 set_at = now()),
             woken as (
               select pg_notify('jobdeck_jobs', queue) from ended where status = 'pending')
             select coalesce(
                 (select status::text from ended),
                 -- The same outcome again: the row may have moved on, the note of this token stays.
                 (select case a.outcome when 'canceled' then 'canceled' when 'released' then 'pending'
                    else case when a.next_run_at is null then 'failed' else 'retrying' end end
                  from jobdeck.attempts a where a.job_id = $1 and a.token = $2 and a.outcome::text in ($5, 'canceled'))
               ) as state,
               not exists (select 1 from ended) as repeated,
               (select count(*) from woken) as n_woken",
        )
        .bind(lease.job_id)
        .bind(lease.token)
        .bind(target)
        .bind(gives_back)
        .bind(noted.as_str())
        .bind(micros(delay))
        .bind(error.map(|error| clean_error_text(&error.detail)))
        .bind(class)
        .bind(error.map(|error| clean_code(&error.code)))
        .bind(error.map(|error| clean_params(&error.params)))
        .bind(error.and_then(|error| error.provider.as_deref()).map(clean_code))
        .fetch_one(&self.pool)
        .await?;
        row.accept(lease)
    }
}

fn held(n_rows: u64, lease: LeaseRef) -> Result<(), StoreError> {
    if n_rows == 1 { Ok(()) } else { Err(LeaseLost { job_id: lease.job_id, token: lease.token }.into()) }
}
