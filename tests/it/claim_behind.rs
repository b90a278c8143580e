//! Claims that go on behind the last one: what they take, and what they leave to the next claim of all.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jobdeck::store::{Claim, ClaimedUntil, QueueLimits};
use jobdeck::{Ctx, EnqueueOptions, JobError, JobId, JobState, Store};

use crate::support::{Brittle, Db, Note, lease, person};
use crate::worker::{builder, run};

async fn claim_behind(db: &Db, until: &ClaimedUntil, limit: i64) -> Vec<Claim> {
    let lease = Duration::from_secs(15);
    Store::job_claim_behind(db.store.pool(), "default", until, limit, lease, "A").await.expect("claimed")
}

/// In the order in which they are due.
async fn enqueue_notes(db: &Db, n: usize) -> Vec<JobId> {
    let notes: Vec<Note> = (0..n).map(|n| Note::new(&n.to_string())).collect();
    db.store.enqueue_many(&notes, EnqueueOptions::default()).await.expect("enqueued");
    let in_order = "select id from jobdeck.jobs order by run_after, id";
    sqlx::query_scalar(in_order).fetch_all(db.store.pool()).await.expect("read")
}

/// The jobs that were claimed, in no order.
fn ids(claims: &[Claim]) -> BTreeSet<JobId> {
    claims.iter().map(|claim| claim.job_id).collect()
}

fn set(jobs: &[JobId]) -> BTreeSet<JobId> {
    jobs.iter().copied().collect()
}

#[tokio::test]
async fn goes_on_where_the_last_claim_ended_until_nothing_is_left() {
    let db = Db::new().await;
    let all = enqueue_notes(&db, 25).await;
    let first = db.claim_many("A", 10).await;
    assert_eq!(ids(&first), set(&all[..10]));
    let second = claim_behind(&db, &ClaimedUntil::of(&first).expect("plain"), 10).await;
    assert_eq!(ids(&second), set(&all[10..20]));
    let until = ClaimedUntil::of(&second).expect("plain");
    let third = claim_behind(&db, &until, 10).await;
    assert_eq!(ids(&third), set(&all[20..]));
    assert!(claim_behind(&db, &until, 10).await.is_empty());
    // As any other claim leaves them.
    let claim = &third[0];
    let job = db.job(claim.job_id).await;
    assert_eq!((job.state, job.attempts, job.starts, job.token), (JobState::Running, 1, 1, claim.token));
    let payload: serde_json::Value = serde_json::from_str(&claim.payload).expect("JSON");
    assert_eq!((claim.attempts, claim.starts, payload), (1, 1, job.payload));
    let mut connection = db.connection().await;
    let leases: Vec<_> = third.iter().map(lease).collect();
    let held = Store::lease_heartbeat(&mut connection, &leases, Duration::from_secs(60)).await.expect("answered");
    assert_eq!(held.len(), 5);
}

#[tokio::test]
async fn takes_only_due_jobs_of_its_type_and_priority_that_never_stalled_and_leaves_the_rest_to_the_next_claim() {
    let db = Db::new().await;
    let all = enqueue_notes(&db, 12).await;
    let until = ClaimedUntil::of(&db.claim_many("A", 4).await).expect("plain");
    let put = async |options| db.store.enqueue(&Note::new("other"), options).await.expect("enqueued").id;
    let urgent = put(EnqueueOptions { priority: Some(7), ..EnqueueOptions::default() }).await;
    put(EnqueueOptions { delay: Duration::from_secs(3600), ..EnqueueOptions::default() }).await;
    let other_type = db.enqueue(&Brittle {}).await;
    let earlier = db.enqueue(&Note::new("came in before the last one")).await;
    let stalled = db.enqueue(&Note::new("stalled")).await;
    sqlx::query("update jobdeck.jobs set run_after = now() - interval '1 hour' where id = $1")
        .bind(earlier)
        .execute(db.store.pool())
        .await
        .expect("earlier");
    sqlx::query("update jobdeck.jobs set stalled_count = 1 where id = $1")
        .bind(stalled)
        .execute(db.store.pool())
        .await
        .expect("stalled");
    assert_eq!(ids(&claim_behind(&db, &until, 100).await), set(&all[4..]));
    let next = db.claim_many("A", 100).await;
    assert_eq!(ids(&next), set(&[urgent, other_type, earlier]));
    assert_eq!(ClaimedUntil::of(&next), None, "several types and priorities waited");
    assert_eq!(ids(&db.claim_many("A", 100).await), set(&[stalled]));
}

#[tokio::test]
async fn takes_nothing_from_a_queue_that_was_paused_or_limited_meanwhile_nor_for_a_provider_that_asked_for_a_pause() {
    let db = Db::new().await;
    let all = enqueue_notes(&db, 6).await;
    sqlx::query(
        "insert into jobdeck.job_types (type, queue, max_attempts, max_stalled, provider)
         values ('note', 'default', 5, 2, 'mailgun')",
    )
    .execute(db.store.pool())
    .await
    .expect("registered");
    let until = ClaimedUntil::of(&db.claim_many("A", 2).await).expect("plain");
    let takes_nothing = async || assert!(claim_behind(&db, &until, 1).await.is_empty());

    db.store.queue_pause("default", &person()).await.expect("paused");
    takes_nothing().await;
    db.store.queue_resume("default", &person()).await.expect("resumed");
    for limits in [(Some(100), None), (None, Some(100))] {
        let (concurrency, per_key) = limits;
        db.store.queue_set_limits("default", QueueLimits { concurrency, per_key }, &person()).await.expect("limited");
        takes_nothing().await;
    }
    let none = QueueLimits { concurrency: None, per_key: None };
    db.store.queue_set_limits("default", none, &person()).await.expect("limited");
    let cool_down = "insert into jobdeck.cool_downs (provider, until) values ('mailgun', now() + interval '1 hour')";
    sqlx::query(cool_down).execute(db.store.pool()).await.expect("asked for a pause");
    takes_nothing().await;
    assert!(db.store.cool_down_end("mailgun", &person()).await.expect("ended"));
    assert_eq!(ids(&claim_behind(&db, &until, 100).await), set(&all[2..]));
}

#[tokio::test]
async fn a_claim_from_a_limited_queue_says_that_none_may_go_on_behind_it() {
    let db = Db::new().await;
    enqueue_notes(&db, 3).await;
    let limits = QueueLimits { concurrency: Some(100), per_key: None };
    db.store.queue_set_limits("default", limits, &person()).await.expect("limited");
    let claims = db.claim_many("A", 1).await;
    assert_eq!((claims.len(), ClaimedUntil::of(&claims)), (1, None));
}

#[tokio::test]
async fn eight_claimers_that_go_on_behind_share_two_thousand_jobs_without_overlap() {
    let db = Arc::new(Db::new().await);
    enqueue_notes(&db, 2000).await;
    let mut claimers = tokio::task::JoinSet::new();
    for claimer in 0..8 {
        let db = db.clone();
        claimers.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let mut batch = db.claim_many(&format!("claimer-{claimer}"), 20).await;
                if batch.is_empty() {
                    return mine;
                }
                for _ in 0..5 {
                    mine.extend(ids(&batch));
                    let Some(until) = ClaimedUntil::of(&batch) else { break };
                    batch = claim_behind(&db, &until, 20).await;
                }
                mine.extend(ids(&batch));
            }
        });
    }
    let all: Vec<_> = claimers.join_all().await.into_iter().flatten().collect();
    let different: BTreeSet<_> = all.iter().copied().collect();
    assert_eq!((all.len(), different.len()), (2000, 2000));
    let once = "select count(*) from jobdeck.jobs where status = 'running' and attempts = 1 and token = 1";
    assert_eq!(db.scalar(once).await, 2000);
}

/// A worker that never finds less than it asked for would go on behind for ever.
#[tokio::test]
async fn an_urgent_job_is_run_in_the_midst_of_thousands() {
    let db = Db::new().await;
    enqueue_notes(&db, 3000).await;
    let handler = async |_: Ctx, _: Note| {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok::<_, JobError>(())
    };
    let running = run(builder(&db).register(handler).queue("default", 2).build().expect("built"));
    let urgent = loop {
        if db.scalar("select count(*) from jobdeck.jobs where status = 'succeeded'").await >= 100 {
            let options = EnqueueOptions { priority: Some(5), ..EnqueueOptions::default() };
            break db.store.enqueue(&Note::new("urgent"), options).await.expect("enqueued").id;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    db.wait_for(urgent, JobState::Succeeded).await;
    let waiting = db.scalar("select count(*) from jobdeck.jobs where status = 'pending'").await;
    assert!(waiting > 500, "{waiting} of those that came before it still wait");
    running.stop().await;
}
