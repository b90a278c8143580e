//! Which workers live, and which types they know.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::{Store, StoreError};
use crate::{Policy, Stage};

/// A worker as registered. It lives while its heartbeat is younger than 30 s.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct WorkerInfo {
    /// Unique per process.
    pub name: String,
    /// Of the program.
    pub version: String,
    /// What it can run.
    pub types: Vec<String>,
    /// Where it takes jobs from.
    pub queues: Vec<String>,
    /// Jobs it runs at once.
    pub slots: i32,
    /// When it registered.
    pub started_at: DateTime<Utc>,
    /// Its last sign of life.
    pub heartbeat_at: DateTime<Utc>,
    /// Set once it takes no more jobs.
    pub stopping_at: Option<DateTime<Utc>>,
}

/// A type as the newest worker registered it.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct RegisteredType {
    /// Column `type`.
    #[sqlx(rename = "type")]
    pub job_type: String,
    /// Where it waits.
    pub queue: String,
    /// In the order a job passes them.
    pub stages: Json<Vec<Stage>>,
}

impl Store {
    /// Registers a worker with its types and queues.
    ///
    /// # Errors
    /// If the database does.
    pub async fn worker_register(
        connection: &mut PgConnection,
        name: &str,
        types: &[(String, Policy)],
        queues: &[String],
        slots: i32,
    ) -> Result<(), StoreError> {
        let type_names: Vec<&str> = types.iter().map(|(name, _)| name.as_str()).collect();
        sqlx::query(
            "insert into jobdeck.workers as w (name, version, types, queues, slots) values ($1, $2, $3, $4, $5)
             on conflict (name) do update set version = excluded.version, types = excluded.types,
               queues = excluded.queues, slots = excluded.slots, heartbeat_at = now(), stopping_at = null",
        )
        .bind(name)
        .bind(env!("CARGO_PKG_VERSION"))
        .bind(&type_names)
        .bind(queues)
        .bind(slots)
        .execute(&mut *connection)
        .await?;
        sqlx::query(
            "insert into jobdeck.queues (name) select distinct unnest($1::text[]) order by 1 on conflict do nothing",
        )
        .bind(queues)
        .execute(&mut *connection)
        .await?;
        for (job_type, policy) in types {
            sqlx::query(
                "insert into jobdeck.job_types (type, queue, max_attempts, max_stalled, stages) values ($1, $2, $3, $4, $5)
                 on conflict (type) do update set queue = excluded.queue, max_attempts = excluded.max_attempts,
                   max_stalled = excluded.max_stalled, stages = excluded.stages, registered_at = now()",
            )
            .bind(job_type)
            .bind(&policy.queue)
            .bind(policy.max_attempts)
            .bind(policy.max_stalled)
            .bind(Json(&policy.stages))
            .execute(&mut *connection)
            .await?;
        }
        Ok(())
    }

    /// A worker's sign of life.
    ///
    /// # Errors
    /// If the database does.
    pub async fn worker_heartbeat(connection: &mut PgConnection, name: &str, stopping: bool) -> Result<(), StoreError> {
        sqlx::query(
            "update jobdeck.workers set heartbeat_at = now(),
               stopping_at = case when $2 then coalesce(stopping_at, now()) end
             where name = $1",
        )
        .bind(name)
        .bind(stopping)
        .execute(connection)
        .await?;
        Ok(())
    }

    /// Takes a worker that has stopped, and those silent for a day, out of the registry.
    ///
    /// # Errors
    /// If the database does.
    pub async fn worker_remove(connection: &mut PgConnection, name: &str) -> Result<(), StoreError> {
        sqlx::query("delete from jobdeck.workers where name = $1 or heartbeat_at < now() - interval '1 day'")
            .bind(name)
            .execute(connection)
            .await?;
        Ok(())
    }

    /// All registered workers, by name.
    ///
    /// # Errors
    /// If the database does.
    pub async fn worker_list(&self) -> Result<Vec<WorkerInfo>, StoreError> {
        Ok(sqlx::query_as(
            "select name, version, types, queues, slots, started_at, heartbeat_at, stopping_at
             from jobdeck.workers order by name",
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// All registered types, by name.
    ///
    /// # Errors
    /// If the database does.
    pub async fn job_type_list(&self) -> Result<Vec<RegisteredType>, StoreError> {
        Ok(sqlx::query_as("select type, queue, stages from jobdeck.job_types order by type")
            .fetch_all(&self.pool)
            .await?)
    }

    /// The queues that have a limit, of the queue or by key.
    ///
    /// # Errors
    /// If the database does.
    pub async fn queue_list_limited(connection: &mut PgConnection) -> Result<HashSet<String>, StoreError> {
        let names: Vec<String> = sqlx::query_scalar(
            "select name from jobdeck.queues where concurrency_limit is not null or key_limit is not null",
        )
        .fetch_all(connection)
        .await?;
        Ok(names.into_iter().collect())
    }
}
