//! An address that leads nowhere.

use leptos::prelude::*;

use crate::components::blank::blank;
use crate::components::page_title::page_title;
use crate::i18n::Locale;

/// The page for unknown addresses, with status 404.
#[component]
pub(crate) fn NotFoundPage() -> impl IntoView {
    #[cfg(feature = "ssr")]
    crate::ssr::set_status(http::StatusCode::NOT_FOUND);
    let locale = expect_context::<Locale>();
    let link = view! { <a class="btn primary" href="/jobs">{locale.text("not-found-link")}</a> }.into_any();
    view! {
        {page_title(move || locale.text("not-found-title"))}
        <header class="page-head"><h1>{locale.text("not-found-title")}</h1></header>
        {blank("search", locale.text("not-found-heading"), locale.text("not-found-text"), link)}
    }
}
