//! Reading jobs: one, a page of many, and how many there are.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use super::{Store, StoreError};
use crate::{Attempt, FailureClass, Job, JobId, JobState, JobSummary};

macro_rules! summary_columns {
    () => {
        "j.id, j.type, j.queue, j.status::text as status, j.attempts, j.max_attempts, j.token, j.version, j.run_after,
         j.started_at, j.finished_at, j.created_at, j.updated_at, j.stage, j.progress,
         left(split_part(j.last_error, E'\\n', 1), 200) as error, j.error_class::text as error_class, j.error_code,
         j.cancel_requested_at, j.payload_preview,
         exists (select 1 from jobdeck.workers w
           where j.type = any(w.types) and w.heartbeat_at > now() - interval '30 seconds') as type_is_known"
    };
}

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

impl JobFilter {
    /// Whether the counters know how many match.
    fn is_counted(&self) -> bool {
        self.text.is_none() && self.class.is_none() && self.code.is_none()
    }
}

impl Store {
    /// One job with everything.
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

    /// The attempts of a job that did not succeed, newest first.
    ///
    /// # Errors
    /// If the database does.
    pub async fn attempt_list(&self, id: JobId) -> Result<Vec<Attempt>, StoreError> {
        Ok(sqlx::query_as(
            "select job_id, token, attempt, outcome::text as outcome, worker, stage, started_at, ended_at,
               error_class::text as error_class, error_code, error, error_params, next_run_at
             from jobdeck.attempts where job_id = $1 order by token desc limit 200",
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
        let row: Option<(i32, Option<DateTime<Utc>>)> =
            sqlx::query_as("select duplicates, last_duplicate_at from jobdeck.idempotency_keys where job_id = $1")
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
        const OLDER: &str = concat!(
            "select ",
            summary_columns!(),
            " from jobdeck.jobs j
             where ($1::text is null or j.status = $1::jobdeck.job_state) and ($2::text is null or j.type = $2)
               and ($3::text is null or j.id::text ilike $3 or j.type ilike $3 or j.idempotency_key ilike $3
                 or j.payload_preview ilike $3 or j.owner ilike $3 or j.last_error ilike $3)
               and ($4::uuid is null or j.id < $4)
               and ($6::text is null or j.queue = $6) and ($7::text is null or j.error_class = $7::jobdeck.failure_class)
               and ($8::text is null or j.error_code = $8)
             order by j.id desc limit $5"
        );
        const NEWER: &str = concat!(
            "select ",
            summary_columns!(),
            " from jobdeck.jobs j
             where ($1::text is null or j.status = $1::jobdeck.job_state) and ($2::text is null or j.type = $2)
               and ($3::text is null or j.id::text ilike $3 or j.type ilike $3 or j.idempotency_key ilike $3
                 or j.payload_preview ilike $3 or j.owner ilike $3 or j.last_error ilike $3)
               and ($4::uuid is null or j.id > $4)
               and ($6::text is null or j.queue = $6) and ($7::text is null or j.error_class = $7::jobdeck.failure_class)
               and ($8::text is null or j.error_code = $8)
             order by j.id limit $5"
        );
        let limit = limit.clamp(1, 200);
        let (statement, from) = match cursor {
            PageCursor::Newest => (OLDER, None),
            PageCursor::After(id) => (OLDER, Some(id)),
            PageCursor::Before(id) => (NEWER, Some(id)),
        };
        let mut jobs: Vec<JobSummary> = sqlx::query_as(statement)
            .bind(filter.state.map(JobState::as_str))
            .bind(&filter.job_type)
            .bind(filter.text.as_deref().map(contains_pattern))
            .bind(from)
            // One more than asked tells whether there is another page.
            .bind(limit + 1)
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
            sqlx::query_as(
                "select j.status::text, count(*) from jobdeck.jobs j
                 where ($1::text is null or j.type = $1) and ($2::text is null or j.queue = $2)
                   and ($3::text is null or j.id::text ilike $3 or j.type ilike $3 or j.idempotency_key ilike $3
                     or j.payload_preview ilike $3 or j.owner ilike $3 or j.last_error ilike $3)
                   and ($4::text is null or j.error_class = $4::jobdeck.failure_class)
                   and ($5::text is null or j.error_code = $5)
                 group by j.status",
            )
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
