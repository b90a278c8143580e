//! Attempts that did not succeed, newest first.

use jobdeck::AttemptOutcome;
use leptos::prelude::*;

use super::{Shown, panel};
use crate::clock::use_clock;
use crate::components::badge::outcome_badge;
use crate::components::icon::icon_small;
use crate::components::relative_time::clock_time;
use crate::format::short_duration;
use crate::i18n::Locale;
use crate::model::AttemptView;
use crate::words;

pub(super) fn attempts(locale: Locale, job: Shown) -> impl IntoView {
    let n = Memo::new(move |_| job.with(|job| job.attempts.len()));
    move || {
        (n.get() > 0).then(|| {
            let heading = view! {
                {locale.text("job-attempts")} " " <span class="faint">{locale.text("job-attempts-order")}</span>
            };
            let newest = job.with_untracked(|job| job.attempts.first().map(|attempt| attempt.token));
            panel(
                "h-attempts",
                heading,
                None,
                view! {
                    <div class="attempt-list">
                        <For
                            each=move || job.with(|job| job.attempts.clone())
                            key=|attempt| attempt.token
                            children=move |attempt| one(locale, job, attempt, newest)
                        />
                    </div>
                }
                .into_any(),
            )
        })
    }
}

fn one(locale: Locale, job: Shown, attempt: AttemptView, newest: Option<i64>) -> AnyView {
    let clock = use_clock();
    let ended = attempt.ended_at;
    let first_line = attempt.error.as_deref().and_then(|error| error.lines().next()).unwrap_or_default().to_owned();
    let ran = short_duration((attempt.ended_at - attempt.started_at).num_milliseconds());
    let stage = attempt.stage.as_ref().map(|name| {
        let label = job.with_untracked(|job| {
            job.stages.iter().find(|stage| stage.name == *name).map(|stage| stage.label(locale).to_owned())
        });
        label.unwrap_or_else(|| words::stage(locale, &[], "", name))
    });
    let is_given_back = !matches!(attempt.outcome, AttemptOutcome::Failed | AttemptOutcome::Canceled);
    let chip = |name: String, value: String| {
        view! { <span class="chip line">{name} " " <b class="strong"><bdi>{value}</bdi></b></span> }
    };
    let code = attempt.error_code.clone().map(|code| {
        let words = words::code(locale, &code);
        let value = if words == code { code } else { format!("{words} ({code})") };
        chip(locale.text("attempt-error"), value)
    });
    let next = attempt.next_run_at.map(|at| {
        view! {
            <span class="chip line">{locale.text("attempt-next")} " " <b class="strong">{clock_time(at)}</b></span>
        }
    });
    view! {
        <details open=newest == Some(attempt.token)>
            <summary>
                {outcome_badge(locale, attempt.outcome, attempt.error_class)}
                <span class="strong nowrap">{locale.format("attempt-n", &[("n", attempt.attempt.into())])}</span>
                <bdi class="truncate muted grow">{first_line}</bdi>
                <span class="faint nowrap num" title=move || crate::format::absolute(ended, clock.minutes_east(ended))>
                    {clock_time(ended)}
                </span>
                {icon_small("down")}
            </summary>
            <div class="att-body">
                <p class="row wrap gap-1.5">
                    {code}
                    {attempt.worker.map(|worker| chip(locale.text("attempt-worker"), worker))}
                    {stage.map(|stage| chip(locale.text("attempt-stage"), stage))}
                    {chip(locale.text("attempt-ran"), ran)}
                    {next}
                    {is_given_back.then(|| view! { <span class="chip good">{locale.text("attempt-not-counted")}</span> })}
                </p>
                {attempt
                    .error_class
                    .map(|class| view! { <p class="muted">{words::class_meaning(locale, class)}</p> })}
                {attempt
                    .error
                    .map(|error| {
                        view! {
                            <pre
                                class="trace whitespace-pre-wrap wrap-anywhere max-h-96 overflow-y-auto"
                                tabindex="0"
                                role="group"
                                aria-label=locale.text("attempt-error")
                            >
                                {error}
                            </pre>
                        }
                    })}
            </div>
        </details>
    }
    .into_any()
}
