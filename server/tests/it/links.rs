//! What a signed link allows, for how long, and what becomes of an export whose file is gone.

use std::time::{Duration, Instant};

use axum::body::Body;
use futures_util::StreamExt as _;
use http::StatusCode;
use jobdeck::store::UserRole;
use jobdeck::{JobId, JobState};
use jobdeck_app::model::JobView;

use crate::export::{EXPORT_COOKIE, Running, TEXT, bytes, expired_token, files, form, n_jobs, open, send, wait_for};
use crate::support::{Deck, Reply, get};

/// The link that a job's page shows to someone.
async fn link_on_page(deck: &Deck, id: JobId, cookie: &str) -> String {
    let reply = deck.call("read_job", Some(cookie), &[("id", &id.to_string())]).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let view: JobView = serde_json::from_str(&reply.text).expect("a job");
    view.export_href.expect("a link")
}

/// Whether the page offers these.
fn offers(page: &Reply) -> (bool, bool) {
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    (page.text.contains("data-k=\"cancel\""), page.text.contains("data-k=\"again\""))
}

#[tokio::test]
async fn link_of_the_job_page_allows_what_the_role_allows() {
    let deck = Deck::new().await;
    let operator = deck.signed_in(UserRole::Operator).await;
    let (viewer, admin) = (deck.signed_in(UserRole::Viewer).await, deck.signed_in(UserRole::Admin).await);
    let (id, _) = open(&deck, &send(&deck, &operator, &form("pdf", TEXT, "none")).await).await;
    let mut links = Vec::new();
    for user in [&viewer, &operator, &admin] {
        let (linked, cookie) = open(&deck, &link_on_page(&deck, id, user).await).await;
        assert_eq!(linked, id);
        links.push(cookie);
    }
    let (page, cancel, again) = (format!("/e/{id}"), format!("/e/{id}/cancel"), format!("/e/{id}/again"));
    for (cookie, may_cancel) in links.iter().zip([false, false, true]) {
        assert_eq!(offers(&deck.get(&page, Some(cookie)).await).0, may_cancel);
    }
    for cookie in &links[..2] {
        assert_eq!(deck.post(&cancel, Some(cookie), &[]).await.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(deck.state_of(id).await, JobState::Pending);
    assert_eq!(deck.audit().await, Vec::<String>::new());

    // An admin who is signed in acts under their own name, whoever else has the link under that of who gave it.
    let signed_in = format!("{}; {admin}", links[2]);
    assert_eq!(deck.post(&cancel, Some(&signed_in), &[]).await.status, StatusCode::SEE_OTHER);
    assert_eq!(deck.state_of(id).await, JobState::Canceled);
    for (cookie, may_retry) in links.iter().zip([false, true, true]) {
        assert_eq!(offers(&deck.get(&page, Some(cookie)).await).1, may_retry);
    }
    assert_eq!(deck.post(&again, Some(&links[0]), &[]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(deck.state_of(id).await, JobState::Canceled);
    assert_eq!(deck.post(&again, Some(&links[1]), &[]).await.status, StatusCode::SEE_OTHER);
    assert_eq!(deck.state_of(id).await, JobState::Pending);
    let entries = deck.store.audit_list(&id.to_string(), 10).await.expect("audit");
    let who: Vec<_> = entries.iter().map(|entry| (entry.actor.as_str(), entry.action.as_str())).collect();
    assert_eq!(who, [("recipient, link by The operator", "retry_job"), ("The admin", "cancel_job")]);
    let users: Vec<bool> = sqlx::query_scalar("select user_id is not null from jobdeck.audit_log order by id")
        .fetch_all(deck.store.pool())
        .await
        .expect("audit log");
    assert_eq!(users, [true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_on_the_export_of_another_person_is_to_be_seen_only() {
    let deck = Deck::new().await;
    let (maker, other) = (deck.signed_in(UserRole::Operator).await, deck.signed_in(UserRole::Admin).await);
    let (id, _) = open(&deck, &send(&deck, &maker, &form("html", TEXT, "none")).await).await;
    let landed = send(&deck, &other, &form("html", TEXT, "none")).await;
    assert!(landed.ends_with("?again=1"), "{landed}");
    let (same, see_only) = open(&deck, &landed).await;
    assert_eq!(same, id);
    assert_eq!(offers(&deck.get(&format!("/e/{id}"), Some(&see_only)).await), (false, false));
    for action in ["cancel", "again"] {
        let reply = deck.post(&format!("/e/{id}/{action}"), Some(&see_only), &[]).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{action}");
    }
    assert_eq!(deck.state_of(id).await, JobState::Pending);
    // Who had it made gets there with all rights, however often.
    let (same, full) = open(&deck, &send(&deck, &maker, &form("html", TEXT, "none")).await).await;
    assert_eq!(same, id);
    assert!(offers(&deck.get(&format!("/e/{id}"), Some(&full)).await).0);
    // A duplicate gets the existing file, as the type's policy says.
    let worker = Running::start(&deck);
    wait_for(&deck, id, |job| job.state == JobState::Succeeded).await;
    worker.stop().await;
    let (parts, content) = bytes(&deck, &format!("/e/{id}/file"), &see_only).await;
    assert_eq!((parts.status, content.is_empty()), (StatusCode::OK, false));
    assert_eq!(offers(&deck.get(&format!("/e/{id}"), Some(&see_only)).await), (false, false));
    assert_eq!(n_jobs(&deck).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn export_whose_file_is_gone_is_made_again_once() {
    let deck = Deck::new().await;
    let maker = deck.signed_in(UserRole::Operator).await;
    let worker = Running::start(&deck);
    let (old, cookie) = open(&deck, &send(&deck, &maker, &form("html", TEXT, "none")).await).await;
    wait_for(&deck, old, |job| job.state == JobState::Succeeded).await;
    let (page, file, again) = (format!("/e/{old}"), format!("/e/{old}/file"), format!("/e/{old}/again"));
    // While it is there, there is nothing to do.
    let reply = deck.post(&again, Some(&cookie), &[]).await;
    assert_eq!((reply.location(), n_jobs(&deck).await), (&*format!("{page}?again=1"), 1));

    std::fs::remove_file(&files(&deck)[0]).expect("removed");
    let gone = deck.get(&file, Some(&cookie)).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    assert!(gone.text.contains(&format!("action=\"{again}\"")), "{}", gone.text);
    // Two presses at once are one export.
    let (one, two) = tokio::join!(deck.post(&again, Some(&cookie), &[]), deck.post(&again, Some(&cookie), &[]));
    let ((new, new_cookie), (same, _)) = (open(&deck, one.location()).await, open(&deck, two.location()).await);
    assert_eq!((new, n_jobs(&deck).await), (same, 2));
    assert_ne!(new, old);
    let job = wait_for(&deck, new, |job| job.state == JobState::Succeeded).await;
    assert_eq!((job.owner.as_deref(), job.starts), (Some("operator@example.com"), 1));
    let (parts, content) = bytes(&deck, &format!("/e/{new}/file"), &new_cookie).await;
    assert_eq!(parts.status, StatusCode::OK);
    assert!(content.starts_with(b"<!"), "the file is there");

    // The key is the new job's: whoever asks, and whoever comes by the old link, lands there.
    let (landed, _) = open(&deck, &send(&deck, &maker, &form("html", TEXT, "none")).await).await;
    assert_eq!(landed, new);
    let moved = deck.get(&page, Some(&cookie)).await;
    assert_eq!(moved.status, StatusCode::SEE_OTHER, "{}", moved.text);
    assert_eq!(open(&deck, moved.location()).await.0, new);
    let (rerun_of, holder): (Option<uuid::Uuid>, uuid::Uuid) = sqlx::query_as(
        "select j.rerun_of, k.job_id from jobdeck.jobs j
         join jobdeck.idempotency_keys k on k.type = j.type and k.key = j.idempotency_key where j.id = $1",
    )
    .bind(new.0)
    .fetch_one(deck.store.pool())
    .await
    .expect("both jobs have the key");
    assert_eq!((rerun_of, holder), (Some(old.0), new.0));
    assert_eq!(deck.state_of(old).await, JobState::Succeeded);
    let entries = deck.store.audit_list(&old.to_string(), 10).await.expect("audit");
    assert_eq!(entries.len(), 1);
    let entry = (entries[0].actor.as_str(), entries[0].action.as_str(), entries[0].after.clone());
    let rerun = serde_json::json!({"rerun": new});
    assert_eq!(entry, ("recipient, link by The operator", "rerun_job", Some(rerun)));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_for_an_export_whose_file_is_gone_has_it_made_for_the_one_who_asks() {
    let deck = Deck::new().await;
    let (maker, other) = (deck.signed_in(UserRole::Operator).await, deck.signed_in(UserRole::Admin).await);
    let worker = Running::start(&deck);
    let (old, _) = open(&deck, &send(&deck, &maker, &form("html", TEXT, "none")).await).await;
    wait_for(&deck, old, |job| job.state == JobState::Succeeded).await;
    worker.stop().await;
    std::fs::remove_file(&files(&deck)[0]).expect("removed");
    let (new, cookie) = open(&deck, &send(&deck, &other, &form("html", TEXT, "none")).await).await;
    assert_ne!(new, old);
    assert!(offers(&deck.get(&format!("/e/{new}"), Some(&cookie)).await).0, "it is theirs");
    let job = deck.store.job_get(new).await.expect("read").expect("there");
    assert_eq!((job.state, job.owner.as_deref()), (JobState::Pending, Some("admin@example.com")));
}

#[tokio::test]
async fn retired_key_stops_its_links_within_ten_seconds_open_streams_included() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let (id, cookie) = open(&deck, &send(&deck, &user, &form("pdf", TEXT, "none")).await).await;
    let (page, link) = (format!("/e/{id}"), cookie.replace(&format!("{EXPORT_COOKIE}="), "/e/"));
    let request = get(&format!("{page}/events"), Some(&cookie)).body(Body::empty()).expect("a request");
    let response = tower::ServiceExt::oneshot(deck.router.clone(), request).await.expect("infallible");
    let mut events = response.into_body().into_data_stream();
    sqlx::query("update jobdeck.link_keys set retired_at = now()").execute(deck.store.pool()).await.expect("retired");
    let begun = Instant::now();
    let in_time = Duration::from_secs(10);
    tokio::time::timeout(in_time, async { while events.next().await.is_some() {} }).await.expect("the stream ends");
    while deck.get(&page, Some(&cookie)).await.status != StatusCode::NOT_FOUND {
        assert!(begun.elapsed() < in_time, "the link still works");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(deck.get(&link, None).await.status, StatusCode::NOT_FOUND);
    // Another key has taken its place.
    let (same, cookie) = open(&deck, &send(&deck, &user, &form("pdf", TEXT, "none")).await).await;
    assert_eq!((same, deck.get(&page, Some(&cookie)).await.status), (id, StatusCode::OK));
}

#[tokio::test]
async fn links_that_do_not_work_are_answered_without_the_database() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let (id, cookie) = open(&deck, &send(&deck, &user, &form("pdf", TEXT, "none")).await).await;
    let (other, _) = open(&deck, &send(&deck, &user, &form("html", TEXT, "none")).await).await;
    let expired = format!("{EXPORT_COOKIE}={}", expired_token(&deck, id).await);
    let altered = {
        let mut bytes = cookie.clone().into_bytes();
        let place = bytes.len() - 20;
        bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).expect("ASCII")
    };
    let forged = format!("{EXPORT_COOKIE}={}", "A".repeat(103));
    deck.store.pool().close().await;
    // What works needs it: the pool is closed indeed.
    assert_eq!(deck.get(&format!("/e/{id}"), Some(&cookie)).await.status, StatusCode::SERVICE_UNAVAILABLE);
    let cases = [
        (id, &altered, StatusCode::NOT_FOUND),
        (id, &forged, StatusCode::NOT_FOUND),
        (other, &cookie, StatusCode::NOT_FOUND),
        (id, &expired, StatusCode::GONE),
    ];
    for (id, link, status) in cases {
        // Also when the browser sends a cookie that could sign someone in.
        let cookies = format!("{link}; {user}");
        for path in ["", "/events", "/file"] {
            let reply = deck.get(&format!("/e/{id}{path}"), Some(&cookies)).await;
            assert_eq!(reply.status, status, "GET {path} with {link}");
        }
        for action in ["cancel", "again"] {
            let reply = deck.post(&format!("/e/{id}/{action}"), Some(&cookies), &[]).await;
            assert_eq!(reply.status, status, "POST {action} with {link}");
        }
        if *link != cookie {
            let reply = deck.get(&link.replace(&format!("{EXPORT_COOKIE}="), "/e/"), Some(&user)).await;
            assert_eq!(reply.status, status, "{link}");
        }
    }
}

#[tokio::test]
async fn stream_reads_the_payload_once() {
    let deck = Deck::new().await;
    let user = deck.signed_in(UserRole::Operator).await;
    let text = format!("# Long\n\n{}", "words ".repeat(500_000));
    let (id, cookie) = open(&deck, &send(&deck, &user, &form("pdf", &text, "none")).await).await;
    let request = get(&format!("/e/{id}/events"), Some(&cookie)).body(Body::empty()).expect("a request");
    let response = tower::ServiceExt::oneshot(deck.router.clone(), request).await.expect("infallible");
    let mut events = response.into_body().into_data_stream();
    let mut text = String::new();
    let mut read_until = async |wanted: &str| {
        let all = async {
            while !text.contains(wanted) {
                let part = events.next().await.expect("the stream goes on").expect("a part");
                text.push_str(&String::from_utf8_lossy(&part));
            }
        };
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("in time");
        std::mem::take(&mut text)
    };
    let first = read_until("data-state=\"pending\"").await;
    assert!(first.contains("Q3 笔记"), "{first}");
    // Whoever asks for the payload from now on fails.
    for change in [
        "alter table jobdeck.jobs rename column payload to payload_nobody_reads",
        "update jobdeck.jobs set run_after = now() + interval '1 hour', version = version + 1",
    ] {
        sqlx::query(change).execute(deck.store.pool()).await.expect("changed");
    }
    let version: i64 = sqlx::query_scalar("select version from jobdeck.jobs where id = $1")
        .bind(id.0)
        .fetch_one(deck.store.pool())
        .await
        .expect("a version");
    let second = read_until(&format!("data-version=\"{version}\"")).await;
    assert!(second.contains("Q3 笔记") && second.contains("PDF"), "{second}");
}
