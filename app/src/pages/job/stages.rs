//! The stages of the present or last attempt, in order, with when each was entered and how long it took.

use jobdeck::JobState;
use leptos::prelude::*;

use super::{Shown, panel};
use crate::clock::use_clock;
use crate::components::icon::icon_with;
use crate::components::progress_bar::progress_bar;
use crate::components::relative_time::clock_time;
use crate::format::short_duration;
use crate::i18n::Locale;
use crate::model::JobView;

/// How a stage stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Done,
    Here,
    Stopped,
    ToCome,
}

fn standing(job: &JobView, place: usize) -> Standing {
    let stage = &job.stages[place];
    let is_last_entered = job.row.stage.as_ref() == Some(&stage.name);
    match (stage.at, job.row.state) {
        (None, _) => Standing::ToCome,
        (Some(_), JobState::Succeeded) => Standing::Done,
        (Some(_), JobState::Running) if is_last_entered => Standing::Here,
        (Some(_), _) if is_last_entered => Standing::Stopped,
        _ => Standing::Done,
    }
}

pub(super) fn stages(locale: Locale, job: Shown) -> impl IntoView {
    let has_stages = Memo::new(move |_| job.with(|job| !job.stages.is_empty()));
    move || {
        has_stages.get().then(|| {
            panel(
                "h-stages",
                locale.text("job-stages"),
                None,
                view! {
                    <ol class="checks panel-body">{move || job.with(|job| lines(locale, job))}</ol>
                }
                .into_any(),
            )
        })
    }
}

fn lines(locale: Locale, job: &JobView) -> Vec<AnyView> {
    let clock = use_clock();
    (0..job.stages.len())
        .map(|place| {
            let stage = &job.stages[place];
            let standing = standing(job, place);
            let label = stage.label(locale).to_owned();
            // A stage lasts until the next one is entered, the last one until the attempt ended.
            let next =
                job.stages.iter().filter_map(|other| other.at).filter(|at| stage.at.is_some_and(|own| *at > own)).min();
            let attempt_end = job
                .attempts
                .first()
                .map(|attempt| attempt.ended_at)
                .filter(|end| stage.at.is_some_and(|own| *end >= own));
            let end = next.or(job.row.finished_at).or(attempt_end).filter(|_| standing != Standing::Here);
            let is_final_mark = job.row.state == JobState::Succeeded && next.is_none();
            let from = stage.at.filter(|_| !is_final_mark);
            let took = move || match (from, end) {
                (Some(from), Some(end)) => short_duration((end - from).num_milliseconds()),
                (Some(from), None) if standing == Standing::Here => {
                    short_duration((clock.now() - from).num_milliseconds())
                }
                _ => String::new(),
            };
            let (class, picture, word) = match standing {
                Standing::Done => ("i ok", "check", locale.text("stage-standing-done")),
                Standing::Here => ("i spin", "s-running", locale.text("stage-standing-here")),
                Standing::Stopped => ("i no", "alert", locale.text("stage-standing-stopped")),
                Standing::ToCome => ("i faint", "s-pending", locale.text("stage-standing-to-come")),
            };
            let percent = job.row.progress.filter(|_| standing == Standing::Here);
            let bar = percent.map(|percent| {
                let shown = locale.format("percent", &[("n", percent.clamp(0, 100).into())]);
                view! {
                    <span class="mini-progress ms-2">
                        {progress_bar(percent, label.clone(), "progress-bar thin")}
                        <span class="faint">{shown}</span>
                    </span>
                }
            });
            let running = (standing == Standing::Here).then_some("running");
            view! {
                <li>
                    <span data-state=running>{icon_with(class, picture)}</span>
                    <span>
                        <span class=if standing == Standing::ToCome { "faint" } else { "strong" }>{label}</span>
                        <span class="visually-hidden">{format!(", {word}")}</span>
                        {bar}
                    </span>
                    <span class="v">
                        {stage.at.map(|at| view! { <span class="faint">{clock_time(at)}</span> })}
                        // As wide where nothing is said, so that the times stand in one column.
                        <span class="inline-block min-w-12 ps-2">{took}</span>
                    </span>
                </li>
            }
            .into_any()
        })
        .collect()
}
