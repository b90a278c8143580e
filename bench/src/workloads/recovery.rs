//! How long jobs lie idle after their worker was killed, with everything at its default.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jobdeck::Store;
use tokio::task::JoinSet;

use crate::args::{Args, WorkerArgs};
use crate::child::WorkerProcess;
use crate::measure::{median, percentile};
use crate::report::{Line, Report};
use crate::server::Server;
use crate::subject;

const JOBS: u32 = 20;
const JOB_SECS: u64 = 5;
/// Others take up to hours; what takes longer than this is reported as not recovered.
const LIMIT: Duration = Duration::from_secs(180);

/// Twenty jobs run on one worker when it is killed; another stands by. The time until all have been started again. The rounds
/// run side by side, each in its own database: they mostly wait.
pub(super) async fn recovery(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    let mut rounds = JoinSet::new();
    let mut databases = Vec::new();
    for _ in 0..args.rounds {
        let database = server.migrated().await?;
        rounds.spawn(round(database.url.clone()));
        databases.push(database);
    }
    let mut times = Vec::new();
    while let Some(round) = rounds.join_next().await {
        times.push(round??.as_secs_f64() * 1000.0);
        eprintln!("recovery {}/{}: {:.1} s", times.len(), args.rounds, times.last().unwrap_or(&0.0) / 1000.0);
    }
    for database in databases {
        server.drop(database).await?;
    }
    // Of so few rounds the 99th percentile is the slowest.
    let (p50_ms, p99_ms) = (median(times.clone()), percentile(&times, 0.99));
    report.add(Line { workload: "recovery".to_owned(), p50_ms, p99_ms, ..Line::default() });
    Ok(())
}

async fn round(url: String) -> Result<Duration> {
    let store = Store::connect(&url, 2).await?;
    let args = |name: &str| WorkerArgs { name: name.to_owned(), concurrency: JOBS as usize, jobs: 0 };
    let victim = WorkerProcess::start(&url, &store, &args("victim")).await?;
    subject::enqueue_naps(&store, JOBS, JOB_SECS).await?;
    wait_until_started(&store, "victim", Duration::from_secs(20)).await?;
    let heir = WorkerProcess::start(&url, &store, &args("heir")).await?;

    victim.kill().await?;
    let killed = Instant::now();
    wait_until_started(&store, "heir", LIMIT).await.context("after kill -9")?;
    let took = killed.elapsed();
    heir.kill().await?;
    store.pool().close().await;
    Ok(took)
}

/// Waits until all jobs have been started by that worker.
async fn wait_until_started(store: &Store, worker: &str, limit: Duration) -> Result<()> {
    let asked = Instant::now();
    loop {
        let started: i64 = sqlx::query_scalar("select count(*) from jobdeck.jobs where last_worker = $1")
            .bind(worker)
            .fetch_one(store.pool())
            .await?;
        if started == i64::from(JOBS) {
            return Ok(());
        }
        if asked.elapsed() > limit {
            bail!("{worker} had started {started} of {JOBS} jobs after {limit:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
