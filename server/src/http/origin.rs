//! Refuses writes that another site's page may have caused.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use crate::config::HttpConfig;
use crate::state::AppState;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Lets GET and HEAD pass, POST only from our own pages, and nothing else.
pub(super) async fn check(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read && request.method() != Method::POST {
        let allow = [(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST"))];
        return (StatusCode::METHOD_NOT_ALLOWED, allow, "method not allowed\n").into_response();
    }
    if !is_read && !is_same_origin(request.headers(), &state.config) {
        tracing::warn!(path = %super::redirect::loggable(request.uri().path()), "refused a write from another origin");
        return (StatusCode::FORBIDDEN, "This form came from another site, so it was refused.\n").into_response();
    }
    // Server functions send plain forms back to the Referer: it must not lead elsewhere.
    if let Some(referer) = request.headers().get(header::REFERER)
        && !referer.to_str().is_ok_and(|referer| is_ours(referer, request.headers(), &state.config))
    {
        request.headers_mut().remove(header::REFERER);
    }
    next.run(request).await
}

/// Whether a browser says that this request comes from one of our pages. `Sec-Fetch-Site` cannot be set by scripts;
/// browsers leave it out over plain http to other machines, and then `Origin` must be ours.
fn is_same_origin(headers: &HeaderMap, config: &HttpConfig) -> bool {
    match (single(headers, &SEC_FETCH_SITE), single(headers, &header::ORIGIN)) {
        (Some(site), _) => site == "same-origin",
        (None, Some(_)) if headers.contains_key(SEC_FETCH_SITE) => false,
        (None, Some(origin)) => is_origin_ours(origin, headers, config),
        (None, None) => false,
    }
}

/// Whether a browser says that this request comes from another site's page.
pub(super) fn is_foreign(headers: &HeaderMap, config: &HttpConfig) -> bool {
    let other_site = headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "same-origin" && site != "none");
    let other_origin = headers
        .get_all(header::ORIGIN)
        .iter()
        .any(|origin| !origin.to_str().is_ok_and(|origin| is_origin_ours(origin, headers, config)));
    other_site || other_origin
}

/// Without a base URL any name that leads here is ours: the browser's `Host` and `Origin` must then agree.
fn is_origin_ours(origin: &str, headers: &HeaderMap, config: &HttpConfig) -> bool {
    if config.base_url_is_set || origin == config.base_url.as_str() {
        return origin == config.base_url.as_str();
    }
    let host = single(headers, &header::HOST).filter(|host| !host.is_empty());
    let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.is_some() && named == host
}

/// Whether a URL lies below our own origin.
fn is_ours(url: &str, headers: &HeaderMap, config: &HttpConfig) -> bool {
    let scheme_end = url.find("://").map_or(0, |at| at + 3);
    let origin_end = url[scheme_end..].find(['/', '?', '#']).map_or(url.len(), |at| scheme_end + at);
    is_origin_ours(&url[..origin_end], headers, config)
}

/// The only value of a header; none if it came twice or is not text.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(base_url: &str, base_url_is_set: bool) -> HttpConfig {
        HttpConfig {
            base_url: base_url.parse().unwrap(),
            base_url_is_set,
            environment: "test".to_owned(),
            trusted_proxies: Default::default(),
            connections: Default::default(),
        }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn only_our_own_pages_may_write() {
        let set = config("https://deck.example", true);
        let unset = config("http://127.0.0.1:3700", false);
        for (config, given, expected) in [
            (&set, headers(&[("sec-fetch-site", "same-origin")]), true),
            (&set, headers(&[("sec-fetch-site", "same-origin"), ("origin", "null")]), true),
            (&set, headers(&[("sec-fetch-site", "same-site"), ("origin", "https://deck.example")]), false),
            (&set, headers(&[("sec-fetch-site", "cross-site"), ("origin", "https://deck.example")]), false),
            (&set, headers(&[("sec-fetch-site", "none"), ("origin", "https://deck.example")]), false),
            (&set, headers(&[("origin", "https://deck.example")]), true),
            (&set, headers(&[("origin", "https://deck.example.evil")]), false),
            (&set, headers(&[("origin", "http://deck.example")]), false),
            (&set, headers(&[("origin", "https://evil"), ("host", "evil")]), false),
            (&set, headers(&[("origin", "null")]), false),
            (&set, headers(&[]), false),
            (&unset, headers(&[("origin", "http://127.0.0.1:3700")]), true),
            (&unset, headers(&[("origin", "http://box:3700"), ("host", "box:3700")]), true),
            (&unset, headers(&[("origin", "http://evil"), ("host", "box:3700")]), false),
            (&unset, headers(&[("origin", "http://box:3700")]), false),
        ] {
            assert_eq!(is_same_origin(&given, config), expected, "{given:?}");
        }
        let mut twice = headers(&[("sec-fetch-site", "same-origin"), ("origin", "https://deck.example")]);
        twice.append("sec-fetch-site", HeaderValue::from_static("cross-site"));
        assert!(!is_same_origin(&twice, &set));
    }

    #[test]
    fn referers_are_compared_by_origin() {
        let set = config("https://deck.example", true);
        let none = HeaderMap::new();
        assert!(is_ours("https://deck.example/jobs?q=1", &none, &set));
        assert!(is_ours("https://deck.example", &none, &set));
        assert!(!is_ours("https://deck.example.evil/jobs", &none, &set));
        assert!(!is_ours("https://deck.example@evil/jobs", &none, &set));
        assert!(!is_ours("//evil/jobs", &none, &set));
    }
}
