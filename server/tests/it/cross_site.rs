//! Writes that another site's page may have caused are refused before anything looks at them.

use axum::body::Body;
use http::{HeaderValue, Method, Request, StatusCode, header};
use jobdeck::store::UserRole;
use jobdeck_app::server_fns::SERVER_FUNCTIONS;

use crate::support::{Deck, ORIGIN, get, post};

const WRITES: &[&str] =
    &["/sign-in", "/sign-out", "/setup", "/preferences", "/demo", "/e/01a22b0e-9268-773c-b768-db5b8f4d3e27/cancel"];

#[tokio::test]
async fn only_our_own_pages_may_write() {
    let deck = Deck::new().await;
    let id = deck.enqueue().await;
    let admin = deck.signed_in(UserRole::Admin).await;
    let functions = SERVER_FUNCTIONS.iter().map(|(name, _)| format!("/api/fn/{name}"));
    let paths: Vec<String> = WRITES.iter().map(|path| (*path).to_owned()).chain(functions).collect();
    let before = deck.fingerprint().await;
    let mut n_requests = 0;
    for path in &paths {
        for origin in [Some("https://evil.example"), Some("null"), Some("http://deck.example"), None] {
            for site in [Some("cross-site"), Some("same-site"), Some("none"), None] {
                for kind in [
                    "application/x-www-form-urlencoded",
                    "text/plain",
                    "application/json",
                    "multipart/form-data; boundary=x",
                ] {
                    let mut request = Request::builder()
                        .method(Method::POST)
                        .uri(path)
                        .header(header::COOKIE, &admin)
                        .header(header::CONTENT_TYPE, kind)
                        .body(Body::from(format!(
                            "id={id}&back=/jobs&email=a@b&password=x&title=a&markdown=b&format=pdf"
                        )))
                        .unwrap();
                    let headers = request.headers_mut();
                    if let Some(origin) = origin {
                        headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
                    }
                    if let Some(site) = site {
                        headers.insert("sec-fetch-site", HeaderValue::from_static(site));
                    }
                    let reply = deck.send(request).await;
                    assert_eq!(reply.status, StatusCode::FORBIDDEN, "{path} {origin:?} {site:?} {kind}");
                    assert!(!reply.headers.contains_key("access-control-allow-origin"));
                    n_requests += 1;
                }
            }
        }
    }
    assert_eq!(n_requests, paths.len() * 4 * 4 * 4);
    assert_eq!(deck.fingerprint().await, before);
}

#[tokio::test]
async fn a_browser_without_fetch_metadata_writes_by_its_origin() {
    let deck = Deck::new().await;
    let mut request = post("/preferences", None, &[("lang", "zh-CN")]);
    request.headers_mut().remove("sec-fetch-site");
    let reply = deck.send(request).await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER);
    assert!(reply.set_cookie("lang").is_some());
}

#[tokio::test]
async fn only_get_head_and_post_are_known() {
    let deck = Deck::new().await;
    let admin = deck.signed_in(UserRole::Admin).await;
    for path in ["/jobs", "/live", "/api/fn/cancel_job", "/assets/x.js", "/healthz", "/e/x", "/nowhere"] {
        for method in ["PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "CONNECT", "PROPFIND"] {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header(header::COOKIE, &admin)
                .header(header::ORIGIN, ORIGIN)
                .header("sec-fetch-site", "same-origin")
                .body(Body::empty())
                .unwrap();
            let reply = deck.send(request).await;
            assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            assert_eq!(reply.header("allow"), "GET, HEAD, POST");
        }
    }
}

#[tokio::test]
async fn reading_changes_nothing() {
    let deck = Deck::new().await;
    let id = deck.enqueue().await;
    let admin = deck.signed_in(UserRole::Admin).await;
    let before = deck.fingerprint().await;
    let functions = SERVER_FUNCTIONS.iter().map(|(name, _)| format!("/api/fn/{name}?id={id}&back=/jobs&address=&ids="));
    let pages =
        ["/", "/jobs", "/demo", "/sign-in", "/sign-out", "/setup", "/preferences?theme=dark", "/healthz", "/readyz"];
    let paths = pages.iter().map(|path| (*path).to_owned()).chain([format!("/jobs/{id}")]).chain(functions);
    for path in paths {
        for method in [Method::GET, Method::HEAD] {
            let request = get(&path, Some(&admin)).method(method.clone()).body(Body::empty()).unwrap();
            let reply = deck.send(request).await;
            assert!(!reply.status.is_server_error(), "{method} {path}: {}", reply.text);
            assert!(reply.set_cookie("theme").is_none());
        }
    }
    assert_eq!(deck.fingerprint().await, before);
}

#[tokio::test]
async fn the_live_stream_is_refused_to_other_sites() {
    let deck = Deck::new().await;
    let admin = deck.signed_in(UserRole::Admin).await;
    for (name, value) in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let request = Request::builder()
            .uri("/live?counts=1")
            .header(header::COOKIE, &admin)
            .header(name, value)
            .body(Body::empty())
            .unwrap();
        let reply = deck.send(request).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{name}: {value}");
        assert!(!reply.headers.contains_key("access-control-allow-origin"));
    }
}
