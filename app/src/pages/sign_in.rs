//! Signing in: a plain form that the server answers.

use leptos::prelude::*;
use leptos_router::hooks::use_location;

use crate::components::brand::brand;
use crate::components::icon::icon_small;
use crate::components::page_title::page_title;
use crate::components::preferences::language_form;
use crate::format::long_duration;
use crate::i18n::Locale;
use crate::model::PageFacts;
use crate::model::query::parameter;

/// `/sign-in?next=&error=`
#[component]
pub(crate) fn SignInPage() -> impl IntoView {
    let locale = expect_context::<Locale>();
    let search = use_location().search.get_untracked();
    let next = parameter(&search, "next").unwrap_or_default();
    let code = parameter(&search, "error");
    let is_wrong = code.as_deref() == Some("wrong");
    let seconds = parameter(&search, "wait").and_then(|wait| wait.parse().ok()).unwrap_or(0);
    let error = code.map(|code| sign_in_error(locale, &code, seconds));
    view! {
        {page_title(move || locale.text("sign-in-title"))}
        <div class="centre">
            <main class="auth-card" id="main" tabindex="-1">
                {brand("brand p-0")}
                <div>
                    <h1 class="text-2xl">{locale.text("sign-in-title")}</h1>
                    {(next.len() > 1).then(|| view! { <p class="muted mt-1">{locale.text("sign-in-next")}</p> })}
                </div>
                {error_line(error)}
                <form class="stack gap-4" action="/sign-in" method="post">
                    <input type="hidden" name="next" value=next />
                    <div class="field">
                        <label for="email">{locale.text("field-email")}</label>
                        <input
                            class="input"
                            id="email"
                            name="email"
                            type="email"
                            autocomplete="username"
                            required
                            autofocus
                            maxlength="254"
                            aria-invalid=is_wrong.then_some("true")
                        />
                    </div>
                    <div class="field">
                        <label for="password">{locale.text("field-password")}</label>
                        <input
                            class="input"
                            id="password"
                            name="password"
                            type="password"
                            autocomplete="current-password"
                            required
                            maxlength="1024"
                            aria-invalid=is_wrong.then_some("true")
                        />
                    </div>
                    <button class="btn primary min-h-10" type="submit">{locale.text("sign-in")}</button>
                </form>
            </main>
            {foot()}
        </div>
    }
}

fn sign_in_error(locale: Locale, code: &str, seconds: i64) -> String {
    match code {
        "wrong" => locale.text("sign-in-error-wrong"),
        "wait" => {
            let wait = long_duration(locale, seconds.clamp(1, 86_400) * 1000);
            locale.format("sign-in-error-wait", &[("wait", wait.into())])
        }
        _ => locale.text("access-error-other"),
    }
}

/// What went wrong with a form.
pub(crate) fn error_line(error: Option<String>) -> impl IntoView {
    error.map(|error| view! { <p class="error-text" role="alert">{icon_small("alert")}<span>{error}</span></p> })
}

/// Language and version below the card.
pub(crate) fn foot() -> impl IntoView {
    let version = expect_context::<PageFacts>().version;
    view! {
        <footer class="auth-foot">
            {language_form("btn ghost sm", true)}
            <span>"Jobdeck " {version}</span>
        </footer>
    }
}
