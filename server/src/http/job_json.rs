//! A job's payload or result as a file: whole, with all digits of its numbers, hidden values replaced as on its page.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};
use jobdeck::JobId;
use jobdeck::store::JobJson;
use jobdeck_app::model::{Permission, Role};
use jobdeck_app::ssr::RequestContext;

use super::headers;
use crate::state::AppState;

/// `GET /jobs/<job id>/payload.json`
pub(super) async fn payload(
    State(state): State<AppState>,
    Extension(context): Extension<RequestContext>,
    Path(id): Path<String>,
) -> Response {
    send(&state, &context, &id, JobJson::Payload).await
}

/// `GET /jobs/<job id>/result.json`
pub(super) async fn result(
    State(state): State<AppState>,
    Extension(context): Extension<RequestContext>,
    Path(id): Path<String>,
) -> Response {
    send(&state, &context, &id, JobJson::Result).await
}

async fn send(state: &AppState, context: &RequestContext, id: &str, which: JobJson) -> Response {
    let Some(user) = &context.user else { return StatusCode::UNAUTHORIZED.into_response() };
    let (action, name) = match which {
        JobJson::Payload => ("read_payload", "payload"),
        JobJson::Result => ("read_result", "result"),
    };
    if !Role::from(user.role).allows(Permission::ViewJobs) {
        return match state.store.audit_refused(&context.actor(), action, Some(id)).await {
            Ok(()) => (StatusCode::FORBIDDEN, "your role may not see jobs\n").into_response(),
            Err(error) => headers::unavailable(&error),
        };
    }
    let gone = || (StatusCode::NOT_FOUND, "there is no such value\n").into_response();
    let Ok(id) = id.parse::<JobId>() else { return gone() };
    let text = match state.store.job_json(id, which).await {
        Ok(Some(text)) => text,
        Ok(None) => return gone(),
        Err(error) => return headers::unavailable(&error),
    };
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // An id and a word of ours: plain ASCII.
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"job-{id}-{name}.json\"")) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}
