//! Where a scenario plays: a queue and a ledger, made for it, and the worker processes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jobdeck::{EnqueueOptions, Store};
use sqlx::{Connection, PgConnection, PgPool};

use crate::child::WorkerProcess;
use crate::ledger::Ledger;
use crate::worker::{Errand, Settings};

pub(crate) struct Stage {
    pub(crate) store: Store,
    pub(crate) ledger: Ledger,
    pub(crate) queue_url: String,
    ledger_url: String,
}

/// The server on which databases may be made.
pub(crate) fn server_url() -> Result<String> {
    std::env::var("JOBDECK_TEST_DATABASE_URL")
        .context("JOBDECK_TEST_DATABASE_URL is not set: run `cargo xtask chaos`, or name a Postgres on which databases may be made")
}

/// `url` with another database.
pub(crate) fn with_database(url: &str, name: &str) -> Result<String> {
    let (base, options) = url.split_once('?').map_or((url, None), |(base, options)| (base, Some(options)));
    let (base, _) = base.rsplit_once('/').context("the URL names no database")?;
    Ok(options.map_or_else(|| format!("{base}/{name}"), |options| format!("{base}/{name}?{options}")))
}

async fn create_database(server: &str, prefix: &str) -> Result<String> {
    let name = format!("jobdeck_{prefix}_{}", uuid::Uuid::now_v7().simple());
    let mut connection = PgConnection::connect(server).await.context("the test server does not answer")?;
    sqlx::query(sqlx::AssertSqlSafe(format!("create database {name}"))).execute(&mut connection).await?;
    connection.close().await?;
    with_database(server, &name)
}

impl Stage {
    /// Both databases on the test server.
    pub(crate) async fn new() -> Result<Self> {
        Self::on(&server_url()?).await
    }

    /// The queue on `queue_server`, the ledger on the test server.
    pub(crate) async fn on(queue_server: &str) -> Result<Self> {
        let queue_url = create_database(queue_server, "chaos").await?;
        let ledger_url = create_database(&server_url()?, "ledger").await?;
        let store = Store::connect(&queue_url, 12).await?;
        store.migrate().await?;
        let ledger = Ledger::open(&ledger_url).await?;
        ledger.create().await?;
        Ok(Self { store, ledger, queue_url, ledger_url })
    }

    pub(crate) fn pool(&self) -> &PgPool {
        self.store.pool()
    }

    pub(crate) fn worker(&self, settings: &Settings) -> Result<WorkerProcess> {
        self.worker_by(&self.queue_url, settings)
    }

    /// A worker that reaches the queue at `queue_url`, for instance through a proxy.
    pub(crate) fn worker_by(&self, queue_url: &str, settings: &Settings) -> Result<WorkerProcess> {
        WorkerProcess::start(queue_url, &self.ledger_url, settings)
    }

    /// `n_jobs` errands that sleep between the two bounds.
    pub(crate) async fn enqueue_sleeping(&self, n_jobs: i64, ms: std::ops::Range<u64>) -> Result<()> {
        let errands: Vec<Errand> = (0..n_jobs).map(|n| Errand::sleeping(n, fastrand::u64(ms.clone()))).collect();
        for chunk in errands.chunks(1000) {
            self.store.enqueue_many(chunk, EnqueueOptions::default()).await?;
        }
        Ok(())
    }

    pub(crate) async fn number(&self, query: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(query).fetch_one(self.pool()).await?)
    }

    /// Waits until a query of the queue answers `wanted`.
    pub(crate) async fn wait(
        &self,
        what: &str,
        within: Duration,
        query: &'static str,
        wanted: i64,
    ) -> Result<Duration> {
        let begun = Instant::now();
        let mut last = Err(anyhow::anyhow!("not asked yet"));
        while begun.elapsed() < within {
            last = self.number(query).await;
            if matches!(last, Ok(number) if number == wanted) {
                return Ok(begun.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{what}: wanted {wanted} within {within:?}, last seen {last:?}")
    }

    /// Waits until no job waits or runs.
    pub(crate) async fn drained(&self, within: Duration) -> Result<Duration> {
        const OPEN: &str = "select count(*) from jobdeck.jobs where status in ('pending', 'running', 'retrying')";
        self.wait("jobs left to do", within, OPEN, 0).await
    }

    /// What must hold at the end of every scenario.
    pub(crate) async fn check_rules(&self) -> Result<()> {
        let broken = self
            .number(
                "select count(*) from jobdeck.jobs
                 where attempts > max_attempts or (status = 'running' and lease_expires_at < now() - interval '10 seconds')",
            )
            .await?;
        if broken != 0 {
            bail!("{broken} rows break a rule");
        }
        let mut connection = self.pool().acquire().await?;
        let wrong = Store::counters_check(&mut connection).await?;
        if !wrong.is_empty() {
            bail!("counters differ from count(*): {wrong:?}");
        }
        Ok(())
    }
}

/// Fails unless `holds`, saying what was promised.
pub(crate) fn ensure(holds: bool, promise: impl Into<String>) -> Result<()> {
    if holds { Ok(()) } else { bail!("{}", promise.into()) }
}
