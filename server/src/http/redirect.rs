//! Where redirects may lead, and what of a path may be logged.

use axum::response::{IntoResponse as _, Redirect, Response};

/// Where people go who ask for nothing in particular.
pub(super) const HOME: &str = "/jobs";

/// The path people return to: `next` if it is a path on this deck, else the home page.
pub(super) fn local_path(next: Option<&str>) -> &str {
    next.filter(|next| is_local(next)).unwrap_or(HOME)
}

fn is_local(next: &str) -> bool {
    // Coming back to these would sign out again, or lead in a circle.
    const NOT_BACK_TO: [&str; 5] = ["/sign-in", "/sign-out", "/setup", "/preferences", "/api/"];
    next.len() <= 2000
        && jobdeck_app::ssr::local_path(next).is_some()
        && !NOT_BACK_TO.iter().any(|path| next.starts_with(path))
}

/// A 303 to one of our own pages.
pub(super) fn to(path: &str, query: &[(&str, &str)]) -> Response {
    let mut location = path.to_owned();
    if !query.is_empty() {
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        pairs.extend_pairs(query);
        location.push('?');
        location.push_str(&pairs.finish());
    }
    Redirect::to(&location).into_response()
}

/// A path without what must not be in a log: the token of a signed link.
pub(super) fn loggable(path: &str) -> &str {
    if path.starts_with("/e/") { "/e/…" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_stays_on_this_deck() {
        for next in ["/jobs", "/jobs?state=failed&q=%E4%B8%AD", "/jobs/0192", "/demo"] {
            assert_eq!(local_path(Some(next)), next);
        }
        for next in [
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "evil",
            "",
            "/\t/evil",
            "/jobs\r\nSet-Cookie: a=b",
            "/jobs\\..",
            "/sign-out",
            "/sign-in?next=/jobs",
            "javascript:alert(1)",
            "/中",
        ] {
            assert_eq!(local_path(Some(next)), HOME, "{next:?}");
        }
        assert_eq!(local_path(None), HOME);
    }

    #[test]
    fn queries_are_encoded() {
        let response = to("/sign-in", &[("next", "/jobs?a=b&c=d")]);
        assert_eq!(response.headers()["location"], "/sign-in?next=%2Fjobs%3Fa%3Db%26c%3Dd");
    }
}
