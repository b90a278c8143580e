//! The worker as a whole: real handlers, real leases, and processes that are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jobdeck::{Ctx, EnqueueOptions, JobError, JobState, JobType, Policy, Worker};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{Barrier, oneshot};

use crate::support::{Db, Note, person};

/// A worker on its own task; stops when told or dropped.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<Result<(), jobdeck::WorkerError>>,
}

pub(crate) fn builder(db: &Db) -> jobdeck::WorkerBuilder {
    Worker::builder(db.store.clone(), &db.url)
        .lease(Duration::from_secs(2), Duration::from_millis(300))
        .poll_every(Duration::from_millis(500))
        .grace(Duration::from_secs(2))
}

pub(crate) fn run(worker: Worker) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move { drop(stopped.await) };
    Running { stop: Some(stop), task: tokio::spawn(worker.run_until(shutdown)) }
}

impl Running {
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.expect("no panic").expect("stopped cleanly");
    }
}

#[tokio::test]
async fn job_runs_through_its_stages_to_its_result() {
    let db = Db::new().await;
    let worker = builder(&db)
        .register(async |ctx: Ctx, note: Note| {
            ctx.stage("writing").await?;
            ctx.progress(40).await?;
            ctx.progress(30).await?;
            Ok(json!({"length": note.text.len()}))
        })
        .queue("default", 2)
        .build()
        .expect("valid");
    let worker = run(worker);
    let id = db.enqueue(&Note::new("four")).await;
    let job = db.wait_for(id, JobState::Succeeded).await;
    assert_eq!((job.result, job.stage.as_deref(), job.attempts), (Some(json!({"length": 4})), Some("writing"), 1));
    assert!(job.stages_at.get("writing").is_some());
    worker.stop().await;
    assert_eq!(db.scalar("select count(*) from jobdeck.workers").await, 0, "a stopped worker leaves the registry");
}

#[tokio::test]
async fn panic_is_a_failed_attempt_and_other_jobs_go_on() {
    let db = Db::new().await;
    let worker = builder(&db)
        .register(async |ctx: Ctx, note: Note| {
            if note.text == "panics" && ctx.attempt() == 1 {
                panic!("boom {}", "x".repeat(20_000));
            }
            Ok(ctx.attempt())
        })
        .queue("default", 2)
        .build()
        .expect("valid");
    let worker = run(worker);
    let panics = db.enqueue(&Note::new("panics")).await;
    let good = db.enqueue(&Note::new("good")).await;
    db.wait_for(good, JobState::Succeeded).await;
    let job = db.wait_for(panics, JobState::Succeeded).await;
    assert_eq!(job.result, Some(json!(2)));
    let attempts = db.store.attempt_list(panics).await.expect("listed");
    assert_eq!((attempts.len(), attempts[0].error_code.as_deref()), (1, Some("panic")));
    let text = attempts[0].error.clone().expect("text");
    assert!(text.starts_with("handler panicked: boom x") && text.len() <= jobdeck::MAX_ERROR_BYTES);
    worker.stop().await;
}

#[derive(Serialize, Deserialize)]
struct Hasty {}

impl JobType for Hasty {
    const TYPE: &'static str = "hasty";
    fn policy() -> Policy {
        Policy { timeout: Duration::from_millis(300), max_attempts: 1, ..Policy::default() }
    }
}

#[tokio::test]
async fn job_past_its_time_limit_is_failed_and_its_slot_is_free() {
    let db = Db::new().await;
    let worker = builder(&db)
        .register(async |_: Ctx, _: Hasty| {
            std::future::pending::<()>().await;
            Ok(())
        })
        .queue("default", 1)
        .build()
        .expect("valid");
    let worker = run(worker);
    let first = db.enqueue(&Hasty {}).await;
    let second = db.enqueue(&Hasty {}).await;
    for id in [first, second] {
        assert_eq!(db.wait_for(id, JobState::Failed).await.error_code.as_deref(), Some("timeout"));
    }
    worker.stop().await;
}

#[tokio::test]
async fn payload_that_does_not_fit_the_type_fails_at_once() {
    let db = Db::new().await;
    let worker = builder(&db).register(async |_: Ctx, _: Note| Ok(())).queue("default", 1).build().expect("valid");
    let worker = run(worker);
    let id: jobdeck::JobId =
        sqlx::query_scalar("insert into jobdeck.jobs (type, payload) values ('note', '{\"text\": 7}') returning id")
            .fetch_one(db.store.pool())
            .await
            .expect("inserted");
    let job = db.wait_for(id, JobState::Failed).await;
    assert_eq!((job.error_code.as_deref(), job.attempts), (Some("invalid_payload"), 1));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_that_blocks_every_runtime_thread_is_not_stalled() {
    let db = Db::new().await;
    let starts = Arc::new(AtomicUsize::new(0));
    let counted = starts.clone();
    let worker = builder(&db)
        .register(move |_: Ctx, _: Note| {
            let starts = counted.clone();
            async move {
                starts.fetch_add(1, Ordering::SeqCst);
                // Longer than two leases, without an await.
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_secs(5) {
                    std::hint::spin_loop();
                }
                Ok(())
            }
        })
        .queue("default", 2)
        .build()
        .expect("valid");
    let ids = [db.enqueue(&Note::new("a")).await, db.enqueue(&Note::new("b")).await];
    // Another keeper stands by to reap, on a runtime of its own.
    let (url, store_url) = (db.url.clone(), db.url.clone());
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let standby = std::thread::spawn(move || {
        tokio::runtime::Runtime::new().expect("runtime").block_on(async {
            let store = jobdeck::Store::connect(&store_url, 2).await.expect("connected");
            let worker = Worker::builder(store, &url)
                .lease(Duration::from_secs(2), Duration::from_millis(300))
                .register(async |_: Ctx, _: crate::support::Brittle| Ok(()))
                .queue("default", 1)
                .build()
                .expect("valid");
            let shutdown = async { drop(tokio::task::spawn_blocking(move || stopped.recv()).await) };
            worker.run_until(shutdown).await.expect("ran");
        });
    });
    let worker = run(worker);
    for id in ids {
        let job = db.wait_for(id, JobState::Succeeded).await;
        assert_eq!((job.token, job.stalled_count), (1, 0));
    }
    assert_eq!(starts.load(Ordering::SeqCst), 2);
    worker.stop().await;
    drop(stop);
    standby.join().expect("no panic");
}

#[tokio::test]
async fn persons_cancel_reaches_the_running_handler_within_two_seconds() {
    let db = Db::new().await;
    let worker = builder(&db)
        .register(async |ctx: Ctx, _: Note| {
            ctx.canceled().await;
            Err::<(), _>(JobError::retryable("stopped", "told to"))
        })
        .queue("default", 1)
        .build()
        .expect("valid");
    let worker = run(worker);
    let id = db.enqueue(&Note::new("stop me")).await;
    db.wait_for(id, JobState::Running).await;
    let asked = Instant::now();
    db.store.job_cancel(id, &person()).await.expect("requested");
    db.wait_for(id, JobState::Canceled).await;
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    worker.stop().await;
}

#[tokio::test]
async fn graceful_stop_lets_short_jobs_finish_and_hands_long_ones_back_without_using_an_attempt() {
    let db = Db::new().await;
    let both = Arc::new(Barrier::new(3));
    let started = both.clone();
    let worker = builder(&db)
        .register(move |_: Ctx, note: Note| {
            let started = started.clone();
            async move {
                started.wait().await;
                match note.text.as_str() {
                    "short" => tokio::time::sleep(Duration::from_millis(300)).await,
                    _ => std::future::pending().await,
                }
                Ok(())
            }
        })
        .queue("default", 2)
        .build()
        .expect("valid");
    let worker = run(worker);
    let short = db.enqueue(&Note::new("short")).await;
    let long = db.enqueue(&Note::new("long")).await;
    both.wait().await;
    let waiting = db.enqueue(&Note::new("not claimed any more")).await;
    worker.stop().await;
    assert_eq!(db.job(short).await.state, JobState::Succeeded);
    let long = db.job(long).await;
    assert_eq!((long.state, long.attempts, long.starts), (JobState::Pending, 0, 1));
    assert_eq!(db.job(waiting).await.starts, 0);
}

#[tokio::test]
async fn jobs_start_by_polling_alone_when_every_hint_is_lost() {
    let db = Db::new().await;
    let worker = builder(&db).register(async |_: Ctx, _: Note| Ok(())).queue("default", 4).build().expect("valid");
    let worker = run(worker);
    // A row written past the library sends no NOTIFY.
    let id: jobdeck::JobId = sqlx::query_scalar(
        "insert into jobdeck.jobs (type, payload) values ('note', '{\"text\": \"x\"}') returning id",
    )
    .fetch_one(db.store.pool())
    .await
    .expect("inserted");
    db.wait_for(id, JobState::Succeeded).await;
    worker.stop().await;
}

#[tokio::test]
async fn work_goes_on_after_every_connection_was_cut() {
    let db = Db::new().await;
    let worker = builder(&db)
        .register(async |_: Ctx, _: Note| {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(())
        })
        .queue("default", 4)
        .build()
        .expect("valid");
    let worker = run(worker);
    let mut admin = db.connection().await;
    let mut ids = Vec::new();
    for round in 0..5 {
        for n in 0..4 {
            let job = Note::new(&format!("{round}.{n}"));
            let enqueued = async || db.store.enqueue(&job, EnqueueOptions::default()).await;
            ids.push(match enqueued().await {
                Ok(done) => done.id,
                Err(_) => enqueued().await.expect("enqueued on a fresh connection").id,
            });
        }
        sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
            .execute(&mut admin)
            .await
            .expect("cut");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for id in ids {
        let begun = Instant::now();
        while db.store.job_get(id).await.ok().flatten().is_none_or(|job| job.state != JobState::Succeeded) {
            assert!(begun.elapsed() < Duration::from_secs(20), "job {id} finishes");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    worker.stop().await;
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_by_name() {
    let db = Db::new().await;
    let refused = |builder: jobdeck::WorkerBuilder| builder.build().err().expect("refused").to_string();
    let note = async |_: Ctx, _: Note| Ok(());
    assert!(refused(builder(&db).register(note)).contains("works no queue"));
    assert!(refused(builder(&db).register(note).queue("other", 1)).contains("queue \"default\""));
    assert!(refused(builder(&db).register(note).register(note).queue("default", 1)).contains("registered twice"));
    assert!(refused(builder(&db).register(note).queue("default", 0)).contains("0 slots"));
    let short = builder(&db).register(note).queue("default", 1).lease(Duration::from_secs(5), Duration::from_secs(2));
    assert!(refused(short).contains("three heartbeats"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_claimed_while_every_thread_is_busy_are_kept_or_not_started_but_never_run_twice_at_once() {
    let db = Db::new().await;
    let running = Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
    let overlaps = Arc::new(AtomicUsize::new(0));
    let (now_running, seen) = (running.clone(), overlaps.clone());
    let worker = builder(&db)
        .register(move |ctx: Ctx, _: Note| {
            let (running, overlaps) = (now_running.clone(), seen.clone());
            async move {
                if !running.lock().expect("lock").insert(ctx.job_id()) {
                    overlaps.fetch_add(1, Ordering::SeqCst);
                }
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(2500) {
                    std::hint::spin_loop();
                }
                running.lock().expect("lock").remove(&ctx.job_id());
                Ok(())
            }
        })
        .queue("default", 6)
        .build()
        .expect("valid");
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(db.enqueue(&Note::new(&format!("{n}"))).await);
    }
    let worker = run(worker);
    for id in ids {
        let job = db.wait_for(id, JobState::Succeeded).await;
        assert_eq!(job.stalled_count, 0, "{job:?}");
    }
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    worker.stop().await;
}

#[tokio::test]
async fn payload_no_program_can_read_fails_its_own_job_and_none_of_its_neighbours() {
    let db = Db::new().await;
    let worker = builder(&db).register(async |_: Ctx, _: Note| Ok(())).queue("default", 4).build().expect("valid");
    let unreadable: jobdeck::JobId = sqlx::query_scalar(
        "insert into jobdeck.jobs (type, payload) values ('note', '{\"text\": \"x\", \"n\": 1e400}') returning id",
    )
    .fetch_one(db.store.pool())
    .await
    .expect("Postgres takes it");
    let neighbour = db.enqueue(&Note::new("fine")).await;
    let worker = run(worker);
    db.wait_for(neighbour, JobState::Succeeded).await;
    assert_eq!(db.wait_for(unreadable, JobState::Failed).await.error_code.as_deref(), Some("invalid_payload"));
    worker.stop().await;
}

#[tokio::test]
async fn worker_told_to_stop_while_the_database_is_away_stops_within_its_grace() {
    let db = Db::new().await;
    let worker = builder(&db).register(async |_: Ctx, _: Note| Ok(())).queue("default", 1).build().expect("valid");
    let worker = run(worker);
    db.wait_until(db.enqueue(&Note::new("first")).await, "an end", |job| job.state.is_final()).await;
    let name = db.url.rsplit('/').next().expect("name").to_owned();
    let server = db.url.replace(&name, "postgres");
    let mut admin = <sqlx::PgConnection as sqlx::Connection>::connect(&server).await.expect("connected");
    sqlx::query(sqlx::AssertSqlSafe(format!("alter database {name} allow_connections false")))
        .execute(&mut admin)
        .await
        .expect("closed");
    sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1")
        .bind(&name)
        .execute(&mut admin)
        .await
        .expect("cut");
    let begun = Instant::now();
    worker.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}
