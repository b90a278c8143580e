//! Icons: one sprite per page, 16 px grid. They stand beside words and say nothing to assistive tools.

use leptos::prelude::*;

/// The symbols every page carries once, at the end of its body.
#[cfg(feature = "ssr")]
pub(crate) const SPRITE: &str = include_str!("icons.svg");

/// An icon of 16 px.
pub(crate) fn icon(name: &'static str) -> impl IntoView {
    icon_with("i", name)
}

/// An icon of 14 px.
pub(crate) fn icon_small(name: &'static str) -> impl IntoView {
    icon_with("i i-sm", name)
}

/// An icon with classes of its own.
pub(crate) fn icon_with(class: &'static str, name: &'static str) -> impl IntoView {
    view! {
        <svg class=class viewBox="0 0 16 16" aria-hidden="true">
            <use_ href=format!("#i-{name}")></use_>
        </svg>
    }
}
