//! Whether the page follows changes, and the button that stops it.

use leptos::prelude::*;

use super::icon::icon_small;
use crate::clock::use_clock;
use crate::i18n::Locale;
use crate::live::{Live, LiveState};

/// The live control of a page head.
pub(crate) fn live_switch(locale: Locale, live: Live) -> impl IntoView {
    let word = move || match live.state() {
        LiveState::On => ("on", locale.text("live-on")),
        LiveState::Paused => ("paused", locale.text("live-paused")),
        LiveState::Off | LiveState::SignedOut => ("lost", locale.text("live-off")),
    };
    // Without script there is nothing to pause.
    let clock = use_clock();
    let button = move || {
        let (picture, label) =
            if live.is_paused() { ("play", locale.text("live-resume")) } else { ("pause", locale.text("live-pause")) };
        clock.is_alive().then(|| {
            view! {
                <button type="button" aria-label=label.clone() title=label on:click=move |_| live.toggle()>
                    {icon_small(picture)}
                </button>
            }
        })
    };
    view! {
        <span class=move || if clock.is_alive() { "live join" } else { "live join pe-2.5" } data-live=move || word().0>
            <span class="dot" aria-hidden="true"></span>
            {move || word().1}
            {button}
        </span>
    }
}
