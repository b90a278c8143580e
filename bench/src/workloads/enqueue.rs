//! Putting jobs in: one by one by several producers, and in thousands.

use anyhow::Result;
use jobdeck::Store;
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;

use super::{line, pairs};
use crate::args::Args;
use crate::measure::{Sample, Stopwatch};
use crate::report::Report;
use crate::server::Server;
use crate::{floor, subject};

const PRODUCERS: u32 = 8;
const BULK: u32 = 1_000;

/// Eight producers, each enqueuing one job after another in transactions of their own, beside plain single-row inserts.
pub(super) async fn one_by_one(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    let each = args.single_jobs.div_ceil(PRODUCERS);
    let (jobdeck, plain) =
        pairs("enqueue-one", args.rounds, |_| jobdeck_one_by_one(server, each), |_| floor_one_by_one(server, each))
            .await?;
    report.add(line("enqueue-one", 0, &jobdeck, &plain));
    Ok(())
}

async fn jobdeck_one_by_one(server: &Server, each: u32) -> Result<Sample> {
    let database = server.migrated().await?;
    let store = Store::connect(&database.url, PRODUCERS).await?;
    // Opens all connections and plans the statement on each, as a service that runs has.
    let mut warm = JoinSet::new();
    for number in 0..PRODUCERS {
        let store = store.clone();
        warm.spawn(async move { subject::enqueue(&store, number).await });
    }
    finish(warm).await?;
    server.checkpoint().await?;

    let watch = Stopwatch::start(server.postmaster);
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let store = store.clone();
        producers.spawn(async move {
            for number in producer * each..(producer + 1) * each {
                subject::enqueue(&store, number).await?;
            }
            Ok(())
        });
    }
    finish(producers).await?;
    let sample = watch.stop(PRODUCERS * each);
    store.pool().close().await;
    server.drop(database).await?;
    Ok(sample)
}

async fn floor_one_by_one(server: &Server, each: u32) -> Result<Sample> {
    let database = server.empty().await?;
    floor::create(&database.url).await?;
    let mut connections = Vec::new();
    for number in 0..PRODUCERS {
        let mut connection = PgConnection::connect(&database.url).await?;
        floor::insert_singly(&mut connection, number..number + 1).await?;
        connections.push(connection);
    }
    server.checkpoint().await?;

    let watch = Stopwatch::start(server.postmaster);
    let mut producers = JoinSet::new();
    for (producer, mut connection) in (0..PRODUCERS).zip(connections) {
        producers
            .spawn(async move { floor::insert_singly(&mut connection, producer * each..(producer + 1) * each).await });
    }
    finish(producers).await?;
    let sample = watch.stop(PRODUCERS * each);
    server.drop(database).await?;
    Ok(sample)
}

async fn finish(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

/// One producer that enqueues a thousand jobs with keys at a time, beside a multi-row insert.
pub(super) async fn in_bulk(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    let jobs = args.bulk_jobs;
    let (jobdeck, plain) =
        pairs("enqueue-bulk", args.rounds, |_| jobdeck_in_bulk(server, jobs), |_| floor_in_bulk(server, jobs)).await?;
    report.add(line("enqueue-bulk", 0, &jobdeck, &plain));
    Ok(())
}

fn thousands(jobs: u32) -> impl Iterator<Item = std::ops::Range<u32>> {
    (0..jobs).step_by(BULK as usize).map(move |start| start..(start + BULK).min(jobs))
}

async fn jobdeck_in_bulk(server: &Server, jobs: u32) -> Result<Sample> {
    let database = server.migrated().await?;
    let store = Store::connect(&database.url, 1).await?;
    subject::enqueue_bulk(&store, jobs..jobs + 1).await?;
    server.checkpoint().await?;

    let watch = Stopwatch::start(server.postmaster);
    for numbers in thousands(jobs) {
        subject::enqueue_bulk(&store, numbers).await?;
    }
    let sample = watch.stop(jobs);
    store.pool().close().await;
    server.drop(database).await?;
    Ok(sample)
}

async fn floor_in_bulk(server: &Server, jobs: u32) -> Result<Sample> {
    let database = server.empty().await?;
    floor::create(&database.url).await?;
    let mut connection = PgConnection::connect(&database.url).await?;
    floor::insert_many(&mut connection, jobs..jobs + 1).await?;
    server.checkpoint().await?;

    let watch = Stopwatch::start(server.postmaster);
    for numbers in thousands(jobs) {
        floor::insert_many(&mut connection, numbers).await?;
    }
    let sample = watch.stop(jobs);
    connection.close().await?;
    server.drop(database).await?;
    Ok(sample)
}
