//! The histories H1 to H8 of the lease protocol, on real SQL, with connections of their own and no sleeps.
//!
//! The late write of each meets a running new holder wherever the history allows one: a check of the state alone would
//! let it through.

use std::time::Duration;

use jobdeck::store::{Claim, Completion, Outcome};
use jobdeck::{EnqueueOptions, JobError, JobState, Store, StoreError};
use serde_json::json;

use crate::support::{Db, Keyed, Note, lease, person};

fn is_lease_lost<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::LeaseLost(_)))
}

/// A holds the job, its lease ended, B holds it now.
struct Overtaken {
    db: Db,
    a: Claim,
    b: Claim,
}

async fn overtaken() -> Overtaken {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("contested")).await;
    let a = db.claim("A").await;
    db.expire(id).await;
    assert_eq!(db.reap().await, [(id, JobState::Retrying)]);
    let b = db.claim("B").await;
    assert_eq!((b.job_id, db.job(id).await.state), (id, JobState::Running));
    assert!(b.token > a.token);
    Overtaken { db, a, b }
}

impl Overtaken {
    /// B still holds the job, and nothing A sent shows.
    async fn assert_untouched(&self, before: &jobdeck::Job) {
        let after = self.db.job(self.a.job_id).await;
        assert_eq!(&after, before);
        assert_eq!((after.state, after.token), (JobState::Running, self.b.token));
        self.db.store.job_complete(self.db.store.pool(), lease(&self.b), &json!("B"), None).await.expect("B completes");
        let done = self.db.job(self.a.job_id).await;
        assert_eq!(done.result, Some(json!("B")));
        // Nor is A told yes once the job has succeeded by another's hand.
        let late = self.db.store.job_complete(self.db.store.pool(), lease(&self.a), &json!("A"), None).await;
        assert!(is_lease_lost(late));
        assert_eq!(self.db.job(self.a.job_id).await, done);
    }
}

#[tokio::test]
async fn h1_completion_after_the_lease_was_lost_is_refused_while_another_runs() {
    let history = overtaken().await;
    let before = history.db.job(history.a.job_id).await;
    let store = &history.db.store;
    assert!(is_lease_lost(store.job_complete(store.pool(), lease(&history.a), &json!("A"), None).await));
    history.assert_untouched(&before).await;
}

#[tokio::test]
async fn h1_completion_in_a_group_after_the_lease_was_lost_is_refused_while_another_runs() {
    let history = overtaken().await;
    let before = history.db.job(history.a.job_id).await;
    let store = &history.db.store;
    let good = history.db.enqueue(&Note::new("good")).await;
    let held = history.db.claim("C").await;
    assert_eq!(held.job_id, good);
    let completion = |claim: &Claim| Completion::new(lease(claim), &json!("late"), None).expect("can be stored");
    let (late, in_time) = (completion(&history.a), completion(&held));
    let answers = store.job_complete_many(&[&late, &in_time]).await.expect("answered");
    assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [lease(&held)]);
    history.assert_untouched(&before).await;
    assert!(store.job_complete_many(&[&late]).await.expect("answered").is_empty(), "B's success is not A's");
}

#[tokio::test]
async fn h1_failure_after_the_lease_was_lost_is_refused_while_another_runs() {
    let history = overtaken().await;
    let before = history.db.job(history.a.job_id).await;
    let error = JobError::retryable("late", "too late");
    let failed = Outcome::Failed { error: &error, delay: Duration::ZERO };
    assert!(is_lease_lost(history.db.store.job_end(lease(&history.a), failed).await));
    assert!(is_lease_lost(history.db.store.job_end(lease(&history.a), Outcome::Released).await));
    assert!(is_lease_lost(history.db.store.job_end(lease(&history.a), Outcome::Canceled).await));
    assert_eq!(history.db.scalar("select count(*) from jobdeck.attempts").await, 1, "only the stall is noted");
    history.assert_untouched(&before).await;
}

#[tokio::test]
async fn h1_stage_after_the_lease_was_lost_is_refused_while_another_runs() {
    let history = overtaken().await;
    let before = history.db.job(history.a.job_id).await;
    assert!(is_lease_lost(history.db.store.job_set_stage(lease(&history.a), "writing").await));
    history.assert_untouched(&before).await;
}

#[tokio::test]
async fn h1_progress_after_the_lease_was_lost_is_refused_while_another_runs() {
    let history = overtaken().await;
    let before = history.db.job(history.a.job_id).await;
    assert!(is_lease_lost(history.db.store.job_set_progress(lease(&history.a), 90).await));
    history.assert_untouched(&before).await;
}

#[tokio::test]
async fn h2_heartbeat_after_the_lease_was_lost_renews_nothing() {
    let history = overtaken().await;
    let before = history.db.job(history.a.job_id).await;
    let mut connection = history.db.connection().await;
    let held =
        Store::lease_heartbeat(&mut connection, &[lease(&history.a)], Duration::from_secs(60)).await.expect("answered");
    assert_eq!(held, [], "a lease that is not in the answer is lost");
    history.assert_untouched(&before).await;
}

#[tokio::test]
async fn h2_cancel_of_the_new_holder_is_not_told_to_the_old_one() {
    let history = overtaken().await;
    history.db.store.job_cancel(history.a.job_id, &person()).await.expect("requested");
    let mut connection = history.db.connection().await;
    let leases = [lease(&history.a), lease(&history.b)];
    assert_eq!(Store::lease_list_canceled(&mut connection, &leases).await.expect("answered"), [lease(&history.b)]);
}

#[tokio::test]
async fn h3_reaper_that_read_before_the_completion_changes_nothing() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("just in time")).await;
    let a = db.claim("A").await;
    db.expire(id).await;
    let mut reaper = db.connection().await;
    let read = Store::lease_list_expired(&mut reaper, 100).await.expect("read");
    assert_eq!(read.len(), 1);
    db.store.job_complete(db.store.pool(), lease(&a), &json!("A"), None).await.expect("completed");
    assert_eq!(Store::job_reap(&mut reaper, &read).await.expect("wrote"), []);
    let job = db.job(id).await;
    assert_eq!((job.state, job.result, job.stalled_count), (JobState::Succeeded, Some(json!("A")), 0));
}

#[tokio::test]
async fn h4_reaper_that_read_before_the_heartbeat_changes_nothing() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("still alive")).await;
    let a = db.claim("A").await;
    db.expire(id).await;
    let (mut reaper, mut holder) = (db.connection().await, db.connection().await);
    let read = Store::lease_list_expired(&mut reaper, 100).await.expect("read");
    let held = Store::lease_heartbeat(&mut holder, &[lease(&a)], Duration::from_secs(15)).await.expect("renewed");
    assert_eq!(held.len(), 1);
    assert_eq!(Store::job_reap(&mut reaper, &read).await.expect("wrote"), []);
    assert_eq!((db.job(id).await.state, db.job(id).await.token), (JobState::Running, a.token));
}

#[tokio::test]
async fn h4_reaper_that_read_the_last_holder_leaves_the_next_alone_even_when_its_lease_ended_too() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("twice")).await;
    db.claim("A").await;
    db.expire(id).await;
    let mut slow_reaper = db.connection().await;
    let read = Store::lease_list_expired(&mut slow_reaper, 100).await.expect("read");
    db.reap().await;
    let b = db.claim("B").await;
    // The same expiry as was read, so that only the token tells the two holders apart.
    sqlx::query("update jobdeck.jobs set lease_expires_at = $2 where id = $1")
        .bind(id)
        .bind(read[0].lease_expires_at)
        .execute(db.store.pool())
        .await
        .expect("set");
    assert_eq!(Store::job_reap(&mut slow_reaper, &read).await.expect("wrote"), []);
    assert_eq!((db.job(id).await.state, db.job(id).await.token), (JobState::Running, b.token));
}

#[tokio::test]
async fn h5_late_completion_after_a_snooze_is_refused_although_the_same_worker_runs_again() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("later")).await;
    let first = db.claim("A").await;
    let error = JobError::snooze(Duration::ZERO, "not yet");
    db.store.job_end(lease(&first), Outcome::Waits { error: &error, delay: Duration::ZERO }).await.expect("snoozed");
    let second = db.claim("A").await;
    assert_eq!(first.attempts, second.attempts, "the attempt was given back, so it cannot serve as a token");
    assert!(is_lease_lost(db.store.job_complete(db.store.pool(), lease(&first), &json!(1), None).await));
    assert_eq!(db.job(id).await.state, JobState::Running);
    db.store.job_complete(db.store.pool(), lease(&second), &json!(2), None).await.expect("completed");
    assert_eq!(db.job(id).await.result, Some(json!(2)));
}

#[tokio::test]
async fn h6_completion_whose_reply_was_lost_is_answered_with_yes_and_changes_nothing() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("reply lost")).await;
    let a = db.claim("A").await;
    let first = db.store.job_complete(db.store.pool(), lease(&a), &json!(1), None).await.expect("taken");
    let done = db.job(id).await;
    let again = db.store.job_complete(db.store.pool(), lease(&a), &json!(2), None).await.expect("yes");
    assert_eq!((first.repeated, again.repeated, again.state), (false, true, JobState::Succeeded));
    assert_eq!(db.job(id).await, done);
}

#[tokio::test]
async fn h6_failure_whose_reply_was_lost_is_answered_with_yes_also_when_another_runs() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("reply lost")).await;
    let a = db.claim("A").await;
    let error = JobError::retryable("timeout", "slow");
    let failed = Outcome::Failed { error: &error, delay: Duration::ZERO };
    db.store.job_end(lease(&a), failed.clone()).await.expect("taken");
    let b = db.claim("B").await;
    let running = db.job(id).await;
    let again = db.store.job_end(lease(&a), failed).await.expect("yes");
    assert_eq!((again.repeated, again.state), (true, JobState::Retrying));
    assert_eq!((db.job(id).await, running.token), (running.clone(), b.token));
    assert_eq!(db.scalar("select count(*) from jobdeck.attempts").await, 1);
}

#[tokio::test]
async fn h7_completion_from_before_a_persons_retry_is_refused_while_another_runs() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("second chance")).await;
    let a = db.claim("A").await;
    let error = JobError::unrecoverable("permission", "no");
    db.store.job_end(lease(&a), Outcome::Failed { error: &error, delay: Duration::ZERO }).await.expect("failed");
    db.store.job_retry(id, &person()).await.expect("retried");
    let b = db.claim("B").await;
    assert_eq!((b.attempts, b.token > a.token), (1, true), "attempts start again, the token does not");
    assert!(is_lease_lost(db.store.job_complete(db.store.pool(), lease(&a), &json!("A"), None).await));
    assert_eq!((db.job(id).await.state, db.job(id).await.token), (JobState::Running, b.token));
}

#[tokio::test]
async fn h8_transaction_of_a_reaped_execution_cannot_commit_its_effect() {
    let db = Db::new().await;
    sqlx::raw_sql("create table effects (n int)").execute(db.store.pool()).await.expect("table");
    let id = db.enqueue(&Note::new("in a transaction")).await;
    let a = db.claim("A").await;
    let ctx = jobdeck::Ctx::for_claim(db.store.clone(), a.clone(), Duration::from_secs(15));
    let mut tx = db.store.pool().begin().await.expect("begun");
    sqlx::query("insert into effects values (1)").execute(&mut *tx).await.expect("written");
    db.expire(id).await;
    db.reap().await;
    let b = db.claim("B").await;
    let refused = ctx.complete_in(tx, &"A").await.expect_err("refused");
    assert_eq!(refused.code, "lease_lost");
    assert_eq!(db.scalar("select count(*) from effects").await, 0);
    assert_eq!((db.job(id).await.state, db.job(id).await.token), (JobState::Running, b.token));

    // The new holder's transaction commits effect and success together; sent again, neither comes twice.
    let ctx = jobdeck::Ctx::for_claim(db.store.clone(), b, Duration::from_secs(15));
    for _ in 0..2 {
        let mut tx = db.store.pool().begin().await.expect("begun");
        sqlx::query("insert into effects values (2)").execute(&mut *tx).await.expect("written");
        ctx.complete_in(tx, &"B").await.expect("committed");
    }
    assert_eq!(db.scalar("select count(*) from effects").await, 1);
    assert_eq!(db.job(id).await.state, JobState::Succeeded);
}

#[tokio::test]
async fn a_completed_job_is_not_ended_again_and_a_failed_one_not_completed() {
    let db = Db::new().await;
    db.enqueue(&Keyed::new("one")).await;
    let a = db.claim("A").await;
    db.store.job_complete(db.store.pool(), lease(&a), &json!(1), None).await.expect("completed");
    let error = JobError::unrecoverable("permission", "no");
    let failed = Outcome::Failed { error: &error, delay: Duration::ZERO };
    assert!(is_lease_lost(db.store.job_end(lease(&a), failed.clone()).await), "one outcome per token");
    db.store.enqueue(&Keyed::new("two"), EnqueueOptions::default()).await.expect("enqueued");
    let b = db.claim("A").await;
    db.store.job_end(lease(&b), failed).await.expect("failed");
    assert!(is_lease_lost(db.store.job_complete(db.store.pool(), lease(&b), &json!(1), None).await));
}

#[tokio::test]
async fn a_late_failure_is_not_mistaken_for_an_earlier_ones_repetition() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("fails, stalls, runs")).await;
    let error = JobError::retryable("timeout", "slow");
    let failed = Outcome::Failed { error: &error, delay: Duration::ZERO };
    let a = db.claim("A").await;
    db.store.job_end(lease(&a), failed.clone()).await.expect("taken");
    let b = db.claim("B").await;
    db.expire(id).await;
    db.reap().await;
    let c = db.claim("C").await;
    assert!(is_lease_lost(db.store.job_end(lease(&b), failed).await));
    assert_eq!((db.job(id).await.state, db.job(id).await.token), (JobState::Running, c.token));
}

#[tokio::test]
async fn h4_reaper_compares_the_expiry_it_read_also_when_the_renewed_lease_has_ended_since() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("renewed, then silent")).await;
    db.claim("A").await;
    db.expire(id).await;
    let mut slow_reaper = db.connection().await;
    let read = Store::lease_list_expired(&mut slow_reaper, 100).await.expect("read");
    db.expire(id).await;
    assert_ne!(db.job(id).await.lease_expires_at, Some(read[0].lease_expires_at));
    assert_eq!(Store::job_reap(&mut slow_reaper, &read).await.expect("wrote"), []);
    assert_eq!(db.reap().await, [(id, JobState::Retrying)], "a fresh reading takes it back");
}
