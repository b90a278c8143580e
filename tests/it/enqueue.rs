//! Putting jobs in: transactions, keys, duplicates, input Postgres cannot hold.

use std::sync::Arc;
use std::time::Duration;

use jobdeck::store::Outcome;
use jobdeck::{EnqueueOptions, JobError, JobState, StoreError};
use serde_json::json;
use tokio::sync::Barrier;

use crate::support::{Db, Keyed, Note, lease, person};

#[tokio::test]
async fn job_enqueued_in_a_transaction_exists_if_and_only_if_it_commits() {
    let db = Db::new().await;
    let mut tx = db.store.pool().begin().await.expect("begun");
    db.store.enqueue_in_tx(&mut *tx, &Note::new("rolled back"), EnqueueOptions::default()).await.expect("enqueued");
    assert!(db.claim_many("A", 10).await.is_empty(), "not seen before commit");
    tx.rollback().await.expect("rolled back");
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 0);

    let mut tx = db.store.pool().begin().await.expect("begun");
    let kept = db.store.enqueue_in_tx(&mut *tx, &Note::new("kept"), EnqueueOptions::default()).await.expect("enqueued");
    tx.commit().await.expect("committed");
    assert_eq!(db.claim("A").await.job_id, kept.id);
}

#[tokio::test]
async fn fifty_enqueues_of_one_key_at_once_make_one_job_and_all_get_its_id() {
    let db = Arc::new(Db::new().await);
    let barrier = Arc::new(Barrier::new(50));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (db, barrier) = (db.clone(), barrier.clone());
        callers.spawn(async move {
            barrier.wait().await;
            db.store.enqueue(&Keyed::new("one"), EnqueueOptions::default()).await.expect("answered")
        });
    }
    let answers = callers.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_new).count(), 1);
    assert!(answers.iter().all(|answer| answer.id == answers[0].id && !answer.payload_differs));
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 1);
    assert_eq!(db.store.job_duplicates(answers[0].id).await.expect("counted").0, 49);
}

#[tokio::test]
async fn duplicate_that_met_a_transaction_which_rolled_back_is_a_new_job() {
    let db = Arc::new(Db::new().await);
    let mut tx = db.store.pool().begin().await.expect("begun");
    let first = db.store.enqueue_in_tx(&mut *tx, &Keyed::new("k"), EnqueueOptions::default()).await.expect("enqueued");
    let waiting = tokio::spawn({
        let db = db.clone();
        async move { db.store.enqueue(&Keyed::new("k"), EnqueueOptions::default()).await.expect("answered") }
    });
    let blocked =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let begun = std::time::Instant::now();
    while db.scalar(blocked).await == 0 {
        assert!(begun.elapsed().as_secs() < 10, "the second enqueue waits for the first transaction");
        tokio::task::yield_now().await;
    }
    tx.rollback().await.expect("rolled back");
    let second = waiting.await.expect("finished");
    assert!(second.is_new && second.id != first.id);
    assert_eq!(db.claim("A").await.job_id, second.id);
}

#[tokio::test]
async fn key_is_held_while_waiting_running_and_succeeded_and_free_after_failed_or_canceled() {
    let db = Db::new().await;
    let enqueue = async |body: &str| {
        let job = Keyed { key: "k".to_owned(), body: body.to_owned() };
        db.store.enqueue(&job, EnqueueOptions::default()).await.expect("answered")
    };
    let first = enqueue("same").await;
    assert!(first.is_new);
    assert_eq!((enqueue("same").await.is_new, enqueue("other").await.payload_differs), (false, true));
    let running = db.claim("A").await;
    assert_eq!(enqueue("same").await.id, first.id);
    let error = JobError::unrecoverable("permission", "no");
    let failed = Outcome::Failed { error: &error, delay: std::time::Duration::ZERO };
    db.store.job_end(lease(&running), failed).await.expect("failed");

    let second = enqueue("same").await;
    assert!(second.is_new && second.id != first.id, "a failed job gives its key back");
    let clash = db.store.job_retry(first.id, &person()).await.expect("answered");
    assert_eq!(clash, jobdeck::store::RetryOutcome::KeyHeld { by: second.id });
    assert_eq!(db.job(first.id).await.state, JobState::Failed);

    db.store.job_cancel(second.id, &person()).await.expect("canceled");
    assert_eq!(db.store.job_retry(first.id, &person()).await.expect("answered"), jobdeck::store::RetryOutcome::Queued);
    let again = db.claim("A").await;
    assert_eq!(again.job_id, first.id);
    db.store.job_complete(db.store.pool(), lease(&again), &json!({"file": "f"}), None).await.expect("completed");
    let duplicate = enqueue("same").await;
    assert_eq!((duplicate.is_new, duplicate.id), (false, first.id), "a duplicate of a succeeded job gets its result");
}

#[tokio::test]
async fn same_key_in_another_type_is_another_job() {
    let db = Db::new().await;
    let keyed = db.enqueue(&Keyed::new("k")).await;
    let note = db.enqueue(&Note::new("k")).await;
    assert_ne!(keyed, note);
}

#[tokio::test]
async fn what_postgres_cannot_hold_is_refused_by_name_before_anything_is_written() {
    let db = Db::new().await;
    let refused = db.store.enqueue(&Note::new("a\0b"), EnqueueOptions::default()).await.expect_err("refused");
    assert!(matches!(&refused, StoreError::InvalidValue { path, .. } if path == "payload.text"), "{refused}");
    let large = Note::new(&"x".repeat(jobdeck::Store::MAX_PAYLOAD_BYTES));
    let refused = db.store.enqueue(&large, EnqueueOptions::default()).await.expect_err("refused");
    assert!(matches!(refused, StoreError::PayloadTooLarge { .. }), "{refused}");
    let mut deep = json!(1);
    for _ in 0..150 {
        deep = json!([deep]);
    }
    let refused = db.store.enqueue(&Deep { deep }, EnqueueOptions::default()).await.expect_err("refused");
    assert!(refused.to_string().contains("100 levels"), "{refused}");
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 0);
    let harmless = db.enqueue(&Note::new("\\u0000")).await;
    assert_eq!(db.job(harmless).await.payload, json!({"text": "\\u0000"}));
}

#[tokio::test]
async fn large_payload_commits_and_lists_carry_only_a_preview() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new(&"x".repeat(3_000_000))).await;
    let rows = db.store.job_summaries(&[id]).await.expect("listed");
    assert_eq!(rows[0].payload_preview, "");
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Deep {
    deep: serde_json::Value,
}

impl jobdeck::JobType for Deep {
    const TYPE: &'static str = "deep";
}

#[tokio::test]
async fn calls_at_once_each_enqueue_their_own_job_whole_and_go_together() {
    let db = Db::new().await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..200_u64 {
        let store = db.store.clone();
        calls.spawn(async move {
            let options = EnqueueOptions {
                delay: Duration::from_secs(number % 3),
                priority: Some((number % 5) as i16),
                owner: Some(format!("owner {number}")),
                created_by: (number % 2 == 0).then(|| "half of them".to_owned()),
                limit_key: (number % 4 == 0).then(|| format!("tenant {number}")),
                tags: vec![format!("\"{number}\" \\ {{a,b}}"), "NULL".to_owned()],
            };
            (number, store.enqueue(&Note::new(&number.to_string()), options).await.expect("enqueued"))
        });
    }
    while let Some(call) = calls.join_next().await {
        let (number, enqueued) = call.expect("returned");
        assert!(enqueued.is_new && !enqueued.payload_differs);
        let row: (String, i16, String, Option<String>, Option<String>, Vec<String>, f64) = sqlx::query_as(
            "select payload->>'text', priority, owner, created_by, limit_key, tags,
               extract(epoch from run_after - created_at)::float8
             from jobdeck.jobs where id = $1",
        )
        .bind(enqueued.id)
        .fetch_one(db.store.pool())
        .await
        .expect("its row");
        let (text, priority, owner, created_by, limit_key, tags, delay) = row;
        assert_eq!(text, number.to_string());
        assert_eq!(priority, (number % 5) as i16);
        assert_eq!(owner, format!("owner {number}"));
        assert_eq!(created_by.is_some(), number % 2 == 0);
        assert_eq!(limit_key, (number % 4 == 0).then(|| format!("tenant {number}")));
        assert_eq!(tags, [format!("\"{number}\" \\ {{a,b}}"), "NULL".to_owned()]);
        assert_eq!(delay, (number % 3) as f64);
    }
    let (jobs, transactions): (i64, i64) =
        sqlx::query_as("select count(*), count(distinct created_at) from jobdeck.jobs")
            .fetch_one(db.store.pool())
            .await
            .expect("counted");
    assert_eq!(jobs, 200);
    assert!(transactions < 150, "200 calls at once took {transactions} transactions");
}

#[tokio::test]
async fn job_that_the_database_refuses_fails_alone_though_it_went_with_others() {
    let db = Db::new().await;
    sqlx::raw_sql(
        "alter table jobdeck.jobs add constraint house_rule check (payload->>'text' <> '13');
         create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.05); return null; end $$;
         create trigger slow after insert on jobdeck.jobs for each statement execute function slow()",
    )
    .execute(db.store.pool())
    .await
    .expect("ruled");
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..40 {
        let store = db.store.clone();
        calls.spawn(async move {
            (number, store.enqueue(&Note::new(&number.to_string()), EnqueueOptions::default()).await)
        });
    }
    while let Some(call) = calls.join_next().await {
        let (number, enqueued) = call.expect("returned");
        if number == 13 {
            let error = enqueued.expect_err("refused");
            assert!(format!("{error:?}").contains("house_rule"), "{error:?}");
        } else {
            enqueued.expect("enqueued");
        }
    }
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 39);
}

#[tokio::test]
async fn caller_that_is_given_up_takes_no_other_with_it() {
    let db = Db::new().await;
    let calls: Vec<_> = (0..60)
        .map(|number| {
            let store = db.store.clone();
            tokio::spawn(async move { store.enqueue(&Note::new(&number.to_string()), EnqueueOptions::default()).await })
        })
        .collect();
    for call in calls.iter().step_by(3) {
        call.abort();
    }
    for (number, call) in calls.into_iter().enumerate() {
        match call.await {
            Ok(enqueued) => drop(enqueued.expect("enqueued")),
            Err(error) => assert!(error.is_cancelled() && number % 3 == 0, "{number}: {error}"),
        }
    }
    // The place of those given up is free again.
    db.store.enqueue(&Note::new("later"), EnqueueOptions::default()).await.expect("enqueued");
}
