//! The rows. Each is a signal of its own, so that a change touches its cells and nothing else.

use jobdeck::JobState;
use leptos::prelude::*;

use super::Rows;
use super::happening::happening_view;
use crate::clock::use_clock;
use crate::components::action_button::{Look, cancel_button, retry_button};
use crate::components::badge::state_badge;
use crate::components::relative_time::relative_time;
use crate::format::short_duration;
use crate::i18n::Locale;
use crate::model::{JobListView, JobQuery, JobRow, PageFacts, Permission, TypeView};
use crate::server_fns::jobs::{CancelJob, RetryJob};

/// The actions of all rows.
#[derive(Clone, Copy)]
pub(super) struct Actions {
    pub(super) retry: ServerAction<RetryJob>,
    pub(super) cancel: ServerAction<CancelJob>,
}

/// The list as a table; on small screens its rows become cards, so the roles are written out.
pub(super) fn job_table(locale: Locale, query: &JobQuery, view: &JobListView, rows: Rows, actions: Actions) -> AnyView {
    let types = StoredValue::new(view.types.clone());
    let facts = expect_context::<PageFacts>();
    let may = (facts.allows(Permission::RetryJobs), facts.allows(Permission::CancelJobs));
    let lines: Vec<_> = view
        .rows
        .iter()
        .filter_map(|row| rows.row(row.id))
        .map(|row| line(locale, query, row, rows, types, actions, may))
        .collect();
    let head = |key: String, class: &'static str| {
        view! { <th role="columnheader" scope="col" class=class>{key}</th> }
    };
    view! {
        <div class="table-wrap" role="group" aria-label=locale.text("jobs-table-scroll") tabindex="0">
            <table role="table" class="table sheet-table job-table cards" aria-rowcount="-1">
                <caption class="visually-hidden">{locale.text("jobs-table-caption")}</caption>
                <thead role="rowgroup">
                    <tr role="row">
                        {head(locale.text("column-state"), "")}
                        {head(locale.text("column-job"), "")}
                        {head(locale.text("column-happening"), "")}
                        {head(locale.text("column-queue"), "only-wide")}
                        {head(locale.text("column-payload"), "only-wide")}
                        {head(locale.text("column-attempt"), "num")}
                        {head(locale.text("column-run-time"), "num only-wide")}
                        {head(locale.text("column-changed"), "num")}
                        <th role="columnheader" scope="col">
                            <span class="visually-hidden">{locale.text("column-actions")}</span>
                        </th>
                    </tr>
                </thead>
                <tbody role="rowgroup">{lines}</tbody>
            </table>
        </div>
    }
    .into_any()
}

fn line(
    locale: Locale,
    query: &JobQuery,
    row: RwSignal<JobRow>,
    rows: Rows,
    types: StoredValue<Vec<TypeView>>,
    actions: Actions,
    may: (bool, bool),
) -> AnyView {
    let clock = use_clock();
    let first = row.get_untracked();
    let (id, job_type, queue) = (first.id, first.job_type, first.queue);
    let name = format!("{job_type} {}", id.short());
    let matches = {
        let query = query.clone();
        Memo::new(move |_| rows.matches(id, &query))
    };
    let state = Memo::new(move |_| row.with(|row| row.state));
    let run_time = move || {
        row.with(|row| {
            // Only a running job looks at the clock again and again.
            let now = if row.state == JobState::Running { clock.now() } else { row.updated_at };
            row.run_ms(now).map_or_else(|| "–".to_owned(), short_duration)
        })
    };
    let can = Memo::new(move |_| row.with(|row| (row.can_be_retried() && may.0, row.can_be_canceled() && may.1)));
    let back = query.href();
    let buttons = move || {
        let (name, back) = (Some(name.clone()), back.clone());
        match can.get() {
            (true, _) => retry_button(locale, actions.retry, id, name, back, Look::Row).into_any(),
            (_, true) => cancel_button(locale, actions.cancel, id, name, back, Look::Row).into_any(),
            _ => ().into_any(),
        }
    };
    view! {
        <tr role="row" data-state=move || state.get().as_str() class:opacity-60=move || !matches.get()>
            <td role="cell">{move || state_badge(locale, state.get(), "state-badge plain")}</td>
            <td role="cell" class="lead nowrap">
                <a class="cell-link" href=format!("/jobs/{id}") title=id.to_string()>
                    <bdi class="name">{job_type}</bdi>
                    " "
                    <span class="id">{id.short()}</span>
                </a>
                {move || {
                    (!matches.get()).then(|| view! { <span class="sub">{locale.text("jobs-no-longer-matches")}</span> })
                }}
            </td>
            <td role="cell" class="wide max-w-78">
                {move || {
                    row.with(|row| {
                        // Only a waiting job counts down.
                        let now = if row.state.is_waiting() { clock.now() } else { row.updated_at };
                        types.with_value(|types| happening_view(locale, types, row, now))
                    })
                }}
            </td>
            <td role="cell" class="only-wide">{queue}</td>
            <td role="cell" class="only-wide truncate max-w-42" title=first.preview.clone()>
                {preview(&first.preview)}
            </td>
            <td role="cell" class="num" data-label=locale.text("column-attempt")>
                {move || row.with(|row| format!("{} / {}", row.attempts, row.max_attempts))}
            </td>
            <td role="cell" class="num only-wide">{run_time}</td>
            <td role="cell" class="num end nowrap">
                {relative_time(locale, move || row.with(|row| row.updated_at))}
            </td>
            <td role="cell" class="menu">{buttons}</td>
        </tr>
    }
    .into_any()
}

/// `name=value` pairs with the names in grey.
fn preview(text: &str) -> impl IntoView + use<> {
    let pairs: Vec<_> = text
        .split(' ')
        .filter(|part| !part.is_empty())
        .map(|part| match part.split_once('=') {
            Some((name, value)) => {
                view! { <span class="k">{format!("{name}=")}</span> {format!("{value} ")} }.into_any()
            }
            None => format!("{part} ").into_any(),
        })
        .collect();
    view! { <span class="kv">{pairs}</span> }
}
