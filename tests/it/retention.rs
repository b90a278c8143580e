//! Ended jobs are removed by their type's rule, unfinished ones never.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jobdeck::store::{DeleteOutcome, Outcome, PruneRule, Removed, RetryOutcome};
use jobdeck::{EnqueueOptions, JobError, JobId, JobState, Keep, Pruner, Retention, Store, Worker};
use serde_json::json;

use crate::support::{Db, Keyed, Note, person};

/// `n` ended jobs, the first of them ended a second ago, each of the others a second earlier. Returns them newest end first.
async fn ended(db: &Db, job_type: &str, state: &str, n: i32) -> Vec<JobId> {
    sqlx::query_scalar(
        "with made as (
           insert into jobdeck.jobs (type, payload, status, created_at, updated_at, finished_at)
           select $1, '{}', $2::text::jobdeck.job_state, now() - interval '1 day', now(), now() - g * interval '1 second'
           from generate_series(1, $3) g returning id, finished_at)
         select id from made order by finished_at desc",
    )
    .bind(job_type)
    .bind(state)
    .bind(n)
    .fetch_all(db.store.pool())
    .await
    .expect("made")
}

async fn ids(db: &Db, job_type: &str, state: &str) -> Vec<JobId> {
    sqlx::query_scalar(
        "select id from jobdeck.jobs where type = $1 and status::text = $2 order by finished_at desc, id desc",
    )
    .bind(job_type)
    .bind(state)
    .fetch_all(db.store.pool())
    .await
    .expect("read")
}

async fn set_rule(db: &Db, job_type: &str, retention: &serde_json::Value) {
    sqlx::query(
        "insert into jobdeck.job_types (type, queue, max_attempts, max_stalled, retention) values ($1, 'default', 5, 3, $2)
         on conflict (type) do update set retention = excluded.retention",
    )
    .bind(job_type)
    .bind(retention)
    .execute(db.store.pool())
    .await
    .expect("set");
}

async fn set_retention(db: &Db, job_type: &str, retention: Retention) {
    set_rule(db, job_type, &serde_json::to_value(retention).expect("written")).await;
}

fn all(keep: Keep) -> Retention {
    Retention { succeeded: keep, failed: keep, canceled: keep }
}

/// One pass of a process that has the duty.
async fn prune(db: &Db) -> Vec<Removed> {
    Pruner::new(db.store.clone(), "test").pass().await.expect("passed").expect("has the duty")
}

#[tokio::test]
async fn keep_500_succeeded_and_2000_failed_of_each_type() {
    let db = Db::new().await;
    let succeeded = ended(&db, "note", "succeeded", 1_100).await;
    let failed = ended(&db, "note", "failed", 2_005).await;
    let canceled = ended(&db, "note", "canceled", 501).await;
    let other = ended(&db, "other", "succeeded", 500).await;
    let removed: Vec<_> = prune(&db).await.into_iter().map(|r| (r.job_type, r.state, r.n_jobs)).collect();
    let note = |state, n| ("note".to_owned(), state, n);
    assert_eq!(removed, [note(JobState::Succeeded, 600), note(JobState::Failed, 5), note(JobState::Canceled, 1)]);
    assert_eq!(ids(&db, "note", "succeeded").await, succeeded[..500], "those that ended last");
    assert_eq!(ids(&db, "note", "failed").await, failed[..2_000]);
    assert_eq!(ids(&db, "note", "canceled").await, canceled[..500]);
    assert_eq!(ids(&db, "other", "succeeded").await, other);
    assert_eq!(prune(&db).await, [], "a second pass finds nothing");
}

#[tokio::test]
async fn exactly_as_many_are_kept_when_all_ended_in_the_same_moment() {
    let db = Db::new().await;
    ended(&db, "note", "succeeded", 700).await;
    sqlx::query("update jobdeck.jobs set finished_at = now()").execute(db.store.pool()).await.expect("updated");
    prune(&db).await;
    assert_eq!(ids(&db, "note", "succeeded").await.len(), 500);
}

#[tokio::test]
async fn what_is_removed_is_what_the_rule_says_is_due() {
    let db = Db::new().await;
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let mut below = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    };
    for case in 0..25 {
        let job_type = format!("t{case}");
        let keep = Keep {
            // In the middle between two ends, so that the moment of the pass does not matter.
            age: (below(3) > 0).then(|| Duration::from_millis(below(30) * 60_000 + 30_000)),
            count: (below(3) > 0).then(|| below(25).cast_signed()),
        };
        set_retention(&db, &job_type, all(keep)).await;
        let minutes: Vec<i64> = (0..20).map(|_| below(30).cast_signed()).collect();
        sqlx::query(
            "insert into jobdeck.jobs (type, payload, status, finished_at)
             select $1, '{}', 'failed', now() - m * interval '1 minute' from unnest($2::bigint[]) m",
        )
        .bind(&job_type)
        .bind(&minutes)
        .execute(db.store.pool())
        .await
        .expect("made");
        let now = db.store.now().await.expect("answered");
        let mut newest_first = minutes;
        newest_first.sort_unstable();
        let kept = newest_first
            .iter()
            .enumerate()
            .filter(|(newer, minutes)| !keep.is_due(now - chrono::Duration::minutes(**minutes), *newer as i64, now))
            .count();
        prune(&db).await;
        assert_eq!(ids(&db, &job_type, "failed").await.len(), kept, "{keep:?} {newest_first:?}");
    }
}

#[tokio::test]
async fn delayed_waiting_retrying_running_and_paused_jobs_survive_any_retention_and_later_run() {
    let db = Db::new().await;
    set_retention(&db, "note", all(Keep { age: Some(Duration::ZERO), count: Some(0) })).await;
    let running = db.enqueue(&Note::new("running longer than retention")).await;
    db.claim("A").await;
    let retrying = db.enqueue(&Note::new("retrying with a long backoff")).await;
    let claim = db.claim("A").await;
    let error = JobError::retryable("timeout", "later");
    let failed = Outcome::Failed { error: &error, delay: Duration::from_secs(3600) };
    db.store.job_end(claim.lease(), failed).await.expect("taken");
    db.store.queue_pause("default", &person()).await.expect("paused");
    let paused = db.enqueue(&Note::new("in a paused queue")).await;
    let options = EnqueueOptions { delay: Duration::from_secs(300), ..EnqueueOptions::default() };
    let delayed = db.store.enqueue(&Note::new("delayed"), options).await.expect("enqueued").id;
    // All of it long ago, and three that ended.
    sqlx::query(
        "update jobdeck.jobs set created_at = now() - interval '1 year', updated_at = now() - interval '1 year',
           started_at = started_at - interval '1 year'",
    )
    .execute(db.store.pool())
    .await
    .expect("aged");
    for state in ["succeeded", "failed", "canceled"] {
        ended(&db, "note", state, 1).await;
    }
    let removed: i64 = prune(&db).await.iter().map(|removed| removed.n_jobs).sum();
    assert_eq!((removed, prune(&db).await.len()), (3, 0));
    let states = [
        (running, JobState::Running),
        (retrying, JobState::Retrying),
        (paused, JobState::Pending),
        (delayed, JobState::Pending),
    ];
    for (id, state) in states {
        assert_eq!(db.job(id).await.state, state);
    }
    db.store.queue_resume("default", &person()).await.expect("resumed");
    for id in [retrying, delayed] {
        db.make_due(id).await;
    }
    assert_eq!(db.claim_many("A", 10).await.len(), 3);
}

#[tokio::test]
async fn age_counts_from_the_end_of_a_job() {
    let db = Db::new().await;
    set_retention(&db, "note", all(Keep::younger_than(Duration::from_secs(60)))).await;
    // All were enqueued a day ago.
    let jobs = ended(&db, "note", "succeeded", 90).await;
    prune(&db).await;
    let left = ids(&db, "note", "succeeded").await;
    assert_eq!(left, jobs[..left.len()]);
    assert!((50..60).contains(&left.len()), "{} ended less than a minute ago", left.len());
}

#[tokio::test]
async fn age_zero_removes_what_has_ended_and_a_hundred_years_remove_nothing() {
    let db = Db::new().await;
    set_retention(&db, "zero", all(Keep::younger_than(Duration::ZERO))).await;
    set_retention(&db, "century", all(Keep::younger_than(Duration::from_secs(100 * 365 * 86_400)))).await;
    set_retention(&db, "longest", all(Keep::younger_than(Duration::MAX))).await;
    for job_type in ["zero", "century", "longest"] {
        ended(&db, job_type, "failed", 3).await;
        sqlx::query("update jobdeck.jobs set finished_at = '1970-01-02Z' where id = (select min(id::text)::uuid from jobdeck.jobs where type = $1)")
            .bind(job_type)
            .execute(db.store.pool())
            .await
            .expect("aged");
    }
    prune(&db).await;
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs where type = 'zero'").await, 0);
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 6);
}

#[tokio::test]
async fn a_rule_nobody_can_read_keeps_everything_and_null_is_the_default() {
    let db = Db::new().await;
    set_rule(&db, "odd", &json!({"failed": {"count": "two"}})).await;
    set_rule(&db, "none", &json!(null)).await;
    ended(&db, "odd", "failed", 2_001).await;
    ended(&db, "none", "succeeded", 501).await;
    let removed = prune(&db).await;
    assert_eq!(removed.len(), 1);
    assert_eq!((removed[0].job_type.as_str(), removed[0].n_jobs), ("none", 1));
}

#[tokio::test]
async fn a_job_that_is_being_retried_is_not_removed() {
    let db = Db::new().await;
    set_retention(&db, "note", all(Keep::newest(0))).await;
    let jobs = ended(&db, "note", "failed", 3).await;
    let mut connection = db.connection().await;
    let rule = PruneRule { job_type: "note".to_owned(), state: JobState::Failed, keep: Keep::newest(0) };
    let boundary = Store::prune_boundary(&mut connection, &rule).await.expect("read").expect("some are due");
    // One retry has committed since, one is under way.
    assert_eq!(db.store.job_retry(jobs[0], &person()).await.expect("answered"), RetryOutcome::Queued);
    let mut under_way = db.store.begin().await.expect("begun");
    sqlx::query(
        "update jobdeck.jobs set status = 'pending', attempts = 0, run_after = now(), finished_at = null where id = $1",
    )
    .bind(jobs[1])
    .execute(&mut *under_way)
    .await
    .expect("written");
    let batch = Store::prune_batch(&mut connection, &rule, boundary, None, 500);
    let batch = tokio::time::timeout(Duration::from_secs(10), batch).await.expect("does not wait").expect("pruned");
    assert_eq!(batch.n_jobs, 1);
    under_way.commit().await.expect("committed");
    let again = Store::prune_batch(&mut connection, &rule, boundary, None, 500).await.expect("pruned");
    assert_eq!(again.n_jobs, 0);
    for id in &jobs[..2] {
        assert_eq!(db.job(*id).await.state, JobState::Pending);
    }
    assert_eq!(db.claim_many("A", 10).await.len(), 2);
}

#[tokio::test]
async fn many_pruners_beside_operators_delete_each_job_once_without_a_deadlock() {
    let db = Arc::new(Db::new().await);
    let jobs = ended(&db, "note", "failed", 1_500).await;
    let rule = PruneRule { job_type: "note".to_owned(), state: JobState::Failed, keep: Keep::newest(0) };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (db, rule) = (db.clone(), rule.clone());
        tasks.spawn(async move {
            let mut connection = db.connection().await;
            let mut n_jobs = 0;
            while let Some(boundary) = Store::prune_boundary(&mut connection, &rule).await.expect("read") {
                let batch = Store::prune_batch(&mut connection, &rule, boundary, None, 40).await.expect("no deadlock");
                n_jobs += batch.n_jobs;
            }
            n_jobs
        });
    }
    // Newest first, as a person would; the pruners come from the other end.
    for part in jobs[..300].chunks(100).map(<[_]>::to_vec) {
        let db = db.clone();
        tasks.spawn(async move {
            let mut n_jobs = 0;
            for (n, id) in part.into_iter().enumerate() {
                if n % 2 == 0 {
                    let deleted = db.store.job_delete(id, &person()).await.expect("no deadlock");
                    n_jobs += i64::from(deleted == DeleteOutcome::Deleted);
                } else {
                    let retried = db.store.job_retry(id, &person()).await.expect("no deadlock");
                    n_jobs += i64::from(retried == RetryOutcome::Queued);
                }
            }
            n_jobs
        });
    }
    assert_eq!(tasks.join_all().await.iter().sum::<i64>(), 1_500);
    let present = db.scalar("select count(*) from jobdeck.jobs where status = 'pending'").await;
    let removed: i64 = db.store.job_removals().await.expect("read").iter().map(|removed| removed.n_jobs).sum();
    assert_eq!(present + removed, 1_500, "enqueued = present + removed");
    let mut connection = db.connection().await;
    assert_eq!(Store::counters_check(&mut connection).await.expect("checked"), []);
}

#[tokio::test]
async fn one_process_prunes_at_a_time_and_another_takes_over_once_its_lease_has_ended() {
    let db = Db::new().await;
    ended(&db, "note", "succeeded", 502).await;
    let (first, second) = (Pruner::new(db.store.clone(), "first"), Pruner::new(db.store.clone(), "second"));
    assert!(first.pass().await.expect("passed").is_some());
    ended(&db, "note", "succeeded", 5).await;
    assert_eq!(second.pass().await.expect("passed"), None);
    let duties = db.store.duty_list().await.expect("read");
    assert_eq!((duties.len(), duties[0].holder.as_str()), (1, "first"));
    assert!(duties[0].until - db.store.now().await.expect("answered") <= chrono::Duration::seconds(30));
    // The first is dead, its lease over.
    sqlx::query("update jobdeck.duties set until = now()").execute(db.store.pool()).await.expect("ended");
    let removed = second.pass().await.expect("passed").expect("took over");
    assert_eq!(removed[0].n_jobs, 5);
    assert_eq!(first.pass().await.expect("passed"), None);
}

#[tokio::test]
async fn of_many_who_want_a_duty_one_has_it() {
    let db = Db::new().await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..10 {
        let store = db.store.clone();
        tasks.spawn(async move {
            store.duty_hold("prune", &format!("p{n}"), Duration::from_secs(30)).await.expect("answered")
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().filter(|has_it| *has_it).count(), 1);
    let holder = db.store.duty_list().await.expect("read").remove(0).holder;
    db.store.duty_release("prune", "nobody").await.expect("nothing");
    assert!(!db.store.duty_hold("prune", "next", Duration::from_secs(30)).await.expect("answered"));
    db.store.duty_release("prune", &holder).await.expect("released");
    assert!(db.store.duty_hold("prune", "next", Duration::from_secs(30)).await.expect("answered"));
}

#[tokio::test]
async fn keys_outlive_pruned_rows_for_their_time_and_a_delete_frees_them() {
    let db = Db::new().await;
    set_retention(&db, "keyed", all(Keep::newest(0))).await;
    let mut done = Vec::new();
    for key in ["pruned", "expired", "deleted"] {
        let id = db.enqueue(&Keyed::new(key)).await;
        let claim = db.claim("A").await;
        db.store.job_complete(db.store.pool(), claim.lease(), &json!(1), None).await.expect("taken");
        done.push(id);
    }
    let unfinished = db.enqueue(&Keyed::new("unfinished")).await;
    assert_eq!(db.store.job_delete(done[2], &person()).await.expect("answered"), DeleteOutcome::Deleted);
    sqlx::query(
        "update jobdeck.idempotency_keys set expires_at = now() + case when key = 'pruned' then interval '1 hour' else '0' end",
    )
    .execute(db.store.pool())
    .await
    .expect("set");
    prune(&db).await;
    assert_eq!(ids(&db, "keyed", "succeeded").await, []);
    let mut answers = Vec::new();
    for key in ["pruned", "expired", "deleted", "unfinished"] {
        let again = db.store.enqueue(&Keyed::new(key), EnqueueOptions::default()).await.expect("answered");
        answers.push((again.is_new, again.id));
    }
    assert_eq!(answers[0], (false, done[0]), "the key holds although its row is gone");
    assert!(answers[1].0 && answers[2].0, "expired and deleted keys are free");
    assert_eq!(answers[3], (false, unfinished), "an unfinished job keeps its key, whatever the time");
}

#[tokio::test]
async fn a_deleted_job_is_gone_with_its_attempts_and_leaves_one_audit_row() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("regretted")).await;
    let delete = async || db.store.job_delete(id, &person()).await.expect("answered");
    assert_eq!(delete().await, DeleteOutcome::NotFinal(JobState::Pending));
    let claim = db.claim("A").await;
    assert_eq!(delete().await, DeleteOutcome::NotFinal(JobState::Running));
    let error = JobError::unrecoverable("permission", "no");
    let failed = Outcome::Failed { error: &error, delay: Duration::ZERO };
    db.store.job_end(claim.lease(), failed).await.expect("taken");
    assert_eq!(db.store.audit_list(&id.to_string(), 10).await.expect("read"), []);
    assert_eq!((delete().await, delete().await), (DeleteOutcome::Deleted, DeleteOutcome::NotFound));
    assert_eq!(db.store.job_get(id).await.expect("read"), None);
    assert_eq!(db.scalar("select count(*) from jobdeck.attempts").await, 0);
    let entries = db.store.audit_list(&id.to_string(), 10).await.expect("read");
    assert_eq!((entries.len(), entries[0].action.as_str()), (1, "delete_job"));
    assert_eq!(entries[0].before.as_ref().expect("before")["state"], "failed");
    assert_eq!(db.store.job_retry(id, &person()).await.expect("answered"), RetryOutcome::NotFound);
    let removed = db.store.job_removals().await.expect("read");
    assert_eq!((removed.len(), removed[0].by_person, removed[0].n_jobs), (1, true, 1));
}

#[tokio::test]
async fn pruning_reads_little_more_than_it_removes_however_much_is_kept() {
    let db = Db::new().await;
    for (job_type, state) in [("kept", "succeeded"), ("kept", "failed"), ("note", "failed")] {
        ended(&db, job_type, state, 20_000).await;
    }
    ended(&db, "note", "succeeded", 1_500).await;
    sqlx::query("analyze jobdeck.jobs").execute(db.store.pool()).await.expect("analysed");
    let rule = PruneRule { job_type: "note".to_owned(), state: JobState::Succeeded, keep: Keep::newest(500) };
    let mut tx = db.store.begin().await.expect("begun");
    assert_eq!(Store::prune_rules(&mut tx).await.expect("read").len(), 4);
    let boundary = Store::prune_boundary(&mut tx, &rule).await.expect("read").expect("some are due");
    let mut from = None;
    for _ in 0..2 {
        let batch = Store::prune_batch(&mut tx, &rule, boundary, from, 500).await.expect("pruned");
        assert_eq!(batch.n_jobs, 500);
        from = batch.last_finished_at;
    }
    let (scans, fetched): (i64, i64) = sqlx::query_as(
        "select seq_scan, idx_tup_fetch from pg_stat_xact_user_tables where relid = 'jobdeck.jobs'::regclass",
    )
    .fetch_one(&mut *tx)
    .await
    .expect("read");
    assert_eq!(scans, 0);
    assert!(fetched < 4_000, "{fetched} rows read to remove 1,000 and keep 500");
}

#[tokio::test]
async fn a_worker_removes_old_jobs_by_itself_unless_told_not_to() {
    for prunes in [true, false] {
        let db = Db::new().await;
        ended(&db, "old", "succeeded", 1_200).await;
        let worker =
            Worker::builder(db.store.clone(), &db.url).queue("default", 1).prunes(prunes).build().expect("built");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
        if prunes {
            let begun = Instant::now();
            while ids(&db, "old", "succeeded").await.len() != 500 {
                assert!(begun.elapsed() < Duration::from_secs(20), "pruned within 20 s");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        } else {
            // A bulk operation is maintenance as well: once it is done, pruning would have begun.
            let target = jobdeck::store::BulkTarget::Jobs(Vec::new());
            let started = db.store.bulk_start(jobdeck::BulkAction::Retry, &target, &person()).await.expect("started");
            crate::bulk::wait_until_done(&db, started.operation.id).await;
            assert_eq!(db.store.duty_list().await.expect("read"), []);
        }
        drop(stop);
        running.await.expect("ended").expect("ran");
    }
}
