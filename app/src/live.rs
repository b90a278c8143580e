//! The live stream of a page: one `EventSource`, closed when the page goes away or its tab is hidden. Each stream begins
//! with the present state, so a page that comes back has missed nothing. Painted at most once per second.
//!
//! The server sends a `beat` every 10 s. A stream that is silent for longer than two of them is opened anew, since a broken connection
//! may look open for hours; `signed-out` is its last word when the sign-in has ended.

use chrono::{DateTime, Utc};
use leptos::prelude::*;

use crate::model::LiveUpdate;

/// Whether the page follows changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveState {
    /// The stream is open.
    On,
    /// The reader stopped it.
    Paused,
    /// It is not open: no script, no connection, or not yet.
    Off,
    /// Whoever looks is signed in no more.
    SignedOut,
}

/// The live stream of a page.
#[derive(Clone, Copy)]
pub(crate) struct Live {
    is_open: RwSignal<bool>,
    is_paused: RwSignal<bool>,
    is_signed_out: RwSignal<bool>,
    /// When something was heard last, once that is long ago.
    silent_since: RwSignal<Option<DateTime<Utc>>>,
    /// Grows to open the stream anew.
    round: RwSignal<u32>,
}

impl Live {
    /// How it stands.
    pub(crate) fn state(self) -> LiveState {
        match (self.is_signed_out.get(), self.is_paused.get(), self.is_open.get()) {
            (true, ..) => LiveState::SignedOut,
            (_, true, _) => LiveState::Paused,
            (.., true) => LiveState::On,
            (.., false) => LiveState::Off,
        }
    }

    /// When the server was heard last, if it has been silent for half a minute.
    pub(crate) fn silent_since(self) -> Option<DateTime<Utc>> {
        self.silent_since.get().filter(|_| self.state() == LiveState::Off)
    }

    /// Opens the stream anew without waiting.
    pub(crate) fn try_now(self) {
        self.round.update(|round| *round += 1);
    }

    /// Whether the reader stopped it.
    pub(crate) fn is_paused(self) -> bool {
        self.is_paused.get()
    }

    /// Stops it, or lets it go on. Kept for the tab.
    pub(crate) fn toggle(self) {
        self.is_paused.update(|paused| *paused = !*paused);
        #[cfg(feature = "hydrate")]
        browser::keep_paused(self.is_paused.get_untracked());
    }
}

/// Follows the stream at `address` for as long as the component lives. `on_update` gets what changed.
pub(crate) fn use_live(address: String, on_update: impl Fn(LiveUpdate) + Copy + 'static) -> Live {
    let live = Live {
        is_open: RwSignal::new(false),
        is_paused: RwSignal::new(false),
        is_signed_out: RwSignal::new(false),
        silent_since: RwSignal::new(None),
        round: RwSignal::new(0),
    };
    #[cfg(feature = "hydrate")]
    browser::follow(live, address, on_update);
    #[cfg(not(feature = "hydrate"))]
    let _ = (address, on_update);
    live
}

#[cfg(feature = "hydrate")]
mod browser {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::time::Duration;

    use chrono::{TimeDelta, Utc};
    use leptos::ev;
    use leptos::prelude::*;
    use leptos::task::spawn_local;
    use wasm_bindgen::JsCast;
    use wasm_bindgen::closure::Closure;
    use wasm_bindgen_futures::JsFuture;
    use web_sys::{EventSource, MessageEvent, RequestInit, Response, VisibilityState};

    use super::Live;
    use crate::model::LiveUpdate;

    const PAUSED_KEY: &str = "live-paused";
    const PAINT_EVERY_MS: f64 = 1000.0;
    const LONGEST_WAIT_MS: f64 = 30_000.0;
    const LOOK_EVERY: Duration = Duration::from_secs(5);
    /// Two and a half beats.
    const SILENCE_MS: f64 = 25_000.0;
    /// From then on the page says so.
    const LONG_SILENCE_MS: f64 = 30_000.0;

    /// An open stream; dropping it closes it.
    struct Stream {
        source: EventSource,
        _on_open: Closure<dyn Fn()>,
        _on_error: Closure<dyn Fn()>,
        _on_update: Closure<dyn Fn(MessageEvent)>,
        _on_beat: Closure<dyn Fn()>,
        _on_signed_out: Closure<dyn Fn()>,
    }

    impl Drop for Stream {
        fn drop(&mut self) {
            self.source.set_onopen(None);
            self.source.set_onerror(None);
            self.source.close();
        }
    }

    /// What a stream has been through.
    #[derive(Clone, Copy)]
    struct Record {
        /// When something was heard last, in milliseconds.
        heard: StoredValue<f64>,
        /// Refusals in a row.
        refusals: StoredValue<u32>,
    }

    impl Record {
        fn hears(self, live: Live) {
            self.heard.try_set_value(js_sys::Date::now());
            live.silent_since.try_set(None);
        }
    }

    pub(super) fn keep_paused(paused: bool) {
        if let Ok(Some(storage)) = window().session_storage() {
            let _ = if paused { storage.set_item(PAUSED_KEY, "1") } else { storage.remove_item(PAUSED_KEY) };
        }
    }

    fn was_paused() -> bool {
        let storage = window().session_storage().ok().flatten();
        storage.and_then(|storage| storage.get_item(PAUSED_KEY).ok().flatten()).is_some()
    }

    fn is_visible() -> bool {
        document().visibility_state() == VisibilityState::Visible
    }

    pub(super) fn follow(live: Live, address: String, on_update: impl Fn(LiveUpdate) + Copy + 'static) {
        let visible = RwSignal::new(true);
        let stream: StoredValue<Option<Stream>, LocalStorage> = StoredValue::new_local(None);
        let record = Record { heard: StoredValue::new(0.0), refusals: StoredValue::new(0) };
        let painter = Rc::new(Painter::default());

        let listener = window_event_listener(ev::visibilitychange, move |_| visible.set(is_visible()));
        on_cleanup(move || listener.remove());

        // Outside the effect, whose cleanups run whenever it runs again.
        if let Ok(watchdog) = set_interval_with_handle(move || watch(live, visible, record), LOOK_EVERY) {
            on_cleanup(move || watchdog.clear());
        }

        // Its value: whether the page listens.
        Effect::new(move |before: Option<bool>| {
            if before.is_none() {
                live.is_paused.set(was_paused());
                visible.set(is_visible());
            }
            live.round.track();
            stream.set_value(None);
            live.is_open.set(false);
            if live.is_paused.get() || !visible.get() {
                live.silent_since.set(None);
                return false;
            }
            // Silence counts while the page listens, through however many tries.
            if before != Some(true) {
                record.heard.set_value(js_sys::Date::now());
            }
            let painter = Rc::clone(&painter);
            stream.set_value(open(&address, live, record, stream, move |update| {
                painter.add(update, live, on_update);
            }));
            true
        });
    }

    /// Opens a silent stream anew, and says how long it has been silent.
    fn watch(live: Live, visible: RwSignal<bool>, record: Record) {
        let listens = visible.try_get_untracked() == Some(true)
            && live.is_paused.try_get_untracked() == Some(false)
            && live.is_signed_out.try_get_untracked() == Some(false);
        let Some(heard) = record.heard.try_get_value().filter(|_| listens) else { return };
        let silence = js_sys::Date::now() - heard;
        if silence > LONG_SILENCE_MS && live.silent_since.get_untracked().is_none() {
            live.silent_since.set(Some(Utc::now() - TimeDelta::milliseconds(silence as i64)));
        }
        if silence > SILENCE_MS && live.is_open.get_untracked() {
            live.is_open.set(false);
            live.round.update(|round| *round += 1);
        }
    }

    fn open(
        address: &str,
        live: Live,
        record: Record,
        stream: StoredValue<Option<Stream>, LocalStorage>,
        when_updated: impl Fn(LiveUpdate) + 'static,
    ) -> Option<Stream> {
        let source = EventSource::new(address).ok()?;
        let on_open = Closure::<dyn Fn()>::new(move || {
            live.is_open.try_set(true);
            live.is_signed_out.try_set(false);
            record.refusals.try_set_value(0);
            record.hears(live);
        });
        source.set_onopen(Some(on_open.as_ref().unchecked_ref()));
        let refused = source.clone();
        let asked = address.to_owned();
        let on_error = Closure::<dyn Fn()>::new(move || {
            live.is_open.try_set(false);
            // The browser connects again by itself after a broken connection, but not after a refusal.
            if refused.ready_state() == EventSource::CLOSED {
                after_refusal(asked.clone(), live, record);
            }
        });
        source.set_onerror(Some(on_error.as_ref().unchecked_ref()));
        let on_update = Closure::<dyn Fn(MessageEvent)>::new(move |event: MessageEvent| {
            record.hears(live);
            let text = event.data().as_string().unwrap_or_default();
            if let Ok(update) = serde_json::from_str(&text) {
                when_updated(update);
            }
        });
        source.add_event_listener_with_callback("update", on_update.as_ref().unchecked_ref()).ok()?;
        let on_beat = Closure::<dyn Fn()>::new(move || record.hears(live));
        source.add_event_listener_with_callback("beat", on_beat.as_ref().unchecked_ref()).ok()?;
        let on_signed_out = Closure::<dyn Fn()>::new(move || {
            live.is_signed_out.try_set(true);
            // Not within the call of a closure that the stream owns.
            set_timeout(move || drop(stream.try_set_value(None)), Duration::ZERO);
        });
        source.add_event_listener_with_callback("signed-out", on_signed_out.as_ref().unchecked_ref()).ok()?;
        Some(Stream {
            source,
            _on_open: on_open,
            _on_error: on_error,
            _on_update: on_update,
            _on_beat: on_beat,
            _on_signed_out: on_signed_out,
        })
    }

    /// Finds out whether the sign-in has ended, which an `EventSource` does not tell, and else tries again after a while.
    fn after_refusal(address: String, live: Live, record: Record) {
        // What comes after a newer try does not concern it.
        let round = live.round.try_get_untracked();
        let is_latest = move || round.is_some() && live.round.try_get_untracked() == round;
        spawn_local(async move {
            if status(&address).await == Some(401) {
                if is_latest() {
                    live.is_signed_out.try_set(true);
                }
                return;
            }
            let refusals = record.refusals.try_get_value().unwrap_or_default();
            record.refusals.try_set_value(refusals.saturating_add(1));
            let wait = (1000.0 * f64::from(1 << refusals.min(5))).min(LONGEST_WAIT_MS);
            let wait = wait * (0.75 + js_sys::Math::random() / 2.0);
            set_timeout(
                move || {
                    if is_latest() {
                        live.round.try_update(|round| *round += 1);
                    }
                },
                Duration::from_millis(wait as u64),
            );
        });
    }

    async fn status(address: &str) -> Option<u16> {
        let request = RequestInit::new();
        request.set_method("HEAD");
        let response = JsFuture::from(window().fetch_with_str_and_init(address, &request)).await.ok()?;
        Some(response.dyn_into::<Response>().ok()?.status())
    }

    /// Holds updates back so that the page is painted at most once per second.
    #[derive(Default)]
    struct Painter {
        waiting: RefCell<Vec<LiveUpdate>>,
        is_planned: Cell<bool>,
        last_ms: Cell<f64>,
    }

    impl Painter {
        fn add(self: &Rc<Self>, update: LiveUpdate, live: Live, on_update: impl Fn(LiveUpdate) + Copy + 'static) {
            self.waiting.borrow_mut().push(update);
            if self.is_planned.replace(true) {
                return;
            }
            let wait = (self.last_ms.get() + PAINT_EVERY_MS - js_sys::Date::now()).clamp(0.0, PAINT_EVERY_MS);
            let painter = Rc::clone(self);
            set_timeout(
                move || {
                    painter.is_planned.set(false);
                    painter.last_ms.set(js_sys::Date::now());
                    let updates = painter.waiting.take();
                    // The page may have gone away meanwhile, and its signals with it.
                    if live.is_open.try_get_untracked().is_some() {
                        updates.into_iter().for_each(on_update);
                    }
                },
                Duration::from_millis(wait as u64),
            );
        }
    }
}
