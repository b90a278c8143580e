//! One sentence that says why a job waits or stopped, then the facts behind it.

use chrono::{DateTime, Utc};
use jobdeck::{FailureClass, JobState};
use leptos::prelude::*;

use super::{Shown, panel};
use crate::clock::{Clock, use_clock};
use crate::components::icon::icon_with;
use crate::components::relative_time::{clock_time, relative_time};
use crate::format::long_duration;
use crate::i18n::Locale;
use crate::model::{JobView, WaitView};
use crate::words;

pub(super) fn why(locale: Locale, job: Shown, state: Memo<JobState>) -> impl IntoView {
    let clock = use_clock();
    move || match state.get() {
        JobState::Pending | JobState::Retrying => {
            let checked = move || job.with(|job| job.now);
            let tools = view! {
                <span class="chip">{locale.text("why-checked")} " " {relative_time(locale, checked)}</span>
            };
            panel(
                "h-why",
                locale.text("why-waiting"),
                Some(tools.into_any()),
                view! {
                    <div class="panel-body stack">
                        <p class="text-md">{move || job.with(|job| waiting(locale, clock, job))}</p>
                        <ul class="checks">{move || job.with(|job| checks(locale, clock, job))}</ul>
                    </div>
                }
                .into_any(),
            )
        }
        JobState::Failed => panel(
            "h-why",
            locale.text("why-failed"),
            None,
            view! {
                <div class="panel-body stack">
                    <p class="text-md">{move || job.with(|job| stopped(locale, job))}</p>
                    {move || {
                        job.with(|job| {
                            job.row.error.clone().map(|error| view! { <p class="muted"><bdi>{error}</bdi></p> })
                        })
                    }}
                </div>
            }
            .into_any(),
        ),
        _ => ().into_any(),
    }
}

/// How far off `at` is, in a sentence.
fn in_time(locale: Locale, at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    long_duration(locale, (at - now).num_milliseconds() + 999)
}

/// Why it waits, the strongest reason first.
fn waiting(locale: Locale, clock: Clock, job: &JobView) -> String {
    let row = &job.row;
    let Some(wait) = &job.wait else { return locale.text("why-starting") };
    let now = clock.now();
    if let Some(by) = &wait.paused_by {
        return locale.format("why-paused", &[("queue", row.queue.as_str().into()), ("by", by.as_str().into())]);
    }
    if row.run_after > now {
        let time = in_time(locale, row.run_after, now);
        let reason = row.error.clone().or_else(|| row.error_code.as_deref().map(|code| words::code(locale, code)));
        return match reason.filter(|_| row.state == JobState::Retrying) {
            Some(error) => locale.format(
                "why-due-later-after",
                &[("time", time.into()), ("n", row.attempts.into()), ("error", error.into())],
            ),
            None => locale.format("why-due-later", &[("time", time.into())]),
        };
    }
    if wait.n_workers == 0 {
        return locale.format("why-no-worker", &[("type", row.job_type.as_str().into())]);
    }
    match wait.n_ahead {
        Some(0) | None => locale.text("why-next"),
        Some(n) => locale.format("why-ahead", &[("n", n.into())]),
    }
}

/// The facts: due, queue, place, worker.
fn checks(locale: Locale, clock: Clock, job: &JobView) -> Vec<AnyView> {
    let row = &job.row;
    let Some(WaitView { paused_by, n_workers, n_slots, n_ahead }) = job.wait.clone() else { return Vec::new() };
    let run_after = row.run_after;
    let due = move || run_after <= clock.now();
    let due_words = move || {
        if due() { locale.text("check-due-now") } else { locale.text("check-due-later") }
    };
    let due_value = move || {
        if due() {
            String::new()
        } else {
            locale.format("check-in", &[("time", in_time(locale, run_after, clock.now()).into())])
        }
    };
    let mut lines = vec![
        view! {
            <li>
                {move || mark(due())}
                <span>
                    <span class="strong">{locale.text("check-due")}</span>
                    " "
                    {due_words}
                    {move || (!due()).then(|| view! { " " {clock_time(run_after)} })}
                </span>
                <span class="v">{due_value}</span>
            </li>
        }
        .into_any(),
    ];
    let queue = row.queue.as_str();
    lines.push(match paused_by {
        Some(by) => line(
            false,
            locale.text("check-queue"),
            locale.format("check-queue-paused", &[("queue", queue.into()), ("by", by.into())]),
            String::new(),
        ),
        None => line(
            true,
            locale.text("check-queue"),
            locale.format("check-queue-open", &[("queue", queue.into())]),
            String::new(),
        ),
    });
    if let Some(n) = n_ahead {
        let words = if n == 0 {
            locale.text("check-place-next")
        } else {
            locale.format("check-place-ahead", &[("n", n.into())])
        };
        lines.push(line(n == 0, locale.text("check-place"), words, String::new()));
    }
    lines.push(if n_workers == 0 {
        line(false, locale.text("check-worker"), locale.text("check-worker-none"), String::new())
    } else {
        line(
            true,
            locale.text("check-worker"),
            locale.format("check-worker-some", &[("n", n_workers.into())]),
            locale.format("check-slots", &[("n", n_slots.into())]),
        )
    });
    lines
}

fn mark(is_fine: bool) -> impl IntoView {
    if is_fine { icon_with("i ok", "check") } else { icon_with("i no", "clock") }
}

fn line(is_fine: bool, name: String, words: String, value: String) -> AnyView {
    view! {
        <li>
            {mark(is_fine)}
            <span><span class="strong">{name}</span> " " {words}</span>
            <span class="v">{value}</span>
        </li>
    }
    .into_any()
}

/// Why it failed and what was not done.
fn stopped(locale: Locale, job: &JobView) -> String {
    let row = &job.row;
    let code = row
        .error_code
        .as_deref()
        .map_or_else(|| words::class(locale, FailureClass::Retryable), |code| words::code(locale, code));
    match row.error_class {
        Some(FailureClass::Unrecoverable) => {
            let left = (row.max_attempts - row.attempts).max(0);
            locale.format("why-unrecoverable", &[("code", code.into()), ("n", left.into())])
        }
        Some(FailureClass::Stalled) => locale.format("why-stalled-out", &[("n", job.stalled_count.into())]),
        _ => locale.format("why-gave-up", &[("n", row.attempts.into()), ("code", code.into())]),
    }
}
