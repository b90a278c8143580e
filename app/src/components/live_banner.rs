//! That the page no longer follows changes, and what helps.

use leptos::prelude::*;
use leptos_router::hooks::use_location;
use leptos_router::params::ParamsMap;

use super::icon::icon;
use crate::clock::use_clock;
use crate::format;
use crate::i18n::Locale;
use crate::live::{Live, LiveState};

/// The banner below a page head; nothing while the page is live, or for a short silence.
pub(crate) fn live_banner(locale: Locale, live: Live) -> impl IntoView {
    let clock = use_clock();
    let location = use_location();
    let sign_in = move || {
        let (path, search) = (location.pathname.get(), location.search.get());
        let search = search.trim_start_matches('?');
        let here = if search.is_empty() { path } else { format!("{path}?{search}") };
        let mut query = ParamsMap::new();
        query.insert("next", here);
        format!("/sign-in{}", query.to_query_string())
    };
    move || {
        if live.state() == LiveState::SignedOut {
            return view! {
                <div class="banner" role="alert" data-state="failed">
                    {icon("alert")}
                    <span>{locale.text("live-signed-out")}</span>
                    <span class="tools"><a class="btn sm" href=sign_in rel="external">{locale.text("live-sign-in")}</a></span>
                </div>
            }
            .into_any();
        }
        let Some(heard_at) = live.silent_since() else { return ().into_any() };
        let time = format::clock(heard_at, clock.now(), clock.minutes_east(heard_at));
        view! {
            <div class="banner" role="status" data-state="retrying">
                {icon("alert")}
                <span>{locale.format("live-silent", &[("time", time.into())])}</span>
                <span class="tools">
                    <button type="button" class="btn sm" on:click=move |_| live.try_now()>{locale.text("live-try-now")}</button>
                </span>
            </div>
        }
        .into_any()
    }
}
