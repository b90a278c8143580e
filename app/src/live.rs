//! The live stream of a page: one `EventSource`, closed when the page goes away or its tab is hidden. Each stream begins
//! with the present state, so a page that comes back has missed nothing. Painted at most once per second.

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
}

/// The live stream of a page.
#[derive(Clone, Copy)]
pub(crate) struct Live {
    is_open: RwSignal<bool>,
    is_paused: RwSignal<bool>,
}

impl Live {
    /// How it stands.
    pub(crate) fn state(self) -> LiveState {
        match (self.is_paused.get(), self.is_open.get()) {
            (true, _) => LiveState::Paused,
            (false, true) => LiveState::On,
            (false, false) => LiveState::Off,
        }
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
    let live = Live { is_open: RwSignal::new(false), is_paused: RwSignal::new(false) };
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

    use leptos::ev;
    use leptos::prelude::*;
    use wasm_bindgen::JsCast;
    use wasm_bindgen::closure::Closure;
    use web_sys::{EventSource, MessageEvent, VisibilityState};

    use super::Live;
    use crate::model::LiveUpdate;

    const PAUSED_KEY: &str = "live-paused";
    const PAINT_EVERY_MS: f64 = 1000.0;
    const LONGEST_WAIT_MS: f64 = 30_000.0;

    /// An open stream; dropping it closes it.
    struct Stream {
        source: EventSource,
        _on_open: Closure<dyn Fn()>,
        _on_error: Closure<dyn Fn()>,
        _on_update: Closure<dyn Fn(MessageEvent)>,
    }

    impl Drop for Stream {
        fn drop(&mut self) {
            self.source.set_onopen(None);
            self.source.set_onerror(None);
            self.source.close();
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
        // Grows to open the stream again after it was refused.
        let round = RwSignal::new(0_u32);
        let stream: StoredValue<Option<Stream>, LocalStorage> = StoredValue::new_local(None);
        let painter = Rc::new(Painter::default());

        let listener = window_event_listener(ev::visibilitychange, move |_| visible.set(is_visible()));
        on_cleanup(move || listener.remove());

        Effect::new(move |before: Option<()>| {
            if before.is_none() {
                live.is_paused.set(was_paused());
                visible.set(is_visible());
            }
            let n_refused = round.get();
            stream.set_value(None);
            live.is_open.set(false);
            if live.is_paused.get() || !visible.get() {
                return;
            }
            let painter = Rc::clone(&painter);
            stream.set_value(open(&address, live, n_refused, round, move |update| {
                painter.add(update, live, on_update);
            }));
        });
    }

    fn open(
        address: &str,
        live: Live,
        n_refused: u32,
        round: RwSignal<u32>,
        when_updated: impl Fn(LiveUpdate) + 'static,
    ) -> Option<Stream> {
        let source = EventSource::new(address).ok()?;
        let on_open = Closure::<dyn Fn()>::new(move || {
            live.is_open.try_set(true);
        });
        source.set_onopen(Some(on_open.as_ref().unchecked_ref()));
        let refused = source.clone();
        let on_error = Closure::<dyn Fn()>::new(move || {
            live.is_open.try_set(false);
            // The browser connects again by itself after a broken connection, but not after a refusal.
            if refused.ready_state() == EventSource::CLOSED {
                let wait = (1000.0 * f64::from(1 << n_refused.min(5))).min(LONGEST_WAIT_MS);
                let wait = wait * (0.75 + js_sys::Math::random() / 2.0);
                set_timeout(
                    move || {
                        round.try_update(|round| *round += 1);
                    },
                    Duration::from_millis(wait as u64),
                );
            }
        });
        source.set_onerror(Some(on_error.as_ref().unchecked_ref()));
        let on_update = Closure::<dyn Fn(MessageEvent)>::new(move |event: MessageEvent| {
            let text = event.data().as_string().unwrap_or_default();
            if let Ok(update) = serde_json::from_str(&text) {
                when_updated(update);
            }
        });
        source.add_event_listener_with_callback("update", on_update.as_ref().unchecked_ref()).ok()?;
        Some(Stream { source, _on_open: on_open, _on_error: on_error, _on_update: on_update })
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
