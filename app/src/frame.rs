//! The frame of the deck: side bar, top bar and bottom tabs around a page. Pages for signing in stand alone.

#![allow(unreachable_pub, reason = "the component macro makes its own items public")]

use leptos::prelude::*;
use leptos_router::hooks::use_location;

use crate::components::brand::brand;
use crate::components::icon::{icon, icon_small};
use crate::components::preferences::{language_form, theme_form};
use crate::i18n::Locale;
use crate::model::{PageFacts, Permission, Viewer};
use crate::words;

/// Draws the frame when somebody is signed in.
#[component]
pub(crate) fn Frame(children: Children) -> impl IntoView {
    let locale = expect_context::<Locale>();
    let facts = expect_context::<PageFacts>();
    let path = use_location().pathname.get_untracked();
    let stands_alone = path.starts_with("/sign-in") || path.starts_with("/setup");
    let skip = view! { <a class="skip-link" href="#main" rel="external">{locale.text("skip-to-content")}</a> };
    match facts.viewer.clone().filter(|_| !stands_alone) {
        None => view! {
            {skip}
            {children()}
        }
        .into_any(),
        Some(viewer) => view! {
            {skip}
            <header class="topbar">
                {brand("brand")}
                <span class="tools">{account_menu(locale, &viewer)}</span>
            </header>
            <div class="shell">
                <aside class="sidebar" aria-label=locale.text("sidebar")>
                    {brand("brand")}
                    <nav aria-label=locale.text("nav-main")>
                        <ul class="nav">
                            {links(locale, &facts).into_iter().map(|link| view! { <li>{link.in_list()}</li> }).collect_view()}
                        </ul>
                    </nav>
                    <div class="sidebar-foot">
                        <div class="foot-tools">
                            {theme_form()}
                            {language_form("btn ghost sm", true)}
                        </div>
                        {account(locale, &viewer)}
                    </div>
                </aside>
                <main class="sheet" id="main" tabindex="-1">
                    {children()}
                </main>
            </div>
            <nav class="tabbar grid-cols-2" aria-label=locale.text("nav-main-small")>
                {links(locale, &facts).into_iter().map(Link::in_bar).collect_view()}
            </nav>
        }
        .into_any(),
    }
}

/// A place in the navigation.
struct Link {
    href: &'static str,
    picture: &'static str,
    name: String,
    short: String,
}

fn links(locale: Locale, facts: &PageFacts) -> Vec<Link> {
    let mut links =
        vec![Link { href: "/jobs", picture: "jobs", name: locale.text("nav-jobs"), short: locale.text("nav-jobs") }];
    if facts.allows(Permission::EnqueueJobs) {
        links.push(Link {
            href: "/demo",
            picture: "doc",
            name: locale.text("nav-demo"),
            short: locale.text("nav-demo-short"),
        });
    }
    links
}

impl Link {
    fn in_list(self) -> impl IntoView {
        let current = is_current(self.href);
        view! { <a href=self.href aria-current=current>{icon(self.picture)}{self.name}</a> }
    }

    fn in_bar(self) -> impl IntoView {
        let current = is_current(self.href);
        view! { <a href=self.href aria-current=current>{icon(self.picture)}{self.short}</a> }
    }
}

fn is_current(href: &'static str) -> impl Fn() -> Option<&'static str> + Copy + Send + Sync + 'static {
    let path = use_location().pathname;
    move || {
        path.with(|path| path.strip_prefix(href).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
            .then_some("page")
    }
}

/// The first letters of the first and the last word.
pub(crate) fn initials(name: &str) -> String {
    let mut words = name.split_whitespace().filter_map(|word| word.chars().next());
    let letters = words.next().into_iter().chain(words.next_back());
    letters.flat_map(char::to_uppercase).collect()
}

fn account(locale: Locale, viewer: &Viewer) -> impl IntoView + use<> {
    view! {
        <div class="row px-2 py-1.5">
            <span class="avatar" aria-hidden="true">{initials(&viewer.name)}</span>
            <span class="grow" title=viewer.email.clone()>
                <bdi class="truncate strong block leading-tight">{viewer.name.clone()}</bdi>
                <span class="faint block text-xs leading-tight">{words::role(locale, viewer.role)}</span>
            </span>
            {sign_out(locale, "btn ghost icon sm", false)}
        </div>
    }
}

fn sign_out(locale: Locale, class: &'static str, with_word: bool) -> impl IntoView {
    let word = locale.text("sign-out");
    let shown = with_word.then(|| word.clone());
    view! {
        <form method="post" action="/sign-out">
            <button class=class type="submit" aria-label=word.clone() title=word>
                {icon("sign-out")}
                {shown}
            </button>
        </form>
    }
}

/// On small screens: who is signed in, theme, language, sign out.
fn account_menu(locale: Locale, viewer: &Viewer) -> impl IntoView + use<> {
    let label = locale.format("account-of", &[("name", viewer.name.as_str().into())]);
    view! {
        <details class="menu-at">
            <summary class="btn ghost" aria-label=label>
                <span class="avatar" aria-hidden="true">{initials(&viewer.name)}</span>
                {icon_small("down")}
            </summary>
            <div class="popup-menu">
                <div class="stack p-2">
                    <p>
                        <bdi class="strong block">{viewer.name.clone()}</bdi>
                        <span class="faint block text-xs">{words::role(locale, viewer.role)}</span>
                    </p>
                    <div class="row wrap">
                        {theme_form()}
                        {language_form("btn ghost sm", true)}
                    </div>
                    {sign_out(locale, "w-full", true)}
                </div>
            </div>
        </details>
    }
}

#[cfg(test)]
mod tests {
    use super::initials;

    #[test]
    fn initials_are_those_of_the_first_and_the_last_word() {
        assert_eq!(initials("Ana Maria Costa"), "AC");
        assert_eq!(initials("李梅"), "李");
        assert_eq!(initials(""), "");
    }
}
