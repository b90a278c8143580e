//! Counts are exact at every moment, folded or not.

use jobdeck::store::{JobFilter, Outcome};
use jobdeck::{CounterKeeper, EnqueueOptions, JobError, JobState, Store};
use serde_json::json;

use crate::support::{Brittle, Db, Keyed, Note, person};

/// Compares with count(*), which must agree.
async fn check(db: &Db) {
    let mut connection = db.connection().await;
    assert_eq!(Store::counters_check(&mut connection).await.expect("checked"), []);
}

#[tokio::test]
async fn counters_follow_every_transition_and_folding_changes_nothing() {
    let db = Db::new().await;
    let mut connection = db.connection().await;
    let ids: Vec<_> = {
        let notes: Vec<Note> = (0..6).map(|n| Note::new(&n.to_string())).collect();
        db.store.enqueue_many(&notes, EnqueueOptions::default()).await.expect("enqueued").iter().map(|e| e.id).collect()
    };
    check(&db).await;
    let claims = db.claim_many("A", 4).await;
    check(&db).await;
    assert!(Store::counters_fold(&mut connection).await.expect("folded") > 0);
    assert_eq!(Store::counters_fold(&mut connection).await.expect("folded"), 0);
    check(&db).await;
    db.store.job_complete(db.store.pool(), claims[0].lease(), &json!(1), None).await.expect("taken");
    let error = JobError::unrecoverable("not_found", "gone");
    let failed = Outcome::Failed { error: &error, delay: std::time::Duration::ZERO };
    db.store.job_end(claims[1].lease(), failed).await.expect("taken");
    db.store.job_end(claims[2].lease(), Outcome::Released).await.expect("taken");
    db.expire(claims[3].job_id).await;
    db.reap().await;
    db.store.job_cancel(ids[5], &person()).await.expect("canceled");
    check(&db).await;
    db.store.job_retry(claims[1].job_id, &person()).await.expect("retried");
    sqlx::query("delete from jobdeck.jobs where status = 'canceled'").execute(db.store.pool()).await.expect("deleted");
    check(&db).await;
    let counts = db.store.job_counts(&JobFilter::default()).await.expect("counted");
    assert_eq!(
        JobState::ALL.map(|state| counts.of(state)),
        [3, 0, 1, 0, 1, 0],
        "pending, running, retrying, failed, succeeded, canceled"
    );
}

#[tokio::test]
async fn wrong_counter_is_found_and_set_right_once_a_day_by_one_process() {
    let db = Db::new().await;
    db.enqueue(&Note::new("one")).await;
    sqlx::query(
        "insert into jobdeck.job_counter_deltas (queue, type, status, n_jobs) values ('default', 'note', 'pending', 7)",
    )
    .execute(db.store.pool())
    .await
    .expect("spoilt");
    let found = CounterKeeper::new(db.store.clone(), "A").check_if_due().await.expect("checked").expect("its turn");
    assert_eq!(found.iter().map(|wrong| (wrong.counted, wrong.present)).collect::<Vec<_>>(), [(8, 1)]);
    check(&db).await;
    for other in ["A", "B"] {
        let again = CounterKeeper::new(db.store.clone(), other).check_if_due().await.expect("asked");
        assert_eq!(again, None, "{other} waits for tomorrow");
    }
    sqlx::query("update jobdeck.duties set until = now()").execute(db.store.pool()).await.expect("a day later");
    let next = CounterKeeper::new(db.store.clone(), "B").check_if_due().await.expect("checked");
    assert_eq!(next, Some(Vec::new()));
}

#[tokio::test]
async fn counters_are_exact_while_many_write_and_fold_at_once() {
    let db = std::sync::Arc::new(Db::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let db = db.clone();
        tasks.spawn(async move {
            for n in 0..30 {
                db.store
                    .enqueue(&Keyed::new(&format!("{}", (writer * 30 + n) % 50)), EnqueueOptions::default())
                    .await
                    .expect("enqueued");
                db.enqueue(&Brittle {}).await;
                for claim in db.claim_many(&format!("w{writer}"), 3).await {
                    db.store.job_complete(db.store.pool(), claim.lease(), &json!(null), None).await.expect("taken");
                }
            }
        });
    }
    for _ in 0..2 {
        let db = db.clone();
        tasks.spawn(async move {
            let mut connection = db.connection().await;
            for _ in 0..40 {
                Store::counters_fold(&mut connection).await.expect("folded");
                assert_eq!(Store::counters_check(&mut connection).await.expect("checked"), []);
            }
        });
    }
    tasks.join_all().await;
    check(&db).await;
    assert!(db.store.job_counters().await.expect("read").iter().all(|counter| counter.n_jobs > 0));
}

#[tokio::test]
async fn a_rolled_back_enqueue_is_not_counted() {
    let db = Db::new().await;
    let mut tx = db.store.begin().await.expect("begun");
    db.store.enqueue_in_tx(&mut *tx, &Note::new("gone"), EnqueueOptions::default()).await.expect("enqueued");
    tx.rollback().await.expect("rolled back");
    assert_eq!(db.store.job_counters().await.expect("read"), []);
}

#[tokio::test]
async fn a_counter_that_is_wrong_is_named_and_mended() {
    let db = Db::new().await;
    db.enqueue(&Note::new("one")).await;
    sqlx::query("insert into jobdeck.job_counter_deltas values ('default', 'note', 'failed', 3)")
        .execute(db.store.pool())
        .await
        .expect("spoiled");
    let mut connection = db.connection().await;
    let wrong = Store::counters_check(&mut connection).await.expect("checked");
    assert_eq!((wrong.len(), wrong[0].state, wrong[0].counted, wrong[0].present), (1, JobState::Failed, 3, 0));
    check(&db).await;
}
