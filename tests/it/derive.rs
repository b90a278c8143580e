//! `#[derive(JobType)]`: what the attributes come to, and that such a type works.

use std::time::Duration;

use jobdeck::{
    Backoff, Ctx, DuplicateBehaviour, EnqueueOptions, JobError, JobState, JobType, Keep, KeyPolicy, Policy, Retention,
    Stage, Worker,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::Db;

const SLOW_START: Backoff = Backoff::custom("slow_start", |attempt| Duration::from_secs(attempt.into()), MINUTE);
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize, JobType)]
#[job(type = "everything", queue = "exports", priority = -3, attempts = 7, backoff = "exponential 1s x1.5 10m", jitter = 0.5)]
#[job(timeout = "1h30m", max_stalled = 0, key(project_id, author.id), on_duplicate = "ignore", keep = "30d")]
#[job(stages(("checking", "Checking", "正在检查"), "uploading"), redact("author.email", r#type))]
#[job(retain(succeeded = "500", failed = "2000, 30d", canceled = "forever"), provider = "openai")]
#[job(concurrency = 8, key_concurrency = 2, limit_key = "author.id")]
struct Everything {
    project_id: i64,
    author: Author,
    r#type: String,
}

#[derive(Serialize, Deserialize)]
struct Author {
    id: String,
    email: Option<String>,
}

#[derive(Serialize, Deserialize, JobType)]
#[job(type = "bare")]
struct Bare {}

#[derive(Serialize, Deserialize, JobType)]
#[job(type = "camel", key(request_id), backoff = SLOW_START)]
#[serde(rename_all = "camelCase")]
struct Camel {
    request_id: u64,
    #[serde(default)]
    answer: u64,
}

#[derive(Serialize, Deserialize, JobType)]
#[job(type = "either", key(kind), backoff = "fixed 5s")]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Either {
    One {},
    Two { n: i64 },
}

#[test]
fn every_attribute_becomes_its_part_of_the_policy() {
    let day = Duration::from_secs(86_400);
    let expected = Policy {
        queue: "exports".to_owned(),
        priority: -3,
        max_attempts: 7,
        backoff: Backoff::Exponential { first: Duration::from_secs(1), factor: 1.5, cap: 10 * MINUTE },
        jitter: 0.5,
        timeout: 90 * MINUTE,
        max_stalled: 0,
        stages: vec![Stage::new("checking", "Checking", "正在检查"), Stage::new("uploading", "Uploading", "正在上传")],
        key: Some(KeyPolicy {
            fields: vec!["project_id".to_owned(), "author.id".to_owned()],
            on_duplicate: DuplicateBehaviour::Ignore,
            keep: Some(30 * day),
        }),
        redact: vec!["author.email".to_owned(), "type".to_owned()],
        retention: Retention {
            succeeded: Keep::newest(500),
            failed: Keep { age: Some(30 * day), count: Some(2000) },
            canceled: Keep::FOREVER,
        },
        provider: Some("openai".to_owned()),
        concurrency: Some(8),
        key_concurrency: Some(2),
        limit_key: Some("author.id".to_owned()),
    };
    assert_eq!(Everything::TYPE, "everything");
    assert_eq!(Everything::policy(), expected);
    assert_eq!(Everything::policy().check(Everything::TYPE), Ok(()));
}

#[test]
fn what_is_left_out_has_the_default() {
    assert_eq!((Bare::TYPE, Bare::policy()), ("bare", Policy::default()));
    assert_eq!(Bare {}.idempotency_key(), None);
}

#[test]
fn key_is_made_of_what_stands_in_the_json() {
    assert_eq!(Camel::policy().key.expect("declared").fields, ["requestId"]);
    assert_eq!(Camel::policy().backoff, SLOW_START);
    let job = Camel { request_id: u64::MAX, answer: 0 };
    assert_eq!(job.idempotency_key().expect("a key").as_str(), "18446744073709551615");
    assert_eq!(Either::One {}.idempotency_key().expect("a key").as_str(), "one");
    assert_eq!(Either::Two { n: 1 }.idempotency_key().expect("a key").as_str(), "two");
    let author = Author { id: "a:b".to_owned(), email: None };
    let job = Everything { project_id: 7, author, r#type: "x".to_owned() };
    assert_eq!(job.idempotency_key().expect("a key").as_str(), "7:a\\:b");
}

#[tokio::test]
async fn derived_type_is_registered_by_its_worker_and_runs() {
    let db = Db::new().await;
    async fn answer(_: Ctx, job: Camel) -> Result<u64, JobError> {
        Ok(job.answer + 1)
    }
    let worker =
        Worker::builder(db.store.clone(), &db.url).register(answer).queue("default", 2).build().expect("built");
    let made =
        db.store.enqueue(&Camel { request_id: 1, answer: 41 }, EnqueueOptions::default()).await.expect("enqueued");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    assert_eq!(db.wait_for(made.id, JobState::Succeeded).await.result, Some(json!(42)));
    let registered = db.store.job_type_list().await.expect("listed");
    assert_eq!(registered[0].key, Camel::policy().key);
    let again =
        db.store.enqueue(&Camel { request_id: 1, answer: 41 }, EnqueueOptions::default()).await.expect("answered");
    assert_eq!((again.id, again.is_new), (made.id, false));
    drop(stop);
    running.await.expect("ended").expect("stopped");
}
