//! Retry, cancel and delete of many jobs at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jobdeck::store::{BulkOperation, BulkTarget, JobFilter, Outcome, Refusal};
use jobdeck::{
    BulkAction, BulkState, Ctx, EnqueueOptions, FailureClass, JobError, JobId, JobState, Store, StoreError, Worker,
};
use uuid::Uuid;

use crate::support::{Db, Keyed, Note, person};

/// `n` failed jobs, oldest first.
async fn failed(db: &Db, job_type: &str, n: i32) -> Vec<JobId> {
    let mut ids: Vec<JobId> = sqlx::query_scalar(
        "insert into jobdeck.jobs (type, payload, status, attempts, token, starts, created_at, finished_at, last_error,
           error_class, error_code)
         select $1, jsonb_build_object('text', 'again'), 'failed', 5, 5, 5, now() - interval '1 hour', now(), 'no luck', 'retryable', 'timeout'
         from generate_series(1, $2) returning id",
    )
    .bind(job_type)
    .bind(n)
    .fetch_all(db.store.pool())
    .await
    .expect("made");
    ids.sort_unstable();
    ids
}

fn of_type(job_type: &str, state: JobState) -> BulkTarget {
    let job_type = Some(job_type.to_owned());
    BulkTarget::Matching(JobFilter { state: Some(state), job_type, ..JobFilter::default() })
}

async fn start(db: &Db, action: BulkAction, target: &BulkTarget) -> BulkOperation {
    db.store.bulk_start(action, target, &person()).await.expect("started").operation
}

/// Batches until the operation no longer runs.
async fn run(db: &Db, id: Uuid, limit: i32) -> BulkOperation {
    while db.store.bulk_step(id, limit).await.expect("stepped").is_some() {}
    db.store.bulk_get(id).await.expect("read").expect("is there")
}

pub(crate) async fn wait_until_done(db: &Db, id: Uuid) -> BulkOperation {
    let begun = Instant::now();
    loop {
        let operation = db.store.bulk_get(id).await.expect("read").expect("is there");
        if operation.state == BulkState::Done {
            return operation;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "waited 20 s, last seen: {operation:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn n_in(db: &Db, job_type: &str, state: JobState) -> i64 {
    let filter = JobFilter { job_type: Some(job_type.to_owned()), ..JobFilter::default() };
    db.store.job_counts(&filter).await.expect("counted").of(state)
}

#[tokio::test]
async fn retry_all_pressed_twice_at_once_queues_each_job_once_with_one_audit_row() {
    let db = Arc::new(Db::new().await);
    failed(&db, "note", 1_600).await;
    failed(&db, "other", 50).await;
    let target = of_type("note", JobState::Failed);
    let (ana, ben) = (person(), jobdeck::store::Actor { name: "Ben".to_owned(), ..person() });
    let presses = tokio::join!(
        db.store.bulk_start(BulkAction::Retry, &target, &ana),
        db.store.bulk_start(BulkAction::Retry, &target, &ben)
    );
    let (first, second) = (presses.0.expect("started"), presses.1.expect("started"));
    assert_eq!(first.operation.id, second.operation.id);
    assert!(first.is_new != second.is_new);
    assert_eq!(first.operation.total, Some(1_600));
    let id = first.operation.id;
    // Three processes take it further while others fail anew.
    let mut processes = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let db = db.clone();
        processes.spawn(async move {
            while db.store.bulk_get(id).await.expect("read").expect("is there").state == BulkState::Running {
                db.store.bulk_step(id, 100).await.expect("stepped");
            }
        });
    }
    let newcomers = failed(&db, "note", 25).await;
    processes.join_all().await;
    let operation = run(&db, id, 100).await;
    assert_eq!((operation.done, operation.refused, operation.gone()), (1_600, 0, Some(0)));
    assert!(operation.rate().expect("known") > 0.0);
    let once = db.scalar(
        "select count(*) from jobdeck.jobs where type = 'note' and status = 'pending' and attempts = 0 and version = 1 and token = 5",
    );
    assert_eq!(once.await, 1_600, "each once, with token and history");
    for id in newcomers {
        assert_eq!(db.job(id).await.state, JobState::Failed, "failed after the press");
    }
    assert_eq!(n_in(&db, "other", JobState::Failed).await, 50);
    assert_eq!(db.scalar("select count(*) from jobdeck.audit_log").await, 1);
    let entry = db.store.audit_list(&id.to_string(), 10).await.expect("read").remove(0);
    assert_eq!(entry.action, "bulk_retry_jobs");
    assert_eq!(entry.after, Some(serde_json::json!({"filter": {"state": "failed", "type": "note"}, "total": 1600})));
    assert_eq!(db.claim_many("A", 100).await.len(), 100);
}

#[tokio::test]
async fn a_job_that_fails_again_meanwhile_is_not_retried_a_second_time() {
    let db = Db::new().await;
    let jobs = failed(&db, "note", 3).await;
    let operation = start(&db, BulkAction::Retry, &of_type("note", JobState::Failed)).await;
    // The last one is retried by a person and fails again before its turn.
    db.store.job_retry(jobs[2], &person()).await.expect("retried");
    let claim = db.claim("A").await;
    let error = JobError::unrecoverable("permission", "no");
    db.store.job_end(claim.lease(), Outcome::Failed { error: &error, delay: Duration::ZERO }).await.expect("taken");
    let operation = run(&db, operation.id, 1).await;
    assert_eq!((operation.state, operation.done, operation.gone()), (BulkState::Done, 2, Some(1)));
    assert_eq!(db.job(jobs[2]).await.state, JobState::Failed);
}

#[tokio::test]
async fn an_aborted_operation_stops_between_batches_and_keeps_what_it_did() {
    let db = Db::new().await;
    failed(&db, "note", 300).await;
    let target = of_type("note", JobState::Failed);
    let id = start(&db, BulkAction::Retry, &target).await.id;
    db.store.bulk_step(id, 100).await.expect("stepped").expect("runs");
    let aborted = db.store.bulk_abort(id, &person()).await.expect("answered").expect("ran");
    assert_eq!((aborted.state, aborted.done), (BulkState::Aborted, 100));
    assert_eq!(db.store.bulk_abort(id, &person()).await.expect("answered"), None);
    assert_eq!(db.store.bulk_step(id, 100).await.expect("stepped"), None);
    assert_eq!(db.store.bulk_list_running().await.expect("read"), [] as [Uuid; 0]);
    assert_eq!((n_in(&db, "note", JobState::Failed).await, n_in(&db, "note", JobState::Pending).await), (200, 100));
    let entries = db.store.audit_list(&id.to_string(), 10).await.expect("read");
    let actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["abort_bulk", "bulk_retry_jobs"]);
    // Pressed again it is a new one, for what is left.
    let again = db.store.bulk_start(BulkAction::Retry, &target, &person()).await.expect("started");
    assert!(again.is_new);
    assert_eq!(run(&db, again.operation.id, 500).await.done, 200);
}

#[tokio::test]
async fn an_operation_whose_process_is_killed_in_a_batch_goes_on_elsewhere_and_touches_each_job_once() {
    let db = Arc::new(Db::new().await);
    for n in 0..6 {
        db.enqueue(&Keyed::new(&n.to_string())).await;
    }
    let error = JobError::unrecoverable("permission", "no");
    for claim in db.claim_many("A", 6).await {
        let failed = Outcome::Failed { error: &error, delay: Duration::ZERO };
        db.store.job_end(claim.lease(), failed).await.expect("taken");
    }
    let id = start(&db, BulkAction::Retry, &of_type("keyed", JobState::Failed)).await.id;
    let before = db.store.bulk_step(id, 2).await.expect("stepped").expect("runs");
    // Someone is about to enqueue a key of the next batch, which therefore waits in the middle of its statement.
    let mut rival = db.store.begin().await.expect("begun");
    let enqueued = db.store.enqueue_in_tx(&mut *rival, &Keyed::new("3"), EnqueueOptions::default()).await;
    assert!(enqueued.expect("enqueued").is_new);
    let killed = tokio::spawn({
        let store = Store::connect(&db.url, 1).await.expect("connected");
        async move { store.bulk_step(id, 2).await }
    });
    let begun = Instant::now();
    while db
        .scalar(
            "select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and wait_event_type = 'Lock' and query like '%bulk_operations%') killed",
        )
        .await
        == 0
    {
        assert!(begun.elapsed() < Duration::from_secs(10), "the batch waits for the key");
        tokio::task::yield_now().await;
    }
    assert!(killed.await.expect("joined").is_err());
    rival.rollback().await.expect("rolled back");
    assert_eq!(db.store.bulk_get(id).await.expect("read"), Some(before), "the batch left no trace");
    let operation = run(&db, id, 2).await;
    assert_eq!((operation.state, operation.done), (BulkState::Done, 6));
    let once = "select count(*) from jobdeck.jobs where status = 'pending' and version = 3";
    assert_eq!(db.scalar(once).await, 6, "claimed, failed and retried, each once");
}

#[tokio::test]
async fn a_held_key_refuses_its_own_job_and_no_other() {
    let db = Db::new().await;
    let error = JobError::unrecoverable("permission", "no");
    let mut jobs = Vec::new();
    for key in ["held", "twice", "twice", "free"] {
        jobs.push(db.enqueue(&Keyed::new(key)).await);
        let claim = db.claim("A").await;
        let failed = Outcome::Failed { error: &error, delay: Duration::ZERO };
        db.store.job_end(claim.lease(), failed).await.expect("taken");
    }
    let holder = db.enqueue(&Keyed::new("held")).await;
    let target = of_type("keyed", JobState::Failed);
    let preview = db.store.bulk_preview(BulkAction::Retry, &target).await.expect("previewed");
    let held = Refusal { id: jobs[0], by: holder };
    assert_eq!((preview.total, preview.sample.len(), &preview.refusals[..]), (Some(4), 4, &[held][..]));
    for limit in [1, 500] {
        let id = start(&db, BulkAction::Retry, &target).await.id;
        let operation = run(&db, id, limit).await;
        let twice = Refusal { id: jobs[2].max(jobs[1]), by: jobs[1].min(jobs[2]) };
        let mut refusals = [held, twice];
        refusals.sort_by_key(|refusal| refusal.id);
        assert_eq!((operation.refused, &operation.refusals.0[..]), (2, &refusals[..]), "limit {limit}");
        assert_eq!(operation.done, if limit == 1 { 2 } else { 0 });
    }
    assert_eq!(db.job(jobs[3]).await.state, JobState::Pending);
    let free = db.store.enqueue(&Keyed::new("free"), EnqueueOptions::default()).await.expect("answered");
    assert_eq!((free.is_new, free.id), (false, jobs[3]), "the key is held by a job that will run");
}

#[tokio::test]
async fn a_key_whose_time_has_run_out_keeps_no_job_from_being_retried() {
    let db = Db::new().await;
    let error = JobError::unrecoverable("permission", "no");
    let mut jobs = Vec::new();
    for key in ["one", "two"] {
        jobs.push(db.enqueue(&Keyed::new(key)).await);
        let failed = Outcome::Failed { error: &error, delay: Duration::ZERO };
        db.store.job_end(db.claim("A").await.lease(), failed).await.expect("taken");
        db.enqueue(&Keyed::new(key)).await;
        let claim = db.claim("A").await;
        db.store.job_complete(db.store.pool(), claim.lease(), &serde_json::json!(1), None).await.expect("taken");
    }
    let held = db.store.job_retry(jobs[0], &person()).await.expect("answered");
    assert!(matches!(held, jobdeck::store::RetryOutcome::KeyHeld { .. }));
    sqlx::query("update jobdeck.idempotency_keys set expires_at = now()").execute(db.store.pool()).await.expect("set");
    let free = db.store.job_retry(jobs[0], &person()).await.expect("answered");
    assert_eq!(free, jobdeck::store::RetryOutcome::Queued);
    let id = start(&db, BulkAction::Retry, &of_type("keyed", JobState::Failed)).await.id;
    assert_eq!(run(&db, id, 500).await.done, 1);
    let held = db.scalar("select count(*) from jobdeck.idempotency_keys k join jobdeck.jobs j on j.id = k.job_id where j.status = 'pending' and k.expires_at is null");
    assert_eq!(held.await, 2, "both hold their keys again");
}

#[tokio::test]
async fn bulk_cancel_stops_what_waits_and_asks_what_runs_and_nothing_enqueued_later() {
    let db = Db::new().await;
    let waiting = db.enqueue(&Keyed::new("a")).await;
    let running = db.enqueue(&Note::new("b")).await;
    let types = ["note".to_owned()];
    let claims = db.store.job_claim_batch("default", &types, 1, Duration::from_secs(15), "A").await.expect("claimed");
    assert_eq!(claims[0].job_id, running);
    let ended = failed(&db, "note", 2).await;
    let all = BulkTarget::Matching(JobFilter::default());
    let preview = db.store.bulk_preview(BulkAction::Cancel, &all).await.expect("previewed");
    assert_eq!((preview.total, preview.left_alone), (Some(2), vec![(JobState::Failed, 2)]));
    let id = start(&db, BulkAction::Cancel, &all).await.id;
    let later = db.enqueue(&Note::new("later")).await;
    let operation = run(&db, id, 500).await;
    assert_eq!((operation.done, operation.gone()), (2, Some(0)));
    assert_eq!(db.job(waiting).await.state, JobState::Canceled);
    let asked = db.job(running).await;
    assert_eq!((asked.state, asked.cancel_requested_at.is_some()), (JobState::Running, true));
    assert_eq!(db.job(later).await.state, JobState::Pending);
    assert_eq!(db.job(ended[0]).await.state, JobState::Failed);
    let again = db.store.enqueue(&Keyed::new("a"), EnqueueOptions::default()).await.expect("answered");
    assert!(again.is_new, "the key is free");
    db.store.job_end(claims[0].lease(), Outcome::Canceled).await.expect("taken");
    assert_eq!(db.job(running).await.state, JobState::Canceled);
}

#[tokio::test]
async fn bulk_cancel_of_pending_jobs_leaves_one_alone_that_came_back_to_pending_after_the_press() {
    let db = Db::new().await;
    // Its id lies between those of two that wait all the time.
    let options = EnqueueOptions { priority: Some(-1), ..EnqueueOptions::default() };
    let waits = db.store.enqueue(&Note::new("waits"), options.clone()).await.expect("enqueued").id;
    let back = db.enqueue(&Note::new("back")).await;
    db.store.enqueue(&Note::new("waits"), options).await.expect("enqueued");
    let claim = db.claim("A").await;
    assert_eq!(claim.job_id, back);
    let id = start(&db, BulkAction::Cancel, &of_type("note", JobState::Pending)).await.id;
    db.store.job_end(claim.lease(), Outcome::Released).await.expect("taken");
    assert_eq!(run(&db, id, 500).await.done, 2);
    assert_eq!((db.job(back).await.state, db.job(waits).await.state), (JobState::Pending, JobState::Canceled));
}

#[tokio::test]
async fn bulk_delete_removes_ended_jobs_with_attempts_and_keys_and_is_accounted_for() {
    let db = Db::new().await;
    let error = JobError::unrecoverable("permission", "no");
    for n in 0..5 {
        db.enqueue(&Keyed::new(&n.to_string())).await;
    }
    let claims = db.claim_many("A", 4).await;
    for claim in &claims[..2] {
        let failed = Outcome::Failed { error: &error, delay: Duration::ZERO };
        db.store.job_end(claim.lease(), failed).await.expect("taken");
    }
    db.store.job_complete(db.store.pool(), claims[2].lease(), &serde_json::json!(1), None).await.expect("taken");
    let job_type = Some("keyed".to_owned());
    let id =
        start(&db, BulkAction::Delete, &BulkTarget::Matching(JobFilter { job_type, ..JobFilter::default() })).await.id;
    let operation = run(&db, id, 2).await;
    assert_eq!((operation.total, operation.done), (Some(3), 3));
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs where status in ('pending', 'running')").await, 2);
    assert_eq!(db.scalar("select count(*) from jobdeck.attempts").await, 0);
    assert_eq!(db.scalar("select count(*) from jobdeck.idempotency_keys").await, 2);
    let removed = db.store.job_removals().await.expect("read");
    let removed: Vec<_> = removed.iter().map(|removed| (removed.state, removed.by_person, removed.n_jobs)).collect();
    assert_eq!(removed, [(JobState::Failed, true, 2), (JobState::Succeeded, true, 1)]);
    let mut connection = db.connection().await;
    assert_eq!(Store::counters_check(&mut connection).await.expect("checked"), []);
}

#[tokio::test]
async fn a_locked_row_keeps_no_other_waiting_and_gets_its_turn() {
    let db = Db::new().await;
    let jobs = failed(&db, "note", 20).await;
    let mut lock = db.store.begin().await.expect("begun");
    sqlx::query("select 1 from jobdeck.jobs where id = $1 for update")
        .bind(jobs[3])
        .execute(&mut *lock)
        .await
        .expect("locked");
    let id = start(&db, BulkAction::Retry, &of_type("note", JobState::Failed)).await.id;
    for _ in 0..3 {
        db.store.bulk_step(id, 10).await.expect("stepped").expect("runs");
    }
    let operation = db.store.bulk_get(id).await.expect("read").expect("is there");
    assert_eq!((operation.state, operation.done, operation.n_deferred), (BulkState::Running, 19, 1));
    lock.rollback().await.expect("rolled back");
    let operation = run(&db, id, 10).await;
    assert_eq!((operation.state, operation.done, operation.n_deferred), (BulkState::Done, 20, 0));
}

#[tokio::test]
async fn a_selection_by_ids_tells_how_many_no_longer_match() {
    let db = Db::new().await;
    let mut jobs = failed(&db, "note", 3).await;
    failed(&db, "note", 2).await;
    db.store.job_retry(jobs[1], &person()).await.expect("retried");
    jobs.extend([jobs[0], JobId(Uuid::now_v7())]);
    let target = BulkTarget::Jobs(jobs.clone());
    let preview = db.store.bulk_preview(BulkAction::Retry, &target).await.expect("previewed");
    assert_eq!((preview.total, &preview.left_alone[..]), (Some(2), &[(JobState::Pending, 1)][..]));
    assert_eq!(preview.sample.iter().map(|job| job.id).collect::<Vec<_>>(), [jobs[2], jobs[0]]);
    let id = start(&db, BulkAction::Retry, &target).await.id;
    jobs.reverse();
    let same = db.store.bulk_start(BulkAction::Retry, &BulkTarget::Jobs(jobs), &person()).await.expect("started");
    assert!(!same.is_new, "the order of a selection does not make another operation");
    let operation = run(&db, id, 1).await;
    assert_eq!((operation.total, operation.done, operation.gone()), (Some(4), 2, Some(2)));
    assert_eq!(n_in(&db, "note", JobState::Failed).await, 2);
    let too_many = BulkTarget::Jobs((0..10_001).map(|n| JobId(Uuid::from_u128(n))).collect());
    let refused = db.store.bulk_start(BulkAction::Retry, &too_many, &person()).await;
    assert!(matches!(refused, Err(StoreError::InvalidValue { .. })));
}

#[tokio::test]
async fn few_matches_among_many_jobs_are_found_in_short_batches() {
    let db = Db::new().await;
    failed(&db, "other", 9_000).await;
    let jobs = failed(&db, "note", 4).await;
    let change =
        "update jobdeck.jobs set error_code = 'quota', error_class = 'unrecoverable', last_error = 'limit of 5% hit'
                  where id = $1";
    sqlx::query(change).bind(jobs[1]).execute(db.store.pool()).await.expect("changed");
    let filter = JobFilter {
        queue: Some("default".to_owned()),
        class: Some(FailureClass::Unrecoverable),
        code: Some("quota".to_owned()),
        text: Some("5% HIT".to_owned()),
        ..JobFilter::default()
    };
    assert_eq!(db.store.job_counts(&filter).await.expect("counted").total(), 1);
    assert_eq!(
        db.store.job_list(&filter, jobdeck::store::PageCursor::Newest, 10).await.expect("listed").jobs[0].id,
        jobs[1]
    );
    let operation = start(&db, BulkAction::Retry, &BulkTarget::Matching(filter)).await;
    assert_eq!(operation.total, Some(1));
    let first = db.store.bulk_step(operation.id, 500).await.expect("stepped").expect("runs");
    assert_eq!((first.state, first.done), (BulkState::Running, 0), "a batch looks at a bounded number of rows");
    let operation = run(&db, operation.id, 500).await;
    assert_eq!((operation.state, operation.done), (BulkState::Done, 1));
    assert_eq!(db.job(jobs[1]).await.state, JobState::Pending);
    assert_eq!(n_in(&db, "other", JobState::Failed).await, 9_000);
}

#[tokio::test]
async fn a_batch_reads_little_more_than_it_changes_wherever_the_jobs_stand() {
    let db = Db::new().await;
    // What waits is younger than nearly all that ended, and there is something younger still.
    let pending = "insert into jobdeck.jobs (type, payload) select 'note', '{}' from generate_series(1, 6000)";
    for n in [20_000, 0, 10_000] {
        failed(&db, "note", n).await;
        if n == 0 {
            sqlx::query(pending).execute(db.store.pool()).await.expect("made");
        }
    }
    sqlx::query("analyze jobdeck.jobs").execute(db.store.pool()).await.expect("analysed");
    let counts = "select seq_scan, idx_tup_fetch from pg_stat_xact_user_tables where relid = 'jobdeck.jobs'::regclass";
    for (action, state) in [(BulkAction::Cancel, JobState::Pending), (BulkAction::Delete, JobState::Failed)] {
        for n_steps in [1, 4] {
            // Its counters are those of the connection since they were last collected.
            let one = Store::connect(&db.url, 1).await.expect("connected");
            sqlx::query("begin").execute(one.pool()).await.expect("begun");
            let operation =
                one.bulk_start(action, &of_type("note", state), &person()).await.expect("started").operation;
            let mut done = 0;
            for _ in 0..n_steps {
                done = one.bulk_step(operation.id, 500).await.expect("stepped").expect("runs").done;
            }
            let (scans, fetched): (i64, i64) = sqlx::query_as(counts).fetch_one(one.pool()).await.expect("read");
            sqlx::query("rollback").execute(one.pool()).await.expect("rolled back");
            assert_eq!((scans, done), (0, n_steps * 500));
            assert!(fetched < n_steps * 4_000, "{action}: {fetched} rows read to change {done}");
        }
    }
}

#[tokio::test]
async fn a_batch_that_the_database_refuses_again_and_again_fails_the_operation() {
    let db = Db::new().await;
    let id = start(&db, BulkAction::Retry, &of_type("note", JobState::Failed)).await.id;
    db.store.bulk_note_error(id, "connection lost", false).await.expect("noted");
    for _ in 0..4 {
        db.store.bulk_note_error(id, "constraint\0", true).await.expect("noted");
    }
    let operation = db.store.bulk_get(id).await.expect("read").expect("is there");
    assert_eq!(operation.state, BulkState::Running);
    db.store.bulk_note_error(id, "constraint", true).await.expect("noted");
    let operation = db.store.bulk_get(id).await.expect("read").expect("is there");
    assert_eq!((operation.state, operation.last_error.as_deref()), (BulkState::Failed, Some("constraint")));
    assert!(operation.finished_at.is_some());
}

#[tokio::test]
async fn operations_that_ended_90_days_ago_are_removed_and_running_ones_are_not() {
    let db = Db::new().await;
    let mut connection = db.connection().await;
    let mut operations = Vec::new();
    for state in [JobState::Failed, JobState::Canceled, JobState::Failed] {
        operations.push(start(&db, BulkAction::Retry, &of_type("note", state)).await.id);
        if operations.len() < 3 {
            run(&db, operations[operations.len() - 1], 500).await;
        }
    }
    let age =
        "update jobdeck.bulk_operations set started_at = now() - interval '1 year', finished_at = finished_at - $2
               where id = $1";
    for (id, days) in operations.iter().zip([91, 89, 91]) {
        let days = sqlx::postgres::types::PgInterval { days, ..Default::default() };
        sqlx::query(age).bind(id).bind(days).execute(db.store.pool()).await.expect("aged");
    }
    assert_eq!(Store::bulk_prune(&mut connection).await.expect("pruned"), 1);
    let left: Vec<Uuid> = db.store.bulk_list(10).await.expect("read").iter().map(|operation| operation.id).collect();
    assert_eq!(left, [operations[2], operations[1]]);
}

#[tokio::test]
async fn an_operation_of_a_newer_version_is_left_alone() {
    let db = Db::new().await;
    failed(&db, "note", 1).await;
    let id = start(&db, BulkAction::Delete, &BulkTarget::Matching(JobFilter::default())).await.id;
    sqlx::query(r#"update jobdeck.bulk_operations set target = '{"filter": {"colour": "red"}}'"#)
        .execute(db.store.pool())
        .await
        .expect("changed");
    assert!(matches!(db.store.bulk_step(id, 500).await, Err(StoreError::Json(_))));
    assert_eq!(n_in(&db, "note", JobState::Failed).await, 1);
}

#[tokio::test]
async fn a_worker_takes_operations_further_by_itself_and_runs_what_it_queued() {
    let db = Db::new().await;
    failed(&db, "note", 1_200).await;
    let worker = Worker::builder(db.store.clone(), &db.url)
        .register(async |_: Ctx, note: Note| Ok(note.text.len()))
        .queue("default", 20)
        .prunes(false)
        .build()
        .expect("built");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
    let id = start(&db, BulkAction::Retry, &of_type("note", JobState::Failed)).await.id;
    assert_eq!(wait_until_done(&db, id).await.done, 1_200);
    let begun = Instant::now();
    while n_in(&db, "note", JobState::Succeeded).await < 1_200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "all ran within 20 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(stop);
    running.await.expect("ended").expect("ran");
}

#[tokio::test]
async fn bulk_cancel_beside_enqueuers_with_the_same_keys_ends_without_a_deadlock() {
    let db = Arc::new(Db::new().await);
    let keys: Vec<String> = (0..200).map(|n| format!("{:03}", n * 37 % 200)).collect();
    let jobs: Vec<Keyed> = keys.iter().map(|key| Keyed::new(key)).collect();
    db.store.enqueue_many(&jobs, EnqueueOptions::default()).await.expect("enqueued");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (db, keys) = (db.clone(), keys.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                let jobs: Vec<Keyed> = keys.iter().rev().map(|key| Keyed::new(key)).collect();
                db.store.enqueue_many(&jobs, EnqueueOptions::default()).await.expect("no deadlock");
            }
        });
    }
    for action in [BulkAction::Cancel, BulkAction::Retry, BulkAction::Delete] {
        let db = db.clone();
        tasks.spawn(async move {
            for _ in 0..10 {
                let target = BulkTarget::Matching(JobFilter::default());
                let id = start(&db, action, &target).await.id;
                while db.store.bulk_step(id, 70).await.expect("no deadlock").is_some() {}
            }
        });
    }
    tasks.join_all().await;
    let live = "select count(*) - count(distinct idempotency_key) from jobdeck.jobs where status = 'pending'";
    assert_eq!(db.scalar(live).await, 0, "at most one live job per key");
}
