//! The path through the states, with how long each took.

use chrono::{DateTime, Utc};
use jobdeck::{AttemptOutcome, JobState};
use leptos::prelude::*;

use super::Shown;
use crate::clock::use_clock;
use crate::components::badge::state_icon;
use crate::components::icon::{icon_small, icon_with};
use crate::format::short_duration;
use crate::i18n::Locale;
use crate::model::JobView;
use crate::words;

/// A state on the path.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    state: JobState,
    /// When it was entered and left; a state that lasts has no end.
    from: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
}

/// More steps than this are shortened in the middle.
const MOST_STEPS: usize = 8;

/// The states passed so far, the present one last.
fn path(job: &JobView) -> Vec<Step> {
    let row = &job.row;
    let mut steps = vec![Step { state: JobState::Pending, from: Some(row.created_at), until: None }];
    let mut enter = |state: JobState, at: Option<DateTime<Utc>>| {
        let Some(last) = steps.last_mut() else { return };
        if last.state != state {
            last.until = at;
            steps.push(Step { state, from: at, until: None });
        }
    };
    for attempt in job.attempts.iter().rev() {
        enter(JobState::Pending, None);
        enter(JobState::Running, Some(attempt.started_at));
        let next = match attempt.outcome {
            AttemptOutcome::Canceled => JobState::Canceled,
            AttemptOutcome::Released => JobState::Pending,
            _ if attempt.next_run_at.is_some() => JobState::Retrying,
            _ => JobState::Failed,
        };
        enter(next, Some(attempt.ended_at));
    }
    let newest_end = job.attempts.first().map(|attempt| attempt.ended_at);
    let runs_since = row.started_at.filter(|started| newest_end.is_none_or(|end| *started >= end));
    match row.state {
        JobState::Running | JobState::Succeeded => {
            enter(JobState::Running, runs_since);
            enter(row.state, row.finished_at);
        }
        JobState::Pending | JobState::Retrying => enter(row.state, None),
        JobState::Failed | JobState::Canceled => enter(row.state, row.finished_at),
    }
    steps
}

pub(super) fn flow(locale: Locale, job: Shown) -> impl IntoView {
    let clock = use_clock();
    let steps = Memo::new(move |_| job.with(path));
    let badges = move || {
        let steps = steps.get();
        let n = steps.len();
        // The first two and the newest are worth more than those between.
        let left_out = n.saturating_sub(MOST_STEPS);
        let waits = steps.last().is_some_and(|step| step.state.is_waiting());
        let badges: Vec<_> = steps
            .into_iter()
            .enumerate()
            .filter(|(place, _)| left_out == 0 || *place < 2 || *place >= 2 + left_out)
            .map(|(place, step)| {
                let is_now = place + 1 == n;
                let skipped =
                    (left_out > 0 && place == 2 + left_out).then(|| view! { <span class="faint">"…"</span> {arrow()} });
                view! {
                    {(place > 0).then(arrow)}
                    {skipped}
                    {badge(locale, clock, step, is_now)}
                }
            })
            .collect();
        let next = waits.then(|| {
            view! {
                {arrow()}
                <span class="state-badge off" data-state="running">
                    {icon_with("i", state_icon(JobState::Pending))}
                    {words::state(locale, JobState::Running)}
                </span>
            }
        });
        view! {
            {badges}
            {next}
        }
    };
    view! { <p class="flow" role="group" aria-label=locale.text("job-path")>{badges}</p> }
}

fn arrow() -> impl IntoView {
    view! { <span class="arrow">{icon_small("right")}</span> }
}

fn badge(locale: Locale, clock: crate::clock::Clock, step: Step, is_now: bool) -> impl IntoView {
    let state = step.state;
    let took = move || match (step.from, step.until) {
        (Some(from), Some(until)) => short_duration((until - from).num_milliseconds()),
        (Some(from), None) if is_now && !state.is_final() => {
            let so_far = short_duration((clock.now() - from).num_milliseconds());
            locale.format("job-so-far", &[("time", so_far.into())])
        }
        (Some(from), None) if is_now => crate::format::relative(locale, from, clock.now()),
        _ => String::new(),
    };
    view! {
        <span
            class=if is_now { "state-badge now" } else { "state-badge" }
            data-state=state.as_str()
            aria-current=is_now.then_some("step")
        >
            {icon_with(if is_now && state == JobState::Running { "i spin" } else { "i" }, state_icon(state))}
            {words::state(locale, state)}
            " "
            <span class="x">{took}</span>
        </span>
    }
}
