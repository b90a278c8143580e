//! Which workers live, and which types they know.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};

use super::claims::micros;
use super::{Store, StoreError};
use crate::{DeclaredBackoff, KeyPolicy, Policy, Retention, Stage};

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
    /// Whether it takes jobs: it gave a sign of life in the last 30 s and is not stopping.
    pub is_alive: bool,
}

impl WorkerInfo {
    /// Whether it takes jobs of this type.
    pub fn takes(&self, job_type: &str) -> bool {
        self.is_alive && self.types.iter().any(|known| known == job_type)
    }
}

/// A type as the worker that registered last declared it.
#[derive(Clone, Debug, PartialEq)]
pub struct RegisteredType {
    /// Column `type`.
    pub job_type: String,
    /// Where it waits.
    pub queue: String,
    /// Higher runs first.
    pub priority: i16,
    /// Attempts in all.
    pub max_attempts: i32,
    /// Stalls that are borne.
    pub max_stalled: i32,
    /// Wait between attempts.
    pub backoff: DeclaredBackoff,
    /// Share of the wait that varies.
    pub jitter: f64,
    /// Longest run of one attempt.
    pub timeout: Duration,
    /// In the order a job passes them.
    pub stages: Json<Vec<Stage>>,
    /// The declared idempotency key.
    pub key: Option<KeyPolicy>,
    /// Payload paths that need a right of their own to be seen.
    pub redact: Vec<String>,
    /// How long ended jobs are kept.
    pub retention: Retention,
    /// Whose cool-down stops it.
    pub provider: Option<String>,
    /// Declared limit of its queue.
    pub concurrency: Option<i32>,
    /// Declared limit of its queue by limit key.
    pub key_concurrency: Option<i32>,
    /// The payload path that gives the limit key.
    pub limit_key: Option<String>,
    /// When it was registered last.
    pub registered_at: DateTime<Utc>,
}

impl<'r> sqlx::FromRow<'r, PgRow> for RegisteredType {
    fn from_row(row: &'r PgRow) -> Result<Self, sqlx::Error> {
        // Never negative: a constraint says so.
        let duration = |micros: i64| Duration::from_micros(micros.unsigned_abs());
        let on_duplicate = row.try_get::<String, _>("on_duplicate")?;
        let on_duplicate = on_duplicate.try_into().map_err(|error: String| sqlx::Error::Decode(error.into()))?;
        let keep = row.try_get::<Option<i64>, _>("key_keep")?.map(duration);
        let fields: Option<Vec<String>> = row.try_get("key_fields")?;
        Ok(Self {
            job_type: row.try_get("type")?,
            queue: row.try_get("queue")?,
            priority: row.try_get("priority")?,
            max_attempts: row.try_get("max_attempts")?,
            max_stalled: row.try_get("max_stalled")?,
            backoff: row.try_get::<Json<_>, _>("backoff")?.0,
            jitter: row.try_get("jitter")?,
            timeout: duration(row.try_get("timeout")?),
            stages: row.try_get("stages")?,
            key: fields.map(|fields| KeyPolicy { fields, on_duplicate, keep }),
            redact: row.try_get("redact")?,
            retention: row.try_get::<Option<Json<_>>, _>("retention")?.map(|json| json.0).unwrap_or_default(),
            provider: row.try_get("provider")?,
            concurrency: row.try_get("concurrency")?,
            key_concurrency: row.try_get("key_concurrency")?,
            limit_key: row.try_get("limit_key")?,
            registered_at: row.try_get("registered_at")?,
        })
    }
}

/// Policies as columns, for one statement.
#[derive(serde::Serialize)]
struct TypeRow<'a> {
    #[serde(rename = "type")]
    job_type: &'a str,
    queue: &'a str,
    priority: i16,
    max_attempts: i32,
    max_stalled: i32,
    stages: &'a [Stage],
    key_fields: Option<&'a [String]>,
    on_duplicate: &'static str,
    key_keep_micros: Option<i64>,
    redact: &'a [String],
    retention: Retention,
    provider: Option<&'a str>,
    backoff: DeclaredBackoff,
    jitter: f64,
    timeout_micros: i64,
    concurrency: Option<i32>,
    key_concurrency: Option<i32>,
    limit_key: Option<&'a str>,
}

impl<'a> TypeRow<'a> {
    fn of((job_type, policy): &'a (String, Policy)) -> Self {
        Self {
            job_type,
            queue: &policy.queue,
            priority: policy.priority,
            max_attempts: policy.max_attempts,
            max_stalled: policy.max_stalled,
            stages: &policy.stages,
            key_fields: policy.key.as_ref().map(|key| key.fields.as_slice()),
            on_duplicate: policy.key.as_ref().map(|key| key.on_duplicate).unwrap_or_default().as_str(),
            key_keep_micros: policy.key.as_ref().and_then(|key| key.keep).map(micros),
            redact: &policy.redact,
            retention: policy.retention,
            provider: policy.provider.as_deref(),
            backoff: DeclaredBackoff::from(&policy.backoff),
            jitter: policy.jitter,
            timeout_micros: micros(policy.timeout),
            concurrency: policy.concurrency,
            key_concurrency: policy.key_concurrency,
            limit_key: policy.limit_key.as_deref(),
        }
    }
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
        Self::job_type_register(connection, types).await
    }

    /// Registers types with their policies, in one statement. The last registrant wins: while an old and a new version of a
    /// program run side by side, SQL enqueuers and the deck see the policy of whichever process started last. (A worker runs a
    /// job by the policy it was built with.)
    ///
    /// A queue's limit follows the smallest one its types declare, until a person sets another; theirs stays.
    ///
    /// # Errors
    /// [`StoreError::Policy`] if a policy makes no sense; if the database does.
    pub async fn job_type_register(
        connection: &mut PgConnection,
        types: &[(String, Policy)],
    ) -> Result<(), StoreError> {
        for (job_type, policy) in types {
            policy.check(job_type)?;
        }
        if types.is_empty() {
            return Ok(());
        }
        let rows: Vec<TypeRow<'_>> = types.iter().map(TypeRow::of).collect();
        sqlx::query(
            "with input as materialized (
               select * from jsonb_to_recordset($1) as i (type text, queue text, priority smallint, max_attempts integer,
                 max_stalled integer, stages jsonb, key_fields text[], on_duplicate text, key_keep_micros bigint,
                 redact text[], retention jsonb, provider text, backoff jsonb, jitter float8, timeout_micros bigint,
                 concurrency integer, key_concurrency integer, limit_key text)),
             -- What each queue's limits were by declaration, and what they are with these types.
             before as (
               select t.queue, min(t.concurrency) as concurrency, min(t.key_concurrency) as key_concurrency
               from jobdeck.job_types t group by t.queue),
             after as (
               select d.queue, min(d.concurrency) as concurrency, min(d.key_concurrency) as key_concurrency
               from (select i.queue, i.concurrency, i.key_concurrency from input i
                 union all select t.queue, t.concurrency, t.key_concurrency from jobdeck.job_types t
                 where t.type not in (select i.type from input i)) d
               group by d.queue),
             limited as (
               insert into jobdeck.queues as q (name, concurrency_limit, key_limit)
               select a.queue, a.concurrency, a.key_concurrency
               from after a left join before b on b.queue = a.queue
               where (a.concurrency, a.key_concurrency) is distinct from (b.concurrency, b.key_concurrency)
               order by a.queue
               on conflict (name) do update set
                 concurrency_limit = case when q.concurrency_limit is not distinct from
                     (select b.concurrency from before b where b.queue = q.name)
                   then excluded.concurrency_limit else q.concurrency_limit end,
                 key_limit = case when q.key_limit is not distinct from
                     (select b.key_concurrency from before b where b.queue = q.name)
                   then excluded.key_limit else q.key_limit end)
             insert into jobdeck.job_types as t (type, queue, priority, max_attempts, max_stalled, stages, key_fields,
               on_duplicate, key_keep, redact, retention, provider, backoff, jitter, timeout, concurrency, key_concurrency,
               limit_key)
             select i.type, i.queue, i.priority, i.max_attempts, i.max_stalled, i.stages, i.key_fields, i.on_duplicate,
               i.key_keep_micros * interval '1 microsecond', i.redact, i.retention, i.provider, i.backoff, i.jitter,
               i.timeout_micros * interval '1 microsecond', i.concurrency, i.key_concurrency, i.limit_key
             from input i order by i.type
             on conflict (type) do update set queue = excluded.queue, priority = excluded.priority,
               max_attempts = excluded.max_attempts, max_stalled = excluded.max_stalled, stages = excluded.stages,
               key_fields = excluded.key_fields, on_duplicate = excluded.on_duplicate, key_keep = excluded.key_keep,
               redact = excluded.redact, retention = excluded.retention, provider = excluded.provider,
               backoff = excluded.backoff, jitter = excluded.jitter, timeout = excluded.timeout,
               concurrency = excluded.concurrency, key_concurrency = excluded.key_concurrency,
               limit_key = excluded.limit_key, registered_at = now()",
        )
        .bind(Json(rows))
        .execute(connection)
        .await?;
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
            "select name, version, types, queues, slots, started_at, heartbeat_at, stopping_at,
               jobdeck.worker_is_alive(heartbeat_at, stopping_at) as is_alive
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
        Ok(sqlx::query_as(
            "select type, queue, priority, max_attempts, max_stalled, stages, key_fields, on_duplicate,
               (extract(epoch from key_keep) * 1000000)::bigint as key_keep, redact, retention, provider, backoff, jitter,
               (extract(epoch from timeout) * 1000000)::bigint as timeout, concurrency, key_concurrency, limit_key,
               registered_at
             from jobdeck.job_types order by type",
        )
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
