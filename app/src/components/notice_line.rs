//! What became of an action, beside it.

use leptos::prelude::*;

use super::icon::icon;
use crate::error::AppError;
use crate::i18n::Locale;
use crate::model::{Notice, Refusal};
use crate::words;

/// One line for a notice; nothing for none. `subject` names the job where a page shows many.
pub(crate) fn notice_line(locale: Locale, notice: Option<Notice>, subject: Option<String>) -> impl IntoView {
    notice.map(|notice| {
        let text = notice_text(locale, notice);
        let subject = subject.map(|subject| view! { <bdi class="strong">{subject}</bdi> ": " });
        let link = match notice {
            Notice::Refused(Refusal::KeyHeld(by)) => Some(view! {
                <a class="btn sm" href=format!("/jobs/{by}")>{locale.format("notice-open-other", &[("id", by.short().into())])}</a>
            }),
            _ => None,
        };
        let (role, state, picture) = if notice.is_good() {
            ("status", "succeeded", "check")
        } else {
            ("alert", "failed", "alert")
        };
        view! {
            <div class="banner" role=role data-state=state>
                {icon(picture)}
                <span>{subject}{text}</span>
                <span class="tools">{link}</span>
            </div>
        }
    })
}

fn notice_text(locale: Locale, notice: Notice) -> String {
    match notice {
        Notice::Retried => locale.text("notice-retried"),
        Notice::Canceled => locale.text("notice-canceled"),
        Notice::CancelRequested => locale.text("notice-cancel-requested"),
        Notice::Refused(Refusal::State(state)) => {
            locale.format("notice-is-state", &[("state", words::state(locale, state).into())])
        }
        Notice::Refused(Refusal::KeyHeld(_)) => locale.text("notice-key-held"),
        Notice::Refused(Refusal::Gone) => locale.text("notice-gone"),
        Notice::Forbidden => locale.text("notice-forbidden"),
        Notice::Failed => locale.text("notice-failed"),
    }
}

/// The notice for an error of an action called by script.
pub(crate) fn notice_of(error: &AppError) -> Notice {
    match error {
        AppError::Refused(refusal) => Notice::Refused(*refusal),
        AppError::NotFound => Notice::Refused(Refusal::Gone),
        AppError::Forbidden => Notice::Forbidden,
        _ => Notice::Failed,
    }
}
