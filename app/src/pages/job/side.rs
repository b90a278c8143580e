//! Details, payload, result and audit trail.

use leptos::prelude::*;

use super::{Shown, panel};
use crate::components::json_view::json_view;
use crate::components::relative_time::clock_time;
use crate::frame::initials;
use crate::i18n::Locale;
use crate::model::{AuditView, JobView};
use crate::words;

pub(super) fn side(locale: Locale, job: Shown) -> AnyView {
    let details = view! {
        <div class="panel-body">
            <dl class="props">{move || job.with(|job| details(locale, job))}</dl>
        </div>
    };
    // Payloads never change.
    let payload = job.with_untracked(|job| {
        json_view(locale, &job.payload, locale.text("job-payload-label"), format!("/jobs/{}/payload.json", job.row.id))
    });
    let trail = view! {
        <ul class="list">
            <For each=move || job.with(|job| job.audit.clone()) key=|entry| entry.id children=move |entry| did(locale, entry) />
            {move || job.with(|job| enqueued(locale, job))}
        </ul>
    };
    view! {
        {panel("h-details", locale.text("job-details"), None, details.into_any())}
        {panel("h-payload", locale.text("job-payload"), None, view! { <div class="panel-body stack">{payload}</div> }.into_any())}
        {panel("h-audit", locale.text("job-audit"), None, trail.into_any())}
    }
    .into_any()
}

/// What the handler returned, once it has.
pub(super) fn result(locale: Locale, job: Shown) -> impl IntoView {
    let has_result = Memo::new(move |_| job.with(|job| job.result.is_some()));
    move || {
        has_result.get().then(|| {
            let body = job.with_untracked(|job| {
                job.result.as_ref().map(|result| {
                    let whole = format!("/jobs/{}/result.json", job.row.id);
                    json_view(locale, result, locale.text("job-result-label"), whole)
                })
            });
            panel(
                "h-result",
                locale.text("job-result"),
                None,
                view! { <div class="panel-body stack">{body}</div> }.into_any(),
            )
        })
    }
}

fn details(locale: Locale, job: &JobView) -> Vec<AnyView> {
    let row = &job.row;
    let pair = |name: String, value: AnyView| view! { <dt>{name}</dt> <dd>{value}</dd> }.into_any();
    let text = |text: String| view! { <bdi>{text}</bdi> }.into_any();
    let mut lines = vec![
        pair(locale.text("detail-id"), view! { <code>{row.id.to_string()}</code> }.into_any()),
        pair(
            locale.text("detail-queue"),
            locale
                .format(
                    "detail-queue-priority",
                    &[("queue", row.queue.as_str().into()), ("priority", job.priority.into())],
                )
                .into_any(),
        ),
        pair(
            locale.text("detail-attempts"),
            view! {
                {locale.format("detail-n-of", &[("n", row.attempts.into()), ("of", row.max_attempts.into())])}
                {(job.starts > row.attempts)
                    .then(|| {
                        let starts = locale.format("detail-starts", &[("n", job.starts.into())]);
                        view! { " " <span class="faint">{starts}</span> }
                    })}
            }
            .into_any(),
        ),
    ];
    if job.stalled_count > 0 {
        lines.push(pair(
            locale.text("detail-stalls"),
            locale.format("detail-n-of", &[("n", job.stalled_count.into()), ("of", job.max_stalled.into())]).into_any(),
        ));
    }
    if let Some(worker) = job.last_worker.clone() {
        lines.push(pair(locale.text("detail-worker"), view! { <bdi class="mono">{worker}</bdi> }.into_any()));
    }
    lines.push(pair(
        locale.text("detail-enqueued"),
        view! {
            {clock_time(row.created_at)}
            {job.created_by.clone().map(|by| view! { " " {locale.text("detail-by")} " " <bdi>{by}</bdi> })}
        }
        .into_any(),
    ));
    if let Some(finished) = row.finished_at {
        lines.push(pair(locale.text("detail-ended"), clock_time(finished).into_any()));
    }
    if let Some(owner) = job.owner.clone() {
        lines.push(pair(locale.text("detail-owner"), text(owner)));
    }
    if let Some(key) = job.idempotency_key.clone() {
        lines.push(pair(locale.text("detail-key"), view! { <code><bdi>{key}</bdi></code> }.into_any()));
        let duplicates = locale.format("detail-n-duplicates", &[("n", job.n_duplicates.into())]);
        let last = job
            .last_duplicate_at
            .map(|at| view! { <span class="faint">", " {locale.text("detail-last")} " " {clock_time(at)}</span> });
        lines.push(pair(locale.text("detail-duplicates"), view! { {duplicates} {last} }.into_any()));
    }
    if let Some(href) = job.export_href.clone() {
        let link = view! { <a href=href rel="external">{locale.text("detail-export-link")}</a> };
        lines.push(pair(locale.text("detail-export"), link.into_any()));
    }
    lines
}

fn did(locale: Locale, entry: AuditView) -> AnyView {
    let letters = initials(&entry.actor);
    let refused = entry.refused.then(|| view! { " " <span class="chip bad">{locale.text("audit-refused")}</span> });
    view! {
        <li>
            <span class="avatar" aria-hidden="true">{letters}</span>
            <span>
                <bdi class="strong">{entry.actor}</bdi>
                " "
                {words::action(locale, &entry.action)}
                {refused}
            </span>
            <span class="faint num nowrap">{clock_time(entry.at)}</span>
        </li>
    }
    .into_any()
}

/// The first line of the trail: how the job came here.
fn enqueued(locale: Locale, job: &JobView) -> impl IntoView + use<> {
    let by = job.created_by.clone().unwrap_or_else(|| locale.text("audit-someone"));
    view! {
        <li>
            <span class="avatar sys" aria-hidden="true">{initials(&by)}</span>
            <span><bdi class="strong">{by}</bdi> " " {locale.text("action-enqueue-job")}</span>
            <span class="faint num nowrap">{clock_time(job.row.created_at)}</span>
        </li>
    }
}
