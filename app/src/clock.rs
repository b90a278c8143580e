//! The present moment, by the server's clock. Stands still while a page is drawn and hydrated, so that both halves
//! write the same text, and ticks afterwards.

use chrono::{DateTime, TimeDelta, Utc};
use leptos::prelude::*;

/// The clock of a page. In the context of every component.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    now: RwSignal<DateTime<Utc>>,
    /// The server's time at some moment, and the browser's at the same moment.
    base: StoredValue<(DateTime<Utc>, i64)>,
    /// False until the whole page is hydrated. Before, times are shown in UTC, as the server writes them.
    is_alive: RwSignal<bool>,
}

impl Clock {
    /// Puts a clock into the context.
    pub(crate) fn provide(now: DateTime<Utc>) {
        let clock =
            Self { now: RwSignal::new(now), base: StoredValue::new((now, local_ms())), is_alive: RwSignal::new(false) };
        // Effects run in the browser only. The wait lets the last part of the page come alive first.
        Effect::new(move |_| {
            set_timeout(
                move || {
                    clock.is_alive.set(true);
                    clock.tick();
                    set_interval(move || clock.tick(), std::time::Duration::from_secs(1));
                },
                std::time::Duration::from_millis(600),
            );
        });
        provide_context(clock);
    }

    /// Sets the clock by a fresh answer of the server.
    pub(crate) fn set(self, now: DateTime<Utc>) {
        self.base.set_value((now, local_ms()));
        self.now.set(now);
    }

    /// The present moment; whatever reads it is drawn again as it changes.
    pub(crate) fn now(self) -> DateTime<Utc> {
        self.now.get()
    }

    /// Whether script drives the page by now.
    pub(crate) fn is_alive(self) -> bool {
        self.is_alive.get()
    }

    /// How far the reader's zone is east of UTC at a moment; `None` while times are shown in UTC.
    pub(crate) fn minutes_east(self, at: DateTime<Utc>) -> Option<i32> {
        if self.is_alive.get() { minutes_east(at) } else { None }
    }

    fn tick(self) {
        let (server, local) = self.base.get_value();
        self.now.set(server + TimeDelta::milliseconds(local_ms() - local));
    }
}

/// The clock of this page.
pub(crate) fn use_clock() -> Clock {
    expect_context()
}

#[cfg(feature = "hydrate")]
fn local_ms() -> i64 {
    js_sys::Date::now() as i64
}

#[cfg(feature = "hydrate")]
fn minutes_east(at: DateTime<Utc>) -> Option<i32> {
    let date = js_sys::Date::new(&(at.timestamp_millis() as f64).into());
    Some(-(date.get_timezone_offset() as i32))
}

#[cfg(not(feature = "hydrate"))]
fn local_ms() -> i64 {
    0
}

#[cfg(not(feature = "hydrate"))]
fn minutes_east(_: DateTime<Utc>) -> Option<i32> {
    None
}
