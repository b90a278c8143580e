//! The HTML document around the deck: style, icons, content policy, and the script that starts the browser half.

use http::HeaderValue;
use http::header::CONTENT_SECURITY_POLICY;
use leptos::nonce::use_nonce;
use leptos::prelude::*;
use leptos_axum::ResponseOptions;
use leptos_meta::MetaTags;

use crate::app::App;
use crate::components::icon::SPRITE;
use crate::ssr::{AppContext, RequestContext};

/// The whole document. Both contexts must have been provided (see [`crate::ssr::provide`]).
pub fn shell() -> impl IntoView {
    let assets = use_context::<AppContext>().map(|app| app.assets).unwrap_or_default();
    let request = use_context::<RequestContext>().unwrap_or_default();
    let nonce = use_nonce();
    if let (Some(response), Some(nonce)) = (use_context::<ResponseOptions>(), &nonce)
        && let Ok(policy) = HeaderValue::from_str(&content_policy(nonce))
    {
        response.insert_header(CONTENT_SECURITY_POLICY, policy);
    }
    let has_script = !assets.js.is_empty() && !assets.wasm.is_empty();
    let script = has_script.then(|| {
        let start = start_script(&assets.js, &assets.wasm);
        view! {
            <link rel="modulepreload" href=assets.js.to_string() nonce=nonce.clone() />
            <link rel="preload" href=assets.wasm.to_string() r#as="fetch" r#type="application/wasm" crossorigin="anonymous" />
            <script type="module" nonce=nonce.clone() inner_html=start></script>
        }
    });
    let icon = (!assets.icon.is_empty())
        .then(|| view! { <link rel="icon" href=assets.icon.to_string() r#type="image/svg+xml" /> });
    view! {
        <!DOCTYPE html>
        <html lang=request.locale.tag() data-theme=request.theme.map(|theme| theme.as_str())>
            <head>
                <meta charset="utf-8" />
                <meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover" />
                <meta name="color-scheme" content="light dark" />
                <link rel="stylesheet" href=assets.css.to_string() />
                {icon}
                {script}
                <MetaTags />
            </head>
            <body>
                <App />
                <svg class="absolute" width="0" height="0" aria-hidden="true" inner_html=SPRITE></svg>
            </body>
        </html>
    }
}

/// What the page may load and run: our own files, and scripts that carry the nonce of this reply.
fn content_policy(nonce: &str) -> String {
    format!(
        "default-src 'self'; script-src 'nonce-{nonce}' 'strict-dynamic' 'wasm-unsafe-eval'; style-src 'self'; \
         img-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
         frame-ancestors 'none'"
    )
}

/// Addresses come from our own manifest; quoted as JSON all the same.
fn start_script(js: &str, wasm: &str) -> String {
    let quote = |text: &str| serde_json::Value::from(text).to_string().replace('<', "\\u003c");
    format!("import({}).then(m=>m.default({{module_or_path:{}}}).then(()=>m.hydrate()))", quote(js), quote(wasm))
}
