//! What a person sets for a queue: pause and limits. Each leaves one audit row in the same statement.

use super::{Actor, Store, StoreError};

/// How many jobs may run at once over all workers. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Of the whole queue; at least 1.
    pub concurrency: Option<i32>,
    /// With the same limit key; at least 1.
    pub per_key: Option<i32>,
}

impl Store {
    /// Sets both limits of `queue`. Jobs that run go on; a lower limit holds back those that wait.
    ///
    /// # Errors
    /// [`StoreError::InvalidValue`] if a limit is below 1; what the database says.
    pub async fn queue_set_limits(&self, queue: &str, limits: QueueLimits, actor: &Actor) -> Result<(), StoreError> {
        for (path, limit) in [("concurrency", limits.concurrency), ("per_key", limits.per_key)] {
            if limit.is_some_and(|limit| limit < 1) {
                return Err(StoreError::InvalidValue { path: path.to_owned(), problem: "must be at least 1" });
            }
        }
        sqlx::query(
            "with before as materialized (
               select concurrency_limit, key_limit from jobdeck.queues where name = $1 for update),
             changed as (
               insert into jobdeck.queues as q (name, concurrency_limit, key_limit) values ($1, $2, $3)
               on conflict (name) do update
                 set concurrency_limit = excluded.concurrency_limit, key_limit = excluded.key_limit
                 where (q.concurrency_limit, q.key_limit)
                   is distinct from (excluded.concurrency_limit, excluded.key_limit)
               returning name)
             insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, before, after)
             select $4, $5, $6, 'limit_queue', name, 'done', (select to_jsonb(b) from before b),
               jsonb_build_object('concurrency_limit', $2::integer, 'key_limit', $3::integer)
             from changed",
        )
        .bind(queue)
        .bind(limits.concurrency)
        .bind(limits.per_key)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Stops claims from `queue`. Once this returns nothing of it starts.
    ///
    /// # Errors
    /// If the database does.
    pub async fn queue_pause(&self, queue: &str, actor: &Actor) -> Result<(), StoreError> {
        self.queue_set_paused(queue, true, actor).await
    }

    /// Lets claims from `queue` go on.
    ///
    /// # Errors
    /// If the database does.
    pub async fn queue_resume(&self, queue: &str, actor: &Actor) -> Result<(), StoreError> {
        self.queue_set_paused(queue, false, actor).await
    }

    async fn queue_set_paused(&self, queue: &str, paused: bool, actor: &Actor) -> Result<(), StoreError> {
        sqlx::query(
            "with changed as (
               insert into jobdeck.queues as q (name, paused_at, paused_by)
               values ($1, case when $2 then now() end, case when $2 then $4 end)
               on conflict (name) do update set paused_at = excluded.paused_at, paused_by = excluded.paused_by
               where (q.paused_at is null) = $2
               returning name),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome)
               select $3, $4, $5, case when $2 then 'pause_queue' else 'resume_queue' end, name, 'done' from changed)
             select case when not $2 then pg_notify('jobdeck_jobs', name) end is null from changed",
        )
        .bind(queue)
        .bind(paused)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Whether claims from `queue` are stopped, and by whom.
    ///
    /// # Errors
    /// If the database does.
    pub async fn queue_paused_by(&self, queue: &str) -> Result<Option<String>, StoreError> {
        let row: Option<Option<String>> = sqlx::query_scalar("select paused_by from jobdeck.queues where name = $1")
            .bind(queue)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.flatten())
    }
}
