//! A job: what it is, why it is not running, what happened to it, and what can be done.

mod attempts;
mod flow;
mod head;
mod side;
mod stages;
mod why;

use jobdeck::JobId;
use leptos::prelude::*;
use leptos_router::hooks::{use_location, use_params_map};

use crate::clock::use_clock;
use crate::components::blank::{blank, error_view, skeleton};
use crate::components::icon::icon_small;
use crate::components::live_banner::live_banner;
use crate::components::live_switch::live_switch;
use crate::components::notice_line::{notice_line, notice_of};
use crate::components::page_title::page_title;
use crate::error::AppError;
use crate::i18n::Locale;
use crate::live::{Live, use_live};
use crate::model::query::parameter;
use crate::model::{JobView, LiveUpdate, Notice};
use crate::server_fns::jobs::{ActionView, CancelJob, RetryJob, follow_job, read_job};
use crate::words;

/// `/jobs/{id}`
#[component]
pub(crate) fn JobPage() -> impl IntoView {
    let locale = expect_context::<Locale>();
    let params = use_params_map();
    let id = Memo::new(move |_| params.with(|params| params.get("id").unwrap_or_default()));
    let job = Resource::new(move || id.get(), read_job);
    view! {
        <Transition fallback=move || skeleton(locale.text("job-loading"))>
            {move || {
                job.get()
                    .map(|answer| match answer {
                        Ok(view) => loaded(locale, view),
                        Err(error) => broken(locale, &id.get_untracked(), &error),
                    })
            }}
        </Transition>
    }
}

fn broken(locale: Locale, id: &str, error: &AppError) -> AnyView {
    #[cfg(feature = "ssr")]
    crate::ssr::set_status(error.status());
    let view = if *error == AppError::NotFound {
        let link = view! { <a class="btn primary" href="/jobs">{locale.text("not-found-link")}</a> }.into_any();
        blank("search", locale.text("job-not-found"), locale.text("job-not-found-text"), link).into_any()
    } else {
        error_view(locale, error, format!("/jobs/{id}")).into_any()
    };
    let title = if *error == AppError::NotFound { locale.text("job-not-found") } else { locale.text("jobs-title") };
    view! {
        {page_title({
            let title = title.clone();
            move || title.clone()
        })}
        <header class="page-head"><h1>{title}</h1></header>
        {view}
    }
    .into_any()
}

/// The job as shown; newer versions replace it, older ones never do.
type Shown = RwSignal<JobView>;

fn loaded(locale: Locale, view: JobView) -> AnyView {
    let clock = use_clock();
    clock.set(view.now);
    let id = view.row.id;
    let (job_type, short) = (view.row.job_type.clone(), id.short());
    let job: Shown = RwSignal::new(view);
    let gone = RwSignal::new(false);
    // Reads the whole job again, when a live event says that there is more to know.
    let read_again = move || {
        leptos::task::spawn_local(async move {
            match follow_job(id.to_string()).await {
                Ok(fresh) => {
                    let is_newer = job.try_with_untracked(|shown| shown.row.version <= fresh.row.version);
                    if is_newer == Some(true) {
                        clock.set(fresh.now);
                        job.try_set(fresh);
                    }
                }
                Err(AppError::NotFound) => {
                    gone.try_set(true);
                }
                Err(_) => {}
            }
        });
    };
    let live = use_live(format!("/live?ids={id}"), move |update: LiveUpdate| {
        if update.gone.contains(&id) {
            gone.set(true);
        }
        let grew = |version: i64| job.with_untracked(|shown| shown.row.version < version);
        if update.rows.iter().any(|row| row.id == id && grew(row.version)) {
            read_again();
        }
    });

    let retry = ServerAction::<RetryJob>::new();
    let cancel = ServerAction::<CancelJob>::new();
    let notice =
        RwSignal::new(parameter(&use_location().search.get_untracked(), "notice").and_then(|word| Notice::read(&word)));
    let tell = move |answer: Result<ActionView, AppError>| {
        notice.set(Some(match answer {
            Ok(view) => view.notice,
            Err(error) => notice_of(&error),
        }));
        read_again();
    };
    let (retried, canceled) = (retry.value(), cancel.value());
    Effect::new(move |_| {
        if let Some(answer) = retried.get() {
            tell(answer);
        }
    });
    Effect::new(move |_| {
        if let Some(answer) = canceled.get() {
            tell(answer);
        }
    });

    let state = Memo::new(move |_| job.with(|job| job.row.state));
    let title_type = job_type.clone();
    let title = move || {
        locale.format(
            "job-title",
            &[
                ("type", title_type.as_str().into()),
                ("id", id.short().into()),
                ("state", words::state(locale, state.get()).to_lowercase().into()),
            ],
        )
    };
    view! {
        {page_title(title)}
        {crumbs(locale, short, live)}
        {live_banner(locale, live)}
        {move || notice_line(locale, notice.get(), None)}
        {move || {
            gone.get().then(|| view! { <p class="banner" role="status" data-state="canceled">{locale.text("job-gone")}</p> })
        }}
        {head::head(locale, job, state, retry, cancel)}
        <div class="page pt-4">
            <div class="cols">
                <div class="stack gap-5">
                    {why::why(locale, job, state)} {stages::stages(locale, job)} {attempts::attempts(locale, job)}
                    {side::result(locale, job)}
                </div>
                <div class="stack gap-5">{side::side(locale, job)}</div>
            </div>
        </div>
    }
    .into_any()
}

fn crumbs(locale: Locale, short: String, live: Live) -> AnyView {
    view! {
        <header class="page-head border-b-0 pb-0">
            <nav aria-label=locale.text("job-crumbs")>
                <ol class="crumbs">
                    <li><a href="/jobs">{locale.text("nav-jobs")}</a>{icon_small("right")}</li>
                    <li><span class="id" aria-current="page">{short}</span></li>
                </ol>
            </nav>
            <div class="tools w-auto ms-auto">{live_switch(locale, live)}</div>
        </header>
    }
    .into_any()
}

/// A panel with a heading. `id` names the heading.
fn panel(id: &'static str, heading: impl IntoView + 'static, tools: Option<AnyView>, body: AnyView) -> AnyView {
    view! {
        <section class="panel" aria-labelledby=id>
            <div class="panel-head">
                <h2 id=id>{heading}</h2>
                {tools.map(|tools| view! { <div class="tools">{tools}</div> })}
            </div>
            {body}
        </section>
    }
    .into_any()
}

/// Where the forms of a job's page return to.
fn back(id: JobId) -> String {
    format!("/jobs/{id}")
}
