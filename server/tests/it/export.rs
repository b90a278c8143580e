//! From the form to the file: router, worker, real Postgres and real files.

use std::collections::HashSet;
use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt as _;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use jobdeck::store::UserRole;
use jobdeck::{AttemptOutcome, Job, JobId, JobState, Worker};
use jobdeck_server::job_types;
use jobdeck_server::storage::FileStore;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Deck, Reply, get, post};

pub(crate) const EXPORT_COOKIE: &str = "jobdeck_export";
pub(crate) const TEXT: &str = "# Notes\n\nThree findings from **42 interviews**.\n\n显示“正在生成”会更清楚。\n";

/// A worker in this process, stopped with the test.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(deck: &Deck) -> Self {
        let files = FileStore::in_folder(&deck.folder.join("files")).expect("a folder");
        let builder = Worker::builder(deck.store.clone(), &deck.url)
            .queue("exports", 4)
            .poll_every(Duration::from_millis(200))
            .grace(Duration::from_secs(5));
        let worker = job_types::register(builder, files).build().expect("a worker");
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            worker.run_until(stopped).await.expect("the worker runs");
        });
        Self { stop: Some(stop), task }
    }

    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(Duration::from_secs(20), &mut self.task).await.expect("stops in time").expect("no panic");
    }
}

pub(crate) async fn wait_for(deck: &Deck, id: JobId, wanted: impl Fn(&Job) -> bool) -> Job {
    let mut last = None;
    for _ in 0..600 {
        let job = deck.store.job_get(id).await.expect("read").expect("the job is there");
        if wanted(&job) {
            return job;
        }
        last = Some(job);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not within 60 s; last seen: {last:?}");
}

pub(crate) fn form<'f>(format: &'f str, markdown: &'f str, mishap: &'f str) -> [(&'f str, &'f str); 4] {
    [("title", "Q3 笔记"), ("format", format), ("markdown", markdown), ("mishap", mishap)]
}

/// Sends the form; the link it leads to.
pub(crate) async fn send(deck: &Deck, cookie: &str, form: &[(&str, &str)]) -> String {
    let reply = deck.post("/demo", Some(cookie), form).await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER, "{}", reply.text);
    let link = reply.location().to_owned();
    assert!(link.starts_with("/e/"), "{link}");
    link
}

/// Opens a link as a browser does: the page's address and the cookie it needs.
pub(crate) async fn open(deck: &Deck, link: &str) -> (JobId, String) {
    let reply = deck.get(link, None).await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER, "{}", reply.text);
    let (cookie, line) = reply.set_cookie(EXPORT_COOKIE).expect("a cookie");
    let path = reply.location().split('?').next().expect("a path").to_owned();
    for part in [format!("Path={path}").as_str(), "HttpOnly", "SameSite=Lax", "Secure", "Max-Age="] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    let id = path.strip_prefix("/e/").expect("a page").parse().expect("a job id");
    (id, cookie)
}

pub(crate) async fn n_jobs(deck: &Deck) -> i64 {
    sqlx::query_scalar("select count(*) from jobdeck.jobs").fetch_one(deck.store.pool()).await.expect("counted")
}

/// Files of all exports, however they are nested.
pub(crate) fn files(deck: &Deck) -> Vec<String> {
    fn collect(folder: &std::path::Path, into: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { collect(&path, into) } else { into.push(path.display().to_string()) }
        }
    }
    let mut found = Vec::new();
    collect(&deck.folder.join("files"), &mut found);
    found
}

pub(crate) async fn bytes(deck: &Deck, path: &str, cookie: &str) -> (http::response::Parts, Vec<u8>) {
    let request = get(path, Some(cookie)).body(Body::empty()).expect("a request");
    let response = tower::ServiceExt::oneshot(deck.router.clone(), request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    (parts, body.collect().await.expect("a whole body").to_bytes().to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn text_becomes_a_pdf_and_every_stage_is_on_record() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let link = send(&deck, &user, &form("pdf", TEXT, "none")).await;
    let (id, cookie) = open(&deck, &link).await;
    let page = format!("/e/{id}");

    let waiting = deck.get(&page, Some(&cookie)).await;
    assert_eq!(waiting.status, StatusCode::OK);
    assert!(waiting.text.contains("Waiting in line") && waiting.text.contains("http-equiv=\"refresh\""));
    assert!(waiting.header("content-security-policy").contains("script-src 'nonce-"));
    assert_eq!(waiting.header("cache-control"), "no-store");
    let early = deck.get(&format!("{page}/file"), Some(&cookie)).await;
    assert_eq!(early.status, StatusCode::CONFLICT, "{}", early.text);

    let worker = Running::start(&deck);
    let job = wait_for(&deck, id, |job| job.state.is_final()).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.last_error);
    for stage in ["generating", "rendering", "uploading"] {
        assert!(job.stages_at.get(stage).is_some(), "{stage} is not in {}", job.stages_at);
    }
    assert_eq!(job.stage.as_deref(), Some("downloadable"));
    assert_eq!((job.created_by.as_deref(), job.owner.as_deref()), (Some("The operator"), Some("operator@example.com")));

    let ready = deck.get(&page, Some(&cookie)).await;
    assert!(ready.text.contains("Download PDF") && !ready.text.contains("http-equiv"), "{}", ready.text);
    let chinese = deck.get(&format!("{page}?lang=zh-CN"), Some(&cookie)).await;
    assert!(chinese.text.contains("可下载") && chinese.text.contains("/file?lang=zh-CN"), "{}", chinese.text);

    let (parts, content) = bytes(&deck, &format!("{page}/file"), &cookie).await;
    assert_eq!(parts.status, StatusCode::OK);
    assert_eq!(parts.headers[header::CONTENT_TYPE], "application/pdf");
    assert_eq!(
        parts.headers[header::CONTENT_DISPOSITION],
        "attachment; filename=\"Q3 __.pdf\"; filename*=UTF-8''Q3%20%E7%AC%94%E8%AE%B0.pdf"
    );
    assert_eq!(parts.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(parts.headers[header::CONTENT_LENGTH], content.len().to_string());
    assert!(content.starts_with(b"%PDF-"));
    assert_eq!(job.result.expect("a result")["file"]["bytes"], content.len());
    assert_eq!(files(&deck).len(), 1);

    // The same text again, as another system ends its lines: the same page, no second job, no second file.
    let windows = TEXT.replace('\n', "\r\n");
    let again = send(&deck, &user, &form("pdf", &windows, "none")).await;
    assert!(again.ends_with("?again=1"), "{again}");
    let reply = deck.get(&again, None).await;
    assert_eq!(reply.location(), format!("{page}?again=1"));
    let said = deck.get(reply.location(), Some(&cookie)).await;
    assert!(said.text.contains("This export is already made"), "{}", said.text);
    assert_eq!((n_jobs(&deck).await, files(&deck).len()), (1, 1));

    // "Make it again" on a finished export has nothing to do.
    let made = deck.post(&format!("{page}/again"), Some(&cookie), &[]).await;
    assert_eq!((made.status, made.location()), (StatusCode::SEE_OTHER, &*format!("{page}?again=1")));

    std::fs::remove_file(&files(&deck)[0]).expect("removed");
    let gone = deck.get(&format!("{page}/file"), Some(&cookie)).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    assert!(gone.text.contains("no longer there"), "{}", gone.text);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn html_arrives_as_an_attachment_that_runs_nothing() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let worker = Running::start(&deck);
    let text = format!("{TEXT}\n<script>alert(1)</script>\n");
    let link = send(&deck, &user, &form("html", &text, "none")).await;
    let (id, cookie) = open(&deck, &link).await;
    wait_for(&deck, id, |job| job.state == JobState::Succeeded).await;
    let (parts, content) = bytes(&deck, &format!("/e/{id}/file"), &cookie).await;
    assert_eq!(parts.headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
    assert!(parts.headers[header::CONTENT_DISPOSITION].to_str().expect("text").starts_with("attachment;"));
    assert!(parts.headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text").starts_with("sandbox"));
    let content = String::from_utf8(content).expect("UTF-8");
    assert!(content.contains("42 interviews") && content.contains("正在生成"), "{content}");
    assert!(!content.contains("<script>"), "{content}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_at_once_are_one_job_and_one_file() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let worker = Running::start(&deck);
    let fields = form("html", TEXT, "none");
    let replies: Vec<Reply> = futures_util::stream::iter(0..50)
        .map(|_| deck.post("/demo", Some(&user), &fields))
        .buffer_unordered(50)
        .collect()
        .await;
    let mut pages = HashSet::new();
    for reply in &replies {
        assert_eq!(reply.status, StatusCode::SEE_OTHER, "{}", reply.text);
        pages.insert(open(&deck, reply.location()).await.0);
    }
    assert_eq!(pages.len(), 1);
    assert_eq!(replies.iter().filter(|reply| !reply.location().ends_with("?again=1")).count(), 1);
    let id = pages.into_iter().next().expect("a page");
    wait_for(&deck, id, |job| job.state == JobState::Succeeded).await;
    assert_eq!((n_jobs(&deck).await, files(&deck).len()), (1, 1));
    worker.stop().await;
}

#[tokio::test]
async fn links_open_their_own_export_and_nothing_else() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let mine = send(&deck, &user, &form("pdf", TEXT, "none")).await;
    let other = send(&deck, &user, &form("html", TEXT, "none")).await;
    let ((my_id, my_cookie), (other_id, _)) = (open(&deck, &mine).await, open(&deck, &other).await);
    assert_ne!(my_id, other_id);
    let before = deck.fingerprint().await;

    let unknown = "01a22b0e-9268-773c-b768-db5b8f4d3e27";
    let tampered = {
        let mut token = mine.clone().into_bytes();
        let last = token.len() - 20;
        token[last] = if token[last] == b'A' { b'B' } else { b'A' };
        String::from_utf8(token).expect("ASCII")
    };
    let strangers = deck.get(&format!("/e/{my_id}"), None).await;
    let cases = [
        deck.get(&format!("/e/{other_id}"), Some(&my_cookie)).await,
        deck.get(&format!("/e/{other_id}/file"), Some(&my_cookie)).await,
        deck.get(&format!("/e/{other_id}/events"), Some(&my_cookie)).await,
        deck.post(&format!("/e/{other_id}/cancel"), Some(&my_cookie), &[]).await,
        deck.post(&format!("/e/{other_id}/again"), Some(&my_cookie), &[]).await,
        deck.post(&format!("/e/{my_id}/cancel"), None, &[]).await,
        deck.get(&format!("/e/{unknown}"), Some(&my_cookie)).await,
        deck.get(&tampered, None).await,
        deck.get(&format!("{mine}A"), None).await,
        deck.get("/e/x", None).await,
        // Being signed in opens no export either.
        deck.get(&format!("/e/{my_id}"), Some(&user)).await,
        strangers,
    ];
    let body = |reply: &Reply| reply.text.split("<main").nth(1).expect("a page").to_owned();
    for reply in &cases {
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{}", reply.text);
        assert_eq!(body(reply), body(&cases[0]), "what is not there and what is not yours read the same");
        assert!(reply.text.contains("This link does not work"));
    }
    assert_eq!(deck.fingerprint().await, before, "nothing was changed by looking");
    // A scanner that opens the link changes nothing, however often.
    let head = Request::builder().method("HEAD").uri(&mine).body(Body::empty()).expect("a request");
    assert_eq!(deck.send(head).await.status, StatusCode::SEE_OTHER);
    deck.get(&mine, None).await;
    assert_eq!(deck.fingerprint().await, before);
}

#[tokio::test]
async fn language_of_a_problem_page_can_be_switched_wherever_it_came_up() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let link = send(&deck, &user, &form("pdf", TEXT, "none")).await;
    let (id, _) = open(&deck, &link).await;
    let mut pages = Vec::new();
    for action in ["cancel", "again"] {
        pages.push(deck.post(&format!("/e/{id}/{action}"), None, &[]).await);
    }
    for path in ["", "/file", "/events"] {
        pages.push(deck.get(&format!("/e/{id}{path}"), None).await);
    }
    for page in pages {
        let (before, _) = page.text.split_once("?lang=zh-CN").expect("a language switch");
        let path = before.rsplit_once("href=\"").expect("a link").1;
        let other = deck.get(&format!("{path}?lang=zh-CN"), None).await;
        assert_eq!(other.status, page.status, "{path}");
        assert!(other.text.contains("lang=\"zh-CN\"") && other.text.contains("<main"), "{path}: {}", other.text);
    }
}

#[tokio::test]
async fn expired_links_say_so() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let link = send(&deck, &user, &form("pdf", TEXT, "none")).await;
    let (id, _) = open(&deck, &link).await;
    let expired = expired_token(&deck, id).await;
    let reply = deck.get(&format!("/e/{expired}"), None).await;
    assert_eq!(reply.status, StatusCode::GONE);
    assert!(reply.text.contains("This link has expired"), "{}", reply.text);
    let cookie = format!("{EXPORT_COOKIE}={expired}");
    for path in [format!("/e/{id}"), format!("/e/{id}/events"), format!("/e/{id}/file")] {
        assert_eq!(deck.get(&path, Some(&cookie)).await.status, StatusCode::GONE, "{path}");
    }
    assert_eq!(deck.post(&format!("/e/{id}/cancel"), Some(&cookie), &[]).await.status, StatusCode::GONE);
    assert_eq!(deck.state_of(id).await, JobState::Pending);
}

/// A link whose time is over, signed with the deck's own key. Written out here, so that a change of the format is noticed.
pub(crate) async fn expired_token(deck: &Deck, id: JobId) -> String {
    use base64::Engine as _;
    use hmac::{KeyInit as _, Mac as _};
    let (key_id, secret): (i32, Vec<u8>) =
        sqlx::query_as("select id, secret from jobdeck.link_keys").fetch_one(deck.store.pool()).await.expect("a key");
    let mut token = key_id.to_be_bytes().to_vec();
    token.extend(id.0.as_bytes());
    token.extend(1_000_000_000_u64.to_be_bytes());
    token.push(7);
    token.extend([0; 16]);
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&secret).expect("a key");
    mac.update(b"jobdeck job link 2\0");
    mac.update(&token);
    token.extend(mac.finalize().into_bytes());
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token)
}

#[tokio::test]
async fn what_is_no_text_is_refused_plainly_and_leaves_no_row() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let raw = |body: Vec<u8>| {
        let mut request = post("/demo", Some(&user), &[]);
        *request.body_mut() = Body::from(body);
        request
    };
    let long = format!("title=t&format=pdf&markdown={}", "x".repeat(4 * 1024 * 1024 + 1));
    let cases: [(Vec<u8>, &str); 7] = [
        (b"title=t&format=pdf&markdown=".to_vec(), "The text is empty"),
        (b"title=t&format=pdf&markdown=+%0A".to_vec(), "The text is empty"),
        (b"title=t&format=pdf".to_vec(), "The text is empty"),
        (b"title=t&format=pdf&markdown=kept%FFwords".to_vec(), "not valid UTF-8"),
        (b"title=t&format=pdf&markdown=a%0Akept%00words".to_vec(), "Line 2, column 5"),
        (b"title=t&format=exe&markdown=kept+words".to_vec(), "Choose PDF or HTML"),
        (long.into_bytes(), "the limit is 4.2 MB"),
    ];
    for (body, words) in cases {
        let is_kept = body.windows(4).any(|window| window == b"kept");
        let reply = deck.send(raw(body)).await;
        assert_eq!(reply.status, StatusCode::UNPROCESSABLE_ENTITY, "{words}");
        assert!(reply.text.contains(words), "{words} is not in the reply");
        assert!(reply.text.contains("<textarea"), "the form comes back");
        assert_eq!(reply.text.contains(">\nkept") || reply.text.contains("\nkept"), is_kept, "{words}");
    }
    let reply = deck.send(raw(vec![b'x'; 20 * 1024 * 1024])).await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    let mut other = raw(b"x".to_vec());
    other.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    assert_eq!(deck.send(other).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(n_jobs(&deck).await, 0);
}

#[tokio::test]
async fn both_form_encodings_are_the_same_export() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let usual = send(&deck, &user, &form("pdf", TEXT, "none")).await;
    let mut request = post("/demo", Some(&user), &[]);
    let part = |name: &str, value: &str| {
        format!("--b0undary\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let parts: String = form("pdf", TEXT, "none").iter().map(|(name, value)| part(name, value)).collect();
    *request.body_mut() = Body::from(format!("{parts}--b0undary--\r\n"));
    let media = HeaderValue::from_static("multipart/form-data; boundary=b0undary");
    request.headers_mut().insert(header::CONTENT_TYPE, media);
    let reply = deck.send(request).await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER, "{}", reply.text);
    assert_eq!(open(&deck, &usual).await.0, open(&deck, reply.location()).await.0);
    assert_eq!(n_jobs(&deck).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_image_fails_at_once_and_names_its_line() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let worker = Running::start(&deck);
    let text = "# Notes\n\n![cut off](data:image/png;base64,iVBORw0KGgoAAAANSUhEUg==)\n";
    let link = send(&deck, &user, &form("pdf", text, "none")).await;
    let (id, cookie) = open(&deck, &link).await;
    let job = wait_for(&deck, id, |job| job.state.is_final()).await;
    assert_eq!((job.state, job.attempts), (JobState::Failed, 1));
    assert_eq!(job.error_code.as_deref(), Some("invalid_content"));
    let params = job.error_params.expect("facts");
    assert_eq!((&params["reason"], &params["line"]), (&"broken_image".into(), &3.into()));
    assert!(job.last_error.expect("detail").contains("line 3"));
    let page = deck.get(&format!("/e/{id}"), Some(&cookie)).await;
    assert!(page.text.contains("The image on line 3"), "{}", page.text);
    assert!(page.text.contains("Replace or remove that image"), "{}", page.text);
    assert!(files(&deck).is_empty());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rehearsed_storage_trouble_is_retried_and_leaves_one_file() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let worker = Running::start(&deck);
    let link = send(&deck, &user, &form("html", TEXT, "storage_fails_twice")).await;
    let (id, cookie) = open(&deck, &link).await;
    wait_for(&deck, id, |job| job.state == JobState::Retrying).await;
    let page = deck.get(&format!("/e/{id}"), Some(&cookie)).await;
    assert!(page.text.contains("The storage cannot be reached"), "{}", page.text);
    let job = wait_for(&deck, id, |job| job.state.is_final()).await;
    assert_eq!((job.state, job.attempts, job.starts), (JobState::Succeeded, 3, 3));
    let attempts = deck.store.attempt_list(id).await.expect("attempts");
    assert!(attempts.iter().all(|attempt| attempt.error_code.as_deref() == Some("connection")), "{attempts:?}");
    assert_eq!(attempts.len(), 2);
    assert_eq!(files(&deck).len(), 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recipient_makes_a_failed_export_again() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let worker = Running::start(&deck);
    let link = send(&deck, &user, &form("html", TEXT, "storage_refuses_once")).await;
    let (id, cookie) = open(&deck, &link).await;
    let job = wait_for(&deck, id, |job| job.state.is_final()).await;
    assert_eq!((job.state, job.error_code.as_deref()), (JobState::Failed, Some("permission")));
    let page = deck.get(&format!("/e/{id}"), Some(&cookie)).await;
    assert!(page.text.contains("the storage refused to keep it"), "{}", page.text);
    let reply = deck.post(&format!("/e/{id}/again"), Some(&cookie), &[]).await;
    assert_eq!((reply.status, reply.location()), (StatusCode::SEE_OTHER, &*format!("/e/{id}")));
    let job = wait_for(&deck, id, |job| job.state == JobState::Succeeded).await;
    assert_eq!(job.starts, 2);
    let entries = deck.store.audit_list(&id.to_string(), 10).await.expect("audit");
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (entries[0].actor.as_str(), entries[0].action.as_str()),
        ("recipient, link by The operator", "retry_job")
    );
    worker.stop().await;
}

#[tokio::test]
async fn recipient_cancels_and_lands_on_the_export_made_meanwhile() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let link = send(&deck, &user, &form("pdf", TEXT, "none")).await;
    let (id, cookie) = open(&deck, &link).await;
    let reply = deck.post(&format!("/e/{id}/cancel"), Some(&cookie), &[]).await;
    assert_eq!((reply.status, reply.location()), (StatusCode::SEE_OTHER, &*format!("/e/{id}")));
    assert_eq!(deck.state_of(id).await, JobState::Canceled);
    let page = deck.get(&format!("/e/{id}"), Some(&cookie)).await;
    assert!(page.text.contains("Export canceled"), "{}", page.text);
    let entries = deck.store.audit_list(&id.to_string(), 10).await.expect("audit");
    assert_eq!(
        (entries[0].actor.as_str(), entries[0].action.as_str()),
        ("recipient, link by The operator", "cancel_job")
    );

    // The key is free again, another job takes it; "make it again" leads there.
    let second = send(&deck, &user, &form("pdf", TEXT, "none")).await;
    let (second_id, _) = open(&deck, &second).await;
    assert_ne!(id, second_id);
    let reply = deck.post(&format!("/e/{id}/again"), Some(&cookie), &[]).await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER);
    assert_eq!(open(&deck, reply.location()).await.0, second_id);
    assert_eq!(deck.state_of(id).await, JobState::Canceled);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_sends_cards_until_the_end_and_closes() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let link = send(&deck, &user, &form("html", TEXT, "none")).await;
    let (id, cookie) = open(&deck, &link).await;
    let request = get(&format!("/e/{id}/events"), Some(&cookie)).body(Body::empty()).expect("a request");
    let response = tower::ServiceExt::oneshot(deck.router.clone(), request).await.expect("infallible");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let mut body = response.into_body().into_data_stream();
    let mut text = String::new();
    let read = async |body: &mut axum::body::BodyDataStream, text: &mut String, until: &str| {
        let all = async {
            while !text.contains(until) {
                match body.next().await {
                    Some(part) => text.push_str(&String::from_utf8_lossy(&part.expect("a part"))),
                    None => panic!("the stream ended before {until:?}:\n{text}"),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), all).await.expect("in time");
    };
    read(&mut body, &mut text, "data-state=\"pending\"").await;
    let worker = Running::start(&deck);
    read(&mut body, &mut text, "event: end").await;
    assert!(text.contains("data-state=\"succeeded\"") && text.contains("data-final=\"1\""), "{text}");
    let rest = tokio::time::timeout(Duration::from_secs(10), body.next()).await.expect("closes in time");
    assert!(rest.is_none_or(|part| part.is_ok()), "closed cleanly");
    let versions: Vec<i64> = text
        .split("data-version=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().expect("a number").parse().expect("a number"))
        .collect();
    assert!(versions.is_sorted() && versions.len() >= 2, "{versions:?}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_worker_hands_the_export_back_and_another_finishes_it() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let link = send(&deck, &user, &form("html", TEXT, "slow_down")).await;
    let (id, cookie) = open(&deck, &link).await;
    let worker = Running::start(&deck);
    let job = wait_for(&deck, id, |job| job.state == JobState::Retrying).await;
    worker.stop().await;
    // The provider's wish burns no attempt, and the page says when it goes on.
    assert_eq!((job.attempts, job.error_code.as_deref()), (0, Some("slow_down")));
    let page = deck.get(&format!("/e/{id}"), Some(&cookie)).await;
    assert!(page.text.contains("The service is busy"), "{}", page.text);
    let attempts = deck.store.attempt_list(id).await.expect("attempts");
    assert_eq!(attempts[0].outcome, AttemptOutcome::RateLimited);
    let second = Running::start(&deck);
    let job = wait_for(&deck, id, |job| job.state.is_final()).await;
    assert_eq!((job.state, job.attempts, job.starts), (JobState::Succeeded, 1, 2));
    second.stop().await;
}
