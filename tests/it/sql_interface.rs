//! The functions that programs in any language call: same defaults, keys and refusals as in Rust.

use std::sync::Arc;
use std::time::Duration;

use jobdeck::{
    DuplicateBehaviour, EnqueueOptions, IdempotencyKey, Job, JobId, JobState, JobType, KeyPolicy, Policy, Store,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::types::Json;
use tokio::sync::Barrier;

use crate::support::{Db, Note, lease};

/// Declares its key as data.
#[derive(Serialize, Deserialize)]
struct Charge {
    event: Value,
    amount: f64,
}

impl Charge {
    fn of(event: &str) -> Self {
        Self { event: json!({ "id": event }), amount: 1.5 }
    }
}

impl JobType for Charge {
    const TYPE: &'static str = "charge";
    fn policy() -> Policy {
        let mut key = KeyPolicy::of(["event.id", "amount"]);
        key.on_duplicate = DuplicateBehaviour::Ignore;
        key.keep = Some(Duration::from_secs(3600));
        Policy {
            key: Some(key),
            priority: 7,
            max_attempts: 2,
            max_stalled: 1,
            limit_key: Some("event.customer".to_owned()),
            ..Policy::default()
        }
    }
}

async fn register<T: JobType>(db: &Db) {
    let mut connection = db.connection().await;
    Store::job_type_register(&mut connection, &[(T::TYPE.to_owned(), T::policy())]).await.expect("registered");
}

type Answer = (JobId, bool, bool);

async fn enqueue(db: &Db, job_type: &str, payload: &Value) -> Result<Answer, sqlx::Error> {
    sqlx::query_as("select * from jobdeck.enqueue($1, $2)")
        .bind(job_type)
        .bind(Json(payload))
        .fetch_one(db.store.pool())
        .await
}

/// What a statement is refused with: SQLSTATE and message.
async fn refusal(db: &Db, statement: &'static str) -> (String, String) {
    let error = sqlx::query(statement).fetch_all(db.store.pool()).await.expect_err(statement);
    let error = error.as_database_error().expect("the database refused");
    (error.code().expect("a code").into_owned(), error.message().to_owned())
}

#[tokio::test]
async fn rust_and_sql_enqueues_of_one_key_make_one_job_with_the_same_policy() {
    let db = Db::new().await;
    register::<Charge>(&db).await;
    let from_rust = db.store.enqueue(&Charge::of("e:1"), EnqueueOptions::default()).await.expect("enqueued");
    // Another order of names and another form of the number.
    let (id, is_new, differs) =
        enqueue(&db, "charge", &json!({"amount": 1.5, "event": {"id": "e:1"}})).await.expect("answered");
    assert_eq!((id, is_new, differs), (from_rust.id, false, false));

    let (id, is_new, _) =
        enqueue(&db, "charge", &json!({"event": {"id": "e:2", "customer": 9}, "amount": 1.5})).await.expect("enqueued");
    assert!(is_new);
    let again = Charge { event: json!({"id": "e:2", "customer": 9, "note": "x"}), amount: 1.5 };
    let again = db.store.enqueue(&again, EnqueueOptions::default()).await.expect("answered");
    assert_eq!((again.id, again.is_new, again.payload_differs), (id, false, true));
    let ours =
        |job: Job| (job.queue, job.priority, job.max_attempts, job.max_stalled, job.idempotency_key.expect("a key"));
    let (by_rust, by_sql) = (ours(db.job(from_rust.id).await), ours(db.job(id).await));
    assert_eq!(by_rust, ("default".to_owned(), 7, 2, 1, "e\\:1:1.5".to_owned()));
    assert_eq!(by_sql, ("default".to_owned(), 7, 2, 1, "e\\:2:1.5".to_owned()));
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs where limit_key = '9'").await, 1);
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs where limit_key is null").await, 1);
}

#[tokio::test]
async fn type_nobody_registered_has_the_documented_defaults() {
    let db = Db::new().await;
    let (id, is_new, differs) = enqueue(&db, "unheard_of", &json!({"n": 1, "name": "x y"})).await.expect("enqueued");
    assert_eq!((is_new, differs), (true, false));
    let job = db.job(id).await;
    let defaults = Policy::default();
    assert_eq!(
        (job.queue, job.priority, job.max_attempts, job.max_stalled, job.idempotency_key),
        (defaults.queue, defaults.priority, defaults.max_attempts, defaults.max_stalled, None)
    );
    assert_eq!(db.store.job_summaries(&[id]).await.expect("listed")[0].payload_preview, "n=1 name=x y");
}

#[tokio::test]
async fn what_enqueue_cannot_take_is_refused_with_22023_and_the_parameters_name() {
    let db = Db::new().await;
    register::<Charge>(&db).await;
    let cases = [
        ("select jobdeck.enqueue('a b', '{}')", "type: 'a b' must be"),
        ("select jobdeck.enqueue(null, '{}')", "type: null must be"),
        ("select jobdeck.enqueue('note', '[]')", "payload: is a JSON array, must be an object"),
        ("select jobdeck.enqueue('note', null)", "payload: is null"),
        ("select jobdeck.enqueue('note', jsonb_build_object('x', repeat('y', 8388608)))", "payload: is 8388617 bytes"),
        (
            "select jobdeck.enqueue('note', ('{\"d\":' || repeat('[', 100) || repeat(']', 100) || '}')::jsonb) -- 100 levels
             union all select jobdeck.enqueue('note', ('{\"d\":' || repeat('[', 101) || '1' || repeat(']', 101) || '}')::jsonb)",
            "payload: is nested more than 100 levels deep",
        ),
        ("select jobdeck.enqueue('note', '{}', queue => 'a/b')", "queue: 'a/b' must be"),
        ("select jobdeck.enqueue('note', '{}', priority => 40000)", "priority: 40000 is out of range"),
        ("select jobdeck.enqueue('note', '{}', run_after => 'infinity')", "run_after: infinity must be"),
        ("select jobdeck.enqueue('note', '{}', run_after => '290000-01-01')", "run_after: 290000-01-01"),
        ("select jobdeck.enqueue('note', '{}', key => '')", "key: must be 1 to 1024 bytes, is 0"),
        ("select jobdeck.enqueue('note', '{}', key => repeat('k', 1025))", "key: must be 1 to 1024 bytes, is 1025"),
        ("select jobdeck.enqueue('note', '{}', limit_key => repeat('k', 201))", "limit_key: must be 1 to 200 bytes"),
        ("select jobdeck.enqueue('note', '{}', tags => '{a,\"\"}')", "tags: each must be"),
        ("select jobdeck.enqueue('charge', '{\"event\": {\"id\": 1}}')", "payload.amount: is missing or null"),
        ("select jobdeck.enqueue('charge', '{\"event\": {\"id\": null}, \"amount\": 1}')", "payload.event.id: is missing"),
        ("select jobdeck.enqueue('charge', '{\"event\": {\"id\": []}, \"amount\": 1}')", "payload.event.id: is a list"),
        ("select jobdeck.enqueue('charge', '{\"event\": {\"id\": 1}, \"amount\": 1}', key => 'k')", "key: type charge makes"),
        (
            "select jobdeck.enqueue_many('note', array_fill('{}'::jsonb, array[56]) || '[1]'::jsonb || '{}'::jsonb)",
            "payloads[57]: is a JSON array",
        ),
        ("select jobdeck.enqueue_many('charge', '{\"{}\"}')", "payloads[1].event.id: is missing"),
        ("select jobdeck.enqueue_many('note', null)", "payloads: is null"),
        ("select jobdeck.enqueue_many('note', '{\"{}\"}', keys => '{a,b}')", "keys: are 2 for 1 payloads"),
    ];
    for (statement, expected) in cases {
        let (code, message) = refusal(&db, statement).await;
        assert_eq!(code, "22023", "{statement}: {message}");
        assert!(message.starts_with(expected), "{statement}: {message}");
    }
    // A NUL never becomes jsonb, and the harmless text that looks like one does.
    assert_eq!(refusal(&db, r#"select jobdeck.enqueue('note', '{"name": "a\u0000b"}')"#).await.0, "22P05");
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 0, "nothing was written");
    enqueue(&db, "note", &json!({"text": "\\u0000"})).await.expect("enqueued");
}

#[tokio::test]
async fn hundred_levels_are_accepted_by_sql_as_by_rust() {
    let db = Db::new().await;
    let accepted: bool = sqlx::query_scalar(
        "select is_new from jobdeck.enqueue('note', ('{\"d\":' || repeat('[', 99) || '1' || repeat(']', 99) || '}')::jsonb)",
    )
    .fetch_one(db.store.pool())
    .await
    .expect("enqueued");
    assert!(accepted);
}

#[tokio::test]
async fn past_times_are_now_and_later_ones_wait() {
    let db = Db::new().await;
    sqlx::query(
        "select jobdeck.enqueue('note', '{\"text\": \"late\"}', run_after => '1999-12-31Z'),
           jobdeck.enqueue('note', '{\"text\": \"soon\"}', run_after => now() + interval '1 hour')",
    )
    .execute(db.store.pool())
    .await
    .expect("enqueued");
    assert_eq!(db.claim_many("A", 10).await.len(), 1);
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs where run_after < created_at").await, 0);
}

#[tokio::test]
async fn many_are_enqueued_in_order_and_of_equal_keys_the_first() {
    let db = Db::new().await;
    type Row = (i32, JobId, bool, bool);
    let rows: Vec<Row> = sqlx::query_as(
        "select * from jobdeck.enqueue_many('note',
           array['{\"text\": \"a\"}', '{\"text\": \"b\"}', '{\"text\": \"c\"}', '{\"text\": \"d\"}']::jsonb[],
           keys => array['z', null, 'z', 'y'])",
    )
    .fetch_all(db.store.pool())
    .await
    .expect("enqueued");
    assert_eq!(
        rows.iter().map(|row| (row.0, row.2, row.3)).collect::<Vec<_>>(),
        [(1, true, false), (2, true, false), (3, false, true), (4, true, false)]
    );
    assert_eq!(rows[2].1, rows[0].1);
    let claimed: Vec<JobId> = db.claim_many("A", 10).await.into_iter().map(|claim| claim.job_id).collect();
    assert_eq!(claimed, [rows[0].1, rows[1].1, rows[3].1]);
    let none: Vec<Row> = sqlx::query_as("select * from jobdeck.enqueue_many('note', '{}')")
        .fetch_all(db.store.pool())
        .await
        .expect("answered");
    assert!(none.is_empty());
}

#[tokio::test]
async fn bulk_calls_with_overlapping_keys_in_opposite_order_do_not_deadlock() {
    let db = Arc::new(Db::new().await);
    register::<Charge>(&db).await;
    let barrier = Arc::new(Barrier::new(6));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..6 {
        let (db, barrier) = (db.clone(), barrier.clone());
        callers.spawn(async move {
            let mut jobs: Vec<Charge> = (0..300).map(|n| Charge::of(&format!("event {n}"))).collect();
            if caller % 2 == 1 {
                jobs.reverse();
            }
            barrier.wait().await;
            if caller < 3 {
                let answers = db.store.enqueue_many(&jobs, EnqueueOptions::default()).await.expect("enqueued");
                return answers.iter().filter(|answer| answer.is_new).count() as i64;
            }
            let payloads: Vec<Json<Charge>> = jobs.into_iter().map(Json).collect();
            sqlx::query_scalar("select count(*) from jobdeck.enqueue_many('charge', $1) where is_new")
                .bind(payloads)
                .fetch_one(db.store.pool())
                .await
                .expect("enqueued")
        });
    }
    assert_eq!(callers.join_all().await.into_iter().sum::<i64>(), 300);
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 300);
}

#[tokio::test]
async fn fifty_rust_and_sql_enqueuers_of_one_key_at_once_all_get_one_id() {
    let db = Arc::new(Db::new().await);
    register::<Charge>(&db).await;
    let barrier = Arc::new(Barrier::new(50));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..50 {
        let (db, barrier) = (db.clone(), barrier.clone());
        callers.spawn(async move {
            barrier.wait().await;
            if caller % 2 == 0 {
                let job = db.store.enqueue(&Charge::of("one"), EnqueueOptions::default()).await.expect("answered");
                return (job.id, job.is_new, job.payload_differs);
            }
            enqueue(&db, "charge", &json!({"event": {"id": "one"}, "amount": 1.5})).await.expect("answered")
        });
    }
    let answers = callers.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.1).count(), 1);
    assert!(answers.iter().all(|answer| answer.0 == answers[0].0 && !answer.2));
    assert_eq!(db.store.job_duplicates(answers[0].0).await.expect("counted").0, 49);
}

#[tokio::test]
async fn sql_enqueue_wakes_a_listener_with_the_queues_name() {
    let db = Db::new().await;
    let mut listener = sqlx::postgres::PgListener::connect(&db.url).await.expect("connected");
    listener.listen("jobdeck_jobs").await.expect("listening");
    sqlx::query("select jobdeck.enqueue('note', '{}', queue => 'mail')")
        .execute(db.store.pool())
        .await
        .expect("enqueued");
    let hint =
        tokio::time::timeout(Duration::from_secs(10), listener.recv()).await.expect("in time").expect("received");
    assert_eq!(hint.payload(), "mail");
}

#[tokio::test]
async fn key_kept_for_a_time_blocks_until_it_has_run_out_then_goes_to_the_next_job() {
    let db = Db::new().await;
    register::<Charge>(&db).await;
    let payload = json!({"event": {"id": "k"}, "amount": 1.5});
    let (first, ..) = enqueue(&db, "charge", &payload).await.expect("enqueued");
    let claim = async || {
        let types = ["charge".to_owned()];
        let claimed = db.store.job_claim_batch("default", &types, 1, Duration::from_secs(15), "A").await;
        claimed.expect("claimed").pop().expect("a job is due")
    };
    let claimed = claim().await;
    db.store.job_complete(db.store.pool(), lease(&claimed), &json!({}), None).await.expect("completed");
    let left = "select round(extract(epoch from expires_at - now()) / 60)::bigint from jobdeck.idempotency_keys";
    assert_eq!(db.scalar(left).await, 60, "an hour from success");
    assert_eq!(enqueue(&db, "charge", &payload).await.expect("answered").0, first);

    let run_out = "update jobdeck.idempotency_keys set expires_at = now()";
    sqlx::query(run_out).execute(db.store.pool()).await.expect("run out");
    let (second, is_new, _) = enqueue(&db, "charge", &payload).await.expect("enqueued");
    assert!(is_new && second != first);
    assert_eq!(db.scalar("select count(*) from jobdeck.idempotency_keys where expires_at is null").await, 1);
    sqlx::query(run_out).execute(db.store.pool()).await.expect("run out");
    let held = enqueue(&db, "charge", &payload).await.expect("answered").0;
    assert_eq!(held, second, "a job that has not ended keeps its key, whatever the time");

    // The same for those that complete in groups and those that enqueue from Rust.
    let claimed = claim().await;
    assert_eq!(claimed.job_id, second);
    let completion = jobdeck::store::Completion::new(lease(&claimed), &json!({}), None).expect("storable");
    db.store.job_complete_many(&[&completion]).await.expect("completed");
    assert_eq!(db.scalar(left).await, 60);
    sqlx::query(run_out).execute(db.store.pool()).await.expect("run out");
    let third = db.store.enqueue(&Charge::of("k"), EnqueueOptions::default()).await.expect("enqueued");
    assert!(third.is_new && third.id != second);
    assert_eq!(db.store.job_duplicates(third.id).await.expect("counted").0, 0);
}

#[tokio::test]
async fn cancel_says_what_it_came_to_and_leaves_one_audit_row() {
    let db = Db::new().await;
    let cancel = async |id: JobId| -> (String, Option<String>) {
        sqlx::query_as("select * from jobdeck.cancel($1, 'no longer wanted')")
            .bind(id)
            .fetch_one(db.store.pool())
            .await
            .expect("answered")
    };
    let came_to = |outcome: &str, status: &str| (outcome.to_owned(), Some(status.to_owned()));
    let waiting = db.enqueue(&Note::new("waits")).await;
    assert_eq!(cancel(waiting).await, came_to("canceled", "canceled"));
    assert_eq!(cancel(waiting).await, came_to("already_final", "canceled"));
    let running = db.enqueue(&Note::new("runs")).await;
    let claimed = db.claim("A").await;
    assert_eq!(cancel(running).await, came_to("requested", "running"));
    assert_eq!(cancel(running).await, came_to("requested", "running"));
    assert_eq!(cancel(JobId(uuid::Uuid::nil())).await, ("not_found".to_owned(), None));
    assert_eq!(
        db.scalar(
            "select count(*) from jobdeck.audit_log where action = 'cancel_job' and outcome = 'done'
            and actor = session_user and reason = 'no longer wanted'"
        )
        .await,
        2
    );
    db.store.job_end(lease(&claimed), jobdeck::store::Outcome::Canceled).await.expect("ended");
    assert_eq!(db.job(running).await.state, JobState::Canceled);
}

#[tokio::test]
async fn retry_says_what_it_came_to_and_names_the_job_that_holds_the_key() {
    let db = Db::new().await;
    register::<Charge>(&db).await;
    let retry = async |id: JobId| -> (String, Option<String>, Option<JobId>) {
        sqlx::query_as("select * from jobdeck.retry($1)").bind(id).fetch_one(db.store.pool()).await.expect("answered")
    };
    let payload = json!({"event": {"id": "k"}, "amount": 1});
    let (first, ..) = enqueue(&db, "charge", &payload).await.expect("enqueued");
    assert_eq!(retry(first).await, ("not_retryable".to_owned(), Some("pending".to_owned()), None));
    sqlx::query("select jobdeck.cancel($1)").bind(first).execute(db.store.pool()).await.expect("canceled");
    let (second, is_new, _) = enqueue(&db, "charge", &payload).await.expect("enqueued");
    assert!(is_new, "a canceled job gives its key back");
    assert_eq!(retry(first).await, ("key_held".to_owned(), Some("canceled".to_owned()), Some(second)));
    sqlx::query("select jobdeck.cancel($1)").bind(second).execute(db.store.pool()).await.expect("canceled");
    assert_eq!(retry(first).await, ("queued".to_owned(), Some("pending".to_owned()), None));
    assert_eq!(enqueue(&db, "charge", &payload).await.expect("answered").0, first, "it has its key again");
    assert_eq!(retry(JobId(uuid::Uuid::nil())).await.0, "not_found");
    assert_eq!(db.scalar("select count(*) from jobdeck.audit_log where action = 'retry_job'").await, 1);
}

#[tokio::test]
async fn status_shows_where_a_job_is_and_never_its_payload() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("secret words")).await;
    let status = async || -> Value {
        sqlx::query_scalar("select to_jsonb(s) from jobdeck.job_status($1) s")
            .bind(id)
            .fetch_one(db.store.pool())
            .await
            .expect("answered")
    };
    let waiting = status().await;
    assert_eq!(
        (&waiting["status"], &waiting["attempts"], &waiting["max_attempts"]),
        (&json!("pending"), &json!(0), &json!(5))
    );
    let claimed = db.claim("A").await;
    db.store
        .job_complete(db.store.pool(), lease(&claimed), &json!({"file": "f.pdf"}), Some("writing"))
        .await
        .expect("done");
    let done = status().await;
    assert_eq!(
        (&done["status"], &done["stage"], &done["result"]),
        (&json!("succeeded"), &json!("writing"), &json!({"file": "f.pdf"}))
    );
    assert!(!done["finished_at"].is_null());
    assert!(!done.to_string().contains("secret") && !waiting.to_string().contains("secret"));
    assert_eq!(db.scalar("select count(*) from jobdeck.job_status('00000000-0000-0000-0000-000000000000')").await, 0);
}

#[tokio::test]
async fn registered_policy_reads_back_as_it_was_declared() {
    let db = Db::new().await;
    register::<Charge>(&db).await;
    register::<Charge>(&db).await;
    let types = db.store.job_type_list().await.expect("listed");
    let (declared, registered) = (Charge::policy(), &types[0]);
    assert_eq!(types.len(), 1);
    assert_eq!(registered.key, declared.key);
    assert_eq!((registered.priority, registered.max_attempts, registered.max_stalled), (7, 2, 1));
    assert_eq!((registered.timeout, registered.jitter), (declared.timeout, declared.jitter));
    assert_eq!(registered.backoff, jobdeck::DeclaredBackoff::from(&declared.backoff));
    assert_eq!((registered.retention, &registered.redact), (declared.retention, &declared.redact));
    assert_eq!(registered.limit_key, declared.limit_key);
    let senseless = [("charge".to_owned(), Policy { concurrency: Some(0), ..Policy::default() })];
    let mut connection = db.connection().await;
    let refused = Store::job_type_register(&mut connection, &senseless);
    let refused = refused.await.expect_err("refused").to_string();
    assert_eq!(refused, r#"policy of type "charge": concurrency is 0, must be at least 1"#);
}

#[tokio::test]
async fn limit_of_a_queue_follows_what_its_types_declare_until_a_person_sets_one() {
    let db = Db::new().await;
    let register = async |name: &str, concurrency: Option<i32>, key_concurrency: Option<i32>| {
        let policy = Policy { concurrency, key_concurrency, ..Policy::in_queue("mail") };
        let mut connection = db.connection().await;
        Store::job_type_register(&mut connection, &[(name.to_owned(), policy)]).await.expect("registered");
        let limits: Option<(Option<i32>, Option<i32>)> =
            sqlx::query_as("select concurrency_limit, key_limit from jobdeck.queues where name = 'mail'")
                .fetch_optional(db.store.pool())
                .await
                .expect("read");
        limits.unwrap_or_default()
    };
    assert_eq!(register("a", None, None).await, (None, None));
    assert_eq!(register("a", Some(8), None).await, (Some(8), None));
    assert_eq!(register("b", Some(3), Some(2)).await, (Some(3), Some(2)), "the smallest declared");
    assert_eq!(register("b", None, Some(1)).await, (Some(8), Some(1)));
    let limits = jobdeck::store::QueueLimits { concurrency: Some(20), per_key: Some(1) };
    db.store.queue_set_limits("mail", limits, &crate::support::person()).await.expect("set");
    assert_eq!(register("b", Some(2), Some(5)).await, (Some(20), Some(5)), "the person's limit stays");
}

fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[a-c:\\\\\"]{0,6}", "\\PC{0,12}", "[\u{1}-\u{1f}\u{7f}-\u{9f}é漢😀]{0,8}"];
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-1000i32..1000, -20i32..20).prop_map(|(n, e)| Value::from(f64::from(n) * 10f64.powi(e))),
        text.clone().prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(text.clone(), inner, 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

#[test]
fn keys_and_digests_of_random_payloads_are_the_same_in_rust_and_sql() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let db = runtime.block_on(Db::new());
    // Made by Rust, so that its digest stands in the key's row; then asked for by SQL.
    #[derive(Serialize, Deserialize)]
    struct Any(Value);
    impl JobType for Any {
        const TYPE: &'static str = "any";
        fn policy() -> Policy {
            Policy::default().keyed_by(&["a", "b.c", "n"])
        }
    }
    runtime.block_on(register::<Any>(&db));
    let fields = Any::policy().key.expect("declared").fields;
    let counter = std::cell::Cell::new(0u64);
    proptest!(ProptestConfig::with_cases(400), |(a in any_json(), c in any_json(), rest in any_json())| {
        // A number of its own keeps the cases apart.
        let n = counter.replace(counter.get() + 1);
        let payload = json!({"a": a, "b": {"c": c, "d": rest}, "n": n});
        let in_sql: Result<String, sqlx::Error> = runtime.block_on(
            sqlx::query_scalar("select jobdeck.key_of_payload($1::text::jsonb, $2)")
                .bind(payload.to_string()).bind(&fields).fetch_one(db.store.pool()),
        );
        match (IdempotencyKey::of_payload(&fields, &payload), in_sql) {
            (Ok(key), Ok(in_sql)) => {
                prop_assert_eq!(key.as_str(), in_sql);
                let made = runtime.block_on(db.store.enqueue(&Any(payload.clone()), EnqueueOptions::default())).expect("enqueued");
                let (id, is_new, differs) = runtime.block_on(enqueue(&db, "any", &payload)).expect("answered");
                prop_assert!(made.is_new && id == made.id && !is_new && !differs, "{}", payload);
            }
            (Err(error), Err(in_sql)) => {
                let in_sql = in_sql.as_database_error().expect("refused").message().to_owned();
                prop_assert_eq!(error.to_string(), in_sql);
            }
            (rust, sql) => prop_assert!(false, "{}: {:?} in Rust, {:?} in SQL", payload, rust, sql),
        }
    });
}
