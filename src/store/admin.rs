//! What a person does to a job. Each leaves exactly one audit row in the same statement.

use super::{Actor, Store, StoreError};
use crate::{JobId, JobState};

/// What a cancel came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It waited and is canceled now; it never becomes succeeded.
    Canceled,
    /// It runs: the handler is told within 2 s, and the job ends as the handler ends.
    Requested,
    /// It had ended, in this state.
    AlreadyFinal(JobState),
    /// There is no such job.
    NotFound,
}

/// What a person's retry came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryOutcome {
    /// It waits again, with all its attempts.
    Queued,
    /// Only failed and canceled jobs can be retried; this one is in another state.
    NotRetryable(JobState),
    /// Another job holds its idempotency key.
    KeyHeld {
        /// The other job.
        by: JobId,
    },
    /// There is no such job.
    NotFound,
}

/// What a rerun came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RerunOutcome {
    /// A new job waits, with the payload of the old one.
    Queued {
        /// The new job.
        id: JobId,
    },
    /// Only succeeded jobs are rerun; this one is in another state. See [`Store::job_retry`].
    NotRerunnable(JobState),
    /// Another job holds its idempotency key, such as a rerun a moment before.
    KeyHeld {
        /// The other job.
        by: JobId,
    },
    /// There is no such job.
    NotFound,
}

#[derive(sqlx::FromRow)]
pub(super) struct ActionRow {
    pub(super) changed: bool,
    #[sqlx(try_from = "MaybeState")]
    pub(super) state: Option<JobState>,
    holder: Option<JobId>,
}

#[derive(sqlx::FromRow)]
struct RerunRow {
    id: Option<JobId>,
    #[sqlx(try_from = "MaybeState")]
    state: Option<JobState>,
    holder: Option<JobId>,
}

/// A nullable state selected as text.
struct MaybeState(Option<String>);

impl sqlx::Type<sqlx::Postgres> for MaybeState {
    fn type_info() -> sqlx::postgres::PgTypeInfo {
        <String as sqlx::Type<sqlx::Postgres>>::type_info()
    }
    fn compatible(ty: &sqlx::postgres::PgTypeInfo) -> bool {
        <String as sqlx::Type<sqlx::Postgres>>::compatible(ty)
    }
}

impl<'r> sqlx::Decode<'r, sqlx::Postgres> for MaybeState {
    fn decode(value: sqlx::postgres::PgValueRef<'r>) -> Result<Self, sqlx::error::BoxDynError> {
        Ok(Self(<Option<String> as sqlx::Decode<'r, sqlx::Postgres>>::decode(value)?))
    }
}

impl TryFrom<MaybeState> for Option<JobState> {
    type Error = crate::UnknownState;
    fn try_from(column: MaybeState) -> Result<Self, Self::Error> {
        column.0.map(JobState::try_from).transpose()
    }
}

impl Store {
    /// Cancels a waiting job at once, or asks a running one to stop. Repeating it changes nothing.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_cancel(&self, id: JobId, actor: &Actor) -> Result<CancelOutcome, StoreError> {
        let row: ActionRow = sqlx::query_as(
            "with target as materialized (
               select id, status, cancel_requested_at, token, attempts, started_at, locked_at, locked_by, lease_expires_at
               from jobdeck.jobs where id = $1 for update),
             -- The locked row alone is judged: the statement's own snapshot of it may be older. What a claim changes is
             -- written again from the locked row, because constraints are first checked against that older one.
             changed as (
               update jobdeck.jobs j set
                 token = t.token, attempts = t.attempts, started_at = t.started_at, locked_at = t.locked_at,
                 locked_by = t.locked_by, lease_expires_at = t.lease_expires_at,
                 status = case when t.status = 'running' then t.status else 'canceled' end,
                 finished_at = case when t.status = 'running' then null else now() end,
                 cancel_requested_at = now(), version = j.version + 1, updated_at = now()
               from target t
               where j.id = t.id and (t.status in ('pending', 'retrying')
                 or (t.status = 'running' and t.cancel_requested_at is null))
               returning j.id, j.type, j.idempotency_key, j.status, t.status as before),
             freed as (
               delete from jobdeck.idempotency_keys k using changed c
               where k.type = c.type and k.key = c.idempotency_key and k.job_id = c.id and c.status = 'canceled'),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, before, after)
               select $2, $3, $4, 'cancel_job', c.id::text, 'done',
                 jsonb_build_object('state', c.before),
                 jsonb_build_object('state', c.status, 'cancel_requested', c.status = 'running')
               from changed c)
             select exists (select 1 from changed) as changed, (select status::text from target) as state,
               null::uuid as holder",
        )
        .bind(id)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .fetch_one(&self.pool)
        .await?;
        Ok(match row.state {
            None => CancelOutcome::NotFound,
            Some(JobState::Running) => CancelOutcome::Requested,
            Some(_) if row.changed => CancelOutcome::Canceled,
            Some(state) => CancelOutcome::AlreadyFinal(state),
        })
    }

    /// Sends a failed or canceled job back to the start: attempts and stalls at 0, token and history kept, due at once.
    /// A job that lost its idempotency key takes it again, unless another job has it.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_retry(&self, id: JobId, actor: &Actor) -> Result<RetryOutcome, StoreError> {
        let row: ActionRow = sqlx::query_as(
            "with target as materialized (
               select id, type, queue, status, idempotency_key, payload_digest
               from jobdeck.jobs where id = $1 for update),
             taken as (
               insert into jobdeck.idempotency_keys as k (type, key, job_id, payload_digest)
               select t.type, t.idempotency_key, t.id, t.payload_digest from target t
               where t.idempotency_key is not null and t.status in ('failed', 'canceled')
               -- Locks the holder's row and returns it, unless its time has run out.
               on conflict (type, key) do update set (job_id, payload_digest, expires_at) = (
                 select case when f.free then excluded.job_id else k.job_id end,
                   case when f.free then excluded.payload_digest else k.payload_digest end,
                   case when f.free then null else k.expires_at end
                 from (select jobdeck.key_is_free(k.expires_at, k.job_id) as free) f)
               returning k.job_id),
             changed as (
               update jobdeck.jobs j set status = 'pending', attempts = 0, stalled_count = 0, run_after = now(),
                 finished_at = null, locked_at = null, locked_by = null, lease_expires_at = null, cancel_requested_at = null,
                 stage = null, progress = null, stages_at = '{}',
                 version = j.version + 1, updated_at = now()
               from target t
               where j.id = t.id and t.status in ('failed', 'canceled')
                 and not exists (select 1 from taken where job_id <> j.id)
               returning j.id, j.queue, t.status as before),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, before, after)
               select $2, $3, $4, 'retry_job', c.id::text, 'done',
                 jsonb_build_object('state', c.before), jsonb_build_object('state', 'pending')
               from changed c)
             select exists (select 1 from changed) as changed, (select status::text from target) as state,
               (select job_id from taken where job_id <> $1) as holder,
               (select pg_notify('jobdeck_jobs', queue) is not null from changed) as woken",
        )
        .bind(id)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .fetch_one(&self.pool)
        .await?;
        Ok(match (row.state, row.holder) {
            (None, _) => RetryOutcome::NotFound,
            (Some(_), _) if row.changed => RetryOutcome::Queued,
            (Some(_), Some(by)) => RetryOutcome::KeyHeld { by },
            (Some(state), None) => RetryOutcome::NotRetryable(state),
        })
    }

    /// Runs a succeeded job again as a new one that names it in `rerun_of`: same type, queue, payload, priority, limits and key,
    /// due at once, with all its attempts. The old job stays as it is, but its idempotency key passes to the new one in the same
    /// statement, so that whoever asks for the same from then on lands there; of two reruns at once the second gets
    /// [`RerunOutcome::KeyHeld`]. A job without a key is rerun as often as it is asked for.
    ///
    /// The new job belongs to `owner`; with `None`, to the old one's.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_rerun(&self, id: JobId, owner: Option<&str>, actor: &Actor) -> Result<RerunOutcome, StoreError> {
        let row: RerunRow = sqlx::query_as(
            "with target as materialized (
               select id, type, queue, payload, payload_preview, status, priority, max_attempts, max_stalled, limit_key, tags,
                 owner, idempotency_key, payload_digest
               from jobdeck.jobs where id = $1 for update),
             candidate as materialized (select jobdeck.uuid_v7() as id),
             holder as (
               insert into jobdeck.idempotency_keys as k (type, key, job_id, payload_digest)
               select t.type, t.idempotency_key, c.id, t.payload_digest from target t cross join candidate c
               where t.idempotency_key is not null and t.status = 'succeeded'
               -- Locks the holder's row and returns it, unless the old job holds it or its time has run out.
               on conflict (type, key) do update
                 set (job_id, payload_digest, created_at, duplicates, last_duplicate_at, expires_at) = (
                   select case when f.free then excluded.job_id else k.job_id end,
                     case when f.free then excluded.payload_digest else k.payload_digest end,
                     case when f.free then now() else k.created_at end, case when f.free then 0 else k.duplicates end,
                     case when f.free then null else k.last_duplicate_at end, case when f.free then null else k.expires_at end
                   from (select k.job_id = $1 or jobdeck.key_is_free(k.expires_at, k.job_id) as free) f)
               returning k.job_id),
             created as (
               insert into jobdeck.jobs (id, type, queue, payload, payload_preview, priority, max_attempts, max_stalled,
                 limit_key, tags, created_by, owner, idempotency_key, payload_digest, rerun_of)
               select c.id, t.type, t.queue, t.payload, t.payload_preview, t.priority, t.max_attempts, t.max_stalled,
                 t.limit_key, t.tags, $3, coalesce($5, t.owner), t.idempotency_key, t.payload_digest, t.id
               from target t cross join candidate c
               where t.status = 'succeeded'
                 and (t.idempotency_key is null or exists (select 1 from holder h where h.job_id = c.id))
               returning id, queue),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, before, after)
               select $2, $3, $4, 'rerun_job', $1::text, 'done', jsonb_build_object('state', 'succeeded'),
                 jsonb_build_object('rerun', c.id)
               from created c)
             select (select id from created) as id, (select status::text from target) as state,
               (select h.job_id from holder h, candidate c where h.job_id <> c.id) as holder,
               (select jobdeck.wake(queue) is null from created) as woken",
        )
        .bind(id)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .bind(owner)
        .fetch_one(&self.pool)
        .await?;
        Ok(match (row.id, row.state, row.holder) {
            (Some(id), _, _) => RerunOutcome::Queued { id },
            (None, None, _) => RerunOutcome::NotFound,
            (None, Some(_), Some(by)) => RerunOutcome::KeyHeld { by },
            (None, Some(state), None) => RerunOutcome::NotRerunnable(state),
        })
    }
}
