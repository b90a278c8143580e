//! Headers that every reply carries, errors included, and an end for panics that is a reply.

use std::panic::AssertUnwindSafe;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};

use crate::state::AppState;

/// For replies that are no pages: nothing of them may load or run anything.
const STRICT_POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");

/// On every reply. `same-origin` for the Referer: it tells other sites nothing, while `no-referrer` would make browsers
/// send `Origin: null` with our own forms, which the origin check refuses where there is no `Sec-Fetch-Site`.
const ALWAYS: [(HeaderName, HeaderValue); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static(
            "accelerometer=(), browsing-topics=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), \
             magnetometer=(), microphone=(), midi=(), payment=(), usb=()",
        ),
    ),
    (HeaderName::from_static("x-robots-tag"), HeaderValue::from_static("noindex, nofollow")),
];

/// Adds what a handler has not set itself. Also writes the request's log line.
pub(super) async fn secure(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let begun = std::time::Instant::now();
    let method = request.method().clone();
    // The pattern, not the path: paths may hold signed links.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.entry(name).or_insert(value);
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(STRICT_POLICY);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if state.config.base_url.is_https() {
        headers
            .insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000; includeSubDomains"));
    }
    let (status, millis) = (response.status().as_u16(), begun.elapsed().as_millis() as u64);
    let route = route.as_ref().map_or("-", MatchedPath::as_str);
    if response.status().is_server_error() {
        tracing::warn!(%method, route, status, millis, "request failed");
    } else {
        tracing::debug!(%method, route, status, millis, "request");
    }
    response
}

/// Answers 500 with an id, found again in the log, where a handler panics.
pub(super) async fn catch_panics(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        // The panic's text is in the log already, by the panic hook.
        Err(_panic) => internal_error("a request handler panicked"),
    }
}

/// A 500 that tells the visitor an id and the log what happened.
pub(super) fn internal_error(what: impl std::fmt::Display) -> Response {
    let id = uuid::Uuid::now_v7().simple().to_string().split_off(24);
    tracing::error!(id, "{what}");
    let text = format!("Something went wrong on our side. In the log it has the number {id}.\n");
    (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
}

/// A 503 for a request that needs a database which does not answer.
pub(super) fn unavailable(error: &jobdeck::StoreError) -> Response {
    tracing::error!(error = error as &dyn std::error::Error, "the database did not answer");
    (
        StatusCode::SERVICE_UNAVAILABLE,
        [(header::RETRY_AFTER, HeaderValue::from_static("1"))],
        "The database does not answer. Try again in a moment.\n",
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::middleware::from_fn;
    use axum::routing::get;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_reply_with_a_number() {
        let app = Router::new()
            .route("/", get(async || -> &'static str { panic!("secret detail") }))
            .layer(from_fn(catch_panics));
        let request = Request::builder().uri("/").body(Body::empty()).unwrap();
        let response = tower::ServiceExt::oneshot(app, request).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let text = to_bytes(response.into_body(), 1000).await.unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        assert!(text.contains("it has the number ") && !text.contains("secret"), "{text}");
    }
}
