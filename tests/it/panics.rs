//! Handlers that panic in every way: each time one failed attempt, with message and place, and nothing else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobdeck::{Backoff, Ctx, JobError, JobState, JobType, MAX_ERROR_BYTES, Policy, code};
use serde::{Deserialize, Serialize};
use tokio::sync::Barrier;

use crate::support::{Db, Note};
use crate::worker::{builder, run};

/// Panics in the way it is told to, at both attempts.
#[derive(Serialize, Deserialize)]
struct Panics {
    how: String,
}

impl JobType for Panics {
    const TYPE: &'static str = "panics";
    fn policy() -> Policy {
        Policy { max_attempts: 2, backoff: Backoff::Fixed(Duration::from_millis(20)), ..Policy::default() }
    }
}

/// Panics when it is dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("{}", self.0);
        }
    }
}

/// A panic's value that panics when it is dropped, with a value of the same kind.
struct Chain(u8);

impl Drop for Chain {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Chain(self.0 - 1));
        }
    }
}

/// With leases that a busy machine cannot lose: stalls are not what these tests are about.
fn patient(db: &Db) -> jobdeck::WorkerBuilder {
    builder(db).lease(Duration::from_secs(15), Duration::from_secs(1))
}

/// How, and what the stored text says of it.
const WAYS: [(&str, &str); 11] = [
    ("text", ": plain text"),
    ("string", ": number 7"),
    ("value", ": a value that is not text"),
    ("value that explodes", ": a value that is not text"),
    ("large", ": xxxxxxxx"),
    ("spawned", ": in a spawned task"),
    ("spawned and unwrapped", "JoinError::Panic"),
    ("blocking", ": in blocking work"),
    ("destructor", ": in a destructor"),
    ("mutex", ": with the mutex locked"),
    ("before the first await", ": before the first await"),
];

/// Not an `async fn`, so that the first part runs before there is a future.
fn panicking(
    ctx: Ctx,
    job: Panics,
    shared: Arc<Mutex<u32>>,
) -> impl Future<Output = Result<(), JobError>> + Send + 'static {
    if job.how == "before the first await" {
        panic!("before the first await");
    }
    async move {
        match job.how.as_str() {
            "text" => panic!("plain text"),
            "string" => panic!("number {}", job.how.len() + 1),
            "value" => std::panic::panic_any(7_u8),
            "value that explodes" => std::panic::panic_any(Chain(3)),
            "large" => panic!("{}", "x".repeat(5 * 1024 * 1024)),
            "spawned" => tokio::spawn(async { panic!("in a spawned task") }).await?,
            "spawned and unwrapped" => {
                tokio::spawn(async { panic!("in a spawned task") }).await.expect("the task ends well");
            }
            "blocking" => ctx.blocking(|| -> Result<(), JobError> { panic!("in blocking work") }).await?,
            "destructor" => drop(Bomb("in a destructor")),
            "mutex" => {
                let _locked = shared.lock().unwrap_or_else(PoisonError::into_inner);
                panic!("with the mutex locked");
            }
            other => panic!("no way called {other}"),
        }
        Ok(())
    }
}

#[tokio::test]
async fn each_kind_of_panic_is_a_failed_attempt_with_its_message_and_place() {
    let db = Db::new().await;
    let shared = Arc::new(Mutex::new(0));
    let handler = move |ctx: Ctx, job: Panics| panicking(ctx, job, shared.clone());
    let worker = run(patient(&db).register(handler).queue("default", 4).build().expect("valid"));
    for (how, message) in WAYS {
        let id = db.enqueue(&Panics { how: how.to_owned() }).await;
        let job = db.wait_for(id, JobState::Failed).await;
        assert_eq!((job.attempts, job.starts, job.stalled_count), (2, 2, 0), "{how}");
        let attempts = db.store.attempt_list(id).await.expect("listed");
        assert_eq!(attempts.len(), 2, "{how}");
        for attempt in attempts {
            assert_eq!(attempt.error_code.as_deref(), Some(code::PANIC), "{how}");
            let text = attempt.error.expect("stored");
            assert!(text.starts_with("handler panicked at tests/it/panics.rs:"), "{how}: {text}");
            assert!(text.contains(message) && text.len() <= MAX_ERROR_BYTES, "{how}: {text}");
        }
    }
    worker.stop().await;
}

#[tokio::test]
async fn panic_that_the_handler_catches_by_itself_is_its_own_business() {
    let db = Db::new().await;
    let caught = async |_: Ctx, note: Note| {
        let joined = tokio::spawn(async { panic!("caught") }).await;
        assert!(joined.is_err_and(|error| error.is_panic()));
        if note.text == "then another" {
            panic!("not caught");
        }
        Ok::<_, JobError>(())
    };
    let worker = run(patient(&db).register(caught).queue("default", 1).build().expect("valid"));
    let fine = db.enqueue(&Note::new("only")).await;
    db.wait_for(fine, JobState::Succeeded).await;
    let other = db.enqueue(&Note::new("then another")).await;
    let job = db.wait_until(other, "a failed attempt", |job| job.last_error.is_some()).await;
    let text = job.last_error.expect("stored");
    assert!(text.ends_with(": not caught"), "{text}");
    worker.stop().await;
}

#[tokio::test]
async fn hundred_good_jobs_complete_among_fifty_that_panic_and_concurrency_returns_to_four() {
    let db = Db::new().await;
    let shared = Arc::new(Mutex::new(0));
    let (for_bad, for_good) = (shared.clone(), shared.clone());
    let all_four = Arc::new(Barrier::new(4));
    let meeting = all_four.clone();
    let worker = patient(&db)
        .register(move |ctx: Ctx, job: Panics| panicking(ctx, job, for_bad.clone()))
        .register(move |_: Ctx, note: Note| {
            let (shared, meeting) = (for_good.clone(), meeting.clone());
            async move {
                if note.text == "meets" {
                    // Passed only if all four run at the same time.
                    meeting.wait().await;
                }
                *shared.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                Ok(())
            }
        })
        .queue("default", 4)
        .build()
        .expect("valid");
    let mut good = Vec::new();
    let mut bad = Vec::new();
    // One of three panics, each way in turn.
    for n in 0..50 {
        good.push(db.enqueue(&Note::new("good")).await);
        bad.push(db.enqueue(&Panics { how: WAYS[n % WAYS.len()].0.to_owned() }).await);
        good.push(db.enqueue(&Note::new("good")).await);
    }
    let worker = run(worker);
    for id in good {
        let job = db.wait_for(id, JobState::Succeeded).await;
        assert_eq!((job.attempts, job.stalled_count), (1, 0));
    }
    for id in bad {
        let job = db.wait_for(id, JobState::Failed).await;
        assert_eq!((job.attempts, job.starts, job.stalled_count), (2, 2, 0));
    }
    assert_eq!(*shared.lock().unwrap_or_else(PoisonError::into_inner), 100);
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs where status = 'running'").await, 0, "no lease leaks");
    let mut meeting = Vec::new();
    for _ in 0..4 {
        meeting.push(db.enqueue(&Note::new("meets")).await);
    }
    for id in meeting {
        db.wait_for(id, JobState::Succeeded).await;
    }
    worker.stop().await;
}

#[test]
fn hook_that_was_there_before_still_hears_of_every_panic() {
    // In a process of its own, whose standard error nothing else writes to.
    let test = "panics::panic_that_the_handler_catches_by_itself_is_its_own_business";
    let ran = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .output()
        .expect("ran");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    for message in ["caught", "not caught"] {
        assert!(said.lines().any(|line| line == message), "{message:?} is not in: {said}");
    }
}
