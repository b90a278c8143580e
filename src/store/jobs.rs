//! Reading jobs: one, a page of many, and how many there are.
//!
//! What is read for people hides what the type's policy redacts, as does the search for a text: [`summary_columns`],
//! [`text_matches`], [`Store::job_detail`], [`Store::job_json`] and [`Store::attempt_list`] are the only ways to a view.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use super::{Store, StoreError};
use crate::{Attempt, FailureClass, Job, JobDetail, JobGlance, JobId, JobState, JobSummary};

/// The hidden paths of job `j`'s type; no row without any.
macro_rules! redacting_type {
    () => {
        " from jobdeck.job_types t where t.type = j.type and t.redact <> '{}'"
    };
}

macro_rules! summary_columns {
    () => {
        concat!(
            "j.id, j.type, j.queue, j.status::text as status, j.attempts, j.max_attempts, j.token, j.version, j.run_after,
         j.started_at, j.finished_at, j.created_at, j.updated_at, j.stage, j.progress,
         left(split_part(coalesce(
           (select jobdeck.without_secrets(j.last_error, jobdeck.secrets_of(j.payload, t.redact))",
            redacting_type!(),
            " and j.last_error is not null), j.last_error), E'\\n', 1), 200) as error,
         j.error_class::text as error_class, j.error_code, j.cancel_requested_at,
         coalesce((select jobdeck.payload_preview(jobdeck.redacted(j.payload, t.redact))",
            redacting_type!(),
            "), j.payload_preview) as payload_preview,
         exists (select 1 from jobdeck.workers w
           where j.type = any(w.types) and jobdeck.worker_is_alive(w.heartbeat_at, w.stopping_at)) as type_is_known"
        )
    };
}

/// Payload and result of job `j` as text, hidden values replaced. Behind `offset 0` each is worked out once.
macro_rules! visible_json {
    () => {
        concat!(
            "select coalesce((select jobdeck.redacted(j.payload, t.redact)",
            redacting_type!(),
            "), j.payload)::text as payload,
               coalesce((select jobdeck.without_secrets(jobdeck.redacted(j.result, t.redact),
                 jobdeck.secrets_of(j.payload, t.redact))",
            redacting_type!(),
            "), j.result)::text as result offset 0"
        )
    };
}

/// Whether a search for the pattern finds row `j`, which needs `id`, `type`, `idempotency_key`, `payload_preview`, `owner` and
/// `last_error`. What is hidden is not found. Only rows that match as they are written are looked at again.
macro_rules! text_matches {
    ($pattern:literal) => {
        concat!(
            "(",
            $pattern,
            "::text is null or j.id::text ilike ",
            $pattern,
            " or j.type ilike ",
            $pattern,
            " or j.owner ilike ",
            $pattern,
            " or ((j.idempotency_key ilike ",
            $pattern,
            " or j.payload_preview ilike ",
            $pattern,
            " or j.last_error ilike ",
            $pattern,
            ") and (j.type <> all (array(select t.type from jobdeck.job_types t where t.redact <> '{}'))
                 or jobdeck.visibly_contains(j.id, ",
            $pattern,
            "))))"
        )
    };
}
pub(super) use text_matches;

/// Which jobs a list shows or a bulk operation is about. An empty filter is all.
///
/// In JSON each field stands under its name, `job_type` as `type`; those that narrow nothing are left out. A field that this
/// version does not know is refused, so that no operation is ever wider than it was meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobFilter {
    /// Only this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// Only this type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    /// Only this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Only jobs whose last bad end was of this class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Only jobs whose last bad end had this code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Only jobs whose id, type, idempotency key, payload preview, owner or error contain this text; case does not
    /// matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Which of a job's JSON values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobJson {
    /// What it was given.
    Payload,
    /// What it returned.
    Result,
}

/// Where a page begins. Lists run from the newest job to the oldest, so a cursor is an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCursor {
    /// The newest jobs.
    Newest,
    /// Jobs older than this one.
    After(JobId),
    /// Jobs newer than this one, those next to it.
    Before(JobId),
}

/// A page of a list, newest first. Neither skips nor repeats jobs while others come and go.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPage {
    /// At most as many as were asked for.
    pub jobs: Vec<JobSummary>,
    /// Whether there are newer ones.
    pub has_newer: bool,
    /// Whether there are older ones.
    pub has_older: bool,
}

/// How many jobs are in each state, in the order of [`JobState::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts(pub [i64; 6]);

impl StateCounts {
    /// Jobs in `state`.
    pub fn of(&self, state: JobState) -> i64 {
        JobState::ALL.iter().position(|other| *other == state).map_or(0, |place| self.0[place])
    }

    /// Jobs in any state.
    pub fn total(&self) -> i64 {
        self.0.iter().sum()
    }
}

/// Makes a text a LIKE pattern that finds it anywhere.
pub(super) fn contains_pattern(text: &str) -> String {
    format!("%{}%", text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_").replace('\0', ""))
}

/// Which way a page is read from its cursor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// From new to old, as lists run.
    Older,
    /// From old to new.
    Newer,
}

/// The statement of a page. $1 cursor or null, $2 most rows, $3 type, $4 text, $5 queue, $6 class, $7 code.
///
/// States stand in the text, because partial indexes serve them, each with its jobs in the order of lists. Where more than one
/// serves, the page is the first of what each of them gives.
fn list_statement(state: Option<JobState>, has_type: bool, order: Order) -> String {
    let (beyond, direction) = match order {
        Order::Older => ("<", "desc"),
        Order::Newer => (">", "asc"),
    };
    let scan = |which: &str| {
        format!(
            "(select j.id from jobdeck.jobs j
              where {which} and ($1::uuid is null or j.id {beyond} $1)
                and ($3::text is null or j.type = $3) and ($5::text is null or j.queue = $5)
                and ($6::text is null or j.error_class = $6::jobdeck.failure_class)
                and ($7::text is null or j.error_code = $7)
                and {}
              order by j.id {direction} limit $2)",
            text_matches!("$4")
        )
    };
    let in_state = |state: JobState| match state {
        // As the index of running jobs says it.
        JobState::Running => scan("j.status = 'running' and j.locked_by is not null"),
        state => scan(&format!("j.status = '{}'", state.as_str())),
    };
    let scans = match state {
        None if !has_type => scan("true"),
        None => JobState::ALL.map(in_state).join(" union all "),
        // Too frequent to be in an index by state.
        Some(JobState::Succeeded) if !has_type => format!(
            "select page.id from (
               select type from jobdeck.job_counters union select type from jobdeck.job_counter_deltas) t
             cross join lateral {} page",
            scan("j.type = t.type and j.status = 'succeeded'")
        ),
        Some(state) => in_state(state),
    };
    format!(
        "with page as materialized (select found.id from ({scans}) found order by found.id {direction} limit $2)
         select {} from page join jobdeck.jobs j on j.id = page.id order by j.id {direction}",
        summary_columns!()
    )
}

impl JobFilter {
    /// Whether the counters know how many match.
    fn is_counted(&self) -> bool {
        self.text.is_none() && self.class.is_none() && self.code.is_none()
    }
}

impl Store {
    /// One job with everything, hidden values included: for programs. Views read [`Store::job_detail`].
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_get(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        Ok(sqlx::query_as(
            "select id, type, queue, payload::text as payload, status::text as status, priority, attempts, max_attempts, starts, run_after,
               token, locked_at, locked_by, lease_expires_at, stalled_count, max_stalled, started_at, last_worker, stage,
               progress, stages_at, last_error, error_class::text as error_class, error_code, error_params,
               idempotency_key, result, created_by, owner, cancel_requested_at, finished_at, created_at, updated_at,
               version
             from jobdeck.jobs where id = $1",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await?)
    }

    /// One job as its page shows it: hidden values replaced, numbers with all their digits, of payload and result the first
    /// [`JobDetail::SHOWN_CHARS`] characters.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_detail(&self, id: JobId) -> Result<Option<JobDetail>, StoreError> {
        const STATEMENT: &str = concat!(
            "select ",
            summary_columns!(),
            ", j.priority, j.starts, j.stalled_count, j.max_stalled, j.last_worker, j.stages_at, j.created_by, j.owner,
               coalesce((select jobdeck.visible_key(j.idempotency_key, t.key_fields, j.payload, t.redact)",
            redacting_type!(),
            "), j.idempotency_key) as idempotency_key,
               left(v.payload, $2) as payload_start, octet_length(v.payload)::bigint as payload_bytes,
               left(v.result, $2) as result_start, octet_length(v.result)::bigint as result_bytes
             from jobdeck.jobs j cross join lateral (",
            visible_json!(),
            ") v where j.id = $1"
        );
        Ok(sqlx::query_as(STATEMENT).bind(id).bind(JobDetail::SHOWN_CHARS).fetch_optional(&self.pool).await?)
    }

    /// The whole payload or result of a job as JSON text, hidden values replaced, numbers with all their
    /// digits. `None` if there is no such job, or no result.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_json(&self, id: JobId, which: JobJson) -> Result<Option<String>, StoreError> {
        const STATEMENT: &str = concat!(
            "select case when $2 then v.result else v.payload end from jobdeck.jobs j cross join lateral (",
            visible_json!(),
            ") v where j.id = $1"
        );
        let text: Option<Option<String>> =
            sqlx::query_scalar(STATEMENT).bind(id).bind(which == JobJson::Result).fetch_optional(&self.pool).await?;
        Ok(text.flatten())
    }

    /// Where a job stands, with the named fields of its payload's first level, hidden values replaced. Without names the payload
    /// is not opened, however large it is: it never changes, so who looks again need not ask for them again.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_glance(&self, id: JobId, fields: &[&str]) -> Result<Option<JobGlance>, StoreError> {
        macro_rules! glance {
            ($fields:expr) => {
                concat!(
                    "select j.id, j.status::text as status, j.version, j.attempts, j.max_attempts, j.starts, j.run_after,
                       j.started_at, j.finished_at, j.created_at, j.stage, j.progress, j.stages_at,
                       j.error_class::text as error_class, j.error_code, j.error_params, j.result, j.owner,
                       j.cancel_requested_at, now() as now, ",
                    $fields,
                    " as fields,
                       (select r.id from jobdeck.idempotency_keys k join jobdeck.jobs r on r.id = k.job_id
                        where j.status = 'succeeded' and k.type = j.type and k.key = j.idempotency_key and k.job_id <> j.id
                          and r.rerun_of is not null) as rerun
                     from jobdeck.jobs j where j.id = $1"
                )
            };
        }
        const PLAIN: &str = glance!("'{}'::jsonb");
        // Unpacks the payload once, however many fields there are.
        const WITH_FIELDS: &str = glance!(concat!(
            "(select coalesce(jsonb_object_agg(e.key, e.value), '{}') from jsonb_each(
               coalesce((select jobdeck.redacted(j.payload, t.redact)",
            redacting_type!(),
            "), j.payload)) e where e.key = any ($2))"
        ));
        let statement = sqlx::query_as(if fields.is_empty() { PLAIN } else { WITH_FIELDS }).bind(id);
        let statement = if fields.is_empty() { statement } else { statement.bind(fields) };
        Ok(statement.fetch_optional(&self.pool).await?)
    }

    /// The attempts of a job that did not succeed, newest first, hidden values replaced in their errors.
    ///
    /// # Errors
    /// If the database does.
    pub async fn attempt_list(&self, id: JobId) -> Result<Vec<Attempt>, StoreError> {
        Ok(sqlx::query_as(
            "with hidden as materialized (
               select jobdeck.secrets_of(j.payload, t.redact) as secrets
               from jobdeck.jobs j join jobdeck.job_types t on t.type = j.type and t.redact <> '{}' where j.id = $1)
             select a.job_id, a.token, a.attempt, a.outcome::text as outcome, a.worker, a.stage, a.started_at, a.ended_at,
               a.error_class::text as error_class, a.error_code,
               coalesce((select jobdeck.without_secrets(a.error, h.secrets) from hidden h), a.error) as error,
               a.error_params, a.next_run_at
             from jobdeck.attempts a where a.job_id = $1 order by a.token desc limit 200",
        )
        .bind(id)
        .fetch_all(&self.pool)
        .await?)
    }

    /// How often a duplicate landed on this job, and when last.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_duplicates(&self, id: JobId) -> Result<(i32, Option<DateTime<Utc>>), StoreError> {
        let row: Option<(i32, Option<DateTime<Utc>>)> = sqlx::query_as(
            "select k.duplicates, k.last_duplicate_at from jobdeck.jobs j
             join jobdeck.idempotency_keys k on k.type = j.type and k.key = j.idempotency_key and k.job_id = j.id
             where j.id = $1",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.unwrap_or((0, None)))
    }

    /// How many jobs would be claimed before this one, at most 1,000 of each type and priority. `None` unless it waits and is
    /// due.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_count_ahead(&self, id: JobId) -> Result<Option<i64>, StoreError> {
        Ok(sqlx::query_scalar(
            "select (select coalesce(sum(ahead.n), 0)::bigint
               -- What goes first, by type and priority as in jobdeck.claim_jobs, each read from the index.
               from (select c.type, level.priority from (
                   select type from jobdeck.job_counters where queue = j.queue
                   union select type from jobdeck.job_counter_deltas where queue = j.queue) c
                 cross join lateral (
                   with recursive level (priority) as (
                     (select o.priority from jobdeck.jobs o where o.queue = j.queue and o.type = c.type
                        and o.status in ('pending', 'retrying') order by o.priority desc limit 1)
                     union all
                     select (select o.priority from jobdeck.jobs o where o.queue = j.queue and o.type = c.type
                       and o.status in ('pending', 'retrying') and o.priority < l.priority
                       order by o.priority desc limit 1)
                     from level l where l.priority is not null)
                   select priority from level where priority is not null) level) range
               cross join lateral (
                 select count(*) as n from (
                   select from jobdeck.jobs o
                   where o.queue = j.queue and o.type = range.type and o.priority = range.priority
                     and o.status in ('pending', 'retrying') and o.run_after <= now()
                     and (o.run_after, o.id)
                       < (j.run_after + (range.priority - j.priority) * interval '1 minute', j.id)
                   limit 1000) capped) ahead)
             from jobdeck.jobs j
             where j.id = $1 and j.status in ('pending', 'retrying') and j.run_after <= now()",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Seconds that the middle half of the last 200 successful jobs of a type ran: the 25th and the 75th percentile.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_type_run_seconds(&self, job_type: &str) -> Result<Option<(f64, f64)>, StoreError> {
        let row: (Option<f64>, Option<f64>, i64) = sqlx::query_as(
            "select percentile_cont(0.25) within group (order by secs), percentile_cont(0.75) within group (order by secs),
               count(*)
             from (select extract(epoch from finished_at - started_at)::float8 as secs from jobdeck.jobs
               where type = $1 and status = 'succeeded' order by id desc limit 200) runs",
        )
        .bind(job_type)
        .fetch_one(&self.pool)
        .await?;
        Ok(match row {
            (Some(low), Some(high), n) if n >= 5 => Some((low, high)),
            _ => None,
        })
    }

    /// One page of the jobs that match, newest first.
    ///
    /// # Errors
    /// If the database does; a search that takes longer than 2 s is given up with SQLSTATE 57014.
    pub async fn job_list(&self, filter: &JobFilter, cursor: PageCursor, limit: i64) -> Result<JobPage, StoreError> {
        let limit = limit.clamp(1, 200);
        let (order, from) = match cursor {
            PageCursor::Newest => (Order::Older, None),
            PageCursor::After(id) => (Order::Older, Some(id)),
            PageCursor::Before(id) => (Order::Newer, Some(id)),
        };
        let statement = list_statement(filter.state, filter.job_type.is_some(), order);
        let mut jobs: Vec<JobSummary> = sqlx::query_as(sqlx::AssertSqlSafe(statement))
            // Planned for these values: which index serves depends on which of them are there.
            .persistent(false)
            .bind(from)
            // One more than asked tells whether there is another page.
            .bind(limit + 1)
            .bind(&filter.job_type)
            .bind(filter.text.as_deref().map(contains_pattern))
            .bind(&filter.queue)
            .bind(filter.class.map(FailureClass::as_str))
            .bind(&filter.code)
            .fetch_all(&self.searches)
            .await?;
        let more = jobs.len() as i64 > limit;
        jobs.truncate(limit as usize);
        let (has_newer, has_older) = match cursor {
            PageCursor::Newest => (false, more),
            PageCursor::After(_) => (true, more),
            PageCursor::Before(_) => {
                jobs.reverse();
                (more, true)
            }
        };
        Ok(JobPage { jobs, has_newer, has_older })
    }

    /// How many jobs match in each state; the filter's own state does not narrow them. Constant time if only a type
    /// or a queue does, a search otherwise: of those a few run at once, the others wait for their turn.
    ///
    /// # Errors
    /// As [`Store::job_list`].
    pub async fn job_counts(&self, filter: &JobFilter) -> Result<StateCounts, StoreError> {
        let _turn = self.count_turn(filter).await;
        self.count(filter).await
    }

    /// As [`Store::job_counts`], but `None` if nobody wants the numbers any more when their turn has come.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_counts_if(
        &self,
        filter: &JobFilter,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Option<StateCounts>, StoreError> {
        let _turn = self.count_turn(filter).await;
        if is_wanted() { self.count(filter).await.map(Some) } else { Ok(None) }
    }

    /// As [`Store::job_counts`], but `None` if it takes longer than `patience`, or longer than a search may.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_counts_within(
        &self,
        filter: &JobFilter,
        patience: Duration,
    ) -> Result<Option<StateCounts>, StoreError> {
        let until = tokio::time::Instant::now() + patience;
        let Ok(turn) = tokio::time::timeout_at(until, self.count_turn(filter)).await else { return Ok(None) };
        let (store, filter) = (self.clone(), filter.clone());
        // In a task of its own: a statement that is under way goes on when nobody waits for it, and so must its turn.
        let counting = tokio::spawn(async move {
            let _turn = turn;
            store.count(&filter).await
        });
        match tokio::time::timeout_at(until, counting).await {
            Ok(Ok(Ok(counts))) => Ok(Some(counts)),
            Ok(Ok(Err(error))) if error.is_given_up() => Ok(None),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) => Err(sqlx::Error::WorkerCrashed.into()),
            Err(_) => Ok(None),
        }
    }

    /// A turn to read all jobs; `None` where counters tell.
    async fn count_turn(&self, filter: &JobFilter) -> Option<OwnedSemaphorePermit> {
        // Never closed.
        if filter.is_counted() { None } else { self.counts.clone().acquire_owned().await.ok() }
    }

    async fn count(&self, filter: &JobFilter) -> Result<StateCounts, StoreError> {
        let rows: Vec<(String, i64)> = if filter.is_counted() {
            sqlx::query_as(
                "select status::text, sum(n_jobs)::bigint from (
                   select queue, type, status, n_jobs from jobdeck.job_counters
                   union all select queue, type, status, n_jobs from jobdeck.job_counter_deltas) parts
                 where ($1::text is null or type = $1) and ($2::text is null or queue = $2)
                 group by status",
            )
            .bind(&filter.job_type)
            .bind(&filter.queue)
            .fetch_all(&self.searches)
            .await?
        } else {
            sqlx::query_as(concat!(
                "select j.status::text, count(*) from jobdeck.jobs j
                     where ($1::text is null or j.type = $1) and ($2::text is null or j.queue = $2) and ",
                text_matches!("$3"),
                " and ($4::text is null or j.error_class = $4::jobdeck.failure_class)
                      and ($5::text is null or j.error_code = $5)
                     group by j.status"
            ))
            .bind(&filter.job_type)
            .bind(&filter.queue)
            .bind(filter.text.as_deref().map(contains_pattern))
            .bind(filter.class.map(FailureClass::as_str))
            .bind(&filter.code)
            .fetch_all(&self.searches)
            .await?
        };
        let mut counts = StateCounts::default();
        for (place, state) in JobState::ALL.iter().enumerate() {
            counts.0[place] = rows.iter().find(|(word, _)| word == state.as_str()).map_or(0, |(_, n)| *n);
        }
        Ok(counts)
    }

    /// The present rows of these jobs, in no order. Jobs that are gone are left out.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_summaries(&self, ids: &[JobId]) -> Result<Vec<JobSummary>, StoreError> {
        const STATEMENT: &str = concat!("select ", summary_columns!(), " from jobdeck.jobs j where j.id = any($1)");
        Ok(sqlx::query_as(STATEMENT).bind(ids).fetch_all(&self.pool).await?)
    }

    /// The present version of each of these jobs: what a live view compares before it reads rows.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_versions(&self, ids: &[JobId]) -> Result<Vec<(JobId, i64)>, StoreError> {
        Ok(sqlx::query_as("select id, version from jobdeck.jobs where id = any($1)")
            .bind(ids)
            .fetch_all(&self.pool)
            .await?)
    }

    /// The database's clock.
    ///
    /// # Errors
    /// If the database does.
    pub async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        Ok(sqlx::query_scalar("select now()").fetch_one(&self.pool).await?)
    }
}
