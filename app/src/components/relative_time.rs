//! Times: relative words with the absolute time behind them.

use chrono::{DateTime, Utc};
use leptos::prelude::*;

use crate::clock::use_clock;
use crate::format;
use crate::i18n::Locale;

/// `3 s ago` or `in 2 min`, with the absolute time in the title.
pub(crate) fn relative_time(
    locale: Locale,
    at: impl Fn() -> DateTime<Utc> + Copy + Send + Sync + 'static,
) -> impl IntoView {
    let clock = use_clock();
    view! {
        <time
            datetime=move || format::machine(at())
            title=move || format::absolute(at(), clock.minutes_east(at()))
        >
            {move || format::relative(locale, at(), clock.now())}
        </time>
    }
}

/// `14:05:35`, with the date before it on other days and zone and date in the title.
pub(crate) fn clock_time(at: DateTime<Utc>) -> impl IntoView {
    let clock = use_clock();
    view! {
        <time datetime=format::machine(at) title=move || format::absolute(at, clock.minutes_east(at))>
            {move || format::clock(at, clock.now(), clock.minutes_east(at))}
        </time>
    }
}
