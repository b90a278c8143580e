//! Payloads and results in the deck: what is hidden is nowhere, what is shown is exact, what is long can be fetched.

use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt as _;
use http::StatusCode;
use jobdeck::store::{BulkTarget, JobFilter, Outcome, Stalls, UserRole};
use jobdeck::{BulkAction, JobError, JobId, JobState, Policy, Store};
use serde_json::{Value, json};

use crate::support::{Deck, get};

const EMAIL: &str = "ana.secret@example.com";
const TOKEN: &str = "tok_s3cr3t";
const ACCOUNT: &str = "987654321";
const MARK: &str = "••••••";

async fn enqueue(deck: &Deck, job_type: &str, payload: &str) -> JobId {
    sqlx::query_scalar("select id from jobdeck.enqueue($1, $2::text::jsonb)")
        .bind(job_type)
        .bind(payload)
        .fetch_one(deck.store.pool())
        .await
        .expect("enqueued")
}

/// Ends the oldest waiting job.
async fn run(deck: &Deck, job_type: &str, end: Result<Value, JobError>) {
    let types = [job_type.to_owned()];
    let lease = Duration::from_secs(15);
    let claims = Store::job_claim_stalled(deck.store.pool(), "default", &types, 1, lease, "w", Stalls::None)
        .await
        .expect("claimed");
    let lease = claims[0].lease();
    match end {
        Ok(result) => deck.store.job_complete(deck.store.pool(), lease, &result, None).await.map(drop),
        Err(error) => {
            let outcome = Outcome::Failed { error: &error, delay: Duration::ZERO };
            deck.store.job_end(lease, outcome).await.map(drop)
        }
    }
    .expect("ended");
}

/// A failed and a succeeded job with hidden values in payload, key, error and result.
async fn letters(deck: &Deck) -> (JobId, JobId) {
    let redact = ["author.email", "account", "people.token"].map(str::to_owned).to_vec();
    let policy = Policy { redact, ..Policy::default() }.keyed_by(&["n", "account"]);
    let mut connection = deck.store.pool().acquire().await.expect("a connection");
    Store::job_type_register(&mut connection, &[("letter".to_owned(), policy)]).await.expect("registered");
    drop(connection);
    sqlx::query("insert into jobdeck.queues (name) values ('default')")
        .execute(deck.store.pool())
        .await
        .expect("a queue, as a worker registers it");
    let payload = |n: i64| {
        let people = json!([{"name": "Bo", "token": TOKEN}, {"name": "Cy", "token": TOKEN}]);
        let author = json!({"email": EMAIL, "name": "Ana"});
        json!({"n": n, "account": ACCOUNT, "author": author, "people": people, "note": "plainly seen"}).to_string()
    };
    let failed = enqueue(deck, "letter", &payload(1)).await;
    let detail = format!("550 no mailbox {EMAIL} of {ACCOUNT}\nwith {TOKEN}; the rest is plain");
    run(deck, "letter", Err(JobError::unrecoverable("other", detail))).await;
    let succeeded = enqueue(deck, "letter", &payload(2)).await;
    let result = json!({"author": {"email": "other@example.com"}, "said": [format!("sent to {EMAIL}")], "pages": 3});
    run(deck, "letter", Ok(result)).await;
    (failed, succeeded)
}

fn hides(what: &str, text: &str) {
    for secret in [EMAIL, TOKEN, ACCOUNT, "other@example.com"] {
        assert!(!text.contains(secret), "{what} shows {secret}: {text}");
    }
}

#[tokio::test]
async fn hidden_values_are_in_no_view() {
    let deck = Deck::new().await;
    let (failed, succeeded) = letters(&deck).await;
    for role in [UserRole::Viewer, UserRole::Admin] {
        let cookie = deck.signed_in(role).await;
        for id in [failed, succeeded] {
            let page = deck.get(&format!("/jobs/{id}"), Some(&cookie)).await;
            assert_eq!(page.status, StatusCode::OK);
            hides("the page", &page.text);
            assert!(page.text.contains("class=\"redacted\"") && page.text.contains("plainly seen"), "{}", page.text);
            let read = deck.call("read_job", Some(&cookie), &[("id", &id.to_string())]).await;
            hides("read_job", &read.text);
            let file = deck.get(&format!("/jobs/{id}/payload.json"), Some(&cookie)).await;
            hides("the payload's file", &file.text);
            let value: Value = serde_json::from_str(&file.text).expect("JSON");
            let people = json!([{"name": "Bo", "token": MARK}, {"name": "Cy", "token": MARK}]);
            let author = json!({"email": MARK, "name": "Ana"});
            let n = if id == failed { 1 } else { 2 };
            let shown = json!({"n": n, "account": MARK, "author": author, "people": people, "note": "plainly seen"});
            assert_eq!(value, shown);
        }
        let page = deck.get(&format!("/jobs/{failed}"), Some(&cookie)).await;
        assert!(page.text.contains(&format!("550 no mailbox {MARK} of {MARK}")), "{}", page.text);
        assert!(page.text.contains("the rest is plain"), "{}", page.text);
        let file = deck.get(&format!("/jobs/{succeeded}/result.json"), Some(&cookie)).await;
        let result: Value = serde_json::from_str(&file.text).expect("JSON");
        assert_eq!(result, json!({"author": {"email": MARK}, "said": [format!("sent to {MARK}")], "pages": 3}));
        let list = deck.get("/jobs", Some(&cookie)).await;
        hides("the list", &list.text);
        assert!(
            list.text.contains(&format!("account={MARK}")) && list.text.contains("note=plainly seen"),
            "{}",
            list.text
        );
        hides("list_jobs", &deck.call("list_jobs", Some(&cookie), &[("address", "")]).await.text);
        let stream =
            get(&format!("/live?ids={failed},{succeeded}"), Some(&cookie)).body(Body::empty()).expect("a request");
        let response = tower::ServiceExt::oneshot(deck.router.clone(), stream).await.expect("infallible");
        let mut body = response.into_body().into_data_stream();
        let mut text = String::new();
        while !text.contains("event: update") || !text.ends_with("\n\n") {
            let part = tokio::time::timeout(Duration::from_secs(20), body.next()).await.expect("in time");
            text.push_str(&String::from_utf8_lossy(&part.expect("goes on").expect("a part")));
        }
        assert!(text.contains(MARK), "{text}");
        hides("the live stream", &text);
    }
    // Whoever waits sees no more.
    let glance = deck.store.job_glance(failed, &["account", "note", "people"]).await.expect("read").expect("there");
    let people = json!([{"name": "Bo", "token": MARK}, {"name": "Cy", "token": MARK}]);
    assert_eq!(glance.fields, json!({"account": MARK, "note": "plainly seen", "people": people}));
    // The handler and programs get what was enqueued.
    let job = deck.store.job_get(failed).await.expect("read").expect("there");
    assert_eq!(job.payload["author"]["email"], EMAIL);
}

#[tokio::test]
async fn error_with_too_many_hidden_values_to_look_for_is_hidden_as_a_whole() {
    let deck = Deck::new().await;
    let policy = Policy { redact: vec!["tokens".to_owned()], ..Policy::default() };
    let mut connection = deck.store.pool().acquire().await.expect("a connection");
    Store::job_type_register(&mut connection, &[("letter".to_owned(), policy)]).await.expect("registered");
    sqlx::query("insert into jobdeck.queues (name) values ('default')")
        .execute(&mut *connection)
        .await
        .expect("a queue");
    drop(connection);
    for (n, shown) in [(1000, format!("no {MARK} here")), (1001, MARK.to_owned())] {
        let tokens: Vec<String> = (0..n).map(|n| format!("token-{n:04}")).collect();
        let id = enqueue(&deck, "letter", &json!({"tokens": tokens}).to_string()).await;
        run(&deck, "letter", Err(JobError::unrecoverable("other", "no token-0007 here"))).await;
        let job = deck.store.job_summaries(&[id]).await.expect("read").remove(0);
        assert_eq!(job.error, Some(shown));
    }
}

#[tokio::test]
async fn search_finds_what_is_shown_and_nothing_hidden() {
    let deck = Deck::new().await;
    let (failed, succeeded) = letters(&deck).await;
    let plain = deck.enqueue().await;
    let found = async |text: &str| {
        let filter = JobFilter { text: Some(text.to_owned()), ..JobFilter::default() };
        let page = deck.store.job_list(&filter, jobdeck::store::PageCursor::Newest, 10).await.expect("listed");
        let counts = deck.store.job_counts(&filter).await.expect("counted");
        assert_eq!(counts.total(), page.jobs.len() as i64, "{text}");
        page.jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    for secret in [EMAIL, "ana.secret", TOKEN, ACCOUNT, "account=9", "2:98765", "9876543"] {
        assert_eq!(found(secret).await, [], "{secret}");
    }
    assert_eq!(found("plainly seen").await, [succeeded, failed]);
    assert_eq!(found("the rest is plain").await, [failed]);
    assert_eq!(found(&failed.to_string()).await, [failed]);
    assert_eq!(found("letter").await, [succeeded, failed]);
    assert_eq!(found("minutes=5").await, [plain]);
    // Nor does an operation on all that matches.
    let actor = jobdeck::store::Actor { name: "test".to_owned(), ..Default::default() };
    for (text, n) in [(EMAIL, 0), ("no mailbox", 1)] {
        let filter = JobFilter { text: Some(text.to_owned()), ..JobFilter::default() };
        let target = BulkTarget::Matching(filter);
        let preview = deck.store.bulk_preview(BulkAction::Retry, &target).await.expect("previewed");
        assert_eq!((preview.total, preview.sample.len()), (Some(n), n as usize), "{text}");
        hides("the sample", &format!("{:?}", preview.sample));
        let started = deck.store.bulk_start(BulkAction::Retry, &target, &actor).await.expect("started");
        for _ in 0..20 {
            deck.store.bulk_step(started.operation.id, 100).await.expect("a step");
        }
        let state = if n == 0 { JobState::Failed } else { JobState::Pending };
        assert_eq!(deck.state_of(failed).await, state, "{text}");
    }
}

#[tokio::test]
async fn numbers_keep_their_digits_and_long_values_can_be_fetched_whole() {
    let deck = Deck::new().await;
    let cookie = deck.signed_in(UserRole::Viewer).await;
    let (big, fine) = ("1234567890123456789012345678901", "0.1000000000000000055511151231257827");
    let long = "x".repeat(50_000);
    let id =
        enqueue(&deck, "other", &format!(r#"{{"big": {big}, "fine": {fine}, "list": [{big}], "long": "{long}"}}"#))
            .await;
    let page = deck.get(&format!("/jobs/{id}"), Some(&cookie)).await;
    for digits in [big, fine] {
        assert!(page.text.contains(digits), "{digits} is not on the page");
    }
    let path = format!("/jobs/{id}/payload.json");
    assert!(
        page.text.contains(&format!("href=\"{path}\"")) && !page.text.contains(&long),
        "cut, with a link to all of it"
    );
    let file = deck.get(&path, Some(&cookie)).await;
    assert_eq!(file.status, StatusCode::OK);
    for part in [big, fine, &long] {
        assert!(file.text.contains(part), "{part} is not in the file");
    }
    assert_eq!(file.header("content-type"), "application/json; charset=utf-8");
    assert_eq!(file.header("content-disposition"), format!("attachment; filename=\"job-{id}-payload.json\""));
    assert_eq!((file.header("x-content-type-options"), file.header("cache-control")), ("nosniff", "no-store"));
    for path in
        [format!("/jobs/{id}/result.json"), "/jobs/01a22b0e-9268-773c-b768-db5b8f4d3e27/payload.json".to_owned()]
    {
        assert_eq!(deck.get(&path, Some(&cookie)).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(deck.get("/jobs/x/payload.json", Some(&cookie)).await.status, StatusCode::NOT_FOUND);
}
