//! Working jobs that do nothing, by a real worker in a process of its own, with history, tokens and everything else kept.

use std::time::Duration;

use anyhow::{Result, ensure};
use jobdeck::Store;
use sqlx::{Connection as _, PgConnection};

use super::{line, pairs};
use crate::args::{Args, WorkerArgs};
use crate::child::WorkerProcess;
use crate::measure::{Cpu, Sample, Stopwatch};
use crate::report::{Line, Report};
use crate::server::{Database, Server};
use crate::{floor, process, subject};

/// A drain that takes longer has come to a stop.
const LIMIT: Duration = Duration::from_secs(300);
const BULK: u32 = 1_000;

pub(super) async fn beside_floor(
    server: &Server,
    args: &Args,
    concurrency: usize,
    name: &str,
    report: &mut Report,
) -> Result<()> {
    let jobs = args.drain_jobs;
    let (jobdeck, plain) =
        pairs(name, args.rounds, |_| on_empty_table(server, jobs, concurrency), |_| floor(server, jobs)).await?;
    report.add(line(name, 0, &jobdeck, &plain));
    Ok(())
}

/// The most memory a worker had while it drained with 50 at once.
pub(super) async fn memory(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    let sample = on_empty_table(server, args.drain_jobs, 50).await?;
    eprintln!("memory-50: {:.1} MiB", sample.rss_mib.unwrap_or_default());
    report.add(Line { workload: "memory-50".to_owned(), rss_mib: sample.rss_mib, ..Line::default() });
    Ok(())
}

/// One drain on a database of its own.
pub(super) async fn on_empty_table(server: &Server, jobs: u32, concurrency: usize) -> Result<Sample> {
    let database = server.migrated().await?;
    let sample = drain(server, &database, jobs, concurrency).await?;
    server.drop(database).await?;
    Ok(sample)
}

/// One drain. The queue is paused while the jobs are put in, so that the worker is up and waiting when they come, and what
/// setting up costs is not in the figures.
///
/// The time is from the start of the first claim, by the row of the first job, to the moment the worker knows its last success
/// recorded; both by the server's clock.
pub(super) async fn drain(server: &Server, database: &Database, jobs: u32, concurrency: usize) -> Result<Sample> {
    let store = Store::connect(&database.url, 2).await?;
    subject::pause(&store).await?;
    let args = WorkerArgs { name: "drainer".to_owned(), concurrency, jobs: u64::from(jobs) };
    let mut worker = WorkerProcess::start(&database.url, &store, &args).await?;
    subject::fill_waiting(&database.url, jobs - 1).await?;
    server.checkpoint().await?;
    let mut clock = PgConnection::connect(&database.url).await?;

    let start = Cpu::read(worker.pid()?, server.postmaster);
    subject::resume(&store).await?;
    // The last job comes as jobs do in life, and wakes the worker.
    subject::enqueue(&store, jobs).await?;
    let done = worker.done(LIMIT).await?;
    let (secs,): (f64,) = sqlx::query_as(
        "select extract(epoch from clock_timestamp() - started_at)::float8 from jobdeck.jobs where id = $1",
    )
    .bind(done.first_job)
    .fetch_one(&mut clock)
    .await?;
    let end = Cpu::read(worker.pid()?, server.postmaster);

    let rss_mib = process::peak_rss_mib(worker.pid()?);
    worker.stop().await?;
    ensure!(done.unsuccessful == 0, "{} executions did not succeed", done.unsuccessful);
    ensure!(subject::is_drained(&database.url).await?, "jobs are left");
    clock.close().await?;
    store.pool().close().await;
    Ok(Sample { rss_mib, ..Sample::new(jobs, Duration::from_secs_f64(secs), start, end) })
}

async fn floor(server: &Server, jobs: u32) -> Result<Sample> {
    let database = server.empty().await?;
    floor::create(&database.url).await?;
    let mut connection = PgConnection::connect(&database.url).await?;
    for start in (0..jobs).step_by(BULK as usize) {
        floor::insert_many(&mut connection, start..(start + BULK).min(jobs)).await?;
    }
    sqlx::query("analyze jobs").execute(&mut connection).await?;
    connection.close().await?;
    let connections = floor::connect(&database.url).await?;
    server.checkpoint().await?;

    let watch = Stopwatch::start(server.postmaster);
    let done = floor::drain(connections).await?;
    let sample = watch.stop(jobs);
    ensure!(done == u64::from(jobs), "the floor completed {done} jobs of {jobs}");
    server.drop(database).await?;
    Ok(sample)
}
