//! Headers on every reply, sizes of requests, and files of the browser half.

use std::collections::HashSet;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Method, Request, StatusCode, header};
use jobdeck::store::UserRole;

use crate::support::{Deck, get, post};

#[tokio::test]
async fn every_reply_carries_the_security_headers() {
    let deck = Deck::new().await;
    let admin = deck.signed_in(UserRole::Admin).await;
    let paths = [
        "/jobs",
        "/jobs/x",
        "/nowhere",
        "/sign-in",
        "/setup",
        "/healthz",
        "/readyz",
        "/robots.txt",
        "/assets/nothing.js",
        "/e/nothing",
        "/api/fn/nothing",
        "/live?ids=nonsense",
        "/sign-out",
        "/favicon.ico",
    ];
    let mut requests: Vec<Request<Body>> =
        paths.iter().map(|path| get(path, Some(&admin)).body(Body::empty()).unwrap()).collect();
    requests.extend(paths.iter().map(|path| get(path, None).body(Body::empty()).unwrap()));
    let mut foreign = post("/sign-in", None, &[]);
    foreign.headers_mut().insert("sec-fetch-site", HeaderValue::from_static("cross-site"));
    requests.push(foreign);
    requests.push(post("/sign-in", None, &[("email", &"x".repeat(70_000))]));
    requests.push(Request::builder().method(Method::PUT).uri("/jobs").body(Body::empty()).unwrap());
    for request in requests {
        let what = format!("{} {}", request.method(), request.uri());
        let reply = deck.send(request).await;
        for (name, expected) in [
            ("x-content-type-options", "nosniff"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("strict-transport-security", "max-age=31536000; includeSubDomains"),
        ] {
            assert_eq!(reply.header(name), expected, "{what}");
        }
        assert!(["same-origin", "no-referrer"].contains(&reply.header("referrer-policy")), "{what}");
        assert!(reply.header("permissions-policy").contains("camera=()"), "{what}");
        let policy = reply.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") || policy.contains("default-src 'self'"), "{what}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{what}: {policy}");
        assert!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"), "{what}: {policy}");
        if reply.header("content-type").starts_with("text/") {
            assert!(reply.header("content-type").contains("charset=utf-8"), "{what}: {}", reply.header("content-type"));
        }
        let caching =
            if what.ends_with("/favicon.ico") && reply.status == 200 { "public, max-age=86400" } else { "no-store" };
        assert_eq!(reply.header("cache-control"), caching, "{what}");
    }
}

#[tokio::test]
async fn pages_have_a_policy_with_a_nonce_of_their_own() {
    let deck = Deck::new().await;
    let admin = deck.signed_in(UserRole::Admin).await;
    let mut nonces = HashSet::new();
    for path in ["/jobs", "/demo", "/sign-in", "/setup", "/nowhere"].iter().cycle().take(50) {
        let page = deck.get(path, Some(&admin)).await;
        let policy = page.header("content-security-policy");
        let nonce =
            policy.split_once("'nonce-").and_then(|(_, rest)| rest.split_once('\'')).expect("a nonce").0.to_owned();
        assert!(nonce.len() >= 22, "{nonce} has fewer than 128 bits");
        for part in
            ["'strict-dynamic'", "'wasm-unsafe-eval'", "object-src 'none'", "base-uri 'none'", "form-action 'self'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        let n_scripts = page.text.matches("<script").count();
        assert_eq!(page.text.matches(&format!("nonce=\"{nonce}\"")).count().min(n_scripts), n_scripts, "{path}");
        assert!(!page.text.contains(" style=\""), "{path} has an inline style");
        nonces.insert(nonce);
    }
    assert_eq!(nonces.len(), 50);
}

#[tokio::test]
async fn over_plain_http_there_is_no_transport_policy() {
    let deck = Deck::at("http://deck.example").await;
    assert!(!deck.get("/healthz", None).await.headers.contains_key("strict-transport-security"));
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused() {
    let deck = Deck::new().await;
    let admin = deck.signed_in(UserRole::Admin).await;
    let before = deck.fingerprint().await;
    let large = "x".repeat(3_000_000);
    for path in ["/sign-in", "/sign-out", "/setup", "/preferences", "/api/fn/cancel_job", "/api/fn/nothing"] {
        // Announced, and without saying how much is coming.
        let announced = post(path, Some(&admin), &[("email", &large), ("password", "x")]);
        let (mut parts, body) = post(path, Some(&admin), &[("email", &large), ("password", "x")]).into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        let streamed = Request::from_parts(parts, Body::from_stream(body.into_data_stream()));
        for request in [announced, streamed] {
            assert_eq!(deck.send(request).await.status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
        }
    }
    let huge = "x".repeat(13_000_000);
    let form = [("title", "a"), ("format", "html"), ("markdown", &*huge), ("mishap", "none")];
    assert_eq!(deck.post("/demo", Some(&admin), &form).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(deck.fingerprint().await, before);
}

#[tokio::test]
async fn health_tells_whether_the_database_answers() {
    let deck = Deck::new().await;
    assert_eq!(deck.get("/healthz", None).await.text, "ok\n");
    assert_eq!(deck.get("/readyz", None).await.status, StatusCode::OK);
    deck.store.pool().close().await;
    assert_eq!(deck.get("/healthz", None).await.status, StatusCode::OK);
    assert_eq!(deck.get("/readyz", None).await.status, StatusCode::SERVICE_UNAVAILABLE);
    let cookie = format!("{}={}", crate::support::COOKIE, "x".repeat(43));
    let page = deck.get("/jobs", Some(&cookie)).await;
    assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(page.header("retry-after"), "1");
}

#[tokio::test]
async fn a_request_does_not_wait_as_long_as_the_pool_does_for_a_database_that_is_away() {
    let deck = Deck::new().await;
    let mut held = Vec::new();
    while let Ok(Ok(connection)) = tokio::time::timeout(Duration::from_millis(300), deck.store.pool().acquire()).await {
        held.push(connection);
    }
    let cookie = format!("{}={}", crate::support::COOKIE, "x".repeat(43));
    let page = tokio::time::timeout(Duration::from_secs(8), deck.get("/jobs", Some(&cookie))).await.expect("in time");
    assert_eq!((page.status, page.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "1"));
    // A page whose script asks shows it in its own words.
    let call =
        tokio::time::timeout(Duration::from_secs(8), deck.call("cancel_job", Some(&cookie), &[("id", "x")])).await;
    let call = call.expect("in time");
    assert_eq!((call.status, call.text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "\"NoDatabase\""));
    assert_eq!((call.header("content-type"), call.header("retry-after")), ("application/json", "1"));
    drop(held);
    assert_eq!(deck.get("/jobs", Some(&cookie)).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn assets_are_small_and_kept_for_ever() {
    let deck = Deck::new().await;
    let page = deck.get("/sign-in", None).await;
    // Without a built browser half there is nothing to serve; `cargo xtask test` builds it first.
    let Some((_, rest)) = page.text.split_once("href=\"/assets/app.") else { return };
    let path = format!("/assets/app.{}", rest.split_once('"').unwrap().0);
    let plain = deck.get(&path, None).await;
    assert_eq!(plain.status, StatusCode::OK);
    assert_eq!(plain.header("content-type"), "text/css; charset=utf-8");
    assert_eq!(plain.header("cache-control"), "public, max-age=31536000, immutable");
    let small = get(&path, None).header(header::ACCEPT_ENCODING, "gzip, br").body(Body::empty()).unwrap();
    let small = deck.send(small).await;
    assert_eq!(small.header("content-encoding"), "br");
    assert!(small.text.len() < plain.text.len());
    let known = get(&path, None).header(header::IF_NONE_MATCH, plain.header("etag")).body(Body::empty()).unwrap();
    assert_eq!(deck.send(known).await.status, StatusCode::NOT_MODIFIED);
    for path in [
        "/assets/../manifest.json",
        "/assets/..%2fmanifest.json",
        "/assets/%2e%2e/%2e%2e/Cargo.toml",
        &format!("{path}.br"),
    ] {
        assert_eq!(deck.get(path, None).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}
