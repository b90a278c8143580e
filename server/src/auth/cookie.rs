//! The sign-in cookie and the two that keep preferences.

use std::time::Duration;

use cookie::{Cookie, SameSite};
use http::{HeaderMap, HeaderValue, header};

use crate::config::HttpConfig;

/// The sign-in cookie's name. The prefix `__Host-` makes browsers refuse it from anyone but this host over TLS.
pub(crate) fn sign_in_name(config: &HttpConfig) -> &'static str {
    if config.base_url.is_https() { "__Host-jobdeck" } else { "jobdeck" }
}

/// `Set-Cookie` that signs in. It ends with the browser's session; the server ends it earlier.
pub(crate) fn sign_in(config: &HttpConfig, token: &str) -> HeaderValue {
    let cookie = Cookie::build((sign_in_name(config), token))
        .path("/")
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(config.base_url.is_https());
    value(&cookie.build())
}

/// `Set-Cookie` that removes the sign-in cookie.
pub(crate) fn sign_out(config: &HttpConfig) -> HeaderValue {
    let cookie = Cookie::build((sign_in_name(config), ""))
        .path("/")
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(config.base_url.is_https())
        .max_age(cookie::time::Duration::ZERO);
    value(&cookie.build())
}

/// `Set-Cookie` that keeps a preference for `life`; zero forgets it. `text` must be one of our own fixed words.
pub(crate) fn preference(config: &HttpConfig, name: &'static str, text: &'static str, life: Duration) -> HeaderValue {
    let cookie = Cookie::build((name, text))
        .path("/")
        .same_site(SameSite::Lax)
        .secure(config.base_url.is_https())
        .max_age(cookie::time::Duration::seconds(life.as_secs().try_into().unwrap_or(i64::MAX)));
    value(&cookie.build())
}

/// The value of a cookie in a request. The first one counts.
pub(crate) fn find<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

fn value(cookie: &Cookie<'_>) -> HeaderValue {
    HeaderValue::from_str(&cookie.to_string()).expect("our own names, tokens and words are plain ASCII")
}
