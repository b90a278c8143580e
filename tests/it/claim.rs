//! Who gets which job when.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jobdeck::store::Outcome;
use jobdeck::{EnqueueOptions, JobError, JobState, Store};
use serde_json::json;

use crate::support::{Brittle, Db, Note, lease, person};

#[tokio::test]
async fn eight_claimers_share_two_thousand_jobs_without_overlap() {
    let db = Arc::new(Db::new().await);
    sqlx::query(
        "insert into jobdeck.jobs (type, payload) select 'note', '{\"text\": \"bulk\"}' from generate_series(1, 2000)",
    )
    .execute(db.store.pool())
    .await
    .expect("inserted");
    let mut claimers = tokio::task::JoinSet::new();
    for claimer in 0..8 {
        let db = db.clone();
        claimers.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let batch = db.claim_many(&format!("claimer-{claimer}"), 50).await;
                if batch.is_empty() {
                    return mine;
                }
                assert!(batch.len() <= 50);
                mine.extend(batch.into_iter().map(|claim| claim.job_id));
            }
        });
    }
    let all: Vec<_> = claimers.join_all().await.into_iter().flatten().collect();
    let different: HashSet<_> = all.iter().copied().collect();
    assert_eq!((all.len(), different.len()), (2000, 2000));
    assert_eq!(
        db.scalar("select count(*) from jobdeck.jobs where status = 'running' and attempts = 1 and token = 1").await,
        2000
    );
}

#[tokio::test]
async fn most_urgent_first_then_longest_due_then_id() {
    let db = Db::new().await;
    let enqueue = async |priority, delay| {
        let options = EnqueueOptions { priority: Some(priority), delay, ..EnqueueOptions::default() };
        db.store.enqueue(&Note::new("ordered"), options).await.expect("enqueued").id
    };
    let low = enqueue(-1, Duration::ZERO).await;
    let first = enqueue(0, Duration::ZERO).await;
    let second = enqueue(0, Duration::ZERO).await;
    let urgent = enqueue(9, Duration::ZERO).await;
    let future = enqueue(99, Duration::from_secs(3600)).await;
    let order: Vec<_> = std::iter::from_fn(|| Some(())).take(4).collect();
    let mut claimed = Vec::new();
    for () in order {
        claimed.push(db.claim("A").await.job_id);
    }
    assert_eq!(claimed, [urgent, first, second, low]);
    assert!(db.claim_many("A", 1).await.is_empty(), "not due before its time");
    db.make_due(future).await;
    assert_eq!(db.claim("A").await.job_id, future);
}

#[tokio::test]
async fn place_in_the_line_counts_only_jobs_that_would_be_claimed_first() {
    let db = Db::new().await;
    let first = db.enqueue(&Note::new("1")).await;
    let second = db.enqueue(&Note::new("2")).await;
    let urgent = EnqueueOptions { priority: Some(5), ..EnqueueOptions::default() };
    let urgent = db.store.enqueue(&Note::new("urgent"), urgent).await.expect("enqueued").id;
    let later = EnqueueOptions { delay: Duration::from_secs(60), ..EnqueueOptions::default() };
    let later = db.store.enqueue(&Note::new("later"), later).await.expect("enqueued").id;
    let ahead = async |id| db.store.job_count_ahead(id).await.expect("counted");
    assert_eq!((ahead(urgent).await, ahead(first).await, ahead(second).await), (Some(0), Some(1), Some(2)));
    assert_eq!(ahead(later).await, None);
}

#[tokio::test]
async fn unknown_type_waits_without_blocking_those_behind() {
    let db = Db::new().await;
    sqlx::query("insert into jobdeck.jobs (type, payload, priority) values ('from_the_future', '{}', 100)")
        .execute(db.store.pool())
        .await
        .expect("inserted");
    let known = db.enqueue(&Note::new("known")).await;
    assert_eq!(db.claim_many("A", 10).await.iter().map(|claim| claim.job_id).collect::<Vec<_>>(), [known]);
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs where status = 'pending' and attempts = 0").await, 1);
}

#[tokio::test]
async fn job_claims_once_while_its_lease_is_renewed() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("long")).await;
    let claim = db.claim("A").await;
    let mut connection = db.connection().await;
    Store::lease_heartbeat(&mut connection, &[lease(&claim)], Duration::from_secs(60)).await.expect("renewed");
    let job = db.job(id).await;
    let left = job.lease_expires_at.expect("leased") - db.store.now().await.expect("now");
    assert!((50..=60).contains(&left.num_seconds()), "{left}");
    assert!(db.reap().await.is_empty());
    assert!(db.claim_many("B", 1).await.is_empty());
    assert_eq!(job.version, db.job(id).await.version, "a heartbeat is no change a viewer sees");
}

#[tokio::test]
async fn stalled_twice_at_max_stalled_one_fails_and_uses_no_attempt() {
    let db = Db::new().await;
    let id = db.enqueue(&Brittle {}).await;
    db.claim("A").await;
    db.expire(id).await;
    assert_eq!(db.reap().await, [(id, JobState::Retrying)]);
    let once = db.job(id).await;
    assert_eq!((once.attempts, once.stalled_count, once.error_code.as_deref()), (0, 1, Some("lease_lost")));
    db.claim("B").await;
    db.expire(id).await;
    assert_eq!(db.reap().await, [(id, JobState::Failed)]);
    let twice = db.job(id).await;
    assert_eq!((twice.stalled_count, twice.starts, twice.error_code.as_deref()), (2, 2, Some("stalled_out")));
    let tokens: Vec<_> = db.store.attempt_list(id).await.expect("listed").iter().map(|attempt| attempt.token).collect();
    assert_eq!(tokens, [2, 1], "each start stands in the history with its own token");
}

#[tokio::test]
async fn attempts_of_two_mean_one_retry() {
    let db = Db::new().await;
    let id = db.enqueue(&Brittle {}).await;
    let error = JobError::retryable("timeout", "slow");
    for expected in [JobState::Retrying, JobState::Failed] {
        let claim = db.claim("A").await;
        let ended = db.store.job_end(lease(&claim), Outcome::Failed { error: &error, delay: Duration::ZERO }).await;
        assert_eq!(ended.expect("taken").state, expected);
    }
    assert_eq!(db.job(id).await.starts, 2);
}

#[tokio::test]
async fn unrecoverable_error_fails_at_once_whatever_attempts_are_left() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("bad key")).await;
    let claim = db.claim("A").await;
    let error = JobError::unrecoverable("invalid_credentials", "invalid_api_key").with("service", "model-api");
    db.store.job_end(lease(&claim), Outcome::Failed { error: &error, delay: Duration::ZERO }).await.expect("taken");
    let job = db.job(id).await;
    assert_eq!((job.state, job.attempts, job.max_attempts), (JobState::Failed, 1, 5));
    assert_eq!(job.error_params, Some(json!({"service": "model-api"})));
}

#[tokio::test]
async fn rate_limit_waits_as_told_and_gives_the_attempt_back() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("429")).await;
    let claim = db.claim("A").await;
    let error = JobError::rate_limited(Duration::from_secs(60), "429 from model-api");
    let waits = Outcome::Waits { error: &error, delay: Duration::from_secs(60) };
    assert_eq!(db.store.job_end(lease(&claim), waits).await.expect("taken").state, JobState::Retrying);
    let job = db.job(id).await;
    let wait = (job.run_after - job.updated_at).num_milliseconds();
    assert_eq!((job.attempts, wait), (0, 60_000));
}

#[tokio::test]
async fn hostile_error_text_is_cleaned_and_never_blocks_the_end() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("hostile")).await;
    let claim = db.claim("A").await;
    let text = format!("\u{1b}[31mNUL \0 {}", "ü".repeat(5_000_000));
    let error = JobError::unrecoverable("x", text).with("k\0", "v\0");
    db.store.job_end(lease(&claim), Outcome::Failed { error: &error, delay: Duration::ZERO }).await.expect("taken");
    let stored = db.job(id).await.last_error.expect("stored");
    assert!(stored.len() <= jobdeck::MAX_ERROR_BYTES && stored.starts_with("␛[31mNUL ␀ ü") && stored.ends_with('…'));
}

#[tokio::test]
async fn result_with_nul_is_stored_with_its_picture() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("nul")).await;
    let claim = db.claim("A").await;
    db.store.job_complete(db.store.pool(), lease(&claim), &json!({"a\0": ["b\0"]}), None).await.expect("taken");
    assert_eq!(db.job(id).await.result, Some(json!({"a␀": ["b␀"]})));
}

#[tokio::test]
async fn token_starts_beyond_all_earlier_ones_after_the_epoch_was_raised() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("restored")).await;
    let before = db.claim("A").await.token;
    db.expire(id).await;
    db.reap().await;
    sqlx::query("update jobdeck.deployment set epoch = epoch + 1").execute(db.store.pool()).await.expect("raised");
    assert_eq!((before, db.claim("B").await.token), (1, (1 << 40) + 1));
}

#[tokio::test]
async fn nothing_of_a_paused_queue_starts_and_resume_lets_it_go_on() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("held")).await;
    db.store.queue_pause("default", &person()).await.expect("paused");
    db.store.queue_pause("default", &person()).await.expect("pausing twice changes nothing");
    assert!(db.claim_many("A", 1).await.is_empty());
    assert_eq!(db.store.queue_paused_by("default").await.expect("read").as_deref(), Some("Ana Costa"));
    db.store.queue_resume("default", &person()).await.expect("resumed");
    assert_eq!(db.claim("A").await.job_id, id);
    let entries = db.store.audit_list("default", 10).await.expect("listed");
    assert_eq!(entries.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(), ["resume_queue", "pause_queue"]);
}

#[tokio::test]
async fn each_range_of_a_claim_is_one_index_scan_without_sort_at_a_hundred_thousand_finished_rows() {
    let db = Db::new().await;
    sqlx::raw_sql(
        "insert into jobdeck.jobs (type, payload, status, finished_at)
           select 'note', '{}', 'succeeded', now() from generate_series(1, 100000);
         insert into jobdeck.jobs (type, payload) select 'note', '{}' from generate_series(1, 200);
         analyze jobdeck.jobs",
    )
    .execute(db.store.pool())
    .await
    .expect("seeded");
    let plan: Vec<String> = sqlx::query_scalar(
        "explain select j.id from jobdeck.jobs j
         where j.queue = 'default' and j.type = 'note' and j.priority = 0 and j.status in ('pending', 'retrying')
           and j.run_after <= now() and j.stalled_count = 0
         order by j.run_after, j.id limit 10 for update of j skip locked",
    )
    .fetch_all(db.store.pool())
    .await
    .expect("explained");
    let plan = plan.join("\n");
    assert!(plan.contains("job_claim_idx") && !plan.contains("Sort") && !plan.contains("Seq Scan"), "{plan}");
}

#[tokio::test]
async fn claims_read_neither_jobs_due_later_nor_unknown_types() {
    let db = Db::new().await;
    sqlx::raw_sql(
        "insert into jobdeck.jobs (type, payload, priority, run_after)
           select 'note', '{}', 9, now() + interval '1 hour' from generate_series(1, 20000);
         insert into jobdeck.jobs (type, payload) select 'unheard_of', '{}' from generate_series(1, 20000);
         insert into jobdeck.jobs (type, payload) values ('note', '{}');
         analyze jobdeck.jobs",
    )
    .execute(db.store.pool())
    .await
    .expect("seeded");
    assert_eq!(db.claim_many("A", 10).await.len(), 1);
    let mut connection = db.connection().await;
    // The first call plans.
    pages_read(&mut connection, CLAIM).await;
    let read = pages_read(&mut connection, CLAIM).await;
    assert!(read < 100, "an empty claim reads {read} pages");
}

const CLAIM: &str = "select * from jobdeck.claim_jobs('default', '{note}', 10, interval '15 seconds', 'A')";

/// Pages of the database that a statement finds in memory: where the tests run, nearly all of them.
async fn pages_read(connection: &mut sqlx::PgConnection, statement: &str) -> u64 {
    let explain = format!("explain (analyze, buffers, timing off, summary off) {statement}");
    let plan: Vec<String> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(explain)).fetch_all(connection).await.expect("explained");
    let line = plan.iter().find(|line| line.contains("Buffers: shared hit=")).expect("buffers").clone();
    let number = line.split("shared hit=").nth(1).expect("hits").split(' ').next().expect("a number").to_owned();
    number.parse().expect("a number")
}

/// Statistics of a time when all had ended say that looking at everything that waits is cheap.
#[tokio::test]
async fn claims_read_few_pages_of_a_burst_that_the_statistics_do_not_know() {
    let db = Db::new().await;
    sqlx::raw_sql(
        "insert into jobdeck.jobs (type, payload, status, finished_at)
           select 'note', '{}', 'succeeded', now() from generate_series(1, 20000);
         analyze jobdeck.jobs;
         insert into jobdeck.jobs (type, payload) select 'note', '{}' from generate_series(1, 20000)",
    )
    .execute(db.store.pool())
    .await
    .expect("seeded");
    let behind = "select * from jobdeck.claim_jobs_behind('default', 'note', 0::smallint, now() - interval '1 hour',
      '00000000-0000-0000-0000-000000000000', 10, interval '15 seconds', 'A')";
    let next_due = "select * from jobdeck.next_due('default', '{note}', null)";
    let mut connection = db.connection().await;
    for statement in [CLAIM, behind, next_due] {
        pages_read(&mut connection, statement).await;
        let read = pages_read(&mut connection, statement).await;
        assert!(read < 700, "{statement} reads {read} pages");
    }
}

#[tokio::test]
async fn heartbeat_renews_the_other_leases_while_one_row_is_locked_and_calls_none_of_them_lost() {
    let db = Db::new().await;
    db.enqueue(&Note::new("locked")).await;
    db.enqueue(&Note::new("free")).await;
    let claims = db.claim_many("A", 2).await;
    let mut lock = db.store.begin().await.expect("begun");
    sqlx::query("select 1 from jobdeck.jobs where id = $1 for update")
        .bind(claims[0].job_id)
        .execute(&mut *lock)
        .await
        .expect("locked");
    let mut connection = db.connection().await;
    let leases: Vec<_> = claims.iter().map(lease).collect();
    let beat = Store::lease_heartbeat(&mut connection, &leases, Duration::from_secs(60));
    let held = tokio::time::timeout(Duration::from_secs(5), beat).await.expect("does not wait").expect("answered");
    let renewed =
        |claim: &jobdeck::store::Claim| held.iter().find(|held| held.job_id == claim.job_id).map(|held| held.renewed);
    assert_eq!((renewed(&claims[0]), renewed(&claims[1])), (Some(false), Some(true)));
}

#[tokio::test]
async fn lease_never_moves_back() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("steady")).await;
    let claim = db.claim("A").await;
    let before = db.job(id).await.lease_expires_at;
    let mut connection = db.connection().await;
    Store::lease_heartbeat(&mut connection, &[lease(&claim)], Duration::from_secs(1)).await.expect("answered");
    assert_eq!(db.job(id).await.lease_expires_at, before);
}
