//! How far a stage is.

use jobdeck::JobState;
use leptos::prelude::*;

/// A bar of `percent`, named `label`. `class` is `progress-bar`, with `thin` in rows or `lg` where it is the subject.
pub(crate) fn progress_bar(percent: i16, label: String, class: &'static str) -> impl IntoView {
    let percent = percent.clamp(0, 100);
    view! {
        <span
            class=class
            role="progressbar"
            aria-valuemin="0"
            aria-valuemax="100"
            aria-valuenow=percent.to_string()
            aria-label=label
            data-state=JobState::Running.as_str()
        >
            <svg aria-hidden="true">
                <rect width=format!("{percent}%") height="100%"></rect>
            </svg>
        </span>
    }
}
