//! State and failure class: icon and word, always both.

use jobdeck::{AttemptOutcome, FailureClass, JobState};
use leptos::prelude::*;

use super::icon::icon_with;
use crate::i18n::Locale;
use crate::words;

/// The icon of a state.
pub(crate) const fn state_icon(state: JobState) -> &'static str {
    match state {
        JobState::Pending => "s-pending",
        JobState::Running => "s-running",
        JobState::Retrying => "s-retrying",
        JobState::Succeeded => "s-succeeded",
        JobState::Failed => "s-failed",
        JobState::Canceled => "s-canceled",
    }
}

/// The icon of a class.
pub(crate) const fn class_icon(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Retryable => "c-retryable",
        FailureClass::RateLimited => "c-rate-limited",
        FailureClass::Stalled => "c-stalled",
        FailureClass::Unrecoverable => "c-unrecoverable",
    }
}

/// The word of a class in CSS, where words are joined by hyphens.
pub(crate) const fn class_word(class: FailureClass) -> &'static str {
    match class {
        FailureClass::RateLimited => "rate-limited",
        other => other.as_str(),
    }
}

/// The moving arc for running, else a still icon.
pub(crate) fn state_mark(state: JobState) -> impl IntoView {
    icon_with(if matches!(state, JobState::Running) { "i spin" } else { "i" }, state_icon(state))
}

/// A state. `class` is `state-badge` with `plain` in tables or `lg` in heads.
pub(crate) fn state_badge(locale: Locale, state: JobState, class: &'static str) -> impl IntoView {
    view! {
        <span class=class data-state=state.as_str()>
            {state_mark(state)}
            {words::state(locale, state)}
        </span>
    }
}

/// A failure class.
pub(crate) fn class_badge(locale: Locale, class: FailureClass, style: &'static str) -> impl IntoView {
    view! {
        <span class=style data-class=class_word(class)>
            {icon_with("i", class_icon(class))}
            {words::class(locale, class)}
        </span>
    }
}

/// How an attempt ended: its class, or what happened instead of an error.
pub(crate) fn outcome_badge(locale: Locale, outcome: AttemptOutcome, class: Option<FailureClass>) -> AnyView {
    let class = match (outcome, class) {
        (AttemptOutcome::Snoozed | AttemptOutcome::Released | AttemptOutcome::Canceled, _) => None,
        (AttemptOutcome::RateLimited, None) => Some(FailureClass::RateLimited),
        (AttemptOutcome::Stalled, None) => Some(FailureClass::Stalled),
        (AttemptOutcome::Failed, None) => Some(FailureClass::Retryable),
        (_, class) => class,
    };
    match class {
        Some(class) => class_badge(locale, class, "class-badge").into_any(),
        None => view! { <span class="chip line">{words::outcome(locale, outcome)}</span> }.into_any(),
    }
}
