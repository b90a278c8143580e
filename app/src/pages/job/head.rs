//! Type, state, stage, attempt, what can be done, and the path so far.

use jobdeck::JobState;
use leptos::prelude::*;

use super::flow::flow;
use super::{Shown, back};
use crate::components::action_button::{Look, cancel_button, refused_button, retry_button};
use crate::components::badge::{class_badge, state_badge};
use crate::i18n::Locale;
use crate::model::{PageFacts, Permission};
use crate::server_fns::jobs::{CancelJob, RetryJob};

pub(super) fn head(
    locale: Locale,
    job: Shown,
    state: Memo<JobState>,
    retry: ServerAction<RetryJob>,
    cancel: ServerAction<CancelJob>,
) -> AnyView {
    let stage = move || {
        job.with(|job| {
            let name = job.row.stage.as_ref().filter(|_| job.row.state != JobState::Succeeded)?;
            let label = job.stages.iter().find(|stage| stage.name == *name).map(|stage| stage.label(locale).to_owned());
            let stage = label.unwrap_or_else(|| crate::words::stage(locale, &[], &job.row.job_type, name));
            Some(view! { <span class="chip line">{locale.format("job-stage", &[("stage", stage.into())])}</span> })
        })
    };
    let class = move || {
        let class = job.with(|job| job.row.error_class.filter(|_| job.row.state == JobState::Failed));
        class.map(|class| class_badge(locale, class, "class-badge min-h-7 px-2"))
    };
    let attempt = move || {
        job.with(|job| {
            let (n, of) = (job.row.attempts, job.row.max_attempts);
            if job.starts == 0 {
                locale.text("job-never-started")
            } else {
                locale.format("job-attempt", &[("n", n.into()), ("of", of.into())])
            }
        })
    };
    view! {
        <div class="job-head">
            <div class="row wrap between gap-3">
                <div class="row wrap gap-2.5">
                    <h1 class="text-2xl"><bdi>{job.with_untracked(|job| job.row.job_type.clone())}</bdi></h1>
                    {move || state_badge(locale, state.get(), "state-badge lg")}
                    {class}
                    {stage}
                    <span class="faint num">{attempt}</span>
                </div>
                <div class="row wrap">{actions(locale, job, retry, cancel)}</div>
            </div>
            {flow(locale, job)}
        </div>
    }
    .into_any()
}

fn actions(
    locale: Locale,
    job: Shown,
    retry: ServerAction<RetryJob>,
    cancel: ServerAction<CancelJob>,
) -> impl IntoView {
    let facts = expect_context::<PageFacts>();
    let may_retry = facts.allows(Permission::RetryJobs);
    let may_cancel = facts.allows(Permission::CancelJobs);
    let id = job.with_untracked(|job| job.row.id);
    let fits = Memo::new(move |_| job.with(|job| (job.row.can_be_retried(), job.row.can_be_canceled())));
    move || match fits.get() {
        (true, _) if may_retry => retry_button(locale, retry, id, None, back(id), Look::Main).into_any(),
        (true, _) => {
            refused_button(locale.text("action-retry"), "retry", locale.text("not-for-viewers"), "why-not").into_any()
        }
        (_, true) if may_cancel => cancel_button(locale, cancel, id, None, back(id), Look::Head).into_any(),
        (_, true) => {
            refused_button(locale.text("action-cancel"), "s-canceled", locale.text("admins-only"), "why-not").into_any()
        }
        _ => ().into_any(),
    }
}
