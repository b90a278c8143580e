//! Pages and server functions of the app.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::StatusCode;
use http::request::Parts;
use jobdeck_app::ssr::{AppContext, RequestContext};
use jobdeck_app::{App, shell};
use leptos::prelude::use_context;
use leptos_axum::{LeptosRoutes as _, generate_route_list};

use crate::state::AppState;

/// A route for each page, and one for all server functions.
pub(super) fn routes(state: &AppState) -> Router<AppState> {
    let functions = {
        let context = context(state.app.clone());
        post(move |request: Request<Body>| leptos_axum::handle_server_fns_with_context(context, request))
    };
    Router::new().route("/api/fn/{*fn_name}", functions).leptos_routes_with_context(
        state,
        generate_route_list(App),
        context(state.app.clone()),
        shell,
    )
}

/// Draws the app's own page for addresses that lead nowhere.
pub(super) async fn not_found(State(state): State<AppState>, request: Request<Body>) -> Response {
    let page = leptos_axum::render_app_async_with_context(context(state.app), shell);
    let mut response = page(request).await.into_response();
    if response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

/// What pages and server functions find in their context.
fn context(app: AppContext) -> impl Fn() + Clone + Send + Sync + 'static {
    move || {
        let request = use_context::<Parts>().and_then(|parts| parts.extensions.get::<RequestContext>().cloned());
        jobdeck_app::ssr::provide(app.clone(), request.unwrap_or_default());
    }
}
