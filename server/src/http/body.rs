//! Bounds on what a request may send, for how long it may take, and how much of documents is held at once.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use http::{HeaderMap, Method, StatusCode, header};
use jobdeck_app::model::{Permission, Role};
use jobdeck_app::ssr::RequestContext;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// For everything that has no limit of its own.
const SMALL: usize = 64 * 1024;
/// For a document to export, with every byte written as `%XX`, and the other fields.
const DOCUMENT: usize = 3 * jobdeck_document::MAX_MARKDOWN_BYTES + SMALL;
/// A document that is not kept is read to its end up to here: browsers show a reply only after they have sent all. Room for
/// 30 MB of text with every byte written as `%XX`.
const DISCARD: usize = 96 * 1024 * 1024;
/// How long a body may take to arrive; of a document, its next part.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a whole document may take to arrive.
const DOCUMENT_PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of documents held at once, while they arrive and until they are answered. With the copies made while a form is
/// read, a few times as much memory.
const ROOM: usize = 4 * DOCUMENT;
/// How long a document may wait for room.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(10);
/// Room is counted in these.
const UNIT: usize = 1024;

/// Why a document was read to its end but not kept. In the request's extensions, with an empty body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotKept {
    TooLarge,
    /// Too many others arrive at the same time.
    NoRoom,
    /// Its sender may not enqueue.
    Forbidden,
}

/// Room for documents, shared by all requests. Cheap to clone.
#[derive(Clone)]
pub(super) struct Room {
    units: Arc<Semaphore>,
    patience: Duration,
}

impl Default for Room {
    fn default() -> Self {
        Self { units: Arc::new(Semaphore::new(ROOM / UNIT)), patience: WAIT_FOR_ROOM }
    }
}

impl Room {
    /// `Some(None)` for a body so small that it needs no place; `None` if there is none in time.
    async fn take(&self, bytes: usize) -> Option<Option<OwnedSemaphorePermit>> {
        if bytes <= SMALL {
            return Some(None);
        }
        let units = u32::try_from(bytes.div_ceil(UNIT)).ok()?;
        let permit = tokio::time::timeout(self.patience, self.units.clone().acquire_many_owned(units)).await;
        Some(Some(permit.ok()?.ok()?))
    }
}

enum Arrived {
    Whole(Bytes),
    TooLarge,
    TooSlow,
    Broken,
}

/// Reads the body up to the route's limit before the handler runs, so that the limit holds for every kind of handler:
/// extractors, server functions, streams.
pub(super) async fn limit(State(room): State<Room>, request: Request, next: Next) -> Response {
    if (request.method(), request.uri().path()) == (&Method::POST, "/demo") {
        return document(&room, request, next).await;
    }
    let (parts, body) = request.into_parts();
    let arrived = if announced(&parts.headers).is_some_and(|bytes| bytes > SMALL) {
        Ok(Arrived::TooLarge)
    } else {
        tokio::time::timeout(PATIENCE, read(body, SMALL, 0)).await
    };
    let bytes = match arrived {
        Ok(Arrived::Whole(bytes)) => bytes,
        Ok(Arrived::TooLarge) => {
            let text = format!("That is too large: at most {} KiB are taken here.\n", SMALL / 1024);
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Ok(Arrived::Broken) => return StatusCode::BAD_REQUEST.into_response(),
        Ok(Arrived::TooSlow) | Err(_) => return too_slow(),
    };
    next.run(Request::from_parts(parts, Body::from(bytes))).await
}

/// Whose sender may not enqueue, or that is too large, is read but not kept, and the handler says so on a page.
async fn document(room: &Room, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let user = parts.extensions.get::<RequestContext>().and_then(|context| context.user.as_ref());
    let may_enqueue = user.is_some_and(|user| Role::from(user.role).allows(Permission::EnqueueJobs));
    let announced = announced(&parts.headers);
    let arrive = async {
        let (not_kept, place) = if !may_enqueue {
            (Some(NotKept::Forbidden), None)
        } else if announced.is_some_and(|bytes| bytes > DOCUMENT) {
            (Some(NotKept::TooLarge), None)
        } else {
            match room.take(announced.unwrap_or(DOCUMENT)).await {
                Some(place) => (None, place),
                None => (Some(NotKept::NoRoom), None),
            }
        };
        let arrived = match not_kept {
            None => read(body, DOCUMENT, DISCARD).await,
            // No browser would show the answer to the rest.
            Some(_) if announced.is_some_and(|bytes| bytes > DISCARD) => Arrived::TooLarge,
            Some(_) => read(body, 0, DISCARD).await,
        };
        (not_kept, place, arrived)
    };
    let Ok((not_kept, place, arrived)) = tokio::time::timeout(DOCUMENT_PATIENCE, arrive).await else {
        return too_slow();
    };
    let (not_kept, bytes) = match (not_kept, arrived) {
        (_, Arrived::Broken) => return StatusCode::BAD_REQUEST.into_response(),
        (_, Arrived::TooSlow) => return too_slow(),
        (None, Arrived::Whole(bytes)) => (None, bytes),
        (None, Arrived::TooLarge) => (Some(NotKept::TooLarge), Bytes::new()),
        (not_kept, _) => (not_kept, Bytes::new()),
    };
    if let Some(not_kept) = not_kept {
        parts.extensions.insert(not_kept);
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    let mut request = Request::from_parts(parts, Body::from(bytes));
    // The limit has been kept; axum's own is smaller than a document.
    DefaultBodyLimit::disable().apply(&mut request);
    let response = next.run(request).await;
    drop(place);
    response
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse().ok())
}

fn too_slow() -> Response {
    (StatusCode::REQUEST_TIMEOUT, "the request took too long to arrive\n").into_response()
}

/// Up to `limit` bytes are kept, up to `discard` read.
async fn read(body: Body, limit: usize, discard: usize) -> Arrived {
    let mut body = body.into_data_stream();
    let mut kept = Vec::new();
    let mut n_read = 0;
    loop {
        let Ok(chunk) = tokio::time::timeout(PATIENCE, body.next()).await else { return Arrived::TooSlow };
        let Some(chunk) = chunk else { break };
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

#[cfg(test)]
mod tests {
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use axum::{Extension, Router};
    use jobdeck::store::{SignInSession, UserRole};
    use tokio::sync::Notify;
    use tower::ServiceExt as _;

    use super::*;

    /// Answers, when told to, what became of a document.
    fn app(role: UserRole, room: Room, answer: Arc<Notify>) -> Router {
        let handler = move |not_kept: Option<Extension<NotKept>>, bytes: Bytes| async move {
            if bytes.len() > SMALL {
                answer.notified().await;
            }
            format!("{:?} {}", not_kept.map(|not_kept| not_kept.0), bytes.len())
        };
        let user = SignInSession { user_id: uuid::Uuid::nil(), email: String::new(), name: String::new(), role };
        Router::new()
            .route("/demo", post(handler))
            .layer(from_fn_with_state(room, limit))
            .layer(Extension(RequestContext { user: Some(user), ..RequestContext::default() }))
    }

    async fn send(app: Router, bytes: usize, is_announced: bool) -> String {
        let mut request = Request::post("/demo").body(Body::from(vec![b'x'; bytes])).unwrap();
        if is_announced {
            request.headers_mut().insert(header::CONTENT_LENGTH, bytes.into());
        }
        let reply = app.oneshot(request).await.unwrap();
        let text = axum::body::to_bytes(reply.into_body(), 1000).await.unwrap();
        String::from_utf8(text.into()).unwrap()
    }

    #[tokio::test]
    async fn documents_wait_for_room_and_are_sent_away_without_it() {
        let room = Room { units: Arc::new(Semaphore::new(DOCUMENT / UNIT)), patience: Duration::from_millis(300) };
        let answer = Arc::new(Notify::new());
        let app = app(UserRole::Operator, room.clone(), answer.clone());
        let first = tokio::spawn(send(app.clone(), DOCUMENT - UNIT, true));
        while room.units.available_permits() > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(send(app.clone(), 2 * SMALL, true).await, "Some(NoRoom) 0");
        assert_eq!(send(app.clone(), 2 * SMALL, false).await, "Some(NoRoom) 0");
        assert_eq!(send(app.clone(), SMALL, true).await, format!("None {SMALL}"), "small ones need none");
        let waiting = tokio::spawn(send(app.clone(), DOCUMENT, true));
        tokio::task::yield_now().await;
        answer.notify_one();
        assert_eq!(first.await.unwrap(), format!("None {}", DOCUMENT - UNIT));
        answer.notify_one();
        assert_eq!(waiting.await.unwrap(), format!("None {DOCUMENT}"));
        assert_eq!(room.units.available_permits(), DOCUMENT / UNIT, "all room comes back");
    }

    #[tokio::test]
    async fn what_is_refused_takes_no_room() {
        let room = Room { units: Arc::new(Semaphore::new(0)), patience: Duration::from_secs(60) };
        let viewer = app(UserRole::Viewer, room.clone(), Arc::default());
        assert_eq!(send(viewer.clone(), 2 * DOCUMENT, true).await, "Some(Forbidden) 0");
        assert_eq!(send(viewer, 2 * DOCUMENT, false).await, "Some(Forbidden) 0");
        let operator = app(UserRole::Operator, room, Arc::default());
        assert_eq!(send(operator, DOCUMENT + 1, true).await, "Some(TooLarge) 0");
    }
}
