//! Databases that crash, cut connections or do not answer.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use jobdeck::{EnqueueOptions, Store};

use crate::Extent;
use crate::cluster::Cluster;
use crate::proxy::Proxy;
use crate::stage::{Stage, ensure};
use crate::worker::{Errand, KeyedErrand, Settings};

pub(super) async fn connection_storm(extent: Extent) -> Result<()> {
    let (n_jobs, storm_for) = extent.pick((1000, Duration::from_secs(6)), (5000, Duration::from_secs(60)));
    let stage = Stage::new().await?;
    stage.enqueue_sleeping(n_jobs, 20..80).await?;
    let _workers = [stage.worker(&Settings::default())?, stage.worker(&Settings::default())?];
    let (begun, mut n_cut) = (Instant::now(), 0);
    while begun.elapsed() < storm_for {
        tokio::time::sleep(Duration::from_millis(300)).await;
        n_cut += stage
            .number(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity
                 where datname = current_database() and pid <> pg_backend_pid() and application_name = 'jobdeck'",
            )
            .await?;
    }
    stage.drained(Duration::from_secs(90)).await?;
    let succeeded = stage.number("select count(*) from jobdeck.jobs where status = 'succeeded'").await?;
    let keyed = stage.ledger.number("select count(*) from effects_keyed").await?;
    let in_transaction = stage.number("select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'").await?;
    println!("{n_jobs} jobs, {n_cut} connections cut: succeeded {succeeded}, keyed effects {keyed}");
    ensure(succeeded == n_jobs && keyed == n_jobs, "nothing is lost, nothing doubled behind a key")?;
    ensure(in_transaction == 0, "no transaction is left open")?;
    stage.check_rules().await
}

pub(super) async fn database_crashes(extent: Extent) -> Result<()> {
    let n_crashes = extent.pick(2, 10);
    let cluster = Cluster::start().await?;
    let stage = Stage::on(&cluster.url()).await?;
    let _worker = stage.worker(&Settings { lease: Duration::from_secs(3), ..Settings::default() })?;
    let (mut accepted, mut n_refused) = (HashSet::new(), 0);
    let mut n = 0;
    for _ in 0..n_crashes {
        for phase in [true, false] {
            // Enqueues on, also while the server is gone.
            let until = Instant::now() + Duration::from_secs(extent.pick(2, 6));
            if !phase {
                cluster.crash()?;
            }
            let back = Instant::now() + Duration::from_secs(2);
            let mut down = !phase;
            while Instant::now() < until {
                if down && Instant::now() >= back {
                    cluster.boot().await?;
                    down = false;
                }
                n += 1;
                let errand = Errand::sleeping(n, 10);
                let call = stage.store.enqueue(&errand, EnqueueOptions::default());
                match tokio::time::timeout(Duration::from_millis(500), call).await {
                    Ok(Ok(enqueued)) => drop(accepted.insert(enqueued.id)),
                    _ => n_refused += 1,
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            if down {
                cluster.boot().await?;
            }
        }
    }
    stage.drained(Duration::from_secs(60)).await?;
    let succeeded: Vec<jobdeck::JobId> =
        sqlx::query_scalar("select id from jobdeck.jobs where status = 'succeeded'").fetch_all(stage.pool()).await?;
    let succeeded: HashSet<_> = succeeded.into_iter().collect();
    let lost = accepted.difference(&succeeded).count();
    println!("{n_crashes} crashes: {} accepted, {n_refused} refused, {lost} lost", accepted.len());
    ensure(lost == 0 && !accepted.is_empty(), "every accepted job is done")?;
    stage.check_rules().await
}

pub(super) async fn lost_replies(extent: Extent) -> Result<()> {
    let n_jobs = extent.pick(100, 500);
    let stage = Stage::new().await?;
    let (proxy, url) = Proxy::to(&stage.queue_url).await?;
    let through = Store::connect(&url, 4).await?;
    proxy.cut_replies(true);
    let mut n_repeats = 0;
    for n in 0..n_jobs {
        let errand = KeyedErrand { key: format!("key {n}") };
        // A client that does not know asks again.
        while through.enqueue(&errand, EnqueueOptions::default()).await.is_err() {
            n_repeats += 1;
            ensure(n_repeats < n_jobs * 20, "calls get through in the end")?;
        }
    }
    let jobs = stage.number("select count(*) from jobdeck.jobs").await?;
    println!("{n_jobs} keyed enqueues, {n_repeats} repeated, {} replies lost: {jobs} jobs", proxy.cuts());
    ensure(jobs == n_jobs, "each is there once")?;
    ensure(proxy.cuts() > 0, "replies were lost at all")?;

    let settings = Settings { lease: Duration::from_secs(2), poll: Duration::from_millis(500), ..Settings::default() };
    let _worker = stage.worker_by(&url, &settings)?;
    stage.drained(Duration::from_secs(120)).await?;
    proxy.cut_replies(false);
    let done = stage.number("select count(*) from jobdeck.jobs where status = 'succeeded'").await?;
    let rerun = stage.number("select count(*) from jobdeck.attempts where outcome <> 'stalled'").await?;
    println!(
        "{done} done with replies lost all the while ({} in all), {rerun} outcomes other than success",
        proxy.cuts()
    );
    ensure(done == n_jobs && rerun == 0, "each success is recorded once")?;
    let doubled = stage
        .ledger
        .number("select count(*) from (select job_id from starts group by job_id, token having count(*) > 1) twice")
        .await?;
    ensure(doubled == 0, "no execution started twice")?;
    stage.check_rules().await
}

pub(super) async fn half_open_listener(extent: Extent) -> Result<()> {
    let stage = Stage::new().await?;
    let (proxy, url) = Proxy::to(&stage.queue_url).await?;
    let poll = Duration::from_secs(2);
    let _worker = stage.worker_by(&url, &Settings { poll, ..Settings::default() })?;
    stage.wait("a worker", Duration::from_secs(20), "select count(*) from jobdeck.workers", 1).await?;
    proxy.swallow_present();
    let slowest = slowest_start(&stage, extent.pick(5, 30)).await?;
    println!("behind port {}: slowest start {:.1} s", proxy.port(), slowest.as_secs_f64());
    // Each dead connection of the pool is found by a second without an answer, one in use by the time limit of a claim, the lease.
    ensure(slowest <= poll + Duration::from_secs(10), "jobs start although every present connection is dead")?;
    tokio::time::sleep(Duration::from_secs(extent.pick(12, 20))).await;
    let slowest = slowest_start(&stage, 5).await?;
    println!("later: slowest start {:.1} s", slowest.as_secs_f64());
    ensure(slowest <= poll + Duration::from_secs(1), "new connections took their place")?;
    stage.check_rules().await
}

pub(super) async fn no_hints(extent: Extent) -> Result<()> {
    let n_jobs = extent.pick(100, 1000);
    let stage = Stage::new().await?;
    sqlx::raw_sql("create or replace function jobdeck.wake(queue text) returns void language sql as ''")
        .execute(stage.pool())
        .await?;
    let poll = Duration::from_secs(2);
    let _worker = stage.worker(&Settings { slots: 50, poll, ..Settings::default() })?;
    stage.wait("a worker", Duration::from_secs(20), "select count(*) from jobdeck.workers", 1).await?;
    for _ in 0..5 {
        // Out of step with the polls.
        tokio::time::sleep(Duration::from_millis(700)).await;
        stage.enqueue_sleeping(n_jobs / 5, 1..5).await?;
    }
    stage.drained(Duration::from_secs(30)).await?;
    let slowest = stage
        .number("select max(extract(milliseconds from started_at - created_at))::bigint from jobdeck.jobs")
        .await?;
    println!("{n_jobs} jobs without a hint: slowest start {slowest} ms");
    ensure(
        u128::from(slowest.unsigned_abs()) <= (poll + Duration::from_secs(1)).as_millis(),
        "all start by the next poll",
    )?;
    stage.check_rules().await
}

pub(super) async fn dropped_calls(extent: Extent) -> Result<()> {
    let n_calls = extent.pick(1500, 10_000);
    let stage = Stage::new().await?;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..n_calls {
        let store = stage.store.clone();
        calls.spawn(async move {
            let call = async {
                if n % 2 == 0 {
                    let mut tx = store.begin().await?;
                    store.enqueue_in_tx(&mut *tx, &Errand::sleeping(n, 1), EnqueueOptions::default()).await?;
                    tx.commit().await?;
                } else {
                    store.enqueue(&KeyedErrand { key: format!("k{n}") }, EnqueueOptions::default()).await?;
                }
                Ok::<_, jobdeck::StoreError>(())
            };
            let patience = Duration::from_micros(fastrand::u64(0..20_000));
            tokio::time::timeout(patience, call).await.is_ok()
        });
        if n % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let finished = calls.join_all().await.into_iter().filter(|finished| *finished).count();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let open = stage.number("select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'").await?;
    for n in 0..200 {
        stage.store.enqueue(&Errand::sleeping(n, 1), EnqueueOptions::default()).await?;
    }
    println!("{n_calls} calls, {finished} not dropped: {open} transactions left open, the next 200 calls work");
    ensure(open == 0, "no transaction is left open")?;
    stage.check_rules().await
}

/// Enqueues one job after the other and returns how long the slowest waited for its start.
async fn slowest_start(stage: &Stage, n_jobs: i64) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for n in 0..n_jobs {
        let before = stage.ledger.number("select count(*) from starts").await?;
        let begun = Instant::now();
        stage.store.enqueue(&Errand::sleeping(n, 1), EnqueueOptions::default()).await?;
        while stage.ledger.number("select count(*) from starts").await? == before {
            ensure(begun.elapsed() < Duration::from_secs(30), "the job starts")?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        slowest = slowest.max(begun.elapsed());
    }
    Ok(slowest)
}
