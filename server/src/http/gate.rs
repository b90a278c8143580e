//! Who asks, and whether they may come in. Closed unless a path is listed as open.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use jobdeck_app::model::Theme;
use jobdeck_app::ssr::RequestContext;
use jobdeck_app::{AppError, Locale};
use leptos::prelude::FromServerFnError as _;

use super::client::Client;
use super::{headers, origin, redirect};
use crate::auth::{self, cookie, token};
use crate::state::AppState;

/// How a path treats people who are not signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// For everyone, and who asks does not matter.
    Plain,
    /// For everyone; shows who is signed in.
    Open,
    /// For whoever has a signed link, which its handler checks before the database is asked anything, also who is signed in.
    Link,
    /// A server function: answers 401.
    Function,
    /// The live stream: answers 401.
    Stream,
    /// A page: leads to sign-in.
    Closed,
}

/// The list of open paths. Everything else is closed.
fn door(path: &str) -> Door {
    match path {
        "/healthz" | "/readyz" | "/robots.txt" | "/favicon.ico" | "/favicon.svg" => Door::Plain,
        "/sign-in" | "/setup" | "/preferences" => Door::Open,
        "/live" => Door::Stream,
        _ if path.starts_with("/assets/") => Door::Plain,
        _ if path.starts_with("/e/") => Door::Link,
        _ if path.starts_with("/api/") => Door::Function,
        _ => Door::Closed,
    }
}

/// Whether a request shows that someone is there. What pages ask for by themselves, again and again, does not: their streams,
/// what a stream makes them read, and everything of a recipient's page, which needs no sign-in.
fn is_activity(path: &str) -> bool {
    !["/live", "/api/fn/follow_job"].contains(&path) && !path.starts_with("/e/")
}

/// Puts a [`RequestContext`] into the request and turns away who is not signed in.
pub(super) async fn identify(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let door = door(request.uri().path());
    if door == Door::Plain {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let mut context = match in_time(context(&state, &parts, door)).await {
        Ok(context) => context,
        Err(error) => return unavailable(door, &parts, &error),
    };
    if context.user.is_none() {
        match door {
            Door::Closed => return to_sign_in(&parts),
            Door::Function => return signed_out(&state, &parts),
            Door::Stream => return (StatusCode::UNAUTHORIZED, "signed out\n").into_response(),
            Door::Open | Door::Link | Door::Plain => {}
        }
    }
    if door == Door::Stream && origin::is_foreign(&parts.headers, &state.config) {
        return (StatusCode::FORBIDDEN, "this stream is for our own pages\n").into_response();
    }
    if parts.uri.path() == "/setup" {
        context.can_set_up = match in_time(can_set_up(&state, &parts)).await {
            Ok(can) => can,
            Err(error) => return unavailable(door, &parts, &error),
        };
    }
    parts.extensions.insert(context);
    next.run(Request::from_parts(parts, body)).await
}

/// How long a request waits to learn who asks. The pool itself would look for a database that is away for 10 s.
const PATIENCE: Duration = Duration::from_secs(3);

async fn in_time<T>(question: impl Future<Output = Result<T, jobdeck::StoreError>>) -> Result<T, jobdeck::StoreError> {
    tokio::time::timeout(PATIENCE, question).await.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))
}

/// The digest of the request's sign-in cookie, if it has one.
pub(super) fn sign_in_digest(state: &AppState, headers: &HeaderMap) -> Option<[u8; 32]> {
    cookie::find(headers, cookie::sign_in_name(&state.config)).and_then(token::digest)
}

async fn context(state: &AppState, parts: &Parts, door: Door) -> Result<RequestContext, jobdeck::StoreError> {
    let user = match sign_in_digest(state, &parts.headers) {
        Some(digest) if door != Door::Link => {
            state.store.sign_in_find(&digest, auth::IDLE, is_activity(parts.uri.path())).await?
        }
        _ => None,
    };
    let lang = query(parts, "lang");
    let accepted = parts.headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    Ok(RequestContext {
        user,
        locale: Locale::from_request(lang.as_deref(), cookie::find(&parts.headers, "lang"), accepted),
        theme: cookie::find(&parts.headers, "theme").and_then(Theme::from_word),
        address: parts.extensions.get::<Client>().map(|client| client.0.to_string()),
        can_set_up: false,
    })
}

async fn can_set_up(state: &AppState, parts: &Parts) -> Result<bool, jobdeck::StoreError> {
    match query(parts, "token").as_deref().and_then(token::digest) {
        Some(digest) => state.store.setup_token_is_valid(&digest).await,
        None => Ok(false),
    }
}

/// A parameter of the address, decoded.
fn query(parts: &Parts, name: &str) -> Option<String> {
    form_urlencoded::parse(parts.uri.query()?.as_bytes())
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

/// To the sign-in page, and from there back to where someone wanted to go.
fn to_sign_in(parts: &Parts) -> Response {
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    // After a form that came too late people go back to its page, not to its action.
    let wanted =
        if is_read { parts.uri.path_and_query().map(ToString::to_string) } else { referer_path(&parts.headers) };
    match redirect::local_path(wanted.as_deref()) {
        redirect::HOME => redirect::to("/sign-in", &[]),
        next => redirect::to("/sign-in", &[("next", next)]),
    }
}

/// How a server function says that nobody is signed in: to scripts in its own words, to plain forms by the page.
fn signed_out(state: &AppState, parts: &Parts) -> Response {
    if wants_page(parts) {
        return to_sign_in(parts);
    }
    // A cookie that signs nobody in is of no use to anyone.
    let mut reply = HeaderMap::new();
    reply.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if cookie::find(&parts.headers, cookie::sign_in_name(&state.config)).is_some() {
        reply.insert(header::SET_COOKIE, cookie::sign_out(&state.config));
    }
    (StatusCode::UNAUTHORIZED, reply, AppError::SignedOut.ser()).into_response()
}

/// A page that asks a function reads an error of ours, and shows it in its own words; everyone else gets a sentence.
fn unavailable(door: Door, parts: &Parts, error: &jobdeck::StoreError) -> Response {
    let mut reply = headers::unavailable(error);
    if door == Door::Function && !wants_page(parts) {
        reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *reply.body_mut() = AppError::NoDatabase.ser().into();
    }
    reply
}

/// Whether a form without script asks, which goes wherever the answer leads.
fn wants_page(parts: &Parts) -> bool {
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Path and query of the page a form was on. The origin check has removed foreign ones.
fn referer_path(headers: &HeaderMap) -> Option<String> {
    let uri: http::Uri = headers.get(header::REFERER)?.to_str().ok()?.parse().ok()?;
    uri.path_and_query().map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_is_closed() {
        for path in
            ["/", "/jobs", "/jobs/0192", "/demo", "/sign-out", "/sign-in/", "/setup/x", "/e", "/assets", "/nothing"]
        {
            assert_eq!(door(path), Door::Closed, "{path}");
        }
        assert_eq!(door("/api/fn/cancel_job"), Door::Function);
        assert_eq!(door("/live"), Door::Stream);
        assert_eq!(door("/sign-in"), Door::Open);
        assert_eq!(door("/healthz"), Door::Plain);
        assert_eq!(door("/e/x"), Door::Link);
    }

    #[test]
    fn what_pages_do_by_themselves_is_no_activity() {
        for path in ["/live", "/api/fn/follow_job", "/e/x", "/e/x/events", "/e/x/file"] {
            assert!(!is_activity(path), "{path}");
        }
        for path in ["/", "/jobs", "/live/x", "/api/fn/read_job", "/api/fn/retry_job", "/demo", "/e"] {
            assert!(is_activity(path), "{path}");
        }
    }
}
