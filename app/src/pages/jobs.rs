//! The jobs list. Everything it shows is in its address; rows on screen follow live events and keep their place.

mod happening;
mod table;

use std::collections::{HashMap, HashSet};

use jobdeck::{JobId, JobState};
use leptos::prelude::*;
use leptos_router::NavigateOptions;
use leptos_router::hooks::{use_location, use_navigate};

use crate::clock::use_clock;
use crate::components::badge::state_icon;
use crate::components::blank::{blank, error_view, skeleton};
use crate::components::icon::{icon, icon_small};
use crate::components::live_banner::live_banner;
use crate::components::live_switch::live_switch;
use crate::components::notice_line::{notice_line, notice_of};
use crate::components::page_title::page_title;
use crate::components::relative_time::clock_time;
use crate::format;
use crate::i18n::Locale;
use crate::live::use_live;
use crate::model::query::{ROW_CHOICES, parameter};
use crate::model::{JobListView, JobQuery, JobRow, LiveUpdate, Notice, StateCountsView, TypeView};
use crate::server_fns::jobs::{CancelJob, RetryJob, list_jobs};
use crate::words;

/// `/jobs`
#[component]
pub(crate) fn JobsPage() -> impl IntoView {
    let locale = expect_context::<Locale>();
    let search = use_location().search;
    let query = Memo::new(move |_| search.with(|search| JobQuery::parse(search)));
    let list = Resource::new(move || query.get(), |query| list_jobs(query.print()));
    let title = move || match query.get().state {
        Some(state) => locale.format("jobs-title-state", &[("state", words::state(locale, state).into())]),
        None => locale.text("jobs-title"),
    };
    view! {
        {page_title(title)}
        <Transition fallback=move || {
            view! {
                <header class="page-head"><h1>{locale.text("jobs-title")}</h1></header>
                {skeleton(locale.text("jobs-loading"))}
            }
        }>
            {move || {
                list.get()
                    .map(|answer| {
                        let query = query.get_untracked();
                        match answer {
                            Ok(view) => loaded(locale, query, view),
                            Err(error) => broken(locale, &query, &error),
                        }
                    })
            }}
        </Transition>
    }
}

fn broken(locale: Locale, query: &JobQuery, error: &crate::AppError) -> AnyView {
    #[cfg(feature = "ssr")]
    crate::ssr::set_status(error.status());
    view! {
        <header class="page-head"><h1>{locale.text("jobs-title")}</h1></header>
        {filter_bar(locale, query, &[])}
        {error_view(locale, error, query.href())}
    }
    .into_any()
}

/// Rows on screen. They change in place; none is added or moved.
#[derive(Clone, Copy)]
struct Rows {
    by_id: StoredValue<HashMap<JobId, RwSignal<JobRow>>>,
    gone: RwSignal<HashSet<JobId>>,
}

impl Rows {
    fn new(rows: &[JobRow]) -> Self {
        let by_id = rows.iter().map(|row| (row.id, RwSignal::new(row.clone()))).collect();
        Self { by_id: StoredValue::new(by_id), gone: RwSignal::default() }
    }

    fn row(self, id: JobId) -> Option<RwSignal<JobRow>> {
        self.by_id.with_value(|rows| rows.get(&id).copied())
    }

    /// Shows a row as it is now. An older version never replaces a newer one.
    fn show(self, row: JobRow) {
        if let Some(shown) = self.row(row.id)
            && shown.with_untracked(|shown| shown.version < row.version)
        {
            shown.set(row);
        }
    }

    /// Whether a row still belongs to the list, as far as its state tells.
    fn matches(self, id: JobId, query: &JobQuery) -> bool {
        let is_gone = self.gone.with(|gone| gone.contains(&id));
        let state = self.row(id).map(|row| row.with(|row| row.state));
        !is_gone && query.state.is_none_or(|wanted| state == Some(wanted))
    }
}

fn loaded(locale: Locale, query: JobQuery, view: JobListView) -> AnyView {
    let clock = use_clock();
    clock.set(view.now);
    let rows = Rows::new(&view.rows);
    let ids: Vec<JobId> = view.rows.iter().map(|row| row.id).collect();
    let counts = RwSignal::new(view.counts);
    // What was counted first, with the page or after it, and how many rows had left the list by then.
    let first_counts = StoredValue::new(view.counts.map(|counts| (counts, 0)));
    let n_left = {
        let (ids, query) = (ids.clone(), query.clone());
        Memo::new(move |_| ids.iter().filter(|id| !rows.matches(**id, &query)).count() as i64)
    };
    let live = use_live(live_address(&query, &ids), move |update: LiveUpdate| {
        for row in update.rows {
            rows.show(row);
        }
        if !update.gone.is_empty() {
            rows.gone.update(|gone| gone.extend(update.gone));
        }
        if let Some(fresh) = update.counts {
            first_counts.update_value(|first| {
                first.get_or_insert_with(|| (fresh, n_left.get_untracked()));
            });
            counts.set(Some(fresh));
        }
    });

    // Jobs that came since the page was loaded: the growth of the count, and what left it from this page.
    let n_new = {
        let query = query.clone();
        move || {
            if !query.is_at_start() {
                return 0;
            }
            match (counts.get(), first_counts.get_value()) {
                (Some(now), Some((first, n_left_then))) => {
                    now.of(query.state) - first.of(query.state) + n_left.get() - n_left_then
                }
                _ => 0,
            }
        }
    };

    let retry = ServerAction::<RetryJob>::new();
    let cancel = ServerAction::<CancelJob>::new();
    let notice = RwSignal::new(
        parameter(&use_location().search.get_untracked(), "notice")
            .and_then(|word| Notice::read(&word))
            .map(|notice| (notice, None)),
    );
    let tell = move |id: Option<String>, answer: Result<crate::server_fns::jobs::ActionView, crate::AppError>| {
        let subject = id.and_then(|id| id.parse().ok()).and_then(|id| rows.row(id));
        let subject = subject.map(|row| row.with_untracked(|row| format!("{} {}", row.job_type, row.id.short())));
        let told = match answer {
            Ok(view) => {
                rows.show(view.row);
                view.notice
            }
            Err(error) => notice_of(&error),
        };
        notice.set(Some((told, subject)));
    };
    let (retried, canceled) = (retry.value(), cancel.value());
    let (retried_id, canceled_id) = (StoredValue::new(None), StoredValue::new(None));
    Effect::new(move |_| {
        if let Some(input) = retry.input().get() {
            retried_id.set_value(Some(input.id));
        }
        if let Some(input) = cancel.input().get() {
            canceled_id.set_value(Some(input.id));
        }
    });
    Effect::new(move |_| {
        if let Some(answer) = retried.get() {
            tell(retried_id.get_value(), answer);
        }
    });
    Effect::new(move |_| {
        if let Some(answer) = canceled.get() {
            tell(canceled_id.get_value(), answer);
        }
    });

    let actions = table::Actions { retry, cancel };
    let body = if view.rows.is_empty() {
        empty(locale, &query, &view).into_any()
    } else {
        view! {
            {table::job_table(locale, &query, &view, rows, actions)}
            {pager(locale, &query, &view, counts)}
        }
        .into_any()
    };
    let pill_href = query.from_start().href();
    let n_new = Memo::new(move |_| n_new());
    view! {
        <header class="page-head">
            <h1>{locale.text("jobs-title")}</h1>
            <div class="tools w-auto ms-auto">{live_switch(locale, live)}</div>
        </header>
        {live_banner(locale, live)}
        {move || notice.get().map(|(told, subject)| notice_line(locale, Some(told), subject))}
        <div class="tabs-row">
            {tabs(locale, &query, counts)}
            {move || {
                (n_new.get() > 0)
                    .then(|| {
                        view! {
                            <a class="new-pill" href=pill_href.clone() rel="external">
                                {icon_small("arrow-up")}
                                {locale.format("jobs-new", &[("n", n_new.get().into())])}
                            </a>
                        }
                    })
            }}
        </div>
        {filter_bar(locale, &query, &view.types)}
        {body}
    }
    .into_any()
}

fn live_address(query: &JobQuery, ids: &[JobId]) -> String {
    let ids: Vec<String> = ids.iter().map(JobId::to_string).collect();
    let mut address = format!("/live?ids={}&counts=1", ids.join(","));
    let narrowing = JobQuery { state: None, after: None, before: None, rows: None, ..query.clone() }.print();
    if !narrowing.is_empty() {
        address.push('&');
        address.push_str(&narrowing);
    }
    address
}

fn tabs(locale: Locale, query: &JobQuery, counts: RwSignal<Option<StateCountsView>>) -> AnyView {
    let tab = |state: Option<JobState>, name: String, mark: Option<&'static str>| {
        let current = (query.state == state).then_some("page");
        let n = move || counts.get().map_or_else(|| "…".to_owned(), |counts| format::count(counts.of(state)));
        let why_none = move || counts.get().is_none().then(|| locale.text("jobs-not-counted"));
        view! {
            <a href=query.with_state(state).href() aria-current=current data-state=state.map(JobState::as_str)>
                {mark.map(icon)}
                {name}
                <span class="n" title=why_none>{n}</span>
            </a>
        }
    };
    let all = tab(None, locale.text("jobs-all"), None);
    let states: Vec<_> = JobState::ALL
        .into_iter()
        .map(|state| tab(Some(state), words::state(locale, state), Some(state_icon(state))))
        .collect();
    view! {
        <nav class="tabs" aria-label=locale.text("jobs-by-state")>
            {all}
            {states}
        </nav>
    }
    .into_any()
}

/// Type and free text: a form that works without script, and with it also when a field changes.
fn filter_bar(locale: Locale, query: &JobQuery, types: &[TypeView]) -> AnyView {
    let navigate = use_navigate();
    let kept = query.clone();
    let job_type = RwSignal::new(query.job_type.clone().unwrap_or_default());
    let text = RwSignal::new(query.text.clone().unwrap_or_default());
    // Pressing Enter is both a change and a submit.
    let gone_to = StoredValue::new(None);
    let go = Callback::new(move |()| {
        let (job_type, text) = (job_type.get_untracked(), text.get_untracked());
        let wanted = JobQuery::read([("type", job_type.as_str()), ("q", text.as_str())]);
        let wanted = JobQuery { state: kept.state, rows: kept.rows, ..wanted };
        let address = wanted.href();
        if wanted != kept && gone_to.get_value().as_ref() != Some(&address) {
            gone_to.set_value(Some(address.clone()));
            navigate(&address, NavigateOptions { scroll: false, ..NavigateOptions::default() });
        }
    });
    let mut names: Vec<String> = types.iter().map(|known| known.name.clone()).collect();
    // A type nobody registers any more can still be asked for.
    names.extend(query.job_type.clone().filter(|wanted| !names.contains(wanted)));
    let chosen = query.job_type.clone();
    let options: Vec<_> = names
        .into_iter()
        .map(|name| {
            let selected = chosen.as_ref() == Some(&name);
            view! { <option value=name.clone() selected=selected>{name.clone()}</option> }
        })
        .collect();
    let clear = JobQuery { job_type: None, text: None, ..query.from_start() }.href();
    let is_narrowed = query.job_type.is_some() || query.text.is_some();
    view! {
        <form
            class="filter-bar"
            method="get"
            action="/jobs"
            role="search"
            aria-label=locale.text("jobs-filter")
            on:submit=move |event| {
                event.prevent_default();
                go.run(());
            }
        >
            {query.state.map(|state| view! { <input type="hidden" name="state" value=state.as_str() /> })}
            {query.rows.map(|rows| view! { <input type="hidden" name="n" value=rows.to_string() /> })}
            <select
                class="select min-h-9 sm:w-44"
                name="type"
                autocomplete="off"
                aria-label=locale.text("jobs-type")
                on:change=move |event| {
                    job_type.set(event_target_value(&event));
                    go.run(());
                }
            >
                <option value="" selected=chosen.is_none()>{locale.text("jobs-any-type")}</option>
                {options}
            </select>
            <div class="query basis-52">
                {icon("search")}
                <input
                    type="search"
                    name="q"
                    value=query.text.clone()
                    aria-label=locale.text("jobs-search")
                    placeholder=locale.text("jobs-search-hint")
                    maxlength="200"
                    spellcheck="false"
                    autocomplete="off"
                    on:input=move |event| text.set(event_target_value(&event))
                    on:change=move |event| {
                        text.set(event_target_value(&event));
                        go.run(());
                    }
                />
            </div>
            <button class="btn min-h-9" type="submit">{locale.text("jobs-filter-go")}</button>
            {is_narrowed.then(|| view! { <a class="btn ghost min-h-9" href=clear>{locale.text("jobs-filter-clear")}</a> })}
        </form>
    }
    .into_any()
}

/// No rows: because there are no jobs, because the filter lets none through, or because the page is past the end.
fn empty(locale: Locale, query: &JobQuery, view: &JobListView) -> impl IntoView + use<> {
    if !query.is_at_start() {
        let link = view! { <a class="btn" href=query.from_start().href()>{locale.text("jobs-to-newest")}</a> };
        return blank("jobs", locale.text("jobs-past-end"), locale.text("jobs-past-end-text"), link.into_any())
            .into_any();
    }
    let text = match view.n_unfiltered {
        Some(0) => None,
        Some(n) => Some(locale.format("jobs-no-match-text", &[("n", n.into())])),
        // That there are none at all has not been counted.
        None => query.is_narrowed().then(|| locale.text("jobs-no-match-uncounted")),
    };
    match text {
        Some(text) => {
            let href = JobQuery { rows: query.rows, ..JobQuery::default() }.href();
            let link = view! { <a class="btn" href=href>{locale.text("jobs-filter-clear")}</a> };
            blank("search", locale.text("jobs-no-match"), text, link.into_any()).into_any()
        }
        None => {
            let link = view! { <a class="btn primary" href="/demo">{locale.text("nav-demo")}</a> };
            blank("jobs", locale.text("jobs-none"), locale.text("jobs-none-text"), link.into_any()).into_any()
        }
    }
}

fn pager(locale: Locale, query: &JobQuery, view: &JobListView, counts: RwSignal<Option<StateCountsView>>) -> AnyView {
    let first = view.rows.first().map(|row| (row.id, row.created_at));
    let last = view.rows.last().map(|row| (row.id, row.created_at));
    let newer =
        first.filter(|_| view.has_newer).map(|(id, _)| JobQuery { before: Some(id), ..query.from_start() }.href());
    let older =
        last.filter(|_| view.has_older).map(|(id, _)| JobQuery { after: Some(id), ..query.from_start() }.href());
    let state = query.state;
    let sizes: Vec<_> = ROW_CHOICES
        .into_iter()
        .map(|n| {
            let href = JobQuery { rows: Some(n), ..query.from_start() }.href();
            let current = (query.limit() == n).then_some("true");
            view! { <a href=href aria-current=current>{n.to_string()}</a> }
        })
        .collect();
    view! {
        <footer class="pager">
            <p>
                {locale.text("pager-from")} " "
                {first.map(|(_, at)| clock_time(at))} " "
                {locale.text("pager-to")} " "
                {last.map(|(_, at)| clock_time(at))}
                {locale.text("pager-stop")}
                {move || match counts.get() {
                    Some(counts) => locale.format("pager-matches", &[("n", counts.of(state).into())]),
                    None => locale.text("pager-not-counted"),
                }}
            </p>
            <div class="tools">
                <span class="row">
                    <span id="rows-per-page">{locale.text("pager-rows")}</span>
                    <nav class="segmented" aria-labelledby="rows-per-page">{sizes}</nav>
                </span>
                <nav class="btn-group" aria-label=locale.text("pager-pages")>
                    {step(newer, locale.text("pager-newer"), true)}
                    {step(older, locale.text("pager-older"), false)}
                </nav>
            </div>
        </footer>
    }
    .into_any()
}

fn step(href: Option<String>, word: String, back: bool) -> impl IntoView {
    let content = move || {
        view! {
            {back.then(|| icon_small("left"))}
            {word}
            {(!back).then(|| icon_small("right"))}
        }
    };
    match href {
        Some(href) => {
            view! { <a class="btn sm" href=href rel=if back { "prev" } else { "next" }>{content()}</a> }.into_any()
        }
        None => view! { <a class="btn sm" role="link" aria-disabled="true">{content()}</a> }.into_any(),
    }
}
