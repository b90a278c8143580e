//! How long a job waits when nothing else does: 100 a second on an idle worker.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jobdeck::{Ctx, JobError, Store, Worker};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::args::Args;
use crate::measure::percentile;
use crate::report::{Line, Report};
use crate::server::Server;
use crate::subject::{self, Noop, QUEUE, WORKER_CONNECTIONS};

const PER_SECOND: f64 = 100.0;
/// Jobs that come before those that count: connections open, statements are planned.
const WARM_UP: u32 = 50;

type Starts = Arc<Mutex<Vec<Option<Instant>>>>;

/// When an insert was sent and when its commit had returned.
struct Inserted {
    number: u32,
    sent: Instant,
    committed: Instant,
}

/// Producer and worker share a process, so that one clock measures both ends: from the moment the insert's commit returned to
/// the start of the handler. A handler that starts before the producer has its answer waited 0.
pub(super) async fn pickup(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    let jobs = WARM_UP + args.pickup_jobs;
    let database = server.migrated().await?;
    let starts: Starts = Arc::new(Mutex::new(vec![None; jobs as usize]));
    let worker_store = Store::connect(&database.url, WORKER_CONNECTIONS).await?;
    let seen = starts.clone();
    let worker = Worker::builder(worker_store.clone(), &database.url)
        .register(move |_: Ctx, job: Noop| {
            let now = Instant::now();
            if let Ok(mut starts) = seen.lock()
                && let Some(start) = starts.get_mut(job.number as usize)
            {
                start.get_or_insert(now);
            }
            async { Ok::<(), JobError>(()) }
        })
        .queue(QUEUE, 50)
        .build()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async { stopped.await.unwrap_or_default() }));

    let store = Store::connect(&database.url, 8).await?;
    let inserted = produce(&store, jobs).await?;
    wait_for_all(&starts).await?;
    let _ = stop.send(());
    running.await??;
    store.pool().close().await;
    worker_store.pool().close().await;
    server.drop(database).await?;

    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let starts = starts.lock().ok().context("a handler panicked")?.clone();
    let counted = || inserted.iter().filter(|insert| insert.number >= WARM_UP);
    let waits: Vec<f64> = counted()
        .filter_map(|insert| Some(ms(starts[insert.number as usize]?.saturating_duration_since(insert.committed))))
        .collect();
    let commits: Vec<f64> = counted().map(|insert| ms(insert.committed - insert.sent)).collect();
    for (workload, times) in [("pickup", waits), ("pickup-commit", commits)] {
        let (p50_ms, p99_ms) = (percentile(&times, 0.5), percentile(&times, 0.99));
        eprintln!("{workload}: p50 {:.2} ms, p99 {:.2} ms", p50_ms.unwrap_or_default(), p99_ms.unwrap_or_default());
        report.add(Line { workload: workload.to_owned(), p50_ms, p99_ms, ..Line::default() });
    }
    Ok(())
}

/// Enqueues on a fixed beat, whatever earlier ones are waiting for.
async fn produce(store: &Store, jobs: u32) -> Result<Vec<Inserted>> {
    let mut beat = tokio::time::interval(Duration::from_secs_f64(1.0 / PER_SECOND));
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut inserts = JoinSet::new();
    for number in 0..jobs {
        beat.tick().await;
        let store = store.clone();
        inserts.spawn(async move {
            let sent = Instant::now();
            subject::enqueue(&store, number).await?;
            Ok::<_, anyhow::Error>(Inserted { number, sent, committed: Instant::now() })
        });
    }
    let mut inserted = Vec::new();
    while let Some(insert) = inserts.join_next().await {
        inserted.push(insert??);
    }
    Ok(inserted)
}

async fn wait_for_all(starts: &Starts) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(20);
    let asked = Instant::now();
    loop {
        let missing = starts.lock().ok().context("a handler panicked")?.iter().filter(|start| start.is_none()).count();
        if missing == 0 {
            return Ok(());
        }
        if asked.elapsed() > LIMIT {
            bail!("{missing} jobs were not started within {LIMIT:?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
