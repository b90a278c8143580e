//! The browser half, icons and style sheet, from inside the binary.
//!
//! Built by `cargo xtask`: every file name carries its content's hash, so browsers may keep it for ever, and the larger
//! ones are there compressed as well. `manifest.json` maps plain names to hashed ones. A debug build reads the folder.

use std::collections::HashMap;

use axum::extract::{Path, Request};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use jobdeck_app::ssr::Assets;
use rust_embed::{Embed, EmbeddedFile};

#[derive(Embed)]
#[folder = "../target/site"]
#[allow_missing = true]
struct Site;

const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

/// Plain names and the paths they have in this build.
fn manifest() -> HashMap<String, String> {
    let made = Site::get("manifest.json").and_then(|file| serde_json::from_slice(&file.data).ok());
    made.unwrap_or_else(|| by_cargo_leptos(|path| Site::get(path).is_some()))
}

/// The same for what `cargo leptos` leaves in the folder: names without hashes by `output-name` and `site-pkg-dir`, and `public` as
/// it is.
fn by_cargo_leptos(is_there: impl Fn(&str) -> bool) -> HashMap<String, String> {
    [
        ("jobdeck.js", "assets/jobdeck.js"),
        // The name it had before version 0.2.30; with both, the newer one is read.
        ("jobdeck.wasm", "assets/jobdeck_bg.wasm"),
        ("jobdeck.wasm", "assets/jobdeck.wasm"),
        ("app.css", "assets/jobdeck.css"),
        ("progress.js", "progress.js"),
        ("favicon.svg", "favicon.svg"),
        ("favicon.ico", "favicon.ico"),
    ]
    .into_iter()
    .filter(|(_, path)| is_there(path))
    .map(|(name, path)| (name.to_owned(), path.to_owned()))
    .collect()
}

/// The addresses pages put into their head.
pub(crate) fn from_manifest() -> Assets {
    let manifest = manifest();
    if manifest.is_empty() {
        tracing::warn!("the browser half is not built, pages have no script or style: run `cargo xtask build`");
    }
    // What was not built has no address.
    let url = |name: &str| {
        let path = manifest.get(name).map(|path| path.strip_prefix("assets/").unwrap_or(path));
        path.map_or_else(|| "".into(), |path| format!("/assets/{path}").into())
    };
    Assets {
        js: url("jobdeck.js"),
        wasm: url("jobdeck.wasm"),
        css: url("app.css"),
        progress_js: url("progress.js"),
        icon: url("favicon.svg"),
    }
}

/// `GET /assets/…`
pub(super) async fn asset(Path(path): Path<String>, request: Request) -> Response {
    let is_in_folder = Site::get(&format!("assets/{path}")).is_some();
    // `cargo leptos` puts what is in `public` beside the folder.
    if !is_in_folder && manifest().values().any(|known| *known == path) {
        return serve(&path, request.headers());
    }
    serve(&format!("assets/{path}"), request.headers())
}

/// `GET /favicon.svg` and `.ico`, for browsers that ask without having read a page.
pub(super) async fn favicon(request: Request) -> Response {
    let name = request.uri().path().trim_start_matches('/');
    match manifest().get(name) {
        Some(path) => {
            let mut response = serve(path, request.headers());
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=86400"));
            response
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// `GET /robots.txt`
pub(super) async fn robots() -> &'static str {
    "User-agent: *\nDisallow: /\n"
}

fn serve(path: &str, request: &HeaderMap) -> Response {
    // Only what the build made is served: no folder, no compressed file under its own name.
    let is_variant = path.ends_with(".br") || path.ends_with(".gz");
    let is_plain = !is_variant && path.split('/').all(|part| !part.is_empty() && !part.starts_with('.'));
    let Some(plain) = is_plain.then(|| Site::get(path)).flatten() else {
        return (StatusCode::NOT_FOUND, "not found\n").into_response();
    };
    let etag = HeaderValue::from_str(&format!("\"{}\"", hex(&plain.metadata.sha256_hash()[..16]))).ok();
    let (encoding, file) = compressed(path, request).map_or((None, plain), |(name, file)| (Some(name), file));

    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, content_type(path));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::CACHE_CONTROL, if has_hash(path) { FOR_EVER } else { ASK_AGAIN });
    if let Some(encoding) = encoding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    let is_known = etag.is_some() && request.get(header::IF_NONE_MATCH) == etag.as_ref();
    if let Some(etag) = etag {
        headers.insert(header::ETAG, etag);
    }
    if is_known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, file.data.into_owned()).into_response()
}

/// Whether the name changes with the content. wasm-bindgen's snippets are imported by name, and `cargo leptos` gives plain names.
fn has_hash(path: &str) -> bool {
    Site::get("manifest.json").is_some() && !path.starts_with("assets/snippets/")
}

/// The smallest form the browser takes.
fn compressed(path: &str, request: &HeaderMap) -> Option<(&'static str, EmbeddedFile)> {
    let accepted = request.get(header::ACCEPT_ENCODING)?.to_str().ok()?;
    let accepts = |name: &str| {
        accepted.split(',').any(|item| {
            let mut parts = item.split(';').map(str::trim);
            parts.next() == Some(name) && !parts.any(|part| ["q=0", "q=0.0", "q=0.00", "q=0.000"].contains(&part))
        })
    };
    [("br", "br"), ("gzip", "gz")]
        .into_iter()
        .filter(|(name, _)| accepts(name))
        .find_map(|(name, suffix)| Some((name, Site::get(&format!("{path}.{suffix}"))?)))
}

fn content_type(path: &str) -> HeaderValue {
    HeaderValue::from_static(match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "wasm" => "application/wasm",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml; charset=utf-8",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "webp" => "image/webp",
        "woff2" => "font/woff2",
        "json" | "webmanifest" => "application/json; charset=utf-8",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_cargo_leptos_are_found_under_the_names_pages_ask_for() {
        let there = ["assets/jobdeck.js", "assets/jobdeck.wasm", "assets/jobdeck.css", "progress.js", "favicon.svg"];
        let found = by_cargo_leptos(|path| there.contains(&path));
        assert_eq!(found["jobdeck.js"], "assets/jobdeck.js");
        assert_eq!(found["jobdeck.wasm"], "assets/jobdeck.wasm");
        assert_eq!(found["app.css"], "assets/jobdeck.css");
        assert_eq!(found["progress.js"], "progress.js");
        assert_eq!(found["favicon.svg"], "favicon.svg");
        assert!(!found.contains_key("favicon.ico"), "what is not there has no address");
        let found = by_cargo_leptos(|path| path == "assets/jobdeck_bg.wasm");
        assert_eq!(found["jobdeck.wasm"], "assets/jobdeck_bg.wasm");
        assert!(by_cargo_leptos(|_| false).is_empty());
    }
}
