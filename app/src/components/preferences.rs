//! Language and theme: plain forms, so that they work without script.

use leptos::prelude::*;
use leptos_router::hooks::use_location;

use super::icon::icon;
use crate::i18n::Locale;
use crate::model::{PageFacts, Theme};

/// Where a preference form returns to: this page.
fn here() -> impl IntoView {
    let location = use_location();
    let address = move || {
        let (path, search) = (location.pathname.get(), location.search.get());
        let search = search.trim_start_matches('?');
        if search.is_empty() { path } else { format!("{path}?{search}") }
    };
    view! { <input type="hidden" name="next" value=address /> }
}

/// A button per language, in its own name. `class` is that of the buttons.
pub(crate) fn language_form(class: &'static str, with_icon: bool) -> impl IntoView {
    let present = expect_context::<Locale>();
    let others = Locale::ALL.into_iter().filter(move |locale| *locale != present).map(move |locale| {
        view! {
            <button class=class type="submit" name="lang" value=locale.tag() lang=locale.tag()>
                {with_icon.then(|| icon("globe"))}
                {locale.name()}
            </button>
        }
    });
    view! {
        <form method="post" action="/preferences" class="inline-flex">
            {here()}
            {others.collect_view()}
        </form>
    }
}

/// One button that shows the present theme and goes to the next: system, light, dark.
pub(crate) fn theme_form() -> impl IntoView {
    let locale = expect_context::<Locale>();
    let (picture, label, next) = match expect_context::<PageFacts>().theme {
        None => ("contrast", locale.text("theme-system"), Theme::Light.as_str()),
        Some(Theme::Light) => ("sun", locale.text("theme-light"), Theme::Dark.as_str()),
        Some(Theme::Dark) => ("moon", locale.text("theme-dark"), "system"),
    };
    view! {
        <form method="post" action="/preferences" class="inline-flex">
            {here()}
            <button class="btn ghost icon sm" type="submit" name="theme" value=next aria-label=label.clone() title=label>
                {icon(picture)}
            </button>
        </form>
    }
}
