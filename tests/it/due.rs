//! A worker sleeps until the next job is due, not until the next poll, and no shorter than that.

use std::time::{Duration, Instant};

use jobdeck::store::QueueLimits;
use jobdeck::{Backoff, Ctx, EnqueueOptions, JobError, JobId, JobState, JobType, Policy, WorkerBuilder};
use serde::{Deserialize, Serialize};

use crate::support::{Db, Note, person};
use crate::worker::{builder, run};

const POLL: Duration = Duration::from_secs(10);

/// A job is in time if it starts this long before the next poll at the latest.
const IN_TIME: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
struct Call {
    fails: String,
}

impl JobType for Call {
    const TYPE: &'static str = "call";
    fn policy() -> Policy {
        let backoff = Backoff::Fixed(Duration::from_millis(700));
        Policy { backoff, jitter: 0.0, provider: Some("provider".to_owned()), ..Policy::default() }
    }
}

fn slow_poller(db: &Db) -> WorkerBuilder {
    builder(db)
        .poll_every(POLL)
        .register(async |_: Ctx, _: Note| Ok(()))
        .register(async |ctx: Ctx, call: Call| {
            let wait = Duration::from_millis(700);
            match (ctx.attempt(), call.fails.as_str()) {
                (1, "once") => Err(JobError::retryable("timeout", "once")),
                (1, "snoozes") if ctx.starts() == 1 => Err(JobError::snooze(wait, "later")),
                (1, "limited") if ctx.starts() == 1 => Err(JobError::rate_limited(wait, "slowly")),
                _ => Ok(()),
            }
        })
        .queue("default", 4)
}

async fn delayed(db: &Db, delay: Duration) -> JobId {
    let options = EnqueueOptions { delay, ..EnqueueOptions::default() };
    db.store.enqueue(&Note::new("later"), options).await.expect("enqueued").id
}

async fn succeeds_in_time(db: &Db, id: JobId) {
    let begun = Instant::now();
    db.wait_for(id, JobState::Succeeded).await;
    assert!(begun.elapsed() < IN_TIME, "took {:?}", begun.elapsed());
}

#[tokio::test]
async fn job_that_becomes_due_between_polls_starts_then() {
    let db = Db::new().await;
    let id = delayed(&db, Duration::from_millis(700)).await;
    let worker = run(slow_poller(&db).build().expect("valid"));
    succeeds_in_time(&db, id).await;
    let job = db.job(id).await;
    assert!(job.started_at.expect("started") >= job.run_after, "never early by the database's clock");
    worker.stop().await;
}

#[tokio::test]
async fn one_of_many_delays_after_the_other_is_kept() {
    let db = Db::new().await;
    let mut last = delayed(&db, Duration::from_millis(600)).await;
    for n in 1..=20 {
        last = delayed(&db, Duration::from_millis(600 + 50 * n)).await;
    }
    let worker = run(slow_poller(&db).build().expect("valid"));
    succeeds_in_time(&db, last).await;
    let latest = "select extract(milliseconds from max(started_at - run_after))::bigint from jobdeck.jobs";
    assert!(db.scalar(latest).await < 2000, "none waited for another");
    worker.stop().await;
}

#[tokio::test]
async fn retry_snooze_and_a_providers_pause_end_in_time() {
    let db = Db::new().await;
    let worker = run(slow_poller(&db).build().expect("valid"));
    for fails in ["once", "snoozes", "limited"] {
        let id = db.enqueue(&Call { fails: fails.to_owned() }).await;
        succeeds_in_time(&db, id).await;
    }
    worker.stop().await;
}

#[tokio::test]
async fn cool_down_that_another_worker_met_ends_in_time() {
    let db = Db::new().await;
    let mut connection = db.connection().await;
    jobdeck::Store::job_type_register(&mut connection, &[(Call::TYPE.to_owned(), Call::policy())])
        .await
        .expect("registered");
    sqlx::query("insert into jobdeck.cool_downs (provider, until) values ('provider', now() + interval '1500 ms')")
        .execute(db.store.pool())
        .await
        .expect("cools down");
    let id = db.enqueue(&Call { fails: "never".to_owned() }).await;
    let worker = run(slow_poller(&db).build().expect("valid"));
    succeeds_in_time(&db, id).await;
    worker.stop().await;
}

/// Runs a worker for three seconds beside jobs that it may not take, and returns how often it tried to claim.
async fn claims_beside(db: &Db) -> i64 {
    sqlx::raw_sql(
        "do $$ begin execute format('alter database %I set track_functions = ''pl''', current_database()); end $$",
    )
    .execute(db.store.pool())
    .await
    .expect("set");
    let worker = run(slow_poller(db).poll_every(Duration::from_millis(500)).build().expect("valid"));
    tokio::time::sleep(Duration::from_secs(3)).await;
    worker.stop().await;
    // The worker's connections hand in their figures when they end.
    let begun = Instant::now();
    loop {
        let calls = "select coalesce(max(calls), 0) from pg_stat_user_functions where funcname = 'claim_jobs'";
        let n = db.scalar(calls).await;
        if n > 0 || begun.elapsed() > Duration::from_secs(5) {
            return n;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn job_that_nobody_may_take_is_not_asked_for_again_and_again() {
    let db = Db::new().await;
    // Due when the worker starts, and due while it runs; of a paused queue, beyond a limit, of an unknown type, of a provider's pause.
    let wait = [Duration::ZERO, Duration::from_millis(1200), Duration::from_millis(2000)];
    for delay in wait {
        delayed(&db, delay).await;
    }
    db.store.queue_pause("default", &person()).await.expect("paused");
    let paused = claims_beside(&db).await;

    let db = Db::new().await;
    db.store
        .queue_set_limits("default", QueueLimits { concurrency: Some(1), per_key: None }, &person())
        .await
        .expect("set");
    db.enqueue(&Note::new("runs elsewhere")).await;
    db.claim("elsewhere").await;
    sqlx::query("update jobdeck.jobs set lease_expires_at = now() + interval '1 hour'")
        .execute(db.store.pool())
        .await
        .expect("held");
    for delay in wait {
        delayed(&db, delay).await;
    }
    let full = claims_beside(&db).await;

    let db = Db::new().await;
    sqlx::query(
        "select jobdeck.enqueue('unknown', '{}', run_after => now() + i * interval '700 ms') from generate_series(0, 3) i",
    )
    .execute(db.store.pool())
    .await
    .expect("enqueued");
    let unknown = claims_beside(&db).await;

    let db = Db::new().await;
    sqlx::query("insert into jobdeck.cool_downs (provider, until) values ('provider', now() + interval '1 hour')")
        .execute(db.store.pool())
        .await
        .expect("cools down");
    for _ in 0..3 {
        db.enqueue(&Call { fails: "never".to_owned() }).await;
    }
    let cooling = claims_beside(&db).await;
    println!("claims: paused {paused}, full {full}, unknown {unknown}, cooling {cooling}");
    // Six polls, three looks after a hint, and one or two for each job that becomes due.
    for n in [paused, full, unknown, cooling] {
        assert!((4..=30).contains(&n), "claims: paused {paused}, full {full}, unknown {unknown}, cooling {cooling}");
    }
}

#[tokio::test]
async fn next_due_leaves_out_what_was_due_before_and_what_a_pause_holds_back() {
    let db = Db::new().await;
    let types = ["note".to_owned(), "call".to_owned()];
    let next = async |since| db.store.job_next_due("default", &types, since).await.expect("answered");
    assert_eq!(next(None).await.due_in(), None);
    db.enqueue(&Note::new("due")).await;
    let first = next(None).await;
    assert_eq!(first.due_in(), Some(Duration::ZERO), "it may have become due after the first claim");
    assert_eq!(next(Some(first.now)).await.due_in(), None, "the claim since then did not get it");
    let id = delayed(&db, Duration::from_secs(60)).await;
    let due_in = next(Some(first.now)).await.due_in().expect("one waits");
    assert!((55..=61).contains(&due_in.as_secs()), "{due_in:?}");
    // Of another priority and type, and sooner.
    let options = EnqueueOptions { delay: Duration::from_secs(30), priority: Some(-5), ..EnqueueOptions::default() };
    db.store.enqueue(&Call { fails: String::new() }, options).await.expect("enqueued");
    let due_in = next(Some(first.now)).await.due_in().expect("one waits");
    assert!((25..=31).contains(&due_in.as_secs()), "{due_in:?}");
    let of_note = db.store.job_next_due("default", &types[..1], Some(first.now)).await.expect("answered");
    assert_eq!(of_note.due_at, Some(db.job(id).await.run_after));
    db.store.queue_pause("default", &person()).await.expect("paused");
    assert_eq!(next(Some(first.now)).await.due_in(), None);
}

#[tokio::test]
async fn hint_of_a_job_is_sent_whoever_enqueues_in_an_open_transaction_or_one_that_rolls_back() {
    let db = Db::new().await;
    let mut listener = sqlx::postgres::PgListener::connect(&db.url).await.expect("connected");
    listener.listen("jobdeck_jobs").await.expect("listening");
    let note = || (Note::new("x"), EnqueueOptions::default());
    for round in 0..20 {
        let mut open = db.store.begin().await.expect("begun");
        let (job, options) = note();
        db.store.enqueue_in_tx(&mut *open, &job, options).await.expect("enqueued");
        sqlx::query("select jobdeck.enqueue('note', '{}')").execute(&mut *open).await.expect("enqueued");
        if round % 2 == 0 {
            open.rollback().await.expect("rolled back");
            open = db.store.begin().await.expect("begun");
        }
        let (job, options) = note();
        db.store.enqueue(&job, options).await.expect("enqueued");
        let hint = tokio::time::timeout(Duration::from_secs(10), listener.recv()).await;
        assert_eq!(hint.expect("in time").expect("received").payload(), "default");
        open.rollback().await.expect("rolled back");
        // Past the time within which the next one's hint would be left to this one's.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
