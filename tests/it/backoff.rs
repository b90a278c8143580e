//! Delays at high attempt numbers, as a worker writes them.

use std::time::Duration;

use jobdeck::{Backoff, Ctx, JobError, JobType, Policy};
use serde::{Deserialize, Serialize};

use crate::support::Db;
use crate::worker::{builder, run};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Serialize, Deserialize)]
struct Short {}

impl JobType for Short {
    const TYPE: &'static str = "short";
    fn policy() -> Policy {
        Policy { jitter: 1.0, ..Policy::default() }
    }
}

#[derive(Serialize, Deserialize)]
struct Long {}

impl JobType for Long {
    const TYPE: &'static str = "long";
    fn policy() -> Policy {
        Policy { backoff: Backoff::Exponential { first: DAY, factor: 3.0, cap: DAY * 30 }, ..Policy::default() }
    }
}

#[tokio::test]
async fn next_run_is_after_now_and_below_the_cap_at_any_attempt_number() {
    let db = Db::new().await;
    let worker = builder(&db)
        .lease(Duration::from_secs(15), Duration::from_secs(1))
        .register(async |_: Ctx, _: Short| Err::<(), _>(JobError::retryable("other", "again")))
        .register(async |_: Ctx, _: Long| Err::<(), _>(JobError::retryable("other", "again")))
        .queue("default", 50)
        .build()
        .expect("valid");
    sqlx::query(
        "insert into jobdeck.jobs (type, payload, status, attempts, max_attempts)
         select type, '{}', 'retrying', attempt - 1, 2147483647
         from unnest(array['short', 'long']) type, unnest(array[1, 20, 64, 310, 1000, 2147483646]) attempt,
           generate_series(1, 200)",
    )
    .execute(db.store.pool())
    .await
    .expect("inserted");
    let worker = run(worker);
    let begun = std::time::Instant::now();
    while db.scalar("select count(*) from jobdeck.jobs where starts = 0 or status = 'running'").await > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "every job was tried");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    worker.stop().await;
    let attempts: Vec<(String, i32, Option<f64>)> = sqlx::query_as(
        // The first of each: a short wait may be over already, and another failure have followed.
        "select distinct on (j.id) j.type, a.attempt, extract(epoch from a.next_run_at - a.ended_at)::float8
         from jobdeck.attempts a join jobdeck.jobs j on j.id = a.job_id where a.outcome = 'failed'
         order by j.id, a.token",
    )
    .fetch_all(db.store.pool())
    .await
    .expect("listed");
    assert_eq!(attempts.len(), 2 * 6 * 200);
    for (job_type, attempt, delay) in attempts {
        let cap = if job_type == "short" { 600.0 } else { 30.0 * DAY.as_secs_f64() };
        let delay = delay.expect("never null");
        assert!((0.0..=cap).contains(&delay), "{job_type} attempt {attempt}: {delay} s");
        assert!(job_type == "short" || delay >= 0.8 * DAY.as_secs_f64(), "attempt {attempt}: {delay} s");
    }
    let wrapped = db.scalar("select count(*) from jobdeck.jobs where attempts < 1 or last_error <> 'again'").await;
    assert_eq!(wrapped, 0);
}
