//! The web half: routes, and the layers every request passes.
//!
//! From the outside in: headers, the client's address, panics, then method and origin, then who asks (closed unless listed as open), then the
//! size of the body, then the route. Pages and server functions are the app's; what is here works without script.

pub(crate) mod assets;
mod body;
mod client;
pub(crate) mod export;
mod gate;
mod headers;
mod health;
mod job_json;
mod live;
mod origin;
mod pages;
pub(crate) mod places;
mod preferences;
mod redirect;
pub(crate) mod serve;
mod sign_in;

pub use serve::serve;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Redirect;
use axum::routing::{get, post};

use crate::state::AppState;

/// Every route of the deck, ready to be served or mounted.
pub fn router(state: AppState) -> Router {
    // Of the layers the last one added is the first to see a request.
    Router::new()
        .route("/", get(|| async { Redirect::to("/jobs") }))
        .route("/live", get(live::stream))
        .route("/jobs/{id}/payload.json", get(job_json::payload))
        .route("/jobs/{id}/result.json", get(job_json::result))
        .route("/sign-in", post(sign_in::sign_in))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/setup", post(sign_in::set_up))
        .route("/preferences", post(preferences::keep))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/assets/{*path}", get(assets::asset))
        .route("/favicon.ico", get(assets::favicon))
        .route("/favicon.svg", get(assets::favicon))
        .route("/robots.txt", get(assets::robots))
        .merge(export::routes())
        .merge(pages::routes(&state))
        .fallback(pages::not_found)
        .layer(from_fn_with_state(body::Room::default(), body::limit))
        .layer(from_fn_with_state(state.clone(), gate::identify))
        .layer(from_fn_with_state(state.clone(), origin::check))
        .layer(from_fn(headers::catch_panics))
        .layer(from_fn_with_state(client::Clients::new(state.config.clone()), client::identify))
        .layer(from_fn_with_state(state.clone(), headers::secure))
        .with_state(state)
}
