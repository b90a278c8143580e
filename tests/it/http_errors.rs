//! Real HTTP exchanges with a server on the loopback that misbehaves as told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use jobdeck::FailureClass::{self, RateLimited, Retryable, Unrecoverable};
use jobdeck::{AttemptOutcome, Ctx, Job, JobError, JobState, code};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Db, Note};
use crate::worker::{builder, run};

#[derive(Clone, Copy)]
enum Then {
    Close,
    Reset,
    Hang,
}

/// Answers every request with `reply`, then does `then`. Counts the requests.
async fn server(reply: &'static str, then: Then) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let n_requests = Arc::new(AtomicUsize::new(0));
    let counted = n_requests.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(answer(stream, reply, then));
        }
    });
    (address, n_requests)
}

async fn answer(mut stream: TcpStream, reply: &str, then: Then) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.is_ok_and(|n_bytes| n_bytes > 0) {
            continue;
        }
        return;
    }
    stream.write_all(reply.as_bytes()).await.expect("answered");
    match then {
        Then::Close => stream.shutdown().await.expect("closed"),
        // Sent instead of the end of the stream.
        Then::Reset => stream.set_zero_linger().expect("set"),
        Then::Hang => std::future::pending().await,
    }
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().timeout(Duration::from_millis(500)).build().expect("a client")
}

async fn ask(address: SocketAddr) -> Result<Value, JobError> {
    let response = client().get(format!("http://ana:pw@{address}/v1/files?key=secret")).send().await?;
    Ok(JobError::check_response(response).await?.json().await?)
}

async fn failure(reply: &'static str, then: Then) -> JobError {
    ask(server(reply, then).await.0).await.expect_err("not a success")
}

fn sorted(error: &JobError) -> (FailureClass, &str) {
    (error.class, error.code.as_str())
}

#[tokio::test]
async fn answer_that_never_comes_is_a_timeout_and_the_detail_keeps_no_secret() {
    let error = failure("", Then::Hang).await;
    assert_eq!(sorted(&error), (Retryable, code::TIMEOUT));
    assert!(error.detail.contains("/v1/files") && !error.detail.contains("secret"), "{}", error.detail);
    assert!(!error.detail.contains("pw"), "{}", error.detail);
}

#[tokio::test]
async fn connection_reset_before_within_or_instead_of_the_answer_is_retryable() {
    let head_only = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"half\":";
    for (reply, then) in [("", Then::Reset), ("", Then::Close), (head_only, Then::Reset), (head_only, Then::Close)] {
        let error = failure(reply, then).await;
        assert_eq!(sorted(&error), (Retryable, code::CONNECTION), "{error}");
    }
    let error = failure(head_only, Then::Hang).await;
    assert_eq!(sorted(&error), (Retryable, code::TIMEOUT), "{error}");
}

#[tokio::test]
async fn refused_connection_is_retryable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let error = ask(address).await.expect_err("refused");
    assert_eq!(sorted(&error), (Retryable, code::CONNECTION), "{error}");
}

#[tokio::test]
async fn answer_that_is_not_what_was_promised_is_retryable_and_a_bad_request_is_not() {
    let page = "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n<h1>Sorry!</h1>";
    assert_eq!(sorted(&failure(page, Then::Close).await), (Retryable, code::HTTP_UNEXPECTED));
    let circle = "HTTP/1.1 302 Found\r\nlocation: /v1/files\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    assert_eq!(sorted(&failure(circle, Then::Close).await), (Unrecoverable, code::HTTP_UNEXPECTED));
    let unbuildable = client().get("no address").send().await.expect_err("refused");
    assert_eq!(sorted(&unbuildable.into()), (Unrecoverable, code::INVALID_PAYLOAD));
}

#[tokio::test]
async fn statuses_of_real_answers_keep_message_and_wait() {
    let error = failure("HTTP/1.1 404 Not Found\r\ncontent-length: 12\r\n\r\nno such file", Then::Close).await;
    assert_eq!((sorted(&error), error.detail.as_str()), ((Unrecoverable, code::NOT_FOUND), "HTTP 404: no such file"));
    let error = failure("HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n", Then::Close).await;
    assert_eq!((sorted(&error), error.retry_after), ((Retryable, code::HTTP_5XX), Some(Duration::from_secs(7))));
    // A message that breaks off or never ends does not hide the status.
    for then in [Then::Reset, Then::Hang] {
        let error = failure("HTTP/1.1 429 Slow\r\nretry-after: 9\r\ncontent-length: 99\r\n\r\nhalf a", then).await;
        assert_eq!((sorted(&error), error.retry_after), ((RateLimited, code::SLOW_DOWN), Some(Duration::from_secs(9))));
    }
    // `error_for_status` drops the headers; the class stays right.
    let (address, _) = server("HTTP/1.1 429 Slow\r\nretry-after: 9\r\ncontent-length: 0\r\n\r\n", Then::Close).await;
    let response = client().get(format!("http://{address}/?key=secret")).send().await.expect("answered");
    let error = JobError::from(response.error_for_status().expect_err("429"));
    assert_eq!((sorted(&error), error.retry_after), ((RateLimited, code::SLOW_DOWN), None));
    assert!(!error.detail.contains("secret"), "{}", error.detail);
}

/// Runs one job that asks the server, until its first attempt has ended.
async fn job_that_meets(reply: &'static str) -> (Db, Job, usize) {
    let db = Db::new().await;
    let (address, n_requests) = server(reply, Then::Close).await;
    let worker = builder(&db).register(move |_: Ctx, _: Note| ask(address)).queue("default", 1);
    let worker = run(worker.build().expect("valid"));
    let id = db.enqueue(&Note::new("ask")).await;
    let ended = |job: &Job| matches!(job.state, JobState::Failed | JobState::Retrying);
    let job = db.wait_until(id, "the end of an attempt", ended).await;
    worker.stop().await;
    (db, job, n_requests.load(Ordering::SeqCst))
}

#[tokio::test]
async fn invalid_key_fails_at_once_whatever_attempts_are_left() {
    let refused = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 15\r\n\r\ninvalid api key";
    let (_, job, n_requests) = job_that_meets(refused).await;
    assert_eq!((job.state, job.attempts, job.max_attempts, n_requests), (JobState::Failed, 1, 5, 1));
    assert_eq!(job.error_code.as_deref(), Some(code::INVALID_CREDENTIALS));
    assert_eq!(job.last_error.as_deref(), Some("HTTP 401: invalid api key"));
}

#[tokio::test]
async fn job_that_meets_429_waits_exactly_as_told_and_uses_up_no_attempt() {
    let (db, job, _) = job_that_meets("HTTP/1.1 429 Slow\r\nretry-after: 40\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!((job.state, job.attempts, job.error_class), (JobState::Retrying, 0, Some(RateLimited)));
    let attempts = db.store.attempt_list(job.id).await.expect("listed");
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].outcome, AttemptOutcome::RateLimited);
    assert_eq!(attempts[0].next_run_at.expect("planned") - attempts[0].ended_at, TimeDelta::seconds(40));
}

#[tokio::test]
async fn job_that_meets_503_waits_exactly_as_told_and_the_attempt_counts() {
    let (db, job, _) = job_that_meets("HTTP/1.1 503 Busy\r\nretry-after: 40\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!((job.state, job.attempts, job.error_class), (JobState::Retrying, 1, Some(Retryable)));
    let attempt = db.store.attempt_list(job.id).await.expect("listed").remove(0);
    assert_eq!(attempt.next_run_at.expect("planned") - attempt.ended_at, TimeDelta::seconds(40));
}
