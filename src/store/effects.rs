//! The ledger of effects: what executions did to the outside world, once a name and key. See docs/effects.md.
//!
//! Every write locks the ledger's row first and the job's row last, and fails as a whole when the job turns out to have another
//! holder. So a rival that keeps a ledger row for the length of a transaction never keeps a waiting execution from renewing its
//! lease.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgExecutor;
use uuid::Uuid;

use super::kept::check_text;
use super::{Actor, LeaseRef, Store, StoreError};
use crate::{JobId, LeaseLost};

/// What is known of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectState {
    /// Begun. While its execution runs it is under way; after that nobody knows whether it happened.
    Started,
    /// Begun, and the provider certainly did nothing.
    NotDone,
    /// Happened.
    Done,
}

impl EffectState {
    /// The word used in SQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::NotDone => "not_done",
            Self::Done => "done",
        }
    }
}

impl TryFrom<String> for EffectState {
    type Error = String;
    fn try_from(word: String) -> Result<Self, Self::Error> {
        [Self::Started, Self::NotDone, Self::Done]
            .into_iter()
            .find(|state| state.as_str() == word)
            .ok_or_else(|| format!("unknown effect state {word:?}"))
    }
}

/// One row of `jobdeck.effects`, as the deck shows it.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct Effect {
    /// What is done, such as `charge`.
    pub name: String,
    /// To what, such as an order's number.
    pub key: String,
    /// What the provider knows it by. The same for ever.
    pub provider_token: Uuid,
    /// What is known of it.
    #[sqlx(try_from = "String")]
    pub state: EffectState,
    /// Whether the execution that began it last still holds its job. A started effect that is not held is an unknown one.
    pub is_held: bool,
    /// The job that began it last. Its row may be gone.
    pub job_id: JobId,
    /// That job's execution.
    pub token: i64,
    /// How often it was begun.
    pub tries: i32,
    /// Whether a try before the present one ended without anybody knowing whether it happened.
    pub maybe_done: bool,
    /// What the handler kept of the provider's answer, as JSON text; only of a done effect.
    pub result: Option<String>,
    /// Why a done effect has no result.
    pub result_problem: Option<String>,
    /// First begun.
    pub first_started_at: DateTime<Utc>,
    /// Last begun.
    pub started_at: DateTime<Utc>,
    /// Recorded as done.
    pub done_at: Option<DateTime<Utc>>,
    /// The person who found out what had happened, if no execution recorded it.
    pub settled_by: Option<String>,
}

/// What a person found out about an effect nobody knew the end of.
#[derive(Clone, Debug, PartialEq)]
pub enum Settlement {
    /// It happened. The result is what the handler would have kept; it must fit the handler's type.
    Done(Value),
    /// It did not happen and may be done.
    NotDone,
}

/// What [`Store::effect_settle`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleOutcome {
    /// Noted.
    Settled,
    /// It is not unknown: done, not done, or its execution still runs.
    NotUnknown,
    /// There is no such effect.
    NotFound,
}

/// Names one call of an effect by one execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EffectCall<'a> {
    pub(crate) lease: LeaseRef,
    pub(crate) name: &'a str,
    pub(crate) key: &'a str,
    /// Made anew for each call, and the same when the call's writes are sent again.
    pub(crate) call_id: Uuid,
}

/// The answer to who asks to begin an effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EffectBegun {
    /// It is this call's to do.
    Yours { provider_token: Uuid, tries: i32, maybe_done: bool },
    /// It happened before.
    Done { result: Result<String, String>, job_id: JobId, done_at: DateTime<Utc> },
    /// An execution of another job is at it.
    Held { by: JobId },
    /// It was begun, nobody knows whether it happened, and this call does not repeat such effects.
    Unknown { by: JobId, started_at: DateTime<Utc> },
    /// Somebody else changed it at the same moment: ask again.
    Changed,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub(crate) enum EffectEnd<'a> {
    Done(&'a Value),
    /// It happened, but what came back cannot be kept.
    DoneWithout(&'a str),
    NotDone,
}

#[derive(sqlx::FromRow)]
struct BegunRow {
    answer: String,
    provider_token: Option<Uuid>,
    tries: Option<i32>,
    maybe_done: Option<bool>,
    job_id: Option<JobId>,
    started_at: Option<DateTime<Utc>>,
    done_at: Option<DateTime<Utc>>,
    result: Option<String>,
    result_problem: Option<String>,
}

/// An error of a statement that ends by `jobdeck.lease_lost`.
fn fenced(error: sqlx::Error, lease: LeaseRef) -> StoreError {
    match error.as_database_error().and_then(|error| error.code()).as_deref() {
        Some("JD001") => LeaseLost { job_id: lease.job_id, token: lease.token }.into(),
        _ => error.into(),
    }
}

impl Store {
    /// Begins an effect unless it happened, another live execution is at it, or it is unknown and `repeats_unknown` is false.
    ///
    /// The same call sent again, because the reply was lost, gets the same answer. With a transaction as `executor` both rows
    /// stay locked until its end.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if the execution no longer holds the job; a transaction can then only be rolled back.
    pub(crate) async fn effect_begin<'e>(
        &self,
        executor: impl PgExecutor<'e>,
        call: EffectCall<'_>,
        repeats_unknown: bool,
    ) -> Result<EffectBegun, StoreError> {
        check_text("effect name", call.name, 100)?;
        check_text("effect key", call.key, 1024)?;
        let row: BegunRow = sqlx::query_as(
            "with lease as materialized (
               select 1 from jobdeck.jobs where id = $1 and token = $2 and status = 'running'),
             -- Whoever began what this snapshot shows had its job before: whether it still has is seen here too.
             seen as materialized (
               select e.*, e.state = 'started' and (e.job_id, e.token) <> ($1, $2) and exists (
                 select 1 from jobdeck.jobs h where h.id = e.job_id and h.token = e.token and h.status = 'running') as is_held
               from jobdeck.effects e where e.name = $3 and e.key = $4),
             begun as (
               insert into jobdeck.effects (name, key, job_id, token, call_id)
               select $3, $4, $1, $2, $5 from lease where not exists (select 1 from seen)
               on conflict do nothing
               returning provider_token, tries, maybe_done),
             taken as (
               update jobdeck.effects e set state = 'started', job_id = $1, token = $2, call_id = $5, tries = e.tries + 1,
                 maybe_done = e.maybe_done or e.state = 'started', started_at = now(), settled_by = null
               from seen s, lease
               where e.name = s.name and e.key = s.key
                 -- Unchanged since it was seen: what was concluded from that still holds.
                 and e.call_id = s.call_id and e.state = s.state
                 and s.state <> 'done' and s.call_id <> $5 and not s.is_held
                 and ($6 or (s.state = 'not_done' and not s.maybe_done))
               returning e.provider_token, e.tries, e.maybe_done),
             mine as (select * from begun union all select * from taken),
             held as (
               update jobdeck.jobs j set version = j.version + 1, updated_at = now()
               where j.id = $1 and j.token = $2 and j.status = 'running' and (select count(*) from mine) > 0
               returning j.id)
             select case
                 when (select count(*) from mine) > 0 then
                   case when (select count(*) from held) = 1 then 'yours' else jobdeck.lease_lost($1, $2) end
                 when not exists (select 1 from lease) then jobdeck.lease_lost($1, $2)
                 when s.call_id = $5 then 'yours'
                 when s.state = 'done' then 'done'
                 when s.is_held then 'held'
                 when not $6 and (s.state = 'started' or s.maybe_done) then 'unknown'
                 else 'changed'
               end as answer,
               coalesce(m.provider_token, s.provider_token) as provider_token, coalesce(m.tries, s.tries) as tries,
               coalesce(m.maybe_done, s.maybe_done) as maybe_done, s.job_id, s.started_at, s.done_at,
               s.result::text as result, s.result_problem
             from (select 1) one left join seen s on true left join mine m on true",
        )
        .bind(call.lease.job_id)
        .bind(call.lease.token)
        .bind(call.name)
        .bind(call.key)
        .bind(call.call_id)
        .bind(repeats_unknown)
        .fetch_one(executor)
        .await
        .map_err(|error| fenced(error, call.lease))?;
        let missing = |column: &str| sqlx::Error::ColumnNotFound(column.to_owned());
        let by = row.job_id.ok_or_else(|| missing("job_id"));
        Ok(match row.answer.as_str() {
            "yours" => EffectBegun::Yours {
                provider_token: row.provider_token.ok_or_else(|| missing("provider_token"))?,
                tries: row.tries.unwrap_or(1),
                maybe_done: row.maybe_done.unwrap_or(true),
            },
            "done" => EffectBegun::Done {
                result: row.result.ok_or_else(|| row.result_problem.unwrap_or_default()),
                job_id: by?,
                done_at: row.done_at.ok_or_else(|| missing("done_at"))?,
            },
            "held" => EffectBegun::Held { by: by? },
            "unknown" => {
                EffectBegun::Unknown { by: by?, started_at: row.started_at.ok_or_else(|| missing("started_at"))? }
            }
            _ => EffectBegun::Changed,
        })
    }

    /// Records how a call ended. The same end sent again is answered with yes and changes nothing.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if the execution no longer holds the job, also when nobody has begun the effect since: it stays
    /// unknown. A transaction can then only be rolled back.
    pub(crate) async fn effect_end<'e>(
        &self,
        executor: impl PgExecutor<'e>,
        call: EffectCall<'_>,
        end: &EffectEnd<'_>,
    ) -> Result<(), StoreError> {
        let (state, result, problem) = match end {
            EffectEnd::Done(result) => (EffectState::Done, Some(*result), None),
            EffectEnd::DoneWithout(problem) => (EffectState::Done, None, Some(crate::clean_error_text(problem))),
            EffectEnd::NotDone => (EffectState::NotDone, None, None),
        };
        sqlx::query(
            "with ended as (
               update jobdeck.effects e set state = $6::jobdeck.effect_state, result = $7, result_problem = $8,
                 done_at = case when $6 = 'done' then now() end
               where e.name = $3 and e.key = $4 and e.call_id = $5 and e.state = 'started'
                 and exists (select 1 from jobdeck.jobs where id = $1 and token = $2 and status = 'running')
               returning 1),
             held as (
               update jobdeck.jobs j set version = j.version + 1, updated_at = now()
               where j.id = $1 and j.token = $2 and j.status = 'running' and (select count(*) from ended) > 0
               returning j.id)
             select case
                 when (select count(*) from held) = 1 then 'taken'
                 when (select count(*) from ended) = 0 and exists (select 1 from jobdeck.effects e
                   where e.name = $3 and e.key = $4 and e.call_id = $5 and e.state::text = $6) then 'taken'
                 else jobdeck.lease_lost($1, $2)
               end",
        )
        .bind(call.lease.job_id)
        .bind(call.lease.token)
        .bind(call.name)
        .bind(call.key)
        .bind(call.call_id)
        .bind(state.as_str())
        .bind(result)
        .bind(problem)
        .execute(executor)
        .await
        .map_err(|error| fenced(error, call.lease))?;
        Ok(())
    }

    /// Locks the execution's job row until the transaction ends, so that the transaction commits only while the lease holds.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if it no longer does; the transaction can then only be rolled back.
    pub(crate) async fn lease_hold<'e>(
        &self,
        executor: impl PgExecutor<'e>,
        lease: LeaseRef,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "with held as materialized (
               select 1 from jobdeck.jobs where id = $1 and token = $2 and status = 'running' for no key update)
             select case when not exists (select 1 from held) then jobdeck.lease_lost($1, $2) end",
        )
        .bind(lease.job_id)
        .bind(lease.token)
        .execute(executor)
        .await
        .map_err(|error| fenced(error, lease))?;
        Ok(())
    }

    /// The effects a job began and no other job began since, in the order of their first tries; 200 at most.
    ///
    /// # Errors
    /// If the database does.
    pub async fn effect_list(&self, job_id: JobId) -> Result<Vec<Effect>, StoreError> {
        Ok(sqlx::query_as(
            "select e.name, e.key, e.provider_token, e.state::text as state, e.job_id, e.token, e.tries, e.maybe_done,
               e.state = 'started' and exists (
                 select 1 from jobdeck.jobs h where h.id = e.job_id and h.token = e.token and h.status = 'running') as is_held,
               e.result::text as result, e.result_problem, e.first_started_at, e.started_at, e.done_at, e.settled_by
             from jobdeck.effects e where e.job_id = $1 order by e.first_started_at, e.name, e.key limit 200",
        )
        .bind(job_id)
        .fetch_all(&self.pool)
        .await?)
    }

    /// Notes what a person found out about an effect that was begun and whose end nobody knows, so that its job can be retried.
    /// Leaves an audit row in the same statement, with the effect's name and key.
    ///
    /// # Errors
    /// [`StoreError::InvalidValue`] if the result cannot be kept; if the database refuses.
    pub async fn effect_settle(
        &self,
        name: &str,
        key: &str,
        settlement: &Settlement,
        actor: &Actor,
    ) -> Result<SettleOutcome, StoreError> {
        let (state, result) = match settlement {
            Settlement::NotDone => (EffectState::NotDone, None),
            Settlement::Done(result) => {
                super::enqueue::check_value(&mut "result".to_owned(), 0, result)?;
                (EffectState::Done, Some(result))
            }
        };
        let (settled, found): (bool, bool) = sqlx::query_as(
            "with target as materialized (
               select * from jobdeck.effects where name = $1 and key = $2),
             settled as (
               update jobdeck.effects e set state = $3::jobdeck.effect_state, result = $4, settled_by = $6, maybe_done = false,
                 done_at = case when $3 = 'done' then now() end
               from target t
               where e.name = t.name and e.key = t.key and e.call_id = t.call_id and e.state = t.state
                 and (t.state = 'started' or (t.state = 'not_done' and t.maybe_done))
                 and not exists (select 1 from jobdeck.jobs h where h.id = t.job_id and h.token = t.token
                   and h.status = 'running')
               returning e.job_id, t.state as before, e.state),
             shown as (
               update jobdeck.jobs j set version = j.version + 1, updated_at = now() from settled s where j.id = s.job_id),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, before, after)
               select $5, $6, $7, 'settle_effect', s.job_id::text, 'done', jsonb_build_object('state', s.before),
                 jsonb_build_object('state', s.state, 'name', $1::text, 'key', $2::text)
               from settled s)
             select exists (select 1 from settled), exists (select 1 from target)",
        )
        .bind(name)
        .bind(key)
        .bind(state.as_str())
        .bind(result)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .fetch_one(&self.pool)
        .await?;
        Ok(match (settled, found) {
            (true, _) => SettleOutcome::Settled,
            (false, true) => SettleOutcome::NotUnknown,
            (false, false) => SettleOutcome::NotFound,
        })
    }
}
