//! For load balancers and people with `curl`.

use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use jobdeck::Store;

/// The process answers.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// The database answers too, and its schema is ours.
pub(super) async fn ready(State(store): State<Store>) -> (StatusCode, &'static str) {
    match tokio::time::timeout(Duration::from_secs(2), store.is_ready()).await {
        Ok(Ok(true)) => (StatusCode::OK, "ready\n"),
        Ok(Ok(false)) => (StatusCode::SERVICE_UNAVAILABLE, "schema out of date\n"),
        Ok(Err(_)) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "database does not answer\n"),
    }
}
