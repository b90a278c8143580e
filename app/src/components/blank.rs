//! Empty, loading and broken: what stands where data would.

use leptos::prelude::*;

use super::icon::icon;
use crate::error::AppError;
use crate::i18n::Locale;

/// A picture, a sentence and what to do.
pub(crate) fn blank(picture: &'static str, title: String, text: String, actions: AnyView) -> impl IntoView {
    view! {
        <div class="blank">
            <span class="pic">{icon(picture)}</span>
            <h2>{title}</h2>
            <p>{text}</p>
            <div class="row">{actions}</div>
        </div>
    }
}

/// The view of an error. `again` is the address of the same page.
pub(crate) fn error_view(locale: Locale, error: &AppError, again: String) -> impl IntoView + use<> {
    let (picture, title, text) = match error {
        AppError::SignedOut => ("lock", locale.text("error-signed-out"), locale.text("error-signed-out-text")),
        AppError::Forbidden => ("lock", locale.text("error-forbidden"), locale.text("error-forbidden-text")),
        AppError::NotFound => ("search", locale.text("error-not-found"), locale.text("error-not-found-text")),
        AppError::TooSlow => ("hourglass", locale.text("error-too-slow"), locale.text("error-too-slow-text")),
        AppError::Unreachable => ("alert", locale.text("error-unreachable"), locale.text("error-unreachable-text")),
        AppError::NoDatabase => ("alert", locale.text("error-no-database"), locale.text("error-no-database-text")),
        AppError::Refused(_) | AppError::BadRequest => {
            ("alert", locale.text("error-bad-request"), locale.text("error-bad-request-text"))
        }
        AppError::Internal { reference } => (
            "alert",
            locale.text("error-internal"),
            locale.format("error-internal-text", &[("reference", reference.as_str().into())]),
        ),
    };
    let actions = match error {
        AppError::SignedOut => {
            let mut href = "/sign-in?next=".to_owned();
            crate::model::query::encode(&mut href, &again);
            view! { <a class="btn primary" href=href rel="external">{locale.text("sign-in")}</a> }.into_any()
        }
        AppError::Forbidden | AppError::NotFound => ().into_any(),
        _ => view! { <a class="btn" href=again rel="external">{locale.text("try-again")}</a> }.into_any(),
    };
    view! { <div role="alert">{blank(picture, title, text, actions)}</div> }
}

/// Grey lines while a list is read; named after 300 ms by the page.
pub(crate) fn skeleton(label: String) -> impl IntoView {
    let lines = (0..8)
        .map(|_| view! { <div class="row h-10"><span class="skel w-24"></span><span class="skel w-48"></span></div> });
    view! {
        <div class="page" aria-busy="true">
            <p class="visually-hidden">{label}</p>
            {lines.collect_view()}
        </div>
    }
}
