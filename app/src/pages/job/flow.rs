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
use crate::model::{AttemptView, JobRow};
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
fn path(row: &JobRow, attempts: &[AttemptView]) -> Vec<Step> {
    let mut steps = vec![Step { state: JobState::Pending, from: Some(row.created_at), until: None }];
    let mut enter = |state: JobState, at: Option<DateTime<Utc>>| {
        // Only a person's retry leads on from a final state, by way of pending.
        if steps.last().is_some_and(|last| last.state.is_final()) && state == JobState::Running {
            steps.push(Step { state: JobState::Pending, from: None, until: None });
        }
        let Some(last) = steps.last_mut() else { return };
        if last.state != state {
            last.until = at;
            steps.push(Step { state, from: at, until: None });
        }
    };
    for attempt in attempts.iter().rev() {
        enter(JobState::Running, Some(attempt.started_at));
        let next = match attempt.outcome {
            AttemptOutcome::Canceled => JobState::Canceled,
            AttemptOutcome::Released => JobState::Pending,
            _ if attempt.next_run_at.is_some() => JobState::Retrying,
            _ => JobState::Failed,
        };
        enter(next, Some(attempt.ended_at));
    }
    let newest_end = attempts.first().map(|attempt| attempt.ended_at);
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
    let steps = Memo::new(move |_| job.with(|job| path(&job.row, &job.attempts)));
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

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn row(state: JobState, started: Option<i64>, finished: Option<i64>) -> JobRow {
        JobRow {
            id: "01a22b0e-9268-773c-b768-db5b8f4d3e27".parse().expect("an id"),
            job_type: "export_markdown".to_owned(),
            queue: "exports".to_owned(),
            state,
            attempts: 1,
            max_attempts: 5,
            version: 1,
            run_after: at(0),
            started_at: started.map(at),
            finished_at: finished.map(at),
            created_at: at(0),
            updated_at: at(0),
            stage: None,
            progress: None,
            error: None,
            error_class: None,
            error_code: None,
            cancel_requested: false,
            preview: String::new(),
            type_is_known: true,
        }
    }

    fn attempt(outcome: AttemptOutcome, started: i64, ended: i64, next: Option<i64>) -> AttemptView {
        AttemptView {
            token: started,
            attempt: 1,
            outcome,
            worker: None,
            stage: None,
            started_at: at(started),
            ended_at: at(ended),
            error_class: None,
            error_code: None,
            error: None,
            next_run_at: next.map(at),
        }
    }

    fn states(row: &JobRow, attempts: &[AttemptView]) -> String {
        let words: Vec<_> = path(row, attempts).iter().map(|step| step.state.as_str()).collect();
        words.join(" ")
    }

    #[test]
    fn the_path_has_each_state_once_per_visit() {
        use AttemptOutcome::{Failed, Released};
        assert_eq!(states(&row(JobState::Pending, None, None), &[]), "pending");
        assert_eq!(states(&row(JobState::Canceled, None, Some(2)), &[]), "pending canceled");
        assert_eq!(states(&row(JobState::Succeeded, Some(1), Some(3)), &[]), "pending running succeeded");
        let retried = [attempt(Failed, 1, 2, Some(5))];
        assert_eq!(states(&row(JobState::Retrying, Some(1), None), &retried), "pending running retrying");
        assert_eq!(states(&row(JobState::Running, Some(6), None), &retried), "pending running retrying running");
        let released = [attempt(Released, 1, 2, Some(2))];
        assert_eq!(states(&row(JobState::Pending, Some(1), None), &released), "pending running pending");
        let failed = [attempt(Failed, 1, 2, None)];
        assert_eq!(states(&row(JobState::Failed, Some(1), Some(2)), &failed), "pending running failed");
        assert_eq!(states(&row(JobState::Pending, Some(1), None), &failed), "pending running failed pending");
        let by_person = "pending running failed pending running succeeded";
        assert_eq!(states(&row(JobState::Succeeded, Some(8), Some(9)), &failed), by_person);
    }

    #[test]
    fn a_step_ends_when_the_next_begins() {
        let steps =
            path(&row(JobState::Succeeded, Some(6), Some(9)), &[attempt(AttemptOutcome::Failed, 1, 2, Some(5))]);
        let times: Vec<_> = steps.iter().map(|step| (step.from, step.until)).collect();
        let expected = [(0, Some(1)), (1, Some(2)), (2, Some(6)), (6, Some(9)), (9, None)];
        assert_eq!(times, expected.map(|(from, until)| (Some(at(from)), until.map(at))));
    }
}
