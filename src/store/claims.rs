//! Taking jobs, keeping them, and taking back those whose holder went silent.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgExecutor};

use super::{Store, StoreError};
use crate::{JobId, JobState};

/// Names one execution: the pair every write of it is fenced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// The job.
    pub job_id: JobId,
    /// The fencing number of this start.
    pub token: i64,
}

/// A job just claimed.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Claim {
    /// The job.
    #[sqlx(rename = "id")]
    pub job_id: JobId,
    /// The fencing number of this start.
    pub token: i64,
    /// Column `type`.
    #[sqlx(rename = "type")]
    pub job_type: String,
    /// Where it waited.
    pub queue: String,
    /// What to do, as JSON text: one that cannot be read fails its own job and no other of the batch.
    pub payload: String,
    /// This start, counted from 1.
    pub attempts: i32,
    /// Attempts in all.
    pub max_attempts: i32,
    /// Starts ever, this one included.
    pub starts: i32,
    /// Leases of it that ran out before this start.
    pub stalled_count: i32,
    /// Its priority.
    pub priority: i16,
    /// When it was due.
    pub run_after: DateTime<Utc>,
    /// Whether jobs of one type and one priority waited, in a queue without limits: [`Store::job_claim_behind`] may go on.
    pub is_plain: bool,
}

/// Where jobs of one type and priority go on that a claim has begun to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedUntil {
    job_type: String,
    priority: i16,
    last: (DateTime<Utc>, JobId),
}

impl ClaimedUntil {
    /// Behind the last of these claims, if [`Store::job_claim_behind`] may go on from there.
    pub fn of(claims: &[Claim]) -> Option<Self> {
        let last = claims.iter().max_by_key(|claim| (claim.run_after, claim.job_id)).filter(|claim| claim.is_plain)?;
        let job_type = last.job_type.clone();
        Some(Self { job_type, priority: last.priority, last: (last.run_after, last.job_id) })
    }
}

/// Which jobs a claim takes by how often their lease ran out. A job that stalled may have killed its process, so it is not
/// mixed with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stalls {
    /// Jobs that never stalled.
    None,
    /// Jobs that stalled once and may bear more. They may have been dragged down by another, so they run together.
    Once,
    /// Jobs that stalled again, or may not once more: each runs alone.
    Often,
}

impl Stalls {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Once => "once",
            Self::Often => "often",
        }
    }
}

impl Claim {
    /// The pair that fences this execution's writes.
    pub fn lease(&self) -> LeaseRef {
        LeaseRef { job_id: self.job_id, token: self.token }
    }
}

/// When the next job is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct NextDue {
    /// The database's clock.
    pub now: DateTime<Utc>,
    /// When a claim may find a job that none found before; none if nothing waits for its time.
    pub due_at: Option<DateTime<Utc>>,
}

impl NextDue {
    /// From `now` on; zero if it is due.
    pub fn due_in(&self) -> Option<Duration> {
        // Rounded up, so that whoever sleeps for it does not wake just before.
        Some((self.due_at? - self.now).to_std().map_or(Duration::ZERO, |due_in| due_in + Duration::from_millis(1)))
    }
}

/// A lease that a heartbeat found still held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct HeldLease {
    /// The job.
    #[sqlx(rename = "id")]
    pub job_id: JobId,
    /// The fencing number.
    pub token: i64,
    /// Whether a person asked it to stop.
    pub cancel_requested: bool,
    /// Whether its end was moved. False while another statement holds the row: not lost, but not longer either.
    pub renewed: bool,
}

/// A lease that had ended when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct ExpiredLease {
    /// The job.
    #[sqlx(rename = "id")]
    pub job_id: JobId,
    /// The fencing number.
    pub token: i64,
    /// The end that was read; the reaper compares it before it writes.
    pub lease_expires_at: DateTime<Utc>,
}

fn columns(leases: &[LeaseRef]) -> (Vec<JobId>, Vec<i64>) {
    leases.iter().map(|lease| (lease.job_id, lease.token)).unzip()
}

impl Store {
    /// Takes up to `limit` due jobs of `queue` whose type is one of `types` and that never stalled. Each gets a new token and
    /// a lease of `lease` on the database's clock.
    ///
    /// Each point of priority is worth a minute of waiting; then the longest due goes first, then the smallest id.
    ///
    /// # Errors
    /// If the database does. A reply lost on the way leaves the jobs leased; they are reaped like any other.
    pub async fn job_claim_batch(
        &self,
        queue: &str,
        types: &[String],
        limit: i64,
        lease: Duration,
        worker: &str,
    ) -> Result<Vec<Claim>, StoreError> {
        Self::job_claim_stalled(&self.pool, queue, types, limit, lease, worker, Stalls::None).await
    }

    /// As [`Store::job_claim_batch`], for jobs that stalled as `stalls` says and on any executor.
    ///
    /// # Errors
    /// As [`Store::job_claim_batch`].
    pub async fn job_claim_stalled<'e>(
        executor: impl PgExecutor<'e>,
        queue: &str,
        types: &[String],
        limit: i64,
        lease: Duration,
        worker: &str,
        stalls: Stalls,
    ) -> Result<Vec<Claim>, StoreError> {
        Ok(sqlx::query_as(
            "select id, token, type, queue, payload, attempts, max_attempts, starts, stalled_count, priority, run_after, is_plain
             from jobdeck.claim_jobs($1, $2, $3, $4 * interval '1 microsecond', $5, $6)",
        )
        .bind(queue)
        .bind(types)
        .bind(i32::try_from(limit).unwrap_or(i32::MAX))
        .bind(micros(lease))
        .bind(worker)
        .bind(stalls.as_str())
        .fetch_all(executor)
        .await?)
    }

    /// Takes up to `limit` further jobs behind those that another claim of `queue` took. Costs half as much, but sees neither jobs of
    /// other types and priorities nor those that came in before the last one: ask [`Store::job_claim_batch`] in between.
    ///
    /// # Errors
    /// As [`Store::job_claim_batch`].
    pub async fn job_claim_behind<'e>(
        executor: impl PgExecutor<'e>,
        queue: &str,
        behind: &ClaimedUntil,
        limit: i64,
        lease: Duration,
        worker: &str,
    ) -> Result<Vec<Claim>, StoreError> {
        Ok(sqlx::query_as(
            "select id, token, type, queue, payload, attempts, max_attempts, starts, stalled_count, priority, run_after, is_plain
             from jobdeck.claim_jobs_behind($1, $2, $3, $4, $5, $6, $7 * interval '1 microsecond', $8)",
        )
        .bind(queue)
        .bind(&behind.job_type)
        .bind(behind.priority)
        .bind(behind.last.0)
        .bind(behind.last.1)
        .bind(i32::try_from(limit).unwrap_or(i32::MAX))
        .bind(micros(lease))
        .bind(worker)
        .fetch_all(executor)
        .await?)
    }

    /// When the next job of `queue` of one of `types` becomes due: its time comes, or its provider's cool-down ends. Jobs that were
    /// due at `since` (default: a second ago) are left out, as something else holds those back. A paused queue has none.
    ///
    /// One probe of the claim's index for each type and priority that waits.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_next_due(
        &self,
        queue: &str,
        types: &[String],
        since: Option<DateTime<Utc>>,
    ) -> Result<NextDue, StoreError> {
        Ok(sqlx::query_as("select now, due_at from jobdeck.next_due($1, $2, $3)")
            .bind(queue)
            .bind(types)
            .bind(since)
            .fetch_one(&self.pool)
            .await?)
    }

    /// Whether jobs that stalled are due in these queues: those that run together, and those that run alone.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_suspects_due(
        connection: &mut PgConnection,
        queues: &[String],
        types: &[String],
    ) -> Result<(bool, bool), StoreError> {
        Ok(sqlx::query_as(
            "select coalesce(bool_or(stalled_count = 1 and max_stalled >= 2), false),
               coalesce(bool_or(not (stalled_count = 1 and max_stalled >= 2)), false)
             from (select j.stalled_count, j.max_stalled from jobdeck.jobs j
               where j.queue = any($1) and j.type = any($2) and j.status in ('pending', 'retrying')
                 and j.stalled_count > 0 and j.run_after <= now()
                 -- What no claim would take must not make a worker clear itself for it.
                 and not exists (select from jobdeck.queues q where q.name = j.queue and q.paused_at is not null)
                 and not exists (select from jobdeck.job_types t join jobdeck.cool_downs c on c.provider = t.provider
                   where t.type = j.type and c.until > now())
               limit 1000) suspects",
        )
        .bind(queues)
        .bind(types)
        .fetch_one(connection)
        .await?)
    }

    /// Moves the leases this worker holds to `lease` from now, never back, and tells which are asked to stop. A lease that is
    /// not in the answer is lost: its handler must stop.
    ///
    /// # Errors
    /// If the database does.
    pub async fn lease_heartbeat(
        connection: &mut PgConnection,
        leases: &[LeaseRef],
        lease: Duration,
    ) -> Result<Vec<HeldLease>, StoreError> {
        let (ids, tokens) = columns(leases);
        Ok(sqlx::query_as(
            "with present as materialized (
               select j.id, j.token, j.cancel_requested_at from jobdeck.jobs j
               join unnest($1::uuid[], $2::bigint[]) as mine (id, token) on j.id = mine.id
               where j.token = mine.token and j.status = 'running'),
             free as materialized (
               select j.id from jobdeck.jobs j
               join unnest($1::uuid[], $2::bigint[]) as mine (id, token) on j.id = mine.id
               where j.token = mine.token and j.status = 'running'
               -- A row that something else holds locked must not cost the other jobs of this worker their leases.
               order by j.id for update of j skip locked),
             renewed as (
               update jobdeck.jobs j
               set lease_expires_at = greatest(j.lease_expires_at, now() + $3 * interval '1 microsecond')
               from free where j.id = free.id
               returning j.id)
             select p.id, p.token, p.cancel_requested_at is not null as cancel_requested,
               exists (select 1 from renewed r where r.id = p.id) as renewed
             from present p",
        )
        .bind(ids)
        .bind(tokens)
        .bind(micros(lease))
        .fetch_all(connection)
        .await?)
    }

    /// Which of these leases are asked to stop.
    ///
    /// # Errors
    /// If the database does.
    pub async fn lease_list_canceled(
        connection: &mut PgConnection,
        leases: &[LeaseRef],
    ) -> Result<Vec<LeaseRef>, StoreError> {
        let (ids, tokens) = columns(leases);
        let rows: Vec<(JobId, i64)> = sqlx::query_as(
            "select j.id, j.token from jobdeck.jobs j
             join unnest($1::uuid[], $2::bigint[]) as mine (id, token) on j.id = mine.id and j.token = mine.token
             where j.status = 'running' and j.cancel_requested_at is not null",
        )
        .bind(ids)
        .bind(tokens)
        .fetch_all(connection)
        .await?;
        Ok(rows.into_iter().map(|(job_id, token)| LeaseRef { job_id, token }).collect())
    }

    /// Up to `limit` leases that have ended, of rows that nobody has locked: those could not be taken back now.
    ///
    /// # Errors
    /// If the database does.
    pub async fn lease_list_expired(
        connection: &mut PgConnection,
        limit: i64,
    ) -> Result<Vec<ExpiredLease>, StoreError> {
        Ok(sqlx::query_as(
            "select id, token, lease_expires_at from jobdeck.jobs
             where status = 'running' and locked_by is not null and lease_expires_at < now()
             order by id limit $1 for update skip locked",
        )
        .bind(limit)
        .fetch_all(connection)
        .await?)
    }

    /// Takes back jobs whose leases ended: retrying, or failed once they stalled more than `max_stalled` times, or
    /// canceled if that was asked. Compares token and expiry with what was read, so a stale reading never wins.
    /// Returns what each became.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_reap(
        connection: &mut PgConnection,
        expired: &[ExpiredLease],
    ) -> Result<Vec<(JobId, JobState)>, StoreError> {
        let ids: Vec<JobId> = expired.iter().map(|lease| lease.job_id).collect();
        let tokens: Vec<i64> = expired.iter().map(|lease| lease.token).collect();
        let ends: Vec<DateTime<Utc>> = expired.iter().map(|lease| lease.lease_expires_at).collect();
        let rows: Vec<(JobId, String, i64)> = sqlx::query_as(
            "with mine as materialized (
               select j.id from jobdeck.jobs j
               join unnest($1::uuid[], $2::bigint[], $3::timestamptz[]) as seen (id, token, lease_expires_at)
                 on j.id = seen.id
               where j.token = seen.token and j.status = 'running' and j.lease_expires_at = seen.lease_expires_at
                 and j.lease_expires_at < now()
               -- A row that a heartbeat or an outcome is just changing is left alone.
               order by j.id for update of j skip locked),
             reaped as (
               update jobdeck.jobs j set
                 status = (case when j.cancel_requested_at is not null then 'canceled'
                   when j.stalled_count < j.max_stalled then 'retrying' else 'failed' end)::jobdeck.job_state,
                 attempts = j.attempts - 1, stalled_count = j.stalled_count + 1, run_after = now(),
                 finished_at = case when j.cancel_requested_at is not null or j.stalled_count >= j.max_stalled
                   then now() end,
                 locked_at = null, locked_by = null, lease_expires_at = null,
                 last_error = 'worker ' || coalesce(j.locked_by, '?') || ' went silent; its lease ended',
                 error_class = 'stalled', error_params = null,
                 error_code = case when j.stalled_count < j.max_stalled then 'lease_lost' else 'stalled_out' end,
                 version = j.version + 1, updated_at = now()
               from mine where j.id = mine.id
               returning j.*),
             noted as (
               insert into jobdeck.attempts (job_id, token, attempt, outcome, worker, stage, started_at, error_class,
                 error_code, error, next_run_at)
               select id, token, attempts + 1, 'stalled', last_worker, stage, started_at, error_class, error_code,
                 last_error, case when status = 'retrying' then run_after end
               from reaped),
             -- A key that someone's open transaction holds is left alone: the others of the batch must not wait for it, and
             -- jobdeck.key_is_free gives it away all the same.
             held as materialized (
               select k.type, k.key from jobdeck.idempotency_keys k
               join reaped r on k.type = r.type and k.key = r.idempotency_key and k.job_id = r.id
               where r.status in ('failed', 'canceled')
               for update of k skip locked),
             freed as (
               delete from jobdeck.idempotency_keys k using held h where k.type = h.type and k.key = h.key),
             woken as (
               select pg_notify('jobdeck_jobs', queue) from reaped where status = 'retrying' group by queue)
             select id, status::text, (select count(*) from woken) from reaped",
        )
        .bind(ids)
        .bind(tokens)
        .bind(ends)
        .fetch_all(connection)
        .await?;
        rows.into_iter()
            .map(|(id, state, _)| Ok((id, state.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?)))
            .collect()
    }
}

pub(super) fn micros(duration: Duration) -> i64 {
    // A hundred years are as good as never, and fit every type a timestamp passes through.
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).min(100 * 365 * 86_400_000_000)
}
