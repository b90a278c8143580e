//! What people do to jobs: cancel, retry; each leaves one audit row.

use std::time::Duration;

use jobdeck::store::{CancelOutcome, JobFilter, Outcome, PageCursor, RerunOutcome, RetryOutcome};
use jobdeck::{JobError, JobId, JobState};
use serde_json::json;

use crate::support::{Db, Keyed, Note, lease, person};

#[tokio::test]
async fn waiting_job_is_canceled_at_once_and_never_claimed() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("unwanted")).await;
    assert_eq!(db.store.job_cancel(id, &person()).await.expect("answered"), CancelOutcome::Canceled);
    assert_eq!(
        db.store.job_cancel(id, &person()).await.expect("answered"),
        CancelOutcome::AlreadyFinal(JobState::Canceled)
    );
    assert!(db.claim_many("A", 1).await.is_empty());
    let entries = db.store.audit_list(&id.to_string(), 10).await.expect("listed");
    assert_eq!(entries.len(), 1, "one audit row for two presses");
    assert_eq!(
        (entries[0].before.clone(), entries[0].actor.as_str()),
        (Some(json!({"state": "pending"})), "Ana Costa")
    );
}

#[tokio::test]
async fn running_job_is_asked_to_stop_and_ends_as_its_handler_ends() {
    let db = Db::new().await;
    let stops = db.enqueue(&Note::new("stops")).await;
    let finishes = db.enqueue(&Note::new("finishes")).await;
    let claims = db.claim_many("A", 2).await;
    for id in [stops, finishes] {
        assert_eq!(db.store.job_cancel(id, &person()).await.expect("answered"), CancelOutcome::Requested);
    }
    let error = JobError::retryable("timeout", "stopped midway");
    let failed = Outcome::Failed { error: &error, delay: Duration::ZERO };
    assert_eq!(db.store.job_end(lease(&claims[0]), failed).await.expect("taken").state, JobState::Canceled);
    db.store.job_complete(db.store.pool(), lease(&claims[1]), &json!(1), None).await.expect("it was only asked");
    assert_eq!(db.job(finishes).await.state, JobState::Succeeded);
}

#[tokio::test]
async fn job_asked_to_stop_whose_worker_dies_is_canceled_not_retried() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("both")).await;
    db.claim("A").await;
    db.store.job_cancel(id, &person()).await.expect("requested");
    db.expire(id).await;
    assert_eq!(db.reap().await, [(id, JobState::Canceled)]);
}

#[tokio::test]
async fn retry_pressed_twice_queues_once_and_keeps_token_and_history() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("again")).await;
    let claim = db.claim("A").await;
    let error = JobError::unrecoverable("permission", "no");
    db.store.job_end(lease(&claim), Outcome::Failed { error: &error, delay: Duration::ZERO }).await.expect("failed");
    assert_eq!(db.store.job_retry(id, &person()).await.expect("answered"), RetryOutcome::Queued);
    let second = db.store.job_retry(id, &person()).await.expect("answered");
    assert_eq!(second, RetryOutcome::NotRetryable(JobState::Pending));
    let job = db.job(id).await;
    assert_eq!((job.state, job.attempts, job.token), (JobState::Pending, 0, claim.token));
    assert_eq!(db.store.attempt_list(id).await.expect("listed").len(), 1);
    assert_eq!(db.store.audit_list(&id.to_string(), 10).await.expect("listed").len(), 1);
}

#[tokio::test]
async fn running_and_succeeded_jobs_cannot_be_retried_and_unknown_ids_are_said_to_be() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("busy")).await;
    let claim = db.claim("A").await;
    let retry = async || db.store.job_retry(id, &person()).await.expect("answered");
    assert_eq!(retry().await, RetryOutcome::NotRetryable(JobState::Running));
    db.store.job_complete(db.store.pool(), lease(&claim), &json!(1), None).await.expect("completed");
    assert_eq!(retry().await, RetryOutcome::NotRetryable(JobState::Succeeded));
    let unknown = JobId(uuid::Uuid::now_v7());
    assert_eq!(db.store.job_retry(unknown, &person()).await.expect("answered"), RetryOutcome::NotFound);
    assert_eq!(db.store.job_cancel(unknown, &person()).await.expect("answered"), CancelOutcome::NotFound);
    assert_eq!(db.scalar("select count(*) from jobdeck.audit_log").await, 0);
}

#[tokio::test]
async fn pages_neither_skip_nor_repeat_while_jobs_come_and_change() {
    let db = Db::new().await;
    for n in 0..25 {
        db.enqueue(&Note::new(&format!("n{n}"))).await;
    }
    let filter = JobFilter::default();
    let mut seen = Vec::new();
    let mut cursor = PageCursor::Newest;
    loop {
        let page = db.store.job_list(&filter, cursor, 10).await.expect("listed");
        seen.extend(page.jobs.iter().map(|job| job.payload_preview.clone()));
        db.enqueue(&Note::new("newcomer")).await;
        let Some(last) = page.jobs.last().filter(|_| page.has_older) else { break };
        cursor = PageCursor::After(last.id);
    }
    // Ids made within one millisecond stand in any order.
    seen.sort_by_key(|text| text.trim_start_matches("text=n").parse::<u32>().expect("no newcomer"));
    assert_eq!(seen, (0..25).map(|n| format!("text=n{n}")).collect::<Vec<_>>());
    let PageCursor::After(third_page) = cursor else { panic!("three pages") };
    let back = db.store.job_list(&filter, PageCursor::Before(third_page), 10).await.expect("listed");
    assert_eq!((back.jobs.len(), back.has_newer, back.has_older), (10, true, true));
}

#[tokio::test]
async fn search_finds_text_as_typed_and_counts_agree_with_it() {
    let db = Db::new().await;
    for text in ["50% off+a&b=c", "50x off", "漢字", "snake_case", "snakeXcase", r"back\slash"] {
        db.enqueue(&Note::new(text)).await;
    }
    for (text, n) in [("50% OFF+a&b", 1), ("漢字", 1), ("snake_c", 1), (r"k\s", 1), ("nothing like it", 0), ("note", 6)]
    {
        let filter = JobFilter { text: Some(text.to_owned()), ..JobFilter::default() };
        let page = db.store.job_list(&filter, PageCursor::Newest, 50).await.expect("listed");
        let counts = db.store.job_counts(&filter).await.expect("counted");
        assert_eq!((page.jobs.len(), counts.of(JobState::Pending), counts.total()), (n, n as i64, n as i64), "{text}");
    }
    let filter = JobFilter { state: Some(JobState::Failed), ..JobFilter::default() };
    assert!(db.store.job_list(&filter, PageCursor::Newest, 50).await.expect("listed").jobs.is_empty());
}

#[tokio::test]
async fn retry_that_waited_for_a_failure_to_commit_judges_the_row_as_it_is_then() {
    let db = std::sync::Arc::new(Db::new().await);
    let id = db.enqueue(&crate::support::Keyed::new("k")).await;
    let claim = db.claim("A").await;
    let mut failing = db.store.begin().await.expect("begun");
    // What job_end writes, held open.
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "update jobdeck.jobs set status = 'failed', finished_at = now(), locked_at = null, locked_by = null,
           lease_expires_at = null where id = '{id}' and token = {};
         delete from jobdeck.idempotency_keys where job_id = '{id}'",
        claim.token
    )))
    .execute(&mut *failing)
    .await
    .expect("written");
    let retry = tokio::spawn({
        let db = db.clone();
        async move { db.store.job_retry(id, &person()).await.expect("answered") }
    });
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let begun = std::time::Instant::now();
    while db.scalar(waits).await == 0 {
        assert!(begun.elapsed().as_secs() < 10, "the retry waits for the row");
        tokio::task::yield_now().await;
    }
    failing.commit().await.expect("committed");
    assert_eq!(retry.await.expect("finished"), RetryOutcome::Queued);
    assert_eq!(db.job(id).await.state, JobState::Pending);
    let holder = db.store.enqueue(&crate::support::Keyed::new("k"), jobdeck::EnqueueOptions::default()).await;
    assert_eq!(holder.expect("answered").id, id, "the key is held by a job that will run");
}

#[tokio::test]
async fn rerun_takes_the_key_over_and_of_many_at_once_one_does() {
    let db = Db::new().await;
    let old = db.enqueue(&Keyed::new("k")).await;
    assert_eq!(
        db.store.job_rerun(old, None, &person()).await.expect("answered"),
        RerunOutcome::NotRerunnable(JobState::Pending)
    );
    let claim = db.claim("A").await;
    db.store.job_complete(db.store.pool(), lease(&claim), &json!({"done": 1}), None).await.expect("completed");
    let before = db.job(old).await;
    let reruns = (0..20).map(|_| {
        let store = db.store.clone();
        tokio::spawn(async move { store.job_rerun(old, Some("Bo"), &person()).await.expect("answered") })
    });
    let mut queued = Vec::new();
    let mut held = Vec::new();
    for rerun in reruns.collect::<Vec<_>>() {
        match rerun.await.expect("no panic") {
            RerunOutcome::Queued { id } => queued.push(id),
            RerunOutcome::KeyHeld { by } => held.push(by),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((queued.len(), held.len()), (1, 19));
    let new = queued[0];
    assert!(held.iter().all(|by| *by == new));
    // Whoever enqueues the same lands on the new job.
    assert_eq!(db.enqueue(&Keyed::new("k")).await, new);
    let job = db.job(new).await;
    assert_eq!((job.state, job.attempts, job.token, &job.payload), (JobState::Pending, 0, 0, &before.payload));
    assert_eq!((job.owner.as_deref(), job.created_by.as_deref()), (Some("Bo"), Some("Ana Costa")));
    assert_eq!(db.job(old).await, before);
    let entries = db.store.audit_list(&old.to_string(), 10).await.expect("listed");
    assert_eq!(
        (entries.len(), entries[0].action.as_str(), &entries[0].after),
        (1, "rerun_job", &Some(json!({"rerun": new})))
    );
    let mut connection = db.connection().await;
    assert!(jobdeck::Store::counters_check(&mut connection).await.expect("checked").is_empty());
    assert_eq!(
        db.store.job_rerun(JobId(uuid::Uuid::nil()), None, &person()).await.expect("answered"),
        RerunOutcome::NotFound
    );

    // The rerun fails and gives the key back; the old job can be run once more.
    let error = JobError::unrecoverable("permission", "no");
    let claim = db.claim("A").await;
    db.store.job_end(lease(&claim), Outcome::Failed { error: &error, delay: Duration::ZERO }).await.expect("ended");
    assert!(matches!(
        db.store.job_rerun(old, None, &person()).await.expect("answered"),
        RerunOutcome::Queued { id } if id != new
    ));
}
