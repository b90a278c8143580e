//! Retry and cancel: forms that post to a server function, with script or without.

use jobdeck::JobId;
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::icon::icon;
use crate::i18n::Locale;
use crate::server_fns::jobs::{CancelJob, RetryJob};

/// How a button looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// A small icon in a row.
    Row,
    /// With words, in a head.
    Head,
    /// As `Head`, and the main thing to do.
    Main,
}

impl Look {
    const fn form_class(self) -> &'static str {
        match self {
            Self::Row => "inline-flex",
            Self::Head | Self::Main => "inline-flex grow sm:grow-0",
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::Row => "btn ghost icon sm",
            Self::Head => "btn",
            Self::Main => "btn primary",
        }
    }
}

/// The button that sends a job back to the start. `name` names the job where a page shows many.
pub(crate) fn retry_button(
    locale: Locale,
    action: ServerAction<RetryJob>,
    id: JobId,
    name: Option<String>,
    back: String,
    look: Look,
) -> impl IntoView {
    let busy = move || {
        action.pending().get() && action.input().with(|input| is_about(input.as_ref().map(|input| &input.id), id))
    };
    view! {
        <ActionForm action=action attr:class=look.form_class()>
            {hidden(id, back)}
            {button(locale.text("action-retry"), name, "retry", look, busy)}
        </ActionForm>
    }
}

/// The button that stops a job.
pub(crate) fn cancel_button(
    locale: Locale,
    action: ServerAction<CancelJob>,
    id: JobId,
    name: Option<String>,
    back: String,
    look: Look,
) -> impl IntoView {
    let busy = move || {
        action.pending().get() && action.input().with(|input| is_about(input.as_ref().map(|input| &input.id), id))
    };
    view! {
        <ActionForm action=action attr:class=look.form_class()>
            {hidden(id, back)}
            {button(locale.text("action-cancel"), name, "s-canceled", look, busy)}
        </ActionForm>
    }
}

/// A button that is there to say why it does nothing.
pub(crate) fn refused_button(label: String, picture: &'static str, why: String, id: &'static str) -> impl IntoView {
    view! {
        <span class="inline-flex flex-wrap items-center gap-2">
            <button class="btn" type="button" aria-disabled="true" aria-describedby=id>{icon(picture)}{label}</button>
            <span class="hint" id=id>{why}</span>
        </span>
    }
}

fn is_about(input: Option<&String>, id: JobId) -> bool {
    input.is_some_and(|input| *input == id.to_string())
}

fn hidden(id: JobId, back: String) -> impl IntoView {
    view! {
        <input type="hidden" name="id" value=id.to_string() />
        <input type="hidden" name="back" value=back />
    }
}

fn button(
    word: String,
    name: Option<String>,
    picture: &'static str,
    look: Look,
    busy: impl Fn() -> bool + Copy + Send + Sync + 'static,
) -> impl IntoView {
    let label = name.map(|name| format!("{word}: {name}"));
    let title = (look == Look::Row).then(|| word.clone());
    view! {
        <button
            class=look.class()
            type="submit"
            aria-label=label
            title=title
            aria-busy=move || busy().then_some("true")
            disabled=busy
        >
            {icon(picture)}
            {(look != Look::Row).then_some(word)}
        </button>
    }
}
