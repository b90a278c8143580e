//! Limits across workers, priorities with ageing, and providers that asked for a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jobdeck::store::{Outcome, QueueLimits};
use jobdeck::{EnqueueOptions, JobError, JobId, Store};
use serde_json::json;

use crate::support::{Brittle, Db, Note, person};

async fn set_limits(db: &Db, concurrency: Option<i32>, per_key: Option<i32>) {
    db.store.queue_set_limits("default", QueueLimits { concurrency, per_key }, &person()).await.expect("limited");
}

#[tokio::test]
async fn a_queue_with_limit_three_never_runs_four_whoever_claims() {
    let db = Arc::new(Db::new().await);
    set_limits(&db, Some(3), None).await;
    let notes: Vec<Note> = (0..60).map(|n| Note::new(&n.to_string())).collect();
    db.store.enqueue_many(&notes, EnqueueOptions::default()).await.expect("enqueued");
    let (running, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let done = Arc::new(AtomicI64::new(0));
    let mut claimers = tokio::task::JoinSet::new();
    for claimer in 0..4 {
        let (db, running, most, done) = (db.clone(), running.clone(), most.clone(), done.clone());
        claimers.spawn(async move {
            while done.load(Ordering::SeqCst) < 60 {
                let claims = db.claim_many(&format!("claimer-{claimer}"), 5).await;
                let now = running.fetch_add(claims.len() as i64, Ordering::SeqCst) + claims.len() as i64;
                most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                for claim in claims {
                    // Counted down first: the next claim may follow at once.
                    running.fetch_sub(1, Ordering::SeqCst);
                    db.store.job_complete(db.store.pool(), claim.lease(), &json!(0), None).await.expect("taken");
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    claimers.join_all().await;
    assert_eq!((most.load(Ordering::SeqCst) <= 3, done.load(Ordering::SeqCst)), (true, 60));
}

#[tokio::test]
async fn the_slot_of_a_dead_worker_is_free_once_its_job_is_reaped() {
    let db = Db::new().await;
    set_limits(&db, Some(1), None).await;
    let first = db.enqueue(&Note::new("1")).await;
    db.enqueue(&Note::new("2")).await;
    assert_eq!(db.claim("A").await.job_id, first);
    assert!(db.claim_many("B", 5).await.is_empty());
    db.expire(first).await;
    assert!(db.claim_many("B", 5).await.is_empty(), "not before it is reaped");
    db.reap().await;
    assert_eq!(db.claim_many("B", 5).await.len(), 1);
}

#[tokio::test]
async fn a_limit_by_key_holds_back_its_own_key_and_no_other() {
    let db = Db::new().await;
    set_limits(&db, None, Some(2)).await;
    let enqueue = async |key: Option<&str>| {
        let options = EnqueueOptions { limit_key: key.map(str::to_owned), ..EnqueueOptions::default() };
        db.store.enqueue(&Note::new("limited"), options).await.expect("enqueued").id
    };
    let mut first = Vec::new();
    for _ in 0..10 {
        first.push(enqueue(Some("acme")).await);
    }
    let other = enqueue(Some("globex")).await;
    let free = enqueue(None).await;
    let mut claimed: Vec<JobId> = db.claim_many("A", 20).await.iter().map(|claim| claim.job_id).collect();
    claimed.sort_unstable();
    let mut expected = vec![first[0], first[1], other, free];
    expected.sort_unstable();
    assert_eq!(claimed, expected);
    assert!(db.claim_many("B", 20).await.is_empty());
}

#[tokio::test]
async fn a_limit_set_and_taken_away_leaves_one_audit_row_each_and_none_when_nothing_changes() {
    let db = Db::new().await;
    set_limits(&db, Some(2), None).await;
    set_limits(&db, Some(2), None).await;
    set_limits(&db, None, None).await;
    assert_eq!(db.scalar("select count(*) from jobdeck.audit_log where action = 'limit_queue'").await, 2);
    let none = QueueLimits { concurrency: Some(0), per_key: None };
    let refused = db.store.queue_set_limits("default", none, &person()).await;
    assert!(refused.expect_err("refused").to_string().contains("concurrency: must be at least 1"));
}

#[tokio::test]
async fn a_point_of_priority_is_worth_a_minute_of_waiting_so_nothing_starves() {
    let db = Db::new().await;
    let enqueue = async |priority, due_ago_secs: f64| {
        let options = EnqueueOptions { priority: Some(priority), ..EnqueueOptions::default() };
        let id = db.store.enqueue(&Note::new("aged"), options).await.expect("enqueued").id;
        sqlx::query("update jobdeck.jobs set run_after = now() - $2 * interval '1 second' where id = $1")
            .bind(id)
            .bind(due_ago_secs)
            .execute(db.store.pool())
            .await
            .expect("aged");
        id
    };
    let urgent = enqueue(5, 0.0).await;
    let waited_four_minutes = enqueue(0, 240.0).await;
    let waited_six_minutes = enqueue(0, 360.0).await;
    let low_for_an_hour = enqueue(-9, 3600.0).await;
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(db.claim("A").await.job_id);
    }
    assert_eq!(order, [low_for_an_hour, waited_six_minutes, urgent, waited_four_minutes]);
}

#[tokio::test]
async fn a_rate_limit_stops_every_worker_from_claiming_the_providers_types_and_no_other() {
    let db = Db::new().await;
    sqlx::query(
        "insert into jobdeck.job_types (type, queue, max_attempts, max_stalled, provider)
         values ('note', 'default', 5, 3, 'openai'), ('brittle', 'default', 2, 1, null)",
    )
    .execute(db.store.pool())
    .await
    .expect("registered");
    let limited = db.enqueue(&Note::new("first")).await;
    db.enqueue(&Note::new("second")).await;
    let other = db.enqueue(&Brittle {}).await;
    let claim = db.claim("A").await;
    assert_eq!(claim.job_id, limited);
    let error = JobError::rate_limited(Duration::from_secs(7), "429 Too Many Requests");
    let waits = Outcome::Waits { error: &error, delay: Duration::from_secs(7) };
    db.store.job_end(claim.lease(), waits).await.expect("taken");
    let job = db.job(limited).await;
    assert_eq!(job.attempts, 0, "no attempt is used up");
    let cooling = db.store.cool_down_list().await.expect("listed");
    assert_eq!((cooling.len(), cooling[0].provider.as_str(), cooling[0].until), (1, "openai", job.run_after));
    let left = db.store.cool_down_left("openai").await.expect("read").expect("cooling");
    assert!(left <= Duration::from_secs(7) && left > Duration::from_secs(5));
    let claimed: Vec<JobId> = db.claim_many("B", 5).await.iter().map(|claim| claim.job_id).collect();
    assert_eq!(claimed, [other], "the provider's other job waits too");

    assert!(db.store.cool_down_end("openai", &person()).await.expect("ended"));
    assert!(!db.store.cool_down_end("openai", &person()).await.expect("answered"));
    assert_eq!(db.claim_many("B", 5).await.len(), 1);
    assert_eq!(db.scalar("select count(*) from jobdeck.audit_log where action = 'end_cool_down'").await, 1);
}

#[tokio::test]
async fn a_shorter_answer_does_not_shorten_a_cool_down_and_a_snooze_starts_none() {
    let db = Db::new().await;
    for _ in 0..3 {
        db.enqueue(&Note::new("limited")).await;
    }
    let end = async |error: JobError, secs| {
        let claim = db.claim("A").await;
        let waits = Outcome::Waits { error: &error, delay: Duration::from_secs(secs) };
        db.store.job_end(claim.lease(), waits).await.expect("taken");
    };
    end(JobError::snooze(Duration::from_secs(60), "later"), 60).await;
    assert_eq!(db.store.cool_down_list().await.expect("listed"), []);
    end(JobError::rate_limited(Duration::from_secs(60), "long").provider("stripe"), 60).await;
    let until = db.store.cool_down_list().await.expect("listed")[0].until;
    end(JobError::rate_limited(Duration::from_secs(1), "short").provider("stripe"), 1).await;
    assert_eq!(db.store.cool_down_list().await.expect("listed")[0].until, until);
}

#[tokio::test]
async fn many_jobs_arrive_in_one_statement_or_not_at_all() {
    let db = Db::new().await;
    let mut notes: Vec<Note> = (0..100).map(|n| Note::new(&n.to_string())).collect();
    notes[57].text = "a\0b".to_owned();
    let refused = db.store.enqueue_many(&notes, EnqueueOptions::default()).await.expect_err("refused");
    assert!(refused.to_string().starts_with("jobs[57].payload.text: holds a NUL"), "{refused}");
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 0);
    notes[57].text = "fine".to_owned();
    let enqueued = db.store.enqueue_many(&notes, EnqueueOptions::default()).await.expect("enqueued");
    assert_eq!((enqueued.len(), enqueued.iter().filter(|one| one.is_new).count()), (100, 100));
    let claimed: Vec<JobId> = db.claim_many("A", 100).await.iter().map(|claim| claim.job_id).collect();
    assert_eq!(claimed, enqueued.iter().map(|one| one.id).collect::<Vec<_>>(), "first in, first out");
    let job = db.job(enqueued[57].id).await;
    assert_eq!(job.payload, json!({"text": "fine"}));
    assert_eq!(db.store.enqueue_many::<Note>(&[], EnqueueOptions::default()).await.expect("nothing"), []);
}

#[tokio::test]
async fn two_bulks_with_the_same_keys_in_opposite_order_make_each_job_once_without_a_deadlock() {
    use crate::support::Keyed;
    let db = Arc::new(Db::new().await);
    let forward: Vec<Keyed> = (0..1000).map(|n| Keyed::new(&format!("key-{n}"))).collect();
    let backward: Vec<Keyed> = (0..1000).rev().map(|n| Keyed::new(&format!("key-{n}"))).collect();
    let call = |jobs: Vec<Keyed>| {
        let store: Store = db.store.clone();
        tokio::spawn(async move { store.enqueue_many(&jobs, EnqueueOptions::default()).await.expect("no deadlock") })
    };
    let (one, other) = (call(forward), call(backward));
    let (one, mut other) = (one.await.expect("joined"), other.await.expect("joined"));
    other.reverse();
    let n_new = one.iter().chain(&other).filter(|enqueued| enqueued.is_new).count();
    assert_eq!((n_new, db.scalar("select count(*) from jobdeck.jobs").await), (1000, 1000));
    assert!(one.iter().zip(&other).all(|(one, other)| one.id == other.id), "both callers get the same ids");
    let twice = [Keyed::new("twice"), Keyed::new("twice")];
    let twice = db.store.enqueue_many(&twice, EnqueueOptions::default()).await.expect("enqueued");
    assert_eq!((twice[0].is_new, twice[1].is_new, twice[0].id == twice[1].id), (true, false, true));
    let mut differs = [Keyed::new("key-1")];
    differs[0].body = "other".to_owned();
    let differs = db.store.enqueue_many(&differs, EnqueueOptions::default()).await.expect("answered");
    assert_eq!((differs[0].is_new, differs[0].payload_differs), (false, true));
}

/// Holds the row of `key` locked, as an application does that enqueued a duplicate and has not committed.
async fn lock_key(db: &Db, key: &str) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut tx = db.store.begin().await.expect("begun");
    let enqueued = db.store.enqueue_in_tx(&mut *tx, &crate::support::Keyed::new(key), EnqueueOptions::default()).await;
    assert!(!enqueued.expect("answered").is_new, "a duplicate");
    tx
}

#[tokio::test]
async fn no_end_of_a_job_waits_for_a_key_that_an_open_transaction_holds_and_the_key_is_free_all_the_same() {
    use crate::support::Keyed;
    let db = Db::new().await;
    for (key, ends) in [("reaped", false), ("fails", true)] {
        let id = db.enqueue(&Keyed::new(key)).await;
        let claim = db.claim("A").await;
        let open = lock_key(&db, key).await;
        let patience = Duration::from_secs(5);
        if ends {
            let error = JobError::unrecoverable("not_found", "gone");
            let outcome = Outcome::Failed { error: &error, delay: Duration::ZERO };
            tokio::time::timeout(patience, db.store.job_end(claim.lease(), outcome))
                .await
                .expect("no wait")
                .expect("taken");
        } else {
            sqlx::query("update jobdeck.jobs set max_stalled = 0").execute(db.store.pool()).await.expect("set");
            db.expire(id).await;
            assert_eq!(tokio::time::timeout(patience, db.reap()).await.expect("no wait").len(), 1);
        }
        assert_eq!(db.job(id).await.state, jobdeck::JobState::Failed);
        open.rollback().await.expect("rolled back");
        let next = db.store.enqueue(&Keyed::new(key), EnqueueOptions::default()).await.expect("enqueued");
        assert!(next.is_new && next.id != id, "a failed job keeps no key");
        db.store.job_cancel(next.id, &person()).await.expect("canceled");
    }
}

#[tokio::test]
async fn a_job_is_claimed_from_another_queue_than_its_types_and_none_is_announced_that_no_claim_takes() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("stalls")).await;
    db.claim("A").await;
    db.expire(id).await;
    db.reap().await;
    let mut connection = db.connection().await;
    let queues = ["default".to_owned()];
    let types = ["note".to_owned()];
    let due = async |connection: &mut sqlx::PgConnection| {
        Store::job_suspects_due(connection, &queues, &types).await.expect("looked")
    };
    assert_eq!(due(&mut connection).await, (true, false));
    db.store.queue_pause("default", &person()).await.expect("paused");
    assert_eq!(due(&mut connection).await, (false, false), "of a paused queue none is announced");
    db.store.queue_resume("default", &person()).await.expect("resumed");
    let mut elsewhere =
        sqlx::query("insert into jobdeck.queues (name) values ('urgent')").execute(db.store.pool()).await;
    elsewhere = elsewhere.and(
        sqlx::query(
            "insert into jobdeck.jobs (type, queue, payload) values ('note', 'urgent', '{\"text\": \"here\"}')",
        )
        .execute(db.store.pool())
        .await,
    );
    elsewhere.expect("enqueued elsewhere");
    let worker = jobdeck::Worker::builder(db.store.clone(), &db.url)
        .register(async |_: jobdeck::Ctx, _: Note| Ok(()))
        .queue("default", 1)
        .queue("urgent", 1)
        .build()
        .expect("valid");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
    let begun = std::time::Instant::now();
    while db.scalar("select count(*) from jobdeck.jobs where status = 'succeeded'").await < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "both run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(stop);
    running.await.expect("joined").expect("stopped");
}
