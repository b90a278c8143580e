//! The mark, the name, and which deck this is.

use leptos::prelude::*;

use crate::model::PageFacts;

/// The brand, linked to the first page. `class` is `brand`, with `p-0` in cards.
pub(crate) fn brand(class: &'static str) -> impl IntoView {
    let environment = expect_context::<PageFacts>().environment;
    view! {
        <a class=class href="/jobs">
            <svg viewBox="0 0 20 20" aria-hidden="true" fill="currentColor">
                <rect x="1.5" y="2.5" width="12" height="8.5" rx="2.25" opacity=".38"></rect>
                <path d="M6.25 7.5h10a2.25 2.25 0 0 1 2.25 2.25v5.5a2.25 2.25 0 0 1-2.25 2.25h-8A2.25 2.25 0 0 1 6 15.25V7.75c0-.14.11-.25.25-.25Z"></path>
                <path
                    d="m9.3 12.5 2 2 3.6-4"
                    fill="none"
                    stroke="var(--canvas)"
                    stroke-width="1.6"
                    stroke-linecap="round"
                    stroke-linejoin="round"
                ></path>
            </svg>
            "Jobdeck"
            {(!environment.is_empty()).then(|| view! { <span class="env">{environment}</span> })}
        </a>
    }
}
