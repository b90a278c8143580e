//! How many jobs there are in each state, queue and type: exact, and read in constant time.
//!
//! Triggers on whole statements append what a statement changed to `job_counter_deltas`; [`Store::counters_fold`] moves
//! that into `job_counters`. The count is the sum of both, so it is exact at any moment, folded or not.

use sqlx::{Connection as _, PgConnection, PgPool};

use super::{Store, StoreError};
use crate::JobState;

/// How many jobs of one type are in one state in one queue.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct JobCounter {
    /// Where they wait or waited.
    pub queue: String,
    /// What they do.
    #[sqlx(rename = "type")]
    pub job_type: String,
    /// Their state.
    #[sqlx(rename = "status", try_from = "String")]
    pub state: JobState,
    /// How many; never negative.
    pub n_jobs: i64,
}

/// A counter that was not what `count(*)` says.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct CounterMismatch {
    /// The queue.
    pub queue: String,
    /// The type.
    #[sqlx(rename = "type")]
    pub job_type: String,
    /// The state.
    #[sqlx(rename = "status", try_from = "String")]
    pub state: JobState,
    /// What the counter said.
    pub counted: i64,
    /// What is there.
    pub present: i64,
}

impl Store {
    /// All counters that are not 0.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_counters(&self) -> Result<Vec<JobCounter>, StoreError> {
        Ok(sqlx::query_as(
            "select queue, type, status::text as status, sum(n_jobs)::bigint as n_jobs
             from (select queue, type, status, n_jobs from jobdeck.job_counters
               union all select queue, type, status, n_jobs from jobdeck.job_counter_deltas) parts
             group by queue, type, status having sum(n_jobs) <> 0 order by queue, type, status",
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Moves what was appended into the counters. Returns how many lines were moved. Several at once do not wait for each
    /// other: one works, the others return 0.
    ///
    /// # Errors
    /// If the database does; nothing is lost then.
    pub async fn counters_fold(connection: &mut PgConnection) -> Result<u64, StoreError> {
        let n_moved: i64 = sqlx::query_scalar(
            "with turn as materialized (select pg_try_advisory_xact_lock(7238114, 1) as mine),
             moved as (
               delete from jobdeck.job_counter_deltas where (select mine from turn)
               returning queue, type, status, n_jobs),
             summed as (
               insert into jobdeck.job_counters as c (queue, type, status, n_jobs)
               select queue, type, status, sum(n_jobs) from moved group by queue, type, status
               on conflict (queue, type, status) do update set n_jobs = c.n_jobs + excluded.n_jobs)
             select count(*) from moved",
        )
        .fetch_one(connection)
        .await?;
        Ok(n_moved.unsigned_abs())
    }

    /// As [`Store::counters_check`], on a connection of its own that may take its time.
    pub(crate) async fn counters_check_apart(pool: &PgPool) -> Result<Vec<CounterMismatch>, StoreError> {
        let mut connection = pool.acquire().await?.detach();
        sqlx::query("set statement_timeout = '15min'").execute(&mut connection).await?;
        let mismatches = Self::counters_check(&mut connection).await?;
        connection.close().await?;
        Ok(mismatches)
    }

    /// Compares the counters with `count(*)` in one snapshot, sets right what differs and returns it. Reads the whole table:
    /// for once a day, not for a page.
    ///
    /// # Errors
    /// If the database does.
    pub async fn counters_check(connection: &mut PgConnection) -> Result<Vec<CounterMismatch>, StoreError> {
        Ok(sqlx::query_as(
            "with counted as (
               select queue, type, status, sum(n_jobs)::bigint as n from (
                 select queue, type, status, n_jobs from jobdeck.job_counters
                 union all select queue, type, status, n_jobs from jobdeck.job_counter_deltas) parts
               group by queue, type, status),
             present as (select queue, type, status, count(*) as n from jobdeck.jobs group by queue, type, status),
             mismatch as materialized (
               select queue, type, status, coalesce(c.n, 0) as counted, coalesce(p.n, 0) as present
               from counted c full join present p using (queue, type, status)
               where coalesce(c.n, 0) <> coalesce(p.n, 0)),
             -- Appended like any other change, so that what others append meanwhile stays right.
             mended as (
               insert into jobdeck.job_counter_deltas (queue, type, status, n_jobs)
               select queue, type, status, present - counted from mismatch)
             select queue, type, status::text as status, counted, present from mismatch",
        )
        .fetch_all(connection)
        .await?)
    }
}
