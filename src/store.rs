//! The only SQL. Every transition is one guarded statement, and the database's clock decides.

mod admin;
mod audit;
mod bulk;
mod claims;
mod cool_downs;
mod counters;
mod duties;
mod effects;
mod enqueue;
mod jobs;
mod kept;
mod links;
mod outcomes;
mod queues;
mod registry;
mod retention;
mod schedules;
mod steps;
mod users;

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgPool};

pub use admin::{CancelOutcome, RerunOutcome, RetryOutcome};
pub use audit::{Actor, AuditEntry};
pub use bulk::{BulkOperation, BulkPreview, BulkStarted, BulkTarget, Refusal};
pub use claims::{Claim, ClaimedUntil, ExpiredLease, HeldLease, LeaseRef, NextDue, Stalls};
pub use cool_downs::CoolDown;
pub use counters::{CounterMismatch, JobCounter};
pub use duties::Duty;
pub use effects::{Effect, EffectState, SettleOutcome, Settlement};
pub use enqueue::{EnqueueOptions, Enqueued};
pub use jobs::{JobFilter, JobJson, JobPage, PageCursor, StateCounts};
pub use links::LinkKey;
pub use outcomes::{Accepted, Completion, Outcome};
pub use queues::QueueLimits;
pub use registry::{RegisteredType, WorkerInfo};
pub use retention::{DeleteOutcome, PruneBatch, PruneBoundary, PruneRule, Removed};
pub use schedules::{RunNow, ScheduleChange, ScheduleCreated, ScheduleDeleted, ScheduleInfo, Tick, TickOutcome};
pub use steps::Step;
pub use users::{NewSignIn, NewUser, SignInSession, User, UserRole};

pub(crate) use effects::{EffectBegun, EffectCall, EffectEnd};
pub(crate) use kept::keepable;
pub(crate) use schedules::DueSchedule;

/// The embedded migrations. Their table lives in our schema, so that it never meets the product's own.
fn migrator() -> sqlx::migrate::Migrator {
    let mut migrator = sqlx::migrate!("./migrations");
    migrator.create_schema("jobdeck");
    migrator.dangerous_set_table_name("jobdeck.migrations");
    migrator
}

/// A pool of connections to the database that holds the schema `jobdeck`. Cheap to clone.
///
/// The store itself opens no transactions: a future dropped while BEGIN is in flight would leave one open in the pool
/// (sqlx #4385), so whatever must happen together is one statement.
#[derive(Clone, Debug)]
pub struct Store {
    pool: PgPool,
    /// For searches people ask for: a bounded share of connections, each statement given up after 2 s, so that no
    /// dashboard slows the queue.
    searches: PgPool,
    enqueues: Arc<enqueue::EnqueueGroup>,
    /// Turns of counts that must read every job: fewer than there are connections for searches, so that lists are read
    /// meanwhile.
    counts: Arc<tokio::sync::Semaphore>,
}

/// What a store function can answer besides its result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database refused or could not be reached.
    #[error("database error")]
    Database(#[from] sqlx::Error),
    /// The migrations could not be applied.
    #[error("the schema could not be migrated")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A value Postgres cannot hold, with the path to it.
    #[error("{path}: {problem}")]
    InvalidValue {
        /// Where, such as `payload.user.name`.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The payload is too large.
    #[error("payload is {bytes} bytes, the limit is {limit}")]
    PayloadTooLarge {
        /// Its size as JSON.
        bytes: usize,
        /// See [`Store::MAX_PAYLOAD_BYTES`].
        limit: usize,
    },
    /// The type's policy makes no sense.
    #[error(transparent)]
    Policy(#[from] crate::PolicyError),
    /// A schedule makes no sense.
    #[error(transparent)]
    Schedule(#[from] crate::ScheduleError),
    /// The payload does not serialise to a JSON object.
    #[error("payload of type {job_type:?} is not a JSON object")]
    PayloadNotAnObject {
        /// The type.
        job_type: String,
    },
    /// The payload could not be serialised.
    #[error("payload cannot be written as JSON")]
    Json(#[from] serde_json::Error),
    /// The execution lost its lease: its outcome was refused and nothing changed.
    #[error(transparent)]
    LeaseLost(#[from] crate::LeaseLost),
    /// Another user has this address.
    #[error("a user with this e-mail address is there already")]
    EmailTaken,
}

impl From<crate::KeyError> for StoreError {
    fn from(error: crate::KeyError) -> Self {
        Self::InvalidValue { path: error.path, problem: error.problem }
    }
}

impl StoreError {
    /// Whether trying again may help: the connection broke, or the server is starting, stopping or read-only.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Database(error) => crate::failure::is_transient(error),
            _ => false,
        }
    }

    /// Whether a statement was given up because it took too long, such as a search, or found no free connection in time.
    pub fn is_given_up(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::PoolTimedOut) => true,
            Self::Database(sqlx::Error::Database(error)) => error.code().as_deref() == Some("57014"),
            _ => false,
        }
    }

    /// Whether the value itself is what was refused, so that sending it again is of no use.
    pub(crate) fn refuses_value(&self) -> bool {
        match self {
            Self::InvalidValue { .. } | Self::PayloadTooLarge { .. } | Self::Json(_) => true,
            Self::Database(sqlx::Error::Encode(_)) => true,
            // 22 data, 23 constraints, 54 limits
            Self::Database(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|code| ["22", "23", "54"].iter().any(|prefix| code.starts_with(prefix)))
            }
            _ => false,
        }
    }
}

impl Store {
    /// Largest payload, in bytes of JSON.
    pub const MAX_PAYLOAD_BYTES: usize = 8 * 1024 * 1024;

    /// Wraps a pool the caller already has. Searches share it, with whatever statement timeout it sets.
    pub fn new(pool: PgPool) -> Self {
        let counts = turns(pool.options().get_max_connections());
        Self { searches: pool.clone(), pool, counts, enqueues: Arc::default() }
    }

    /// Connects to `url` with at most `connections` connections for the queue and a third as many, 3 to 8, for searches. A
    /// transaction left open is given up after 60 s, a statement after 30 s, a search after 2 s.
    ///
    /// # Errors
    /// If the URL is wrong or nothing answers within 10 s.
    pub async fn connect(url: &str, connections: u32) -> Result<Self, StoreError> {
        let pool_options = pool_options();
        let pool = pool_options.clone().max_connections(connections).connect_with(connect_options(url)?).await?;
        let searches = connect_options(url)?.options([("statement_timeout", "2s")]);
        let n_searches = (connections / 3).clamp(3, 8);
        let searches = pool_options.max_connections(n_searches).connect_lazy_with(searches);
        Ok(Self { pool, searches, counts: turns(n_searches), enqueues: Arc::default() })
    }

    /// As [`Store::connect`], but without a connection until one is needed.
    ///
    /// # Errors
    /// If the URL is wrong.
    pub fn connect_lazy(url: &str, connections: u32) -> Result<Self, StoreError> {
        let pool = pool_options().max_connections(connections).connect_lazy_with(connect_options(url)?);
        Ok(Self::new(pool))
    }

    /// Begins a transaction in a task of its own, so that a caller who is dropped meanwhile (a handler told to stop, a
    /// request cut off) leaves no open transaction in the pool, as `pool().begin()` may (sqlx #4385).
    ///
    /// # Errors
    /// If no connection can be had.
    pub async fn begin(&self) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, StoreError> {
        let pool = self.pool.clone();
        match tokio::spawn(async move { pool.begin().await }).await {
            Ok(begun) => Ok(begun?),
            Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
        }
    }

    /// The pool, for the caller's own statements. For transactions see [`Store::begin`].
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Brings the schema `jobdeck` up to date. Safe to run twice and from several processes at once: an advisory lock
    /// lets one of them do the work. Also makes the roles of docs/sql.md, if this user may. A user that may not migrate, such as
    /// a member of `jobdeck_worker`, is content with a schema that is up to date.
    ///
    /// # Errors
    /// If a migration fails or the database was migrated by a newer version.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        // Asked first, because a migration that is refused keeps its advisory lock until the connection ends.
        let may_migrate: bool = sqlx::query_scalar("select has_database_privilege(current_database(), 'create')")
            .fetch_one(&self.pool)
            .await?;
        if !may_migrate && self.is_ready().await.unwrap_or(false) {
            return Ok(());
        }
        // Without the time limit of other statements: a migration may rewrite a large table, and a second process waits for the first.
        let mut connection = self.pool.acquire().await?.detach();
        sqlx::query("set statement_timeout = 0").execute(&mut connection).await?;
        // Not `run`, whose future cannot be sent between threads when it is given a connection.
        migrator().run_direct(None, &mut connection, false).await?;
        connection.close().await?;
        // Privileges are set per object, so those on what this run made are still missing.
        let granted = sqlx::query(
            "select jobdeck.grant_roles() from jobdeck.deployment
             where granted_version is distinct from (select max(version) from jobdeck.migrations where success)",
        )
        .execute(&self.pool)
        .await;
        match granted {
            // The queue works without its roles; a database administrator can grant them at any time.
            Err(error) if error.as_database_error().and_then(|error| error.code()).as_deref() == Some("42501") => {
                tracing::warn!(%error, "the roles of the SQL interface have not got their privileges: see docs/sql.md");
                Ok(())
            }
            granted => Ok(granted.map(drop)?),
        }
    }

    /// Whether the database answers and its schema is the one this program was built with.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn is_ready(&self) -> Result<bool, StoreError> {
        let newest = migrator().iter().map(|migration| migration.version).max().unwrap_or_default();
        let applied: Option<i64> = sqlx::query_scalar("select max(version) from jobdeck.migrations where success")
            .fetch_one(&self.pool)
            .await?;
        Ok(applied == Some(newest))
    }
}

/// How long a connection may take to answer an empty request before it counts as half open.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// All but one of `connections`.
fn turns(connections: u32) -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new((connections.max(2) - 1) as usize))
}

/// Connections are tried before use only after a rest of 100 ms: a round trip for each statement would double its cost, and one that
/// broke meanwhile fails as it would when breaking a moment later.
///
/// A connection given back in the midst of a statement, because its caller was dropped, is asked with a time limit of ours: the pool
/// itself would wait for the answer of a half-open one for ever, and hold its place meanwhile.
fn pool_options() -> PgPoolOptions {
    PgPoolOptions::new()
        .acquire_timeout(Duration::from_secs(10))
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for > Duration::from_millis(100) {
                    answers(connection).await?;
                }
                Ok(true)
            })
        })
        .after_release(|connection, _| Box::pin(async move { answers(connection).await.map(|()| true) }))
}

/// With an error the pool drops the connection at once; anything else would say goodbye first and wait for that too.
async fn answers(connection: &mut sqlx::PgConnection) -> Result<(), sqlx::Error> {
    match tokio::time::timeout(ANSWER_WITHIN, connection.ping()).await {
        Ok(answer) => answer,
        Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}

/// Connection settings shared by pool, heartbeat and listener.
pub(crate) fn connect_options(url: &str) -> Result<sqlx::postgres::PgConnectOptions, StoreError> {
    let options: sqlx::postgres::PgConnectOptions = url.parse()?;
    Ok(options.application_name("jobdeck").options([
        ("idle_in_transaction_session_timeout", "60s"),
        ("statement_timeout", "30s"),
        ("timezone", "UTC"),
        // The statements are written for it; a database may have another default.
        ("default_transaction_isolation", "read committed"),
    ]))
}
