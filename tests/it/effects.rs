//! The ledger of effects: what is never repeated, what is repeated with the same token, and what a lost execution may not write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jobdeck::store::{Claim, EffectState, Outcome, SettleOutcome, Settlement};
use jobdeck::{
    Ctx, EFFECT_HELD, EFFECT_UNKNOWN, EffectOutcome, EnqueueOptions, FailureClass, JobError, JobId, JobState, Once,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};

use crate::support::{Db, Keyed, Note, lease, person};
use crate::worker::{builder, run};

const LEASE: Duration = Duration::from_secs(15);

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Receipt {
    number: u64,
    note: Option<String>,
}

fn receipt(number: u64) -> Receipt {
    Receipt { number, note: None }
}

pub(crate) fn ctx(db: &Db, claim: &Claim) -> Ctx {
    Ctx::for_claim(db.store.clone(), claim.clone(), LEASE)
}

/// The job's lease ends, it is taken back, and `worker` claims it.
pub(crate) async fn overtake(db: &Db, id: JobId, worker: &str) -> Claim {
    db.expire(id).await;
    assert_eq!(db.reap().await, [(id, JobState::Retrying)]);
    db.make_due(id).await;
    let claim = db.claim(worker).await;
    assert_eq!((claim.job_id, db.job(id).await.state), (id, JobState::Running));
    claim
}

/// An effect that is never asked for.
async fn never(_: Once) -> Result<Receipt, JobError> {
    panic!("the effect was repeated")
}

/// Begins the effect and is gone before its end is recorded, as by a killed process. Returns what it was told.
async fn die_within(ctx: &Ctx, name: &str, key: &str) -> Once {
    let (told, begun) = oneshot::channel();
    let effect = ctx.once(name, key, async |once: Once| {
        let _ = told.send(once);
        std::future::pending::<Result<Receipt, JobError>>().await
    });
    tokio::select! {
        _ = effect => panic!("it does not end"),
        once = begun => once.expect("begun"),
    }
}

#[tokio::test]
async fn done_effect_is_not_repeated_by_a_rerun_after_a_stall() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("stalls after its mail")).await;
    let a = db.claim("A").await;
    let sent = ctx(&db, &a).once("send", "order:7", async |_| Ok(receipt(1))).await.expect("sent");
    assert_eq!(sent, EffectOutcome::Done(receipt(1)));
    let b = overtake(&db, id, "B").await;
    let again = ctx(&db, &b).once("send", "order:7", never).await.expect("answered");
    assert!(again.was_done_before());
    assert!(matches!(&again, EffectOutcome::AlreadyDone { job_id, .. } if *job_id == id));
    assert_eq!(again.into_result(), receipt(1));
    let listed = db.store.effect_list(id).await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].state, listed[0].tries, listed[0].token, listed[0].is_held),
        (EffectState::Done, 1, a.token, false)
    );
    assert_eq!(listed[0].result.as_deref(), Some(r#"{"note": null, "number": 1}"#));
}

#[tokio::test]
async fn done_effect_is_not_repeated_by_a_workers_next_attempt() {
    let db = Db::new().await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let worker = builder(&db)
        .register(move |ctx: Ctx, note: Note| {
            let sent = counted.clone();
            async move {
                let outcome = ctx
                    .once("send", &note.text, async |_| Ok(receipt(sent.fetch_add(1, Ordering::SeqCst) as u64)))
                    .await?;
                if ctx.attempt() < 3 {
                    return Err(JobError::retryable("connection", "after the mail"));
                }
                Ok(outcome.into_result())
            }
        })
        .queue("default", 2)
        .build()
        .expect("valid");
    let worker = run(worker);
    let id = db.enqueue(&Note::new("order:8")).await;
    let job = db.wait_for(id, JobState::Succeeded).await;
    assert_eq!((job.attempts, job.result), (3, Some(json!({"number": 0, "note": null}))));
    assert_eq!(sent.load(Ordering::SeqCst), 1);
    worker.stop().await;
}

#[tokio::test]
async fn killed_between_effect_and_record_repeats_with_the_same_provider_token_and_says_so() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("killed")).await;
    let a = db.claim("A").await;
    let first = die_within(&ctx(&db, &a), "charge", "order:7").await;
    assert_eq!((first.maybe_done(), first.tries()), (false, 1));
    assert!(db.store.effect_list(id).await.expect("listed")[0].is_held, "its execution has not been missed yet");
    let b = overtake(&db, id, "B").await;
    let second = die_within(&ctx(&db, &b), "charge", "order:7").await;
    let c = overtake(&db, id, "C").await;
    let mut third = None;
    let told = &mut third;
    ctx(&db, &c)
        .once("charge", "order:7", async |once: Once| {
            *told = Some(once);
            Ok(receipt(1))
        })
        .await
        .expect("charged");
    let third = third.expect("told");
    for (again, tries) in [(&second, 2), (&third, 3)] {
        assert_eq!(again.provider_token(), first.provider_token(), "or the provider charges twice");
        assert_eq!((again.maybe_done(), again.tries()), (true, tries));
    }
    let listed = db.store.effect_list(id).await.expect("listed");
    assert_eq!((listed[0].state, listed[0].provider_token), (EffectState::Done, first.provider_token()));
    assert_eq!((listed[0].tries, listed[0].maybe_done), (3, true));
}

/// Charges at the provider that listens at the note's text. Its answer is what the process waits for.
async fn charge(ctx: Ctx, note: Note) -> Result<Receipt, JobError> {
    let prepared = ctx.step("prepare", async || Ok(format!("by start {}", ctx.starts()))).await?;
    let charged = ctx
        .once("charge", "order:7", async |once: Once| {
            let mut provider = TcpStream::connect(&note.text).await?;
            provider.write_all(once.provider_token().as_bytes()).await?;
            provider.write_u8(u8::from(once.maybe_done())).await?;
            let number = provider.read_u64().await?;
            Ok(Receipt { number, note: Some(prepared) })
        })
        .await?;
    Ok(charged.into_result())
}

/// What the next caller tells the provider: its idempotency token, and whether it may have charged before.
async fn called(provider: &TcpListener) -> (TcpStream, Vec<u8>, bool) {
    let accept = tokio::time::timeout(Duration::from_secs(20), provider.accept());
    let (mut caller, _) = accept.await.expect("called within 20 s").expect("accepted");
    let mut token = vec![0; 16];
    caller.read_exact(&mut token).await.expect("token");
    let maybe_done = caller.read_u8().await.expect("flag") == 1;
    (caller, token, maybe_done)
}

/// The test program starts itself as the worker that is killed.
#[tokio::test]
async fn process_killed_while_the_provider_charges_is_followed_by_one_that_gives_the_same_token() {
    const URL: &str = "JOBDECK_TEST_KILLED_WORKER";
    if let Ok(url) = std::env::var(URL) {
        let db = Db { store: jobdeck::Store::connect(&url, 4).await.expect("connected"), url };
        let worker = builder(&db).register(charge).queue("default", 1).build().expect("valid");
        return worker.run_until(std::future::pending()).await.expect("runs until it is killed");
    }
    let db = Db::new().await;
    let provider = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let id = db.enqueue(&Note::new(&provider.local_addr().expect("bound").to_string())).await;
    let mut killed = tokio::process::Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "effects::process_killed_while_the_provider_charges_is_followed_by_one_that_gives_the_same_token",
        ])
        .env(URL, &db.url)
        .stdout(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("started");
    // The provider charges, and the process that asked never hears of it.
    let (_unanswered, first, maybe_done) = called(&provider).await;
    assert!(!maybe_done);
    killed.kill().await.expect("killed");
    let worker = run(builder(&db).register(charge).queue("default", 1).build().expect("valid"));
    let (mut caller, second, maybe_done) = called(&provider).await;
    assert_eq!((second, maybe_done), (first, true), "the provider knows the token and does not charge again");
    caller.write_u64(42).await.expect("answered");
    let job = db.wait_for(id, JobState::Succeeded).await;
    assert_eq!(job.result, Some(json!({"number": 42, "note": "by start 1"})), "resumed behind the step");
    assert_eq!((job.starts, job.stalled_count), (2, 1));
    worker.stop().await;
}

#[tokio::test]
async fn late_writers_effect_is_refused_while_the_new_holder_runs() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("contested")).await;
    let a = db.claim("A").await;
    let late = ctx(&db, &a);
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, waits, late_too) = (begun.clone(), go_on.clone(), late.clone());
    let slow = tokio::spawn(async move {
        let perform = async |_| {
            told.notify_one();
            waits.notified().await;
            Ok(receipt(1))
        };
        late_too.once("charge", "order:7", perform).await
    });
    begun.notified().await;
    let b = overtake(&db, id, "B").await;
    let holder = ctx(&db, &b);
    let charged = holder
        .once("charge", "order:7", async |once: Once| {
            assert!(once.maybe_done());
            // The old execution comes back while the new one is at the very same effect.
            go_on.notify_one();
            let refused = slow.await.expect("no panic").expect_err("refused");
            assert_eq!(refused.code, "lease_lost");
            Ok(receipt(2))
        })
        .await
        .expect("charged");
    assert_eq!(charged, EffectOutcome::Done(receipt(2)));
    // Nor may it begin another one, be told of one, or say that it was not done.
    for answer in [
        late.once("charge", "order:8", never).await,
        late.once("charge", "order:7", never).await,
        late.once_at_most("charge", "order:8", never).await,
    ] {
        assert_eq!(answer.expect_err("refused").code, "lease_lost");
    }
    assert_eq!(db.scalar("select count(*) from jobdeck.effects").await, 1);
    let listed = db.store.effect_list(id).await.expect("listed");
    assert_eq!((listed[0].token, listed[0].state), (b.token, EffectState::Done));
    assert_eq!((db.job(id).await.state, db.job(id).await.token), (JobState::Running, b.token));
}

#[tokio::test]
async fn late_writer_cannot_take_back_an_effect_its_successor_began() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("contested")).await;
    let a = db.claim("A").await;
    let late = ctx(&db, &a);
    let b = overtake(&db, id, "B").await;
    die_within(&ctx(&db, &b), "charge", "order:7").await;
    assert_eq!(late.once("charge", "order:7", never).await.expect_err("refused").code, "lease_lost");
    let listed = db.store.effect_list(id).await.expect("listed");
    assert_eq!((listed[0].token, listed[0].tries, listed[0].state), (b.token, 1, EffectState::Started));
}

/// Waits until a statement on the ledger waits for another transaction, at most 20 s.
async fn wait_for_waiter(db: &Db) {
    let begun = std::time::Instant::now();
    let waiters = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%jobdeck.effects%'";
    while db.scalar(waiters).await == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited 20 s for a statement that waits");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn execution_that_lost_its_lease_while_it_waited_for_a_rivals_transaction_begins_nothing() {
    let db = Db::new().await;
    let rival = db.enqueue(&Note::new("rival")).await;
    let rivals = ctx(&db, &db.claim("R").await);
    let id = db.enqueue(&Note::new("waits")).await;
    let a = db.claim("A").await;
    let mut tx = db.store.begin().await.expect("begun");
    assert!(rivals.effect_in(&mut tx, "credit", "order:7").await.expect("new"));
    let late = ctx(&db, &a);
    let waiting = tokio::spawn(async move { late.once("credit", "order:7", never).await });
    wait_for_waiter(&db).await;
    // Waiting keeps nobody from renewing the lease.
    let mut keeper = db.connection().await;
    let renewed = jobdeck::Store::lease_heartbeat(&mut keeper, &[lease(&a)], LEASE).await.expect("answered");
    assert!(renewed.len() == 1 && renewed[0].renewed, "{renewed:?}");
    let b = overtake(&db, id, "B").await;
    tx.rollback().await.expect("rolled back");
    assert_eq!(waiting.await.expect("no panic").expect_err("refused").code, "lease_lost");
    assert_eq!(db.scalar("select count(*) from jobdeck.effects").await, 0, "nothing is begun, so nothing is unknown");
    assert_eq!((db.job(id).await.token, db.job(rival).await.state), (b.token, JobState::Running));
}

#[tokio::test]
async fn execution_that_lost_its_lease_while_it_waited_to_record_an_effect_records_nothing() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("waits")).await;
    let late = ctx(&db, &db.claim("A").await);
    let (locked, lock) = oneshot::channel();
    let store = db.store.clone();
    let waiting = tokio::spawn(async move {
        let perform = async |_| {
            let mut tx = store.begin().await.expect("begun");
            sqlx::query("select from jobdeck.effects for update").execute(&mut *tx).await.expect("locked");
            assert!(locked.send(tx).is_ok());
            Ok(receipt(1))
        };
        late.once("credit", "order:7", perform).await
    });
    let tx = lock.await.expect("locked");
    wait_for_waiter(&db).await;
    let b = overtake(&db, id, "B").await;
    tx.rollback().await.expect("rolled back");
    assert_eq!(waiting.await.expect("no panic").expect_err("refused").code, "lease_lost");
    let listed = db.store.effect_list(id).await.expect("listed");
    assert_eq!((listed[0].state, listed[0].is_held), (EffectState::Started, false));
    assert_eq!((db.job(id).await.state, db.job(id).await.token), (JobState::Running, b.token));
}

#[tokio::test]
async fn h8_effect_of_a_reaped_execution_cannot_commit_even_if_its_handler_commits() {
    let db = Db::new().await;
    sqlx::raw_sql("create table credits (n int)").execute(db.store.pool()).await.expect("table");
    let id = db.enqueue(&Note::new("in a transaction")).await;
    let a = db.claim("A").await;
    let late = ctx(&db, &a);
    let mut transactions = Vec::new();
    for _ in 0..4 {
        let mut tx = db.store.begin().await.expect("begun");
        sqlx::query("insert into credits values (1)").execute(&mut *tx).await.expect("written");
        transactions.push(tx);
    }
    let b = overtake(&db, id, "B").await;
    for (n, mut tx) in transactions.into_iter().enumerate() {
        let refused = match n {
            0 => late.effect_in(&mut tx, "credit", "order:7").await.map(drop),
            1 => late.once_in(&mut tx, "credit", "order:7", |_| Box::pin(async { Ok(1) })).await.map(drop),
            2 => late.enqueue_in(&mut tx, &Keyed::new("child"), EnqueueOptions::default()).await.map(drop),
            _ => late.fence(&mut tx).await,
        };
        assert_eq!(refused.expect_err("refused").code, "lease_lost");
        // A handler that goes on regardless.
        let _ = tx.commit().await;
    }
    assert_eq!(db.scalar("select count(*) from credits").await, 0);
    assert_eq!(db.scalar("select count(*) from jobdeck.effects").await, 0);
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 1);
    assert_eq!((db.job(id).await.state, db.job(id).await.token), (JobState::Running, b.token));
}

#[tokio::test]
async fn effect_in_a_transaction_is_there_exactly_once_with_its_rows() {
    let db = Db::new().await;
    sqlx::raw_sql("create table credits (n int)").execute(db.store.pool()).await.expect("table");
    let id = db.enqueue(&Note::new("credit")).await;
    let a = db.claim("A").await;
    let first = ctx(&db, &a);
    // Rolled back: nothing happened.
    let mut tx = db.store.begin().await.expect("begun");
    assert!(first.effect_in(&mut tx, "credit", "order:7").await.expect("new"));
    sqlx::query("insert into credits values (1)").execute(&mut *tx).await.expect("written");
    tx.rollback().await.expect("rolled back");
    // Under way while the lease ends: the job's row is locked, so nobody takes it over before the end is known.
    let mut tx = db.store.begin().await.expect("begun");
    assert!(first.effect_in(&mut tx, "credit", "order:7").await.expect("new"));
    sqlx::query("insert into credits values (2)").execute(&mut *tx).await.expect("written");
    assert_eq!(db.reap().await, []);
    tx.commit().await.expect("committed");
    let b = overtake(&db, id, "B").await;
    let second = ctx(&db, &b);
    let mut tx = db.store.begin().await.expect("begun");
    assert!(!second.effect_in(&mut tx, "credit", "order:7").await.expect("answered"));
    second.complete_in(tx, &"done").await.expect("completed");
    assert_eq!(
        (db.scalar("select count(*) from credits").await, db.scalar("select n::bigint from credits").await),
        (1, 2)
    );
    assert_eq!(db.job(id).await.state, JobState::Succeeded);
}

#[tokio::test]
async fn rows_effect_result_and_success_commit_together() {
    let db = Db::new().await;
    sqlx::raw_sql("create table credits (id bigint generated always as identity, key text)")
        .execute(db.store.pool())
        .await
        .expect("table");
    let mut kept = Vec::new();
    for text in ["first", "asks for the same"] {
        db.enqueue(&Note::new(text)).await;
        let claim = db.claim("A").await;
        let ctx = ctx(&db, &claim);
        let mut tx = db.store.begin().await.expect("begun");
        let outcome = ctx
            .once_in(&mut tx, "credit", "order:7", |connection| {
                Box::pin(async move {
                    let id: i64 = sqlx::query_scalar("insert into credits (key) values ('order:7') returning id")
                        .fetch_one(connection)
                        .await
                        .map_err(jobdeck::StoreError::from)?;
                    Ok(id)
                })
            })
            .await
            .expect("answered");
        kept.push(outcome.was_done_before());
        let credit = outcome.into_result();
        ctx.complete_in(tx, &credit).await.expect("completed");
        assert_eq!(db.job(claim.job_id).await.result, Some(json!(1)));
    }
    assert_eq!(kept, [false, true]);
    assert_eq!(db.scalar("select count(*) from credits").await, 1);
}

#[tokio::test]
async fn fifty_jobs_with_one_effect_key_do_it_once_and_all_get_its_result() {
    let db = Db::new().await;
    let performed = Arc::new(AtomicUsize::new(0));
    let (counted, store) = (performed.clone(), db.store.clone());
    let worker = builder(&db)
        .register(move |ctx: Ctx, _: Note| {
            let (performed, store) = (counted.clone(), store.clone());
            async move {
                let perform = async |_| {
                    let number = performed.fetch_add(1, Ordering::SeqCst) as u64;
                    // Until another has met it.
                    loop {
                        let met: i64 =
                            sqlx::query_scalar("select count(*) from jobdeck.jobs where error_code = 'effect_held'")
                                .fetch_one(store.pool())
                                .await
                                .map_err(jobdeck::StoreError::from)?;
                        if met > 0 {
                            return Ok(receipt(number));
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                };
                Ok(ctx.once("invoice", "customer:1:2026-12", perform).await?.into_result())
            }
        })
        .queue("default", 50)
        .build()
        .expect("valid");
    let notes: Vec<Note> = (0..50).map(|n| Note::new(&n.to_string())).collect();
    let ids = db.store.enqueue_many(&notes, EnqueueOptions::default()).await.expect("enqueued");
    let worker = run(worker);
    for enqueued in ids {
        let job = db.wait_for(enqueued.id, JobState::Succeeded).await;
        assert_eq!(
            (job.attempts, job.result),
            (1, Some(json!({"number": 0, "note": null}))),
            "waiting costs no attempt"
        );
    }
    assert_eq!(performed.load(Ordering::SeqCst), 1);
    assert_eq!(db.scalar("select count(*) from jobdeck.effects where state = 'done' and tries = 1").await, 1);
    assert!(db.scalar("select count(*) from jobdeck.attempts where error_code = 'effect_held'").await > 0);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn live_executions_are_never_at_one_effect_side_by_side() {
    let db = Arc::new(Db::new().await);
    let notes: Vec<Note> = (0..16).map(|n| Note::new(&n.to_string())).collect();
    db.store.enqueue_many(&notes, EnqueueOptions::default()).await.expect("enqueued");
    let claims = db.claim_many("A", 16).await;
    let (inside, performed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let tokens = Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
    let mut executions = tokio::task::JoinSet::new();
    for claim in claims {
        let (db, inside, performed, tokens) = (db.clone(), inside.clone(), performed.clone(), tokens.clone());
        executions.spawn(async move {
            let ctx = ctx(&db, &claim);
            loop {
                let perform = async |once: Once| {
                    assert!(!inside.swap(true, Ordering::SeqCst), "another is at it");
                    tokens.lock().expect("lock").insert(once.provider_token());
                    let n = performed.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    // The first eight fail: nobody knows whether it happened.
                    let ended = if n < 8 { Err(JobError::retryable("timeout", "slow")) } else { Ok(receipt(n as u64)) };
                    inside.store(false, Ordering::SeqCst);
                    ended
                };
                match ctx.once("charge", "order:7", perform).await {
                    Ok(outcome) => return assert_eq!(outcome.into_result(), receipt(8)),
                    Err(error) if error.code == EFFECT_HELD => tokio::task::yield_now().await,
                    Err(error) => {
                        let failed = Outcome::Failed { error: &error, delay: Duration::from_secs(60) };
                        db.store.job_end(lease(&claim), failed).await.expect("failed");
                        return assert_eq!(error.code, "timeout");
                    }
                }
            }
        });
    }
    executions.join_all().await;
    assert_eq!((performed.load(Ordering::SeqCst), tokens.lock().expect("lock").len()), (9, 1));
    assert_eq!(db.scalar("select tries::bigint from jobdeck.effects").await, 9);
}

#[tokio::test]
async fn equal_calls_of_one_execution_run_one_after_another() {
    let db = Db::new().await;
    db.enqueue(&Note::new("twice at once")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    let performed = AtomicUsize::new(0);
    let perform = async |_| {
        performed.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        Ok(receipt(1))
    };
    let (first, second) = tokio::join!(ctx.once("send", "a", perform), ctx.once_at_most("send", "a", perform));
    let before = [first.expect("sent").was_done_before(), second.expect("answered").was_done_before()];
    assert_eq!((before, performed.load(Ordering::SeqCst)), ([false, true], 1));
}

#[tokio::test]
async fn effect_that_may_have_happened_is_not_repeated_at_most_once_until_a_person_settles_it() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("fax")).await;
    let a = db.claim("A").await;
    let failed = ctx(&db, &a)
        .once_at_most::<Receipt, _, _>("fax", "order:7", async |_| Err(JobError::retryable("timeout", "no answer")))
        .await
        .expect_err("failed");
    assert_eq!(failed.code, "timeout");
    let settle = async |settlement: &Settlement| {
        db.store.effect_settle("fax", "order:7", settlement, &person()).await.expect("answered")
    };
    assert_eq!(settle(&Settlement::NotDone).await, SettleOutcome::NotUnknown, "its execution still runs");
    let b = overtake(&db, id, "B").await;
    for _ in 0..2 {
        let refused = ctx(&db, &b).once_at_most("fax", "order:7", never).await.expect_err("refused");
        assert_eq!((refused.class, refused.code.as_str()), (FailureClass::Unrecoverable, EFFECT_UNKNOWN));
    }
    assert_eq!(settle(&Settlement::NotDone).await, SettleOutcome::Settled);
    assert_eq!(settle(&Settlement::NotDone).await, SettleOutcome::NotUnknown);
    // Not done, so it may be done; and again its end is not known.
    die_within(&ctx(&db, &b), "fax", "order:7").await;
    let c = overtake(&db, id, "C").await;
    let refused = ctx(&db, &c).once_at_most("fax", "order:7", never).await.expect_err("refused");
    assert_eq!(refused.code, EFFECT_UNKNOWN);
    assert_eq!(settle(&Settlement::Done(json!(receipt(5)))).await, SettleOutcome::Settled);
    let known = ctx(&db, &c).once_at_most("fax", "order:7", never).await.expect("answered");
    assert_eq!(known.into_result(), receipt(5));
    let listed = db.store.effect_list(id).await.expect("listed");
    assert_eq!((listed[0].settled_by.as_deref(), listed[0].state), (Some("Ana Costa"), EffectState::Done));
    let audited = "select count(*) from jobdeck.audit_log where action = 'settle_effect' and after->>'key' = 'order:7'";
    assert_eq!(db.scalar(audited).await, 2);
    let none = db.store.effect_settle("fax", "order:8", &Settlement::NotDone, &person()).await.expect("answered");
    assert_eq!(none, SettleOutcome::NotFound);
}

#[tokio::test]
async fn effect_the_provider_refused_may_be_tried_again_at_most_once() {
    let db = Db::new().await;
    db.enqueue(&Note::new("refused, then taken")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    let refused = ctx
        .once_at_most::<Receipt, _, _>("fax", "order:7", async |once: Once| {
            Err(once.not_done(JobError::rate_limited(Duration::from_secs(1), "busy")))
        })
        .await
        .expect_err("refused");
    assert_eq!(refused.class, FailureClass::RateLimited);
    let taken = ctx
        .once_at_most("fax", "order:7", async |once: Once| {
            assert_eq!((once.maybe_done(), once.tries()), (false, 2));
            Ok(receipt(1))
        })
        .await;
    assert_eq!(taken.expect("taken"), EffectOutcome::Done(receipt(1)));
    // A refusal says nothing about a try before it.
    die_within(&ctx, "fax", "order:8").await;
    let refusal = async |once: Once| Err::<Receipt, _>(once.not_done(JobError::retryable("busy", "busy")));
    for _ in 0..2 {
        assert_eq!(ctx.once("fax", "order:8", refusal).await.expect_err("refused").code, "busy");
    }
    let unknown = ctx.once_at_most("fax", "order:8", never).await.expect_err("not repeated");
    assert_eq!(unknown.code, EFFECT_UNKNOWN);
}

#[tokio::test]
async fn results_are_answered_alike_at_once_and_later_also_with_nul() {
    let db = Db::new().await;
    db.enqueue(&Note::new("odd results")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    let odd = Receipt { number: u64::MAX, note: Some("a\0b".to_owned()) };
    let first = ctx.once("odd", "1", async |_| Ok(odd)).await.expect("kept").into_result();
    assert_eq!(first, Receipt { number: u64::MAX, note: Some("a␀b".to_owned()) });
    assert_eq!(ctx.once("odd", "1", never).await.expect("answered").into_result(), first);
    let nothing = async |_| Ok(());
    assert!(!ctx.once("odd", "2", nothing).await.expect("kept").was_done_before());
    assert!(ctx.once("odd", "2", nothing).await.expect("kept").was_done_before());
}

#[tokio::test]
async fn effect_whose_result_cannot_be_kept_is_done_all_the_same_and_not_repeated() {
    let db = Db::new().await;
    db.enqueue(&Note::new("big results")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    // Small as JSON, but Postgres writes out 300 digits for each.
    let long = json!(vec![1e300; 2000]);
    assert!(long.to_string().len() < Ctx::MAX_EFFECT_RESULT_BYTES);
    for (key, result, problem) in [
        ("large", json!("x".repeat(Ctx::MAX_EFFECT_RESULT_BYTES)), "the limit is 65536"),
        ("grows", long, "effect_result_size"),
        ("deep", (0..200).fold(json!(1), |inner, _| json!([inner])), "100 levels"),
    ] {
        let error = ctx.once("report", key, async |_| Ok(result)).await.expect_err("not kept");
        assert_eq!((error.class, error.code.as_str()), (FailureClass::Unrecoverable, "result"));
        let again = ctx.once("report", key, never).await.expect_err("nothing to answer");
        for error in [error, again] {
            assert!(error.detail.contains("is done, but") && error.detail.contains(problem), "{error}");
        }
    }
    let other_type = ctx.once("report", "number", async |_| Ok(7)).await.expect("kept").into_result();
    assert_eq!(other_type, 7);
    assert_eq!(ctx.once("report", "number", never).await.expect_err("another type").code, "result");
    assert_eq!(db.scalar("select count(*) from jobdeck.effects where state = 'done' and tries = 1").await, 4);
}

#[tokio::test]
async fn names_and_keys_that_make_no_sense_are_refused_before_anything_happens() {
    let db = Db::new().await;
    db.enqueue(&Note::new("odd names")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    let long = "k".repeat(1025);
    for (name, key) in
        [("", "k"), ("a b", "k"), ("a\0", "k"), (long.as_str(), "k"), ("a", ""), ("a", "k\0"), ("a", &long)]
    {
        let error = ctx.once(name, key, never).await.expect_err("refused");
        assert_eq!(error.class, FailureClass::Unrecoverable, "{name:?} {key:?}: {error}");
    }
    assert_eq!(db.scalar("select count(*) from jobdeck.effects").await, 0);
}

#[tokio::test]
async fn no_effect_starts_after_the_local_deadline() {
    let db = Db::new().await;
    db.enqueue(&Note::new("slept too long")).await;
    let ctx = Ctx::for_claim(db.store.clone(), db.claim("A").await, Duration::ZERO);
    assert_eq!(ctx.once("send", "a", never).await.expect_err("refused").code, "lease_lost");
    assert_eq!(
        ctx.enqueue(&Note::new("child"), EnqueueOptions::default()).await.expect_err("refused").code,
        "lease_lost"
    );
    let mut tx = db.store.begin().await.expect("begun");
    assert_eq!(ctx.effect_in(&mut tx, "send", "a").await.expect_err("refused").code, "lease_lost");
    drop(tx);
    assert_eq!(db.scalar("select count(*) from jobdeck.effects").await, 0);
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 1);
}

#[tokio::test]
async fn ledger_outlives_the_job_that_did_the_effect() {
    let db = Db::new().await;
    let first = db.enqueue(&Note::new("pruned")).await;
    let a = db.claim("A").await;
    ctx(&db, &a).once("send", "order:7", async |_| Ok(receipt(1))).await.expect("sent");
    let told = die_within(&ctx(&db, &a), "charge", "order:7").await;
    sqlx::query("delete from jobdeck.jobs").execute(db.store.pool()).await.expect("gone");
    db.enqueue(&Note::new("asks again")).await;
    let ctx = ctx(&db, &db.claim("B").await);
    let again = ctx.once("send", "order:7", never).await.expect("answered");
    assert!(matches!(again, EffectOutcome::AlreadyDone { job_id, .. } if job_id == first));
    let charge = async |once: Once| {
        assert_eq!((once.provider_token(), once.maybe_done()), (told.provider_token(), true));
        Ok(receipt(2))
    };
    ctx.once("charge", "order:7", charge).await.expect("charged");
}

#[tokio::test]
async fn effect_is_recorded_although_every_connection_was_cut_while_it_happened() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("cut")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    let mut admin = db.connection().await;
    let cut = async |_| {
        sqlx::query(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid()",
        )
        .execute(&mut admin)
        .await
        .expect("cut");
        Ok(receipt(1))
    };
    assert_eq!(ctx.once("send", "a", cut).await.expect("recorded"), EffectOutcome::Done(receipt(1)));
    assert_eq!(db.store.effect_list(id).await.expect("listed")[0].state, EffectState::Done);
}

#[tokio::test]
async fn effect_moves_the_jobs_version_so_that_open_pages_show_it() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("watched")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    let before = db.job(id).await.version;
    let mut while_started = 0;
    let seen = &mut while_started;
    let perform = async |_| {
        *seen = db.job(id).await.version;
        Ok(())
    };
    ctx.once("send", "a", perform).await.expect("sent");
    assert_eq!((while_started - before, db.job(id).await.version - while_started), (1, 1));
    ctx.once("send", "a", async |_| Ok(())).await.expect("answered");
    assert_eq!(db.job(id).await.version - while_started, 1, "an answer changes nothing");
}

#[tokio::test]
async fn child_is_enqueued_only_by_the_holder() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("parent")).await;
    let a = db.claim("A").await;
    let b = overtake(&db, id, "B").await;
    let (late, holder) = (ctx(&db, &a), ctx(&db, &b));
    let children = [Keyed::new("one"), Keyed::new("two")];
    let refused = late.enqueue(&children[0], EnqueueOptions::default()).await.expect_err("refused");
    assert_eq!(refused.code, "lease_lost");
    let refused = late.enqueue_many(&children, EnqueueOptions::default()).await.expect_err("refused");
    assert_eq!(refused.code, "lease_lost");
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 1);
    assert_eq!(db.scalar("select count(*) from jobdeck.idempotency_keys").await, 0, "no key is held for nothing");
    assert!(holder.enqueue(&children[0], EnqueueOptions::default()).await.expect("enqueued").is_new);
    let both = holder.enqueue_many(&children, EnqueueOptions::default()).await.expect("enqueued");
    assert_eq!((both[0].is_new, both[1].is_new), (false, true));
    let child = holder.enqueue(&Note::new("a\0b"), EnqueueOptions::default()).await.expect_err("refused");
    assert_eq!(child.class, FailureClass::Unrecoverable);
    assert_eq!((db.job(id).await.state, db.job(id).await.token), (JobState::Running, b.token));
}

#[tokio::test]
async fn ledger_rows_that_make_no_sense_are_refused_by_named_constraints() {
    let db = Db::new().await;
    let cases: &[(&str, &'static str)] = &[
        ("effect_name_valid", "update jobdeck.effects set name = 'a b'"),
        ("effect_key_length", "update jobdeck.effects set key = ''"),
        ("effect_token_positive", "update jobdeck.effects set token = 0"),
        ("effect_tries_positive", "update jobdeck.effects set tries = 0"),
        ("effect_done_at_iff_done", "update jobdeck.effects set done_at = now()"),
        ("effect_done_at_iff_done", "update jobdeck.effects set state = 'done', result = '1'"),
        ("effect_result_iff_done", "update jobdeck.effects set state = 'done', done_at = now()"),
        ("effect_result_iff_done", "update jobdeck.effects set result = '1'"),
        (
            "effect_result_iff_done",
            "update jobdeck.effects set state = 'done', done_at = now(), result = '1', result_problem = 'x'",
        ),
        ("effect_first_try_is_not_a_repeat", "update jobdeck.effects set maybe_done = true"),
        ("effect_settled_is_not_started", "update jobdeck.effects set settled_by = 'Ana'"),
        ("step_name_length", "update jobdeck.steps set name = ''"),
        ("step_token_positive", "update jobdeck.steps set token = 0"),
        ("step_took_not_negative", "update jobdeck.steps set took_ms = -1"),
    ];
    db.enqueue(&Note::new("one of each")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    die_within(&ctx, "send", "a").await;
    ctx.step("render", async || Ok(1)).await.expect("kept");
    for (constraint, statement) in cases {
        let refused = sqlx::query(*statement).execute(db.store.pool()).await.expect_err(statement);
        let named = refused.as_database_error().and_then(|error| error.constraint());
        assert_eq!(named, Some(*constraint), "{statement}");
    }
}
