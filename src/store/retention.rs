//! Removing ended jobs: by rule, in small batches, and one at a person's wish. Work that has not ended is never touched.
//!
//! A pass over one type and state first reads the boundary, the newest job that is due ([`Store::prune_boundary`]), then deletes up
//! to it, oldest end first ([`Store::prune_batch`]). Each batch checks state and end again under the row's lock and leaves out rows
//! that something else has locked, so that a retry under way wins and two pruners never wait for each other.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::admin::ActionRow;
use super::claims::micros;
use super::{Actor, Store, StoreError};
use crate::{JobId, JobState, Keep, Retention};

/// The newest job that is due; what ended before it is due as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct PruneBoundary {
    /// Its end.
    pub finished_at: DateTime<Utc>,
    /// Decides among those that ended at the same moment.
    pub id: JobId,
}

/// What one batch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct PruneBatch {
    /// Rows deleted. Fewer than the limit: nothing due is left, but for rows that something else has locked.
    pub n_jobs: i64,
    /// The latest end among them: where the next batch begins.
    pub last_finished_at: Option<DateTime<Utc>>,
}

/// How many jobs of one type and state were removed.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Removed {
    /// What they did.
    #[sqlx(rename = "type")]
    pub job_type: String,
    /// The state they were in.
    #[sqlx(rename = "status", try_from = "String")]
    pub state: JobState,
    /// Whether a person deleted them, or else the retention rule.
    pub by_person: bool,
    /// How many.
    pub n_jobs: i64,
}

/// What a person's delete came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The row, its attempts and its idempotency key are gone.
    Deleted,
    /// Only ended jobs can be deleted; this one is in another state.
    NotFinal(JobState),
    /// There is no such job.
    NotFound,
}

/// A type and state of which there are ended jobs, and how long they are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneRule {
    /// The type.
    pub job_type: String,
    /// A final state.
    pub state: JobState,
    /// The type's own rule, or the default. A rule nobody can read keeps everything.
    pub keep: Keep,
}

impl Store {
    /// The rules for all ended jobs that are there. Takes one probe of an index for each type and state.
    ///
    /// # Errors
    /// If the database does.
    pub async fn prune_rules(connection: &mut PgConnection) -> Result<Vec<PruneRule>, StoreError> {
        let rows: Vec<(String, String, Option<String>)> = sqlx::query_as(
            "with recursive kind (type, status) as (
               (select j.type, j.status from jobdeck.jobs j where j.status in ('succeeded', 'failed', 'canceled')
                order by j.type, j.status limit 1)
               union all
               select following.type, following.status from kind k
               cross join lateral (
                 select j.type, j.status from jobdeck.jobs j
                 where j.status in ('succeeded', 'failed', 'canceled') and (j.type, j.status) > (k.type, k.status)
                 order by j.type, j.status limit 1) following)
             select k.type, k.status::text, t.retention::text
             from kind k left join jobdeck.job_types t on t.type = k.type order by k.type, k.status",
        )
        .fetch_all(connection)
        .await?;
        rows.into_iter()
            .map(|(job_type, state, rule)| {
                let state: JobState = state.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
                let retention = match rule.as_deref().map(serde_json::from_str::<Option<Retention>>) {
                    None => Retention::default(),
                    Some(Ok(retention)) => retention.unwrap_or_default(),
                    Some(Err(error)) => {
                        tracing::debug!(job_type, %error, "retention cannot be read, everything is kept");
                        Retention::FOREVER
                    }
                };
                Ok(PruneRule { job_type, state, keep: retention.of(state) })
            })
            .collect()
    }

    /// The newest job that is due by `rule` now. `None` if none is. Reads as many index entries as the rule keeps.
    ///
    /// # Errors
    /// If the database does.
    pub async fn prune_boundary(
        connection: &mut PgConnection,
        rule: &PruneRule,
    ) -> Result<Option<PruneBoundary>, StoreError> {
        if rule.keep == Keep::FOREVER || !rule.state.is_final() {
            return Ok(None);
        }
        Ok(sqlx::query_as(
            "select due.finished_at, due.id from (
               (select j.finished_at, j.id from jobdeck.jobs j
                where $3::bigint is not null and j.type = $1 and j.status = $2::text::jobdeck.job_state
                  and j.status in ('succeeded', 'failed', 'canceled')
                order by j.finished_at desc, j.id desc offset $3 limit 1)
               union all
               (select j.finished_at, j.id from jobdeck.jobs j
                where j.type = $1 and j.status = $2::text::jobdeck.job_state
                  and j.status in ('succeeded', 'failed', 'canceled')
                  and j.finished_at <= now() - $4 * interval '1 microsecond'
                order by j.finished_at desc, j.id desc limit 1)) due
             order by due.finished_at desc, due.id desc limit 1",
        )
        // Planned for these values: a plan for any value cannot know how much of the index they leave.
        .persistent(false)
        .bind(&rule.job_type)
        .bind(rule.state.as_str())
        .bind(rule.keep.count.map(|count| count.max(0)))
        .bind(rule.keep.age.map(micros))
        .fetch_optional(connection)
        .await?)
    }

    /// Deletes up to `limit` jobs of the rule's type and state that ended at or before `boundary`, and at or after `from` if given,
    /// oldest end first. Their attempts go with them; their idempotency keys stay for as long as the type declares.
    ///
    /// Rows that something else has locked, or that a person has just sent back to the queue, are left alone.
    ///
    /// # Errors
    /// If the database does; nothing is deleted then.
    pub async fn prune_batch(
        connection: &mut PgConnection,
        rule: &PruneRule,
        boundary: PruneBoundary,
        from: Option<DateTime<Utc>>,
        limit: i64,
    ) -> Result<PruneBatch, StoreError> {
        Ok(sqlx::query_as(
            "with due as materialized (
               select j.id, j.finished_at from jobdeck.jobs j
               where j.type = $1 and j.status = $2::text::jobdeck.job_state
                 and j.status in ('succeeded', 'failed', 'canceled')
                 and j.finished_at <= $3 and (j.finished_at < $3 or j.id <= $4)
                 -- Skips the entries that earlier batches of this pass left dead in the index.
                 and j.finished_at >= coalesce($5, '-infinity'::timestamptz)
               order by j.finished_at limit $6
               for update skip locked),
             gone as (
               delete from jobdeck.jobs j using due d where j.id = d.id returning j.id),
             counted as (
               insert into jobdeck.job_removals as r (type, status, by_person, n_jobs)
               select $1, $2::text::jobdeck.job_state, false, count(*) from gone having count(*) > 0
               on conflict (type, status, by_person) do update set n_jobs = r.n_jobs + excluded.n_jobs, last_at = now())
             select (select count(*) from gone) as n_jobs, (select max(finished_at) from due) as last_finished_at",
        )
        .persistent(false)
        .bind(&rule.job_type)
        .bind(rule.state.as_str())
        .bind(boundary.finished_at)
        .bind(boundary.id)
        .bind(from)
        .bind(limit)
        .fetch_one(connection)
        .await?)
    }

    /// Deletes idempotency keys whose time has run out, looking at up to `limit` of them from `from` on. A key stays while its job
    /// has not ended. Returns how many are gone, and from where to go on; `None` once all were looked at.
    ///
    /// # Errors
    /// If the database does; nothing is deleted then.
    pub async fn key_prune_batch(
        connection: &mut PgConnection,
        from: Option<DateTime<Utc>>,
        limit: i64,
    ) -> Result<(i64, Option<DateTime<Utc>>), StoreError> {
        let (n_keys, n_seen, last): (i64, i64, Option<DateTime<Utc>>) = sqlx::query_as(
            "with seen as materialized (
               select k.type, k.key, k.job_id, k.expires_at from jobdeck.idempotency_keys k
               where k.expires_at <= now() and k.expires_at > coalesce($1, '-infinity'::timestamptz)
               order by k.expires_at limit $2),
             out as materialized (
               select k.type, k.key from jobdeck.idempotency_keys k join seen s on k.type = s.type and k.key = s.key
               where k.expires_at <= now() and k.job_id = s.job_id
                 and not exists (select 1 from jobdeck.jobs j
                   where j.id = s.job_id and j.status in ('pending', 'running', 'retrying'))
               -- Someone who has just taken over the key has locked it.
               for update of k skip locked),
             gone as (
               delete from jobdeck.idempotency_keys k using out o where k.type = o.type and k.key = o.key returning 1)
             select (select count(*) from gone), (select count(*) from seen), (select max(expires_at) from seen)",
        )
        .persistent(false)
        .bind(from)
        .bind(limit)
        .fetch_one(connection)
        .await?;
        Ok((n_keys, last.filter(|_| n_seen == limit)))
    }

    /// How many jobs are gone since the schema was made. With the jobs that are there they add up to all that were ever enqueued.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_removals(&self) -> Result<Vec<Removed>, StoreError> {
        Ok(sqlx::query_as(
            "select type, status::text as status, by_person, n_jobs from jobdeck.job_removals
             order by type, status, by_person",
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Deletes an ended job with its attempts, for good, and frees its idempotency key.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_delete(&self, id: JobId, actor: &Actor) -> Result<DeleteOutcome, StoreError> {
        let row: ActionRow = sqlx::query_as(
            "with target as materialized (
               select id, type, queue, status, idempotency_key, finished_at from jobdeck.jobs where id = $1 for update),
             gone as (
               delete from jobdeck.jobs j using target t
               where j.id = t.id and t.status in ('succeeded', 'failed', 'canceled')
               returning t.id, t.type, t.queue, t.status, t.idempotency_key, t.finished_at),
             freed as (
               delete from jobdeck.idempotency_keys k using gone g
               where k.type = g.type and k.key = g.idempotency_key and k.job_id = g.id),
             counted as (
               insert into jobdeck.job_removals as r (type, status, by_person, n_jobs)
               select type, status, true, 1 from gone
               on conflict (type, status, by_person) do update set n_jobs = r.n_jobs + excluded.n_jobs, last_at = now()),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, before)
               select $2, $3, $4, 'delete_job', g.id::text, 'done',
                 jsonb_build_object('state', g.status, 'type', g.type, 'queue', g.queue, 'finished_at', g.finished_at)
               from gone g)
             select exists (select 1 from gone) as changed, (select status::text from target) as state,
               null::uuid as holder",
        )
        .bind(id)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .fetch_one(&self.pool)
        .await?;
        Ok(match row.state {
            None => DeleteOutcome::NotFound,
            Some(_) if row.changed => DeleteOutcome::Deleted,
            Some(state) => DeleteOutcome::NotFinal(state),
        })
    }
}
