//! Language and colour scheme, kept in two cookies of the browser. Works signed out as well.

use std::time::Duration;

use axum::Form;
use axum::extract::State;
use axum::response::Response;
use http::header;
use jobdeck_app::Locale;
use jobdeck_app::model::Theme;
use serde::Deserialize;

use super::redirect;
use crate::auth::cookie;
use crate::state::AppState;

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// `POST /preferences`. A field that is missing keeps what was.
#[derive(Deserialize)]
pub(super) struct Preferences {
    /// `en` or `zh-CN`.
    lang: Option<String>,
    /// `light`, `dark`, or anything else to follow the system.
    theme: Option<String>,
    next: Option<String>,
}

/// Keeps what the form says and goes back to `next`.
pub(super) async fn keep(State(state): State<AppState>, Form(form): Form<Preferences>) -> Response {
    let next = form.next.as_deref().filter(|next| ["/sign-in", "/setup"].iter().any(|open| next.starts_with(open)));
    let next = match next {
        // Signed out there are only these two to come back to.
        Some(next) => jobdeck_app::ssr::local_path(next).unwrap_or(redirect::HOME),
        None => redirect::local_path(form.next.as_deref()),
    };
    let mut response = redirect::to(next, &[]);
    let headers = response.headers_mut();
    if let Some(locale) = form.lang.as_deref().and_then(Locale::from_tag) {
        headers.append(header::SET_COOKIE, cookie::preference(&state.config, "lang", locale.tag(), YEAR));
    }
    match form.theme.as_deref().map(Theme::from_word) {
        Some(Some(theme)) => {
            headers.append(header::SET_COOKIE, cookie::preference(&state.config, "theme", theme.as_str(), YEAR));
        }
        Some(None) => {
            headers.append(header::SET_COOKIE, cookie::preference(&state.config, "theme", "", Duration::ZERO));
        }
        None => {}
    }
    response
}
