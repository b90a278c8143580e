//! What the tab says: subject – Jobdeck.

use leptos::prelude::*;
use leptos_meta::Title;

/// Sets the page's title.
pub(crate) fn page_title(subject: impl Fn() -> String + Send + Sync + 'static) -> impl IntoView {
    view! { <Title text=move || safe(format!("{} – Jobdeck", subject())) /> }
}

/// leptos_meta writes the title into the page as it is, so the server escapes it; the browser sets it as text.
fn safe(text: String) -> String {
    if cfg!(feature = "ssr") { escape(&text) } else { text }
}

/// Text as it may stand inside an element.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
