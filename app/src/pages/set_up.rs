//! First set-up: whoever holds the one-time link becomes the first admin. Closed for ever afterwards.

use leptos::prelude::*;
use leptos_router::hooks::use_location;

use super::sign_in::{error_line, foot};
use crate::components::brand::brand;
use crate::components::page_title::page_title;
use crate::i18n::Locale;
use crate::model::PageFacts;
use crate::model::query::parameter;

/// Shortest password, in characters.
const MIN_PASSWORD_CHARS: u8 = 15;

/// `/setup?token=&error=`
#[component]
pub(crate) fn SetUpPage() -> impl IntoView {
    let locale = expect_context::<Locale>();
    let works = expect_context::<PageFacts>().can_set_up;
    let search = use_location().search.get_untracked();
    let token = parameter(&search, "token").unwrap_or_default();
    let error = parameter(&search, "error").map(|code| set_up_error(locale, &code));
    view! {
        {page_title(move || locale.text("set-up-title"))}
        <div class="centre">
            <main class="auth-card" id="main" tabindex="-1">
                {brand("brand p-0")}
                {if works { form(locale, token, error) } else { closed(locale) }}
            </main>
            {foot()}
        </div>
    }
}

fn form(locale: Locale, token: String, error: Option<String>) -> AnyView {
    let hint = locale.format("set-up-password-hint", &[("n", MIN_PASSWORD_CHARS.into())]);
    view! {
        <div>
            <h1 class="text-2xl">{locale.text("set-up-title")}</h1>
            <p class="muted mt-1">{locale.text("set-up-intro")}</p>
        </div>
        {error_line(error)}
        <form class="stack gap-4" action="/setup" method="post">
            <input type="hidden" name="token" value=token />
            <div class="field">
                <label for="name">{locale.text("field-name")}</label>
                <input class="input" id="name" name="name" autocomplete="name" required maxlength="100" autofocus />
            </div>
            <div class="field">
                <label for="email">{locale.text("field-email")}</label>
                <input class="input" id="email" name="email" type="email" autocomplete="username" required maxlength="254" />
            </div>
            <div class="field">
                <label for="password">{locale.text("field-password")}</label>
                <input
                    class="input"
                    id="password"
                    name="password"
                    type="password"
                    autocomplete="new-password"
                    required
                    minlength=MIN_PASSWORD_CHARS.to_string()
                    maxlength="1024"
                    aria-describedby="password-hint"
                />
                <span class="hint" id="password-hint">{hint}</span>
            </div>
            <button class="btn primary min-h-10" type="submit">{locale.text("set-up-submit")}</button>
        </form>
    }
    .into_any()
}

/// The link is wrong, too old or used up, or there is a user already.
fn closed(locale: Locale) -> AnyView {
    view! {
        <div>
            <h1 class="text-2xl">{locale.text("set-up-closed-title")}</h1>
            <p class="muted mt-1" role="alert">{locale.text("set-up-closed-text")}</p>
        </div>
        <p>{locale.text("set-up-closed-new-link")}</p>
        <pre class="json-view">"jobdeck users setup-link"</pre>
        <p>{locale.text("set-up-closed-sign-in")}</p>
        <a class="btn min-h-10" href="/sign-in" rel="external">{locale.text("sign-in")}</a>
    }
    .into_any()
}

fn set_up_error(locale: Locale, code: &str) -> String {
    match code {
        "name" => locale.text("set-up-error-name"),
        "email" => locale.text("set-up-error-email"),
        "short" => locale.format("set-up-error-short", &[("n", MIN_PASSWORD_CHARS.into())]),
        "long" => locale.text("set-up-error-long"),
        "common" => locale.text("set-up-error-common"),
        "own" => locale.text("set-up-error-own"),
        "pattern" => locale.text("set-up-error-pattern"),
        _ => locale.text("access-error-other"),
    }
}
