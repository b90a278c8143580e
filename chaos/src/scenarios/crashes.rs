//! Processes that die, freeze, spin and stop.

use std::time::{Duration, Instant};

use anyhow::Result;
use jobdeck::EnqueueOptions;

use crate::Extent;
use crate::stage::{Stage, ensure};
use crate::worker::{Deed, Errand, RiskyErrand, Settings};

pub(super) async fn sigkill_loop(extent: Extent) -> Result<()> {
    let (n_jobs, kill_for) = extent.pick((1500, Duration::from_secs(8)), (10_000, Duration::from_secs(60)));
    let stage = Stage::new().await?;
    stage.enqueue_sleeping(n_jobs, 20..80).await?;
    let settings = Settings::default();
    let mut workers = [stage.worker(&settings)?, stage.worker(&settings)?];
    let (begun, mut n_kills) = (Instant::now(), 0);
    while begun.elapsed() < kill_for {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let victim = fastrand::usize(..workers.len());
        workers[victim].kill()?;
        workers[victim] = stage.worker(&settings)?;
        n_kills += 1;
    }
    let drained = stage.drained(Duration::from_secs(60)).await?;
    let succeeded = stage.number("select count(*) from jobdeck.jobs where status = 'succeeded'").await?;
    let keyed = stage.ledger.number("select count(*) from effects_keyed").await?;
    let raw = stage.ledger.number("select count(*) from effects_raw").await?;
    let starts = stage.ledger.number("select count(*) from starts").await?;
    let twins = stage.ledger.number("select count(*) - count(distinct (job_id, token)) from starts").await?;
    println!(
        "{n_jobs} jobs, {n_kills} kills: succeeded {succeeded}, keyed effects {keyed}, raw effects {raw}, starts {starts}, \
         drained {:.1} s after the last kill",
        drained.as_secs_f64()
    );
    ensure(succeeded == n_jobs, "nothing is lost")?;
    ensure(keyed == n_jobs, "every effect is there once behind its key")?;
    ensure(twins == 0, "no two starts share a token")?;
    ensure(starts - n_jobs <= n_kills * 8, "no more extra starts than jobs that ran when a worker was killed")?;
    stage.check_rules().await
}

pub(super) async fn frozen_worker(extent: Extent) -> Result<()> {
    let n_jobs = extent.pick(40, 200);
    let stage = Stage::new().await?;
    let errands: Vec<Errand> = (0..n_jobs).map(|n| Errand::sleeping(n, 1500)).collect();
    stage.store.enqueue_many(&errands, EnqueueOptions::default()).await?;
    let lease = Duration::from_secs(extent.pick(3, 5));
    let settings = Settings { slots: n_jobs as usize, lease, ..Settings::default() };
    let frozen = stage.worker(&settings)?;
    stage
        .wait("running", Duration::from_secs(20), "select count(*) from jobdeck.jobs where status = 'running'", n_jobs)
        .await?;
    let n_frozen = stage.ledger.number("select count(*) from starts").await?;
    frozen.signal("STOP")?;
    let begun = Instant::now();
    let other = stage.worker(&settings)?;
    let done = stage.drained(lease * 3 + Duration::from_secs(20)).await?;
    let n_early = stage.number(
        "select count(*) from jobdeck.jobs j where j.token > 1 and j.status = 'succeeded' and (j.result->>'token')::bigint <> j.token").await?;
    let before = stage.number("select sum(hashtext(j.*::text))::bigint from jobdeck.jobs j").await?;
    // Frozen for three leases in all, so that its outcomes come after the other's.
    tokio::time::sleep((lease * 3).saturating_sub(begun.elapsed())).await;
    frozen.signal("CONT")?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = stage.number("select sum(hashtext(j.*::text))::bigint from jobdeck.jobs j").await?;
    let restarted = stage.number("select count(*) from jobdeck.jobs where token = 2").await?;
    let noted = stage.number("select count(*) from jobdeck.attempts where outcome = 'stalled' and token = 1").await?;
    let others = stage.number("select count(*) from jobdeck.attempts where outcome <> 'stalled'").await?;
    println!(
        "{n_jobs} jobs, {n_frozen} begun by the frozen worker, {restarted} done by the other within {:.1} s, {noted} stalls",
        done.as_secs_f64()
    );
    ensure(
        restarted == n_jobs && noted == n_jobs && others == 0,
        "each was taken over once, and nothing else happened",
    )?;
    ensure(n_early == 0, "each result is that of the holder")?;
    ensure(before == after, "late outcomes change nothing")?;
    drop(other);
    stage.check_rules().await
}

pub(super) async fn busy_handlers(extent: Extent) -> Result<()> {
    let (n_jobs, lease) = extent.pick((4, Duration::from_secs(2)), (100, Duration::from_secs(5)));
    let stage = Stage::new().await?;
    let ms = u64::try_from((lease * 3).as_millis())?;
    let errands: Vec<Errand> = (0..n_jobs).map(|n| Errand { n, deed: Deed::Spin, ms }).collect();
    stage.store.enqueue_many(&errands, EnqueueOptions::default()).await?;
    let settings = Settings { slots: 2, lease, ..Settings::default() };
    let _busy = stage.worker(&settings)?;
    // Would take over whatever the busy one let go of.
    let _idle = stage.worker(&settings)?;
    stage.drained(lease * 3 * u32::try_from(n_jobs)? + Duration::from_secs(30)).await?;
    let starts = stage.ledger.number("select count(*) from starts").await?;
    let stalls = stage.number("select count(*) from jobdeck.attempts").await?;
    println!("{n_jobs} spinning jobs: {starts} starts, {stalls} lost");
    ensure(starts == n_jobs && stalls == 0, "no lease was lost")?;
    stage.check_rules().await
}

pub(super) async fn time_to_recover(extent: Extent) -> Result<()> {
    let stage = Stage::new().await?;
    let settings =
        Settings { slots: 20, lease: Duration::from_secs(15), poll: Duration::from_secs(2), ..Settings::default() };
    for round in 0..extent.pick(1, 10) {
        sqlx::raw_sql("delete from jobdeck.jobs where status = 'succeeded'").execute(stage.pool()).await?;
        sqlx::raw_sql("truncate starts").execute(stage.ledger.pool().await).await?;
        let errands: Vec<Errand> = (0..20).map(|n| Errand::sleeping(n, 5000)).collect();
        stage.store.enqueue_many(&errands, EnqueueOptions::default()).await?;
        let mut victim = stage.worker(&settings)?;
        let begun = Instant::now();
        while stage.ledger.number("select count(*) from starts").await? < 20 {
            ensure(begun.elapsed() < Duration::from_secs(20), "twenty jobs start")?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(500..3500))).await;
        let killed_at: f64 = sqlx::query_scalar("select extract(epoch from clock_timestamp())::float8")
            .fetch_one(stage.ledger.pool().await)
            .await?;
        victim.kill()?;
        let _next = stage.worker(&settings)?;
        stage.drained(Duration::from_secs(40)).await?;
        let (first, last): (f64, f64) = sqlx::query_as(
            "select min(extract(epoch from at))::float8 - $1, max(extract(epoch from at))::float8 - $1
             from starts where token = 2",
        )
        .bind(killed_at)
        .fetch_one(stage.ledger.pool().await)
        .await?;
        println!("round {}: first start again after {first:.1} s, last after {last:.1} s", round + 1);
        ensure(last <= 17.0, "all run again within 17 s")?;
        ensure(first >= 10.0, "none is taken early")?;
    }
    stage.check_rules().await
}

pub(super) async fn poison(extent: Extent) -> Result<()> {
    let n_neighbours = extent.pick(200, 1000);
    let stage = Stage::new().await?;
    let deeds = extent.pick(&[Deed::Abort][..], &[Deed::Abort, Deed::Overflow][..]);
    let mut poisons = Vec::new();
    for deed in deeds {
        let errand = RiskyErrand { n: -1, deed: *deed, ms: 0 };
        poisons.push(stage.store.enqueue(&errand, EnqueueOptions::default()).await?.id);
    }
    stage.enqueue_sleeping(n_neighbours, 20..80).await?;
    let settings = Settings { lease: Duration::from_secs(2), poll: Duration::from_secs(1), ..Settings::default() };
    let mut workers = [stage.worker(&settings)?, stage.worker(&settings)?];
    let begun = Instant::now();
    let mut n_restarts = 0;
    const OPEN: &str = "select count(*) from jobdeck.jobs where status in ('pending', 'running', 'retrying')";
    while stage.number(OPEN).await? > 0 {
        ensure(begun.elapsed() < Duration::from_secs(120), "poison and neighbours come to an end")?;
        for worker in &mut workers {
            if !worker.runs()? {
                n_restarts += 1;
                *worker = stage.worker(&settings)?;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let succeeded = stage.number("select count(*) from jobdeck.jobs where status = 'succeeded'").await?;
    println!(
        "{} poison jobs, {n_neighbours} neighbours: {succeeded} succeeded, {n_restarts} processes died, {:.1} s",
        poisons.len(),
        begun.elapsed().as_secs_f64()
    );
    for id in poisons {
        let Some(job) = stage.store.job_get(id).await? else { anyhow::bail!("the poison job is gone") };
        ensure(job.starts == 4, format!("max_stalled 3 means 4 starts, not {}", job.starts))?;
        ensure(
            job.state == jobdeck::JobState::Failed && job.error_class == Some(jobdeck::FailureClass::Stalled),
            "it ends failed, class stalled",
        )?;
    }
    ensure(succeeded == n_neighbours, "every neighbour succeeds")?;
    stage.check_rules().await
}

pub(super) async fn graceful_stop(extent: Extent) -> Result<()> {
    let n_jobs = extent.pick(30, 100);
    let stage = Stage::new().await?;
    let errands: Vec<Errand> = (0..n_jobs + 20).map(|n| Errand::sleeping(n, 2000)).collect();
    stage.store.enqueue_many(&errands, EnqueueOptions::default()).await?;
    let mut worker = stage.worker(&Settings { slots: n_jobs as usize, ..Settings::default() })?;
    let begun = Instant::now();
    while stage.ledger.number("select count(*) from starts").await? < n_jobs {
        ensure(begun.elapsed() < Duration::from_secs(20), "the jobs start")?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker.signal("TERM")?;
    let told = Instant::now();
    let code = worker.ended(Duration::from_secs(12)).await?;
    let starts = stage.ledger.number("select count(*) from starts").await?;
    let once = stage
        .number("select count(*) from jobdeck.jobs where status = 'succeeded' and attempts = 1 and starts = 1")
        .await?;
    let waiting = stage.number("select count(*) from jobdeck.jobs where status = 'pending' and attempts = 0").await?;
    println!(
        "exit code {code:?} after {:.1} s, {starts} starts, {once} succeeded, {waiting} wait",
        told.elapsed().as_secs_f64()
    );
    ensure(code == Some(0), "the exit code is 0")?;
    ensure(
        starts == n_jobs && once == n_jobs && waiting == 20,
        "nothing was claimed after the signal, nothing ran twice",
    )?;
    stage.check_rules().await
}

pub(super) async fn handler_ends(extent: Extent) -> Result<()> {
    let n_each = extent.pick(40, 250);
    let stage = Stage::new().await?;
    let good: Vec<Errand> = (0..n_each * 2).map(|n| Errand::sleeping(n, 10)).collect();
    let bad: Vec<RiskyErrand> = (0..n_each)
        .map(|n| RiskyErrand { n: -n, deed: if n % 2 == 0 { Deed::Panic } else { Deed::Fail }, ms: 0 })
        .collect();
    stage.store.enqueue_many(&good, EnqueueOptions::default()).await?;
    stage.store.enqueue_many(&bad, EnqueueOptions::default()).await?;
    let mut worker = stage.worker(&Settings { slots: 4, ..Settings::default() })?;
    stage.drained(Duration::from_secs(60)).await?;
    let failed = stage
        .number("select count(*) from jobdeck.jobs where status = 'failed' and attempts = 2 and starts = 2")
        .await?;
    let succeeded = stage.number("select count(*) from jobdeck.jobs where status = 'succeeded'").await?;
    let longest = stage.number("select coalesce(max(octet_length(error)), 0)::bigint from jobdeck.attempts").await?;
    println!(
        "{succeeded} good jobs succeeded, {failed} bad ones failed after two attempts, longest error {longest} bytes"
    );
    ensure(worker.runs()?, "the process is alive")?;
    ensure(succeeded == n_each * 2 && failed == n_each, "two attempts each, and no other job is harmed")?;
    ensure((1000..=8192).contains(&longest), "errors are kept, cut to 8 KiB")?;
    stage.check_rules().await
}

pub(super) async fn timeout(extent: Extent) -> Result<()> {
    let n_hanging = extent.pick(10, 50);
    let stage = Stage::new().await?;
    let hanging: Vec<RiskyErrand> = (0..n_hanging).map(|n| RiskyErrand { n: -n, deed: Deed::Forever, ms: 0 }).collect();
    stage.store.enqueue_many(&hanging, EnqueueOptions::default()).await?;
    stage.enqueue_sleeping(n_hanging * 10, 10..30).await?;
    let _worker = stage.worker(&Settings { slots: 8, ..Settings::default() })?;
    stage.drained(Duration::from_secs(60)).await?;
    let slow = stage
        .number("select count(*) from jobdeck.attempts where error_code = 'timeout' and ended_at - started_at > interval '3 seconds'")
        .await?;
    let timed_out = stage.number("select count(*) from jobdeck.attempts where error_code = 'timeout'").await?;
    let succeeded = stage.number("select count(*) from jobdeck.jobs where status = 'succeeded'").await?;
    println!("{timed_out} attempts timed out, {slow} later than 3 s; {succeeded} normal jobs succeeded");
    ensure(timed_out == n_hanging * 2 && slow == 0, "each of two attempts is recorded within 3 s")?;
    ensure(succeeded == n_hanging * 10, "normal jobs are not starved")?;
    stage.check_rules().await
}
