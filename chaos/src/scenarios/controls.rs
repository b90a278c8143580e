//! Limits, cancels and delays.

use std::time::{Duration, Instant};

use anyhow::Result;
use jobdeck::store::{Actor, CancelOutcome, QueueLimits};
use jobdeck::{EnqueueOptions, JobState};

use crate::Extent;
use crate::stage::{Stage, ensure};
use crate::worker::{Deed, Errand, RiskyErrand, Settings};

fn person() -> Actor {
    Actor { name: "chaos".to_owned(), ..Actor::default() }
}

pub(super) async fn global_limit(extent: Extent) -> Result<()> {
    let run_for = extent.pick(Duration::from_secs(8), Duration::from_secs(60));
    let stage = Stage::new().await?;
    let limits = QueueLimits { concurrency: Some(3), per_key: None };
    stage.store.queue_set_limits("errands", limits, &person()).await?;
    stage.enqueue_sleeping(5000, 50..150).await?;
    let settings = Settings { lease: Duration::from_secs(2), poll: Duration::from_millis(500), ..Settings::default() };
    let mut workers = (0..4).map(|_| stage.worker(&settings)).collect::<Result<Vec<_>>>()?;
    let (begun, mut last_kill, mut most) = (Instant::now(), Instant::now(), 0);
    while begun.elapsed() < run_for {
        let live = stage
            .number("select count(*) from jobdeck.jobs where status = 'running' and lease_expires_at >= now()")
            .await?;
        most = most.max(live);
        if last_kill.elapsed() > Duration::from_secs(1) {
            let victim = fastrand::usize(..workers.len());
            workers[victim].kill()?;
            workers[victim] = stage.worker(&settings)?;
            last_kill = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = stage.number("select count(*) from jobdeck.jobs where status = 'succeeded'").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = stage.number("select count(*) from jobdeck.jobs where status = 'succeeded'").await?;
    println!("most live leases {most} of 3, {after} done, {} of them in the last 5 s without kills", after - before);
    ensure(most == 3, "the limit is reached and never passed")?;
    ensure(after - before > 20, "the limit does not sink")?;
    stage.check_rules().await
}

pub(super) async fn cancels(extent: Extent) -> Result<()> {
    let n_jobs = extent.pick(200, 1000);
    let stage = Stage::new().await?;
    let _worker = stage.worker(&Settings { slots: 20, ..Settings::default() })?;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..n_jobs {
        let id = stage.store.enqueue(&Errand::sleeping(n, fastrand::u64(50..300)), EnqueueOptions::default()).await?.id;
        let store = stage.store.clone();
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..1500))).await;
            Ok::<_, jobdeck::StoreError>((id, store.job_cancel(id, &person()).await?))
        });
    }
    let mut counts = [0; 3];
    let answers = tasks.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    stage.drained(Duration::from_secs(60)).await?;
    for (id, answer) in answers {
        let state = stage.store.job_get(id).await?.map(|job| job.state);
        let (place, fits) = match answer {
            CancelOutcome::Canceled => (0, state == Some(JobState::Canceled)),
            CancelOutcome::Requested => (1, matches!(state, Some(JobState::Canceled | JobState::Succeeded))),
            CancelOutcome::AlreadyFinal(_) => (2, state == Some(JobState::Succeeded)),
            CancelOutcome::NotFound => (2, false),
        };
        counts[place] += 1;
        ensure(fits, format!("job {id} was answered {answer:?} and is {state:?}"))?;
    }
    println!("{n_jobs} cancels: {} canceled, {} requested, {} had ended", counts[0], counts[1], counts[2]);
    stage.check_rules().await
}

pub(super) async fn backoff(extent: Extent) -> Result<()> {
    let n_jobs = extent.pick(100, 1000);
    let stage = Stage::new().await?;
    let errands: Vec<RiskyErrand> = (0..n_jobs).map(|n| RiskyErrand { n, deed: Deed::Fail, ms: 0 }).collect();
    stage.store.enqueue_many(&errands, EnqueueOptions::default()).await?;
    let _worker = stage.worker(&Settings { slots: 20, poll: Duration::from_millis(200), ..Settings::default() })?;
    stage.drained(Duration::from_secs(120)).await?;
    let failed = stage
        .number("select count(*) from jobdeck.jobs where status = 'failed' and attempts = 2 and starts = 2")
        .await?;
    // Fixed one second, jitter 0.2.
    let outside = stage
        .number(
            "select count(*) from jobdeck.attempts where next_run_at is not null
             and next_run_at - ended_at not between interval '0.8 seconds' and interval '1.2 seconds'",
        )
        .await?;
    let early = stage
        .number(
            "select count(*) from jobdeck.attempts a join jobdeck.attempts b on b.job_id = a.job_id and b.attempt = a.attempt + 1
             where b.started_at < a.next_run_at",
        )
        .await?;
    println!(
        "{n_jobs} failing jobs: {failed} failed after two starts, {outside} delays outside, {early} started early"
    );
    ensure(failed == n_jobs && outside == 0 && early == 0, "two attempts mean one retry, inside its bounds")?;
    stage.check_rules().await
}
