//! Words for values that come from the queue. What has no message is shown as it is.

use jobdeck::{AttemptOutcome, FailureClass, JobState};

use crate::i18n::Locale;
use crate::model::{Role, TypeView};

/// A state, for operators.
pub(crate) fn state(locale: Locale, state: JobState) -> String {
    locale.text(&format!("state-{state}"))
}

/// What a state means, in one sentence.
pub(crate) fn state_meaning(locale: Locale, state: JobState) -> String {
    locale.text(&format!("state-{state}-meaning"))
}

/// A failure class.
pub(crate) fn class(locale: Locale, class: FailureClass) -> String {
    locale.text(&format!("class-{}", class.as_str().replace('_', "-")))
}

/// What a class means, in one sentence.
pub(crate) fn class_meaning(locale: Locale, class: FailureClass) -> String {
    locale.text(&format!("class-{}-meaning", class.as_str().replace('_', "-")))
}

/// An error code, for operators.
pub(crate) fn code(locale: Locale, code: &str) -> String {
    locale.find(&format!("code-{}", code.replace('_', "-")), &[]).unwrap_or_else(|| code.to_owned())
}

/// How an attempt ended without an error.
pub(crate) fn outcome(locale: Locale, outcome: AttemptOutcome) -> String {
    locale.text(&format!("outcome-{}", outcome.as_str().replace('_', "-")))
}

/// A role.
pub(crate) fn role(locale: Locale, role: Role) -> String {
    locale.text(&format!("role-{}", role.as_str()))
}

/// What someone did, in the audit trail.
pub(crate) fn action(locale: Locale, action: &str) -> String {
    locale.find(&format!("action-{}", action.replace('_', "-")), &[]).unwrap_or_else(|| action.to_owned())
}

/// A stage of a type, in the words its worker registered.
pub(crate) fn stage(locale: Locale, types: &[TypeView], job_type: &str, stage: &str) -> String {
    let registered = types
        .iter()
        .find(|known| known.name == job_type)
        .and_then(|known| known.stages.iter().find(|known| known.name == stage));
    match registered {
        Some(known) => known.label(locale).to_owned(),
        None => locale.find(&format!("stage-{}", stage.replace('_', "-")), &[]).unwrap_or_else(|| stage.to_owned()),
    }
}
