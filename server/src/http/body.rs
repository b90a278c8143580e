//! Bounds on what a request may send, and for how long it may take.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use http::{Method, StatusCode, header};
use http_body_util::Limited;

/// For everything that has no limit of its own.
const SMALL: usize = 64 * 1024;
/// For a document to export, with every byte written as `%XX`, and the other fields.
const DOCUMENT: usize = 3 * jobdeck_document::MAX_MARKDOWN_BYTES + SMALL;
/// A document that is too large is read to its end up to here: browsers show a reply only after they have sent all.
const DISCARD: usize = 48 * 1024 * 1024;
/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

enum Arrived {
    Whole(Bytes),
    TooLarge,
    Broken,
}

/// Reads the body up to the route's limit before the handler runs, so that the limit holds for every kind of handler:
/// extractors, server functions, streams.
pub(super) async fn limit(request: Request, next: Next) -> Response {
    let is_document = (request.method(), request.uri().path()) == (&Method::POST, "/demo");
    let (limit, discard) = if is_document { (DOCUMENT, DISCARD) } else { (SMALL, 0) };
    let (parts, body) = request.into_parts();
    let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<usize>().ok());
    let arrived = if announced.is_some_and(|bytes| bytes > limit.max(discard)) {
        Ok(Arrived::TooLarge)
    } else {
        tokio::time::timeout(PATIENCE, read(body, limit, discard)).await
    };
    let body = match arrived {
        Ok(Arrived::Whole(bytes)) => Body::from(bytes),
        // The handler meets the limit while it reads, and says so on a page.
        Ok(Arrived::TooLarge) if is_document => Body::new(Limited::new(Body::from("x"), 0)),
        Ok(Arrived::TooLarge) => {
            let text = format!("That is too large: at most {} KiB are taken here.\n", limit / 1024);
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Ok(Arrived::Broken) => return StatusCode::BAD_REQUEST.into_response(),
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the request took too long to arrive\n").into_response(),
    };
    let mut request = Request::from_parts(parts, body);
    // The limit has been kept; axum's own is smaller than a document.
    DefaultBodyLimit::disable().apply(&mut request);
    next.run(request).await
}

/// Up to `limit` bytes are kept, up to `discard` read.
async fn read(body: Body, limit: usize, discard: usize) -> Arrived {
    let mut body = body.into_data_stream();
    let mut kept = Vec::new();
    let mut n_read = 0;
    while let Some(chunk) = body.next().await {
        let Ok(chunk) = chunk else { return Arrived::Broken };
        n_read += chunk.len();
        if n_read <= limit {
            kept.extend_from_slice(&chunk);
        } else if n_read > discard {
            return Arrived::TooLarge;
        } else {
            kept = Vec::new();
        }
    }
    if n_read > limit { Arrived::TooLarge } else { Arrived::Whole(kept.into()) }
}
