//! The page's elements. The content policy forbids style attributes: bars are SVG.

use chrono::{DateTime, Datelike as _, Utc};
use jobdeck::{FailureClass, JobState};
use leptos::prelude::*;

use super::words::{self, SLOT};
use super::{ExportView, Problem, RefusedText, STAGES, escape};
use crate::format;
use crate::i18n::Locale;

/// Every icon of the page; the script may swap in any of them.
pub(super) const SPRITE: &str = include_str!("sprite.svg");

/// How a time is written.
#[derive(Clone, Copy)]
enum Clock {
    /// `14:06`
    Minute,
    /// `14:06:20`
    Second,
    /// `Mon 7 Dec 2026, 14:06`
    Day,
}

fn icon(name: &str, class: &'static str) -> impl IntoView + use<> {
    view! {
        <svg class=class viewBox="0 0 16 16" aria-hidden="true">
            <use href=format!("#i-{name}") />
        </svg>
    }
}

/// A time in UTC, which the script turns into the reader's own zone.
fn time(at: DateTime<Utc>, clock: Clock, locale: Locale) -> AnyView {
    let (word, text) = match (clock, locale) {
        (Clock::Minute, _) => ("hm", at.format("%H:%M").to_string()),
        (Clock::Second, _) => ("hms", at.format("%H:%M:%S").to_string()),
        (Clock::Day, Locale::En) => ("day", at.format("%a %-d %b %Y, %H:%M").to_string()),
        (Clock::Day, Locale::ZhCn) => {
            let weekday =
                ["周一", "周二", "周三", "周四", "周五", "周六", "周日"][at.weekday().num_days_from_monday() as usize];
            let (year, month, day) = (at.year(), at.month(), at.day());
            ("day", format!("{year} 年 {month} 月 {day} 日（{weekday}）{}", at.format("%H:%M")))
        }
    };
    view! { <time datetime=format::machine(at) data-f=word>{text}</time> }.into_any()
}

/// A sentence with an element where its placeholder stands.
fn sentence(text: &str, element: impl IntoView + 'static) -> AnyView {
    match text.split_once(SLOT) {
        Some((before, after)) => view! { {before.to_owned()}{element}{after.to_owned()} }.into_any(),
        None => text.to_owned().into_any(),
    }
}

/// The message `key`, whose `$time` is `at`.
fn timed(locale: Locale, key: &str, at: DateTime<Utc>, clock: Clock) -> AnyView {
    sentence(&locale.format(key, &[("time", SLOT.to_string().into())]), time(at, clock, locale))
}

/// What changes: card and notes. Its attributes tell the script what to say and when to stop.
pub(super) fn card(export: &ExportView, locale: Locale) -> impl IntoView + use<> {
    let class = (export.state == JobState::Retrying && export.error_class == Some(FailureClass::RateLimited))
        .then_some("rate_limited");
    view! {
        <div
            class="contents"
            id="export-live"
            data-version=export.version
            data-state=export.state.as_str()
            data-stage=export.stage.clone()
            data-percent=export.percent
            data-final=export.is_final().then_some("1")
            data-title=words::window_title(export, locale)
            data-say=words::say(export, locale)
            data-now=format::machine(export.facts.now)
            data-events=export.path_to("events")
        >
            <article class="export-card" data-state=export.state.as_str() data-class=class>
                <div class="export-file">
                    <span class="ext" aria-hidden="true">{export.format.clone()}</span>
                    <div class="grow">
                        <p class="n"><bdi>{export.title.clone().unwrap_or_else(|| locale.text("export-untitled"))}</bdi></p>
                        <p class="m">{file_line(export, locale)}</p>
                    </div>
                </div>
                {now(export, locale)}
                {(export.state != JobState::Canceled).then(|| stages(export, locale))}
            </article>
            {notes(export, locale)}
        </div>
    }
}

/// What the file is, under its name.
fn file_line(export: &ExportView, locale: Locale) -> AnyView {
    let args = [("format", export.format.clone().into()), ("time", SLOT.to_string().into())];
    match (&export.file, export.state) {
        (Some(file), _) => {
            let mut args = vec![("format", export.format.clone().into()), ("size", format::bytes(file.bytes).into())];
            match file.pages {
                Some(pages) => {
                    args.push(("n", pages.into()));
                    locale.format("export-meta-done-pages", &args).into_any()
                }
                None => locale.format("export-meta-done", &args).into_any(),
            }
        }
        (None, JobState::Failed) => {
            let stopped_at = export.finished_at.unwrap_or(export.created_at);
            sentence(&locale.format("export-meta-stopped", &args), time(stopped_at, Clock::Minute, locale))
        }
        _ => sentence(&locale.format("export-meta-asked", &args), time(export.created_at, Clock::Minute, locale)),
    }
}

/// Heading, one sentence, one number or bar, one main action.
fn now(export: &ExportView, locale: Locale) -> impl IntoView + use<> {
    let (name, spins) = match export.state {
        JobState::Running => ("s-running", true),
        JobState::Retrying if export.error_class == Some(FailureClass::RateLimited) => ("c-rate-limited", false),
        JobState::Pending => ("s-pending", false),
        JobState::Retrying => ("s-retrying", false),
        JobState::Succeeded => ("s-succeeded", false),
        JobState::Failed => ("s-failed", false),
        JobState::Canceled => ("s-canceled", false),
    };
    let middle = match export.state {
        JobState::Pending => waiting_facts(export, locale).into_any(),
        JobState::Retrying => retry_facts(export, locale).into_any(),
        JobState::Running if !export.is_canceling => meter(export, locale).into_any(),
        JobState::Failed => advice(export, locale).into_any(),
        _ => ().into_any(),
    };
    view! {
        <div class="export-now">
            <h1>
                {icon(name, if spins { "i spin" } else { "i" })}
                <span>{words::heading(export, locale)}</span>
            </h1>
            <p class="lead">{lead(export, locale)}</p>
            {middle}
            {actions(export, locale)}
        </div>
    }
}

fn lead(export: &ExportView, locale: Locale) -> AnyView {
    let ended_at = export.finished_at.unwrap_or(export.facts.now);
    match export.state {
        JobState::Pending if export.facts.slots < 1 => locale.text("export-lead-no-machine").into_any(),
        JobState::Pending => locale.text("export-lead-waiting").into_any(),
        JobState::Running if export.is_canceling => locale.text("export-lead-canceling").into_any(),
        JobState::Running => match export.stage.as_deref() {
            None => locale.text("export-lead-starting"),
            Some("generating") => locale.text("export-lead-generating"),
            Some("rendering") if export.format == "HTML" => locale.text("export-lead-rendering-html"),
            Some("rendering") => locale.text("export-lead-rendering"),
            Some("uploading") => locale.text("export-lead-uploading"),
            Some(_) => locale.text("export-lead-other"),
        }
        .into_any(),
        JobState::Retrying => {
            let error_code = export.error_code.as_deref().unwrap_or("other");
            let text = words::retry(locale, error_code, &export.error_params, Some(SLOT.to_string()));
            sentence(&text, time(export.run_after, Clock::Minute, locale))
        }
        JobState::Succeeded => {
            let took = words::duration(locale, export.waits_since, ended_at);
            let args = [("time", SLOT.to_string().into()), ("duration", took.into())];
            sentence(&locale.format("export-lead-ready", &args), time(ended_at, Clock::Minute, locale))
        }
        JobState::Failed => {
            let error_code = export.error_code.as_deref().unwrap_or("other");
            let text = words::failure(locale, export.error_class, error_code, &export.error_params, export.attempt);
            let again = words::would_fail_again(export).then(|| {
                let gap = if locale == Locale::En { " " } else { "" };
                format!("{gap}{}", locale.text("export-same-again"))
            });
            let code_point = export.error_params.get("code_point").and_then(|code| code.as_str()).unwrap_or("?");
            let code_point = code_point.to_owned();
            view! { {sentence(&text, view! { <b class="strong">{code_point}</b> })}{again} }.into_any()
        }
        JobState::Canceled => timed(locale, "export-lead-canceled", ended_at, Clock::Minute),
    }
}

fn fact(label: String, value: AnyView, below: Option<AnyView>) -> impl IntoView {
    view! {
        <div class="fact">
            <p class="l">{label}</p>
            <p class="v">{value}</p>
            {below.map(|below| view! { <p class="s">{below}</p> })}
        </div>
    }
}

/// Place in line and when the file is there.
fn waiting_facts(export: &ExportView, locale: Locale) -> impl IntoView + use<> {
    let place = export.facts.ahead.filter(|_| export.facts.slots > 0).map(|ahead| {
        let place = words::place(locale, ahead + 1);
        let value = match locale {
            Locale::En => place,
            Locale::ZhCn => format!("第 {place} 位"),
        };
        let below = locale.format("export-ahead", &[("n", ahead.into())]).into_any();
        fact(locale.text("export-fact-place"), value.into_any(), Some(below))
    });
    let ready = words::ready_in(export).map(|(low, high)| {
        let usual = export.facts.run_seconds.filter(|(_, high)| *high >= 10.0).map(|(low, high)| {
            locale.format("export-usual", &[("range", words::range(locale, low, high).into())]).into_any()
        });
        fact(locale.text("export-fact-ready"), words::range(locale, low, high).into_any(), usual)
    });
    (place.is_some() || ready.is_some()).then(|| view! { <div class="facts">{place}{ready}</div> })
}

/// When the next try comes. Once it is due, the place in line.
fn retry_facts(export: &ExportView, locale: Locale) -> impl IntoView + use<> {
    if export.run_after <= export.facts.now {
        let due = view! { <p class="muted">{locale.text("export-lead-due")}</p> };
        return view! { {due} {waiting_facts(export, locale)} }.into_any();
    }
    let left = view! {
        <span data-until=format::machine(export.run_after)>
            {words::stopwatch(export.facts.now, export.run_after)}
        </span>
    };
    let at = timed(locale, "export-at", export.run_after, Clock::Second);
    let ready = words::ready_in(export).map(|(low, high)| {
        let wait = (export.run_after - export.facts.now).num_milliseconds() as f64 / 1000.0;
        let value = words::range(locale, low + wait, high + wait).into_any();
        fact(locale.text("export-fact-ready"), value, Some(locale.text("export-if-it-works").into_any()))
    });
    view! {
        <div class="facts">
            {fact(locale.text("export-fact-next"), left.into_any(), Some(at))}
            {ready}
        </div>
    }
    .into_any()
}

/// The bar of a running stage. Only what is known is drawn: no percent, no bar.
fn meter(export: &ExportView, locale: Locale) -> impl IntoView + use<> {
    let left = words::left(export, locale);
    match export.percent {
        Some(percent) => {
            let percent = percent.clamp(0, 100);
            let said = locale.format(
                "export-say-percent",
                &[("stage", words::heading(export, locale).into()), ("percent", percent.into())],
            );
            view! {
                <div class="export-meter">
                    <div
                        class="progress-bar lg"
                        role="progressbar"
                        data-state="running"
                        aria-valuemin="0"
                        aria-valuemax="100"
                        aria-valuenow=percent
                        aria-valuetext=said.clone()
                        aria-label=said
                    >
                        <svg class="progress-fill" aria-hidden="true">
                            <rect width=format!("{percent}%") height="100%" />
                        </svg>
                    </div>
                    <div class="nums">
                        <span>
                            <b>{locale.format("export-percent", &[("percent", percent.into())])}</b>
                            " "
                            {locale.text("export-of-step")}
                        </span>
                        <span>{left}</span>
                    </div>
                </div>
            }
            .into_any()
        }
        None => left
            .map(|left| view! { <div class="export-meter"><div class="nums"><span>{left}</span></div></div> })
            .into_any(),
    }
}

fn advice(export: &ExportView, locale: Locale) -> impl IntoView + use<> {
    let steps = words::advice(locale, export);
    view! {
        <div class="stack gap-1.5">
            <h2>{locale.text("export-advice")}</h2>
            <ol class="todo">{steps.into_iter().map(|step| view! { <li>{step}</li> }).collect_view()}</ol>
        </div>
    }
}

fn actions(export: &ExportView, locale: Locale) -> AnyView {
    let copy = || {
        view! {
            <a class="btn" data-k="copy" href=export.facts.link.clone() data-copy=locale.text("export-copied")>
                {icon("link", "i")}
                <span>{locale.text("export-copy")}</span>
            </a>
        }
    };
    let again = |class: &'static str| {
        view! {
            <button class=class type="submit" data-k="again">
                {icon("retry", "i")}
                <span>{locale.text("export-again")}</span>
            </button>
        }
    };
    match (export.state, &export.file) {
        (JobState::Succeeded, Some(file)) => {
            let args = [("format", export.format.clone().into()), ("size", format::bytes(file.bytes).into())];
            view! {
                <form class="export-actions" data-k="done" method="post" action=export.path_to("again")>
                    <a class="btn primary" data-k="download" href=export.path_to("file") download="">
                        {icon("download", "i")}
                        <span>{locale.format("export-download", &args)}</span>
                    </a>
                    <div class="two">
                        {copy()}
                        {export.facts.can_again.then(|| again("btn"))}
                    </div>
                </form>
            }
            .into_any()
        }
        (JobState::Failed | JobState::Canceled, _) if export.facts.can_again => {
            // The main action is to change the text, where that is what helps; it is told above.
            let class = if words::would_fail_again(export) { "btn" } else { "btn primary" };
            view! {
                <form class="export-actions" data-k="ended" method="post" action=export.path_to("again")>
                    {again(class)}
                </form>
            }
            .into_any()
        }
        (JobState::Pending | JobState::Retrying | JobState::Running, _)
            if export.facts.can_cancel && !export.is_canceling =>
        {
            view! {
                <form class="export-actions" data-k="going" method="post" action=export.path_to("cancel")>
                    <button class="btn" type="submit" data-k="cancel">
                        {icon("x", "i")}
                        <span>{locale.text("export-cancel")}</span>
                    </button>
                </form>
            }
            .into_any()
        }
        _ => ().into_any(),
    }
}

/// How a step stands to the present one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    Here,
    Now,
    Wait,
    Stop,
    Next,
}

/// The ordered steps, the one that waits first. Each has a word for screen readers.
fn stages(export: &ExportView, locale: Locale) -> impl IntoView + use<> {
    let reached = export.stage.as_deref().and_then(|name| STAGES.iter().position(|stage| *stage == name));
    // Before its first stage an attempt stands at the first.
    let present = match export.state {
        JobState::Pending => 0,
        JobState::Succeeded => STAGES.len() + 1,
        _ => reached.unwrap_or(0) + 1,
    };
    let steps = (0..=STAGES.len()).map(|index| {
        let step = match (index.cmp(&present), export.state) {
            (std::cmp::Ordering::Less, _) => Step::Done,
            (std::cmp::Ordering::Greater, _) => Step::Next,
            (_, JobState::Pending) => Step::Here,
            (_, JobState::Retrying) => Step::Wait,
            (_, JobState::Failed | JobState::Canceled) => Step::Stop,
            _ => Step::Now,
        };
        stage_item(export, locale, index, step)
    });
    view! { <ol class="stages" aria-label=locale.text("export-steps")>{steps.collect_view()}</ol> }
}

fn stage_item(export: &ExportView, locale: Locale, index: usize, step: Step) -> impl IntoView + use<> {
    let name = if index == 0 { "waiting" } else { STAGES[index - 1] };
    let (word, icon_name, said) = match step {
        Step::Done => ("done", "s-succeeded", locale.text("export-step-done")),
        Step::Here => ("here", "s-now", locale.text("export-step-now")),
        Step::Now => ("now", "s-running", locale.text("export-step-now")),
        Step::Wait => ("wait", "s-retrying", locale.text("export-step-again")),
        Step::Stop => ("stop", "s-failed", locale.text("export-step-stopped")),
        Step::Next => ("", "s-pending", locale.text("export-step-next")),
    };
    let entered = |index: usize| match index {
        0 => Some(export.waits_since),
        _ => export.stages_at.get(STAGES[index - 1]).copied(),
    };
    // A step ends where the next one that was entered begins.
    let ended = || match index {
        0 => export.first_started_at,
        _ => (index + 1..=STAGES.len()).find_map(entered).or(export.finished_at),
    };
    let aside: AnyView = match step {
        Step::Done if name != "downloadable" => {
            entered(index).zip(ended()).map(|(from, to)| words::duration(locale, from, to)).into_any()
        }
        Step::Here => timed(locale, "export-since", export.waits_since, Clock::Second),
        Step::Now => entered(index)
            .or(export.started_at)
            .map(|since| {
                view! {
                    <span data-since=format::machine(since)>{words::stopwatch(since, export.facts.now)}</span>
                }
            })
            .into_any(),
        _ => ().into_any(),
    };
    let numbers = |n: i32| {
        // "Try 3 of 5": which one, not how many.
        [
            ("n", n.to_string().into()),
            ("max", export.max_attempts.to_string().into()),
            ("time", SLOT.to_string().into()),
        ]
    };
    let below: Option<AnyView> = match step {
        Step::Wait => export.interrupted_at.map(|at| {
            let text = locale.format("export-step-interrupted", &numbers(export.attempt + 1));
            sentence(&text, time(at, Clock::Minute, locale))
        }),
        Step::Now if export.attempt > 1 => Some(locale.format("export-step-try", &numbers(export.attempt)).into_any()),
        Step::Done if name == "downloadable" => {
            Some(timed(locale, "export-step-until", export.facts.link_expires_at, Clock::Day))
        }
        _ => None,
    };
    view! {
        <li data-step=word aria-current=matches!(step, Step::Here | Step::Now | Step::Wait).then_some("step")>
            {icon(icon_name, if step == Step::Now { "i spin" } else { "i" })}
            <span>
                {words::stage(locale, name)}
                <span class="visually-hidden">{said}</span>
                {below.map(|below| view! { <span class="sub">{below}</span> })}
            </span>
            <span class="d">{aside}</span>
        </li>
    }
}

fn note(icon_name: &str, text: AnyView) -> AnyView {
    view! { <p class="export-note">{icon(icon_name, "i")}<span>{text}</span></p> }.into_any()
}

/// What else to know.
fn notes(export: &ExportView, locale: Locale) -> Vec<AnyView> {
    let until = |key| timed(locale, key, export.facts.link_expires_at, Clock::Day);
    match export.state {
        JobState::Pending | JobState::Running | JobState::Retrying if !export.is_canceling => {
            vec![note("info", until("export-note-close"))]
        }
        JobState::Succeeded => {
            vec![note("clock", until("export-note-until")), note("lock", locale.text("export-note-anyone").into_any())]
        }
        JobState::Failed => {
            let reference = locale.format("export-note-reference", &[("ref", SLOT.to_string().into())]);
            let short = export.job_id.short();
            vec![
                note("check", locale.text("export-note-free").into_any()),
                note("info", sentence(&reference, view! { <span class="ref">{short}</span> })),
            ]
        }
        _ => Vec::new(),
    }
}

/// Said once above the card.
pub(super) fn banner(text: &str) -> impl IntoView + use<> {
    let text = text.to_owned();
    view! { <p class="callout" role="status">{icon("info", "i")}<span>{text}</span></p> }
}

/// Where the script says that the page is not live. Hidden until then.
pub(super) fn sign(locale: Locale) -> impl IntoView {
    let quiet = locale.format("export-sign-quiet", &[("time", "{time}".into())]);
    // Hidden from outside: a callout's own display would win over the attribute.
    view! {
        <div
            id="export-sign"
            role="status"
            hidden
            data-offline=locale.text("export-sign-offline")
            data-quiet=quiet
            data-polling=locale.text("export-sign-polling")
        >
            <p class="callout tint" data-state="retrying">
                {icon("wifi-off", "i")}
                <span></span>
            </p>
        </div>
    }
}

/// The one place that speaks to screen readers.
pub(super) fn status(text: &str) -> impl IntoView + use<> {
    let text = text.to_owned();
    view! { <p class="visually-hidden" id="export-say" role="status" aria-live="polite">{text}</p> }
}

/// Brand and language switch.
pub(super) fn top(locale: Locale, lang_path: &str) -> impl IntoView + use<> {
    let others = Locale::ALL.into_iter().filter(move |other| *other != locale && !lang_path.is_empty());
    let others: Vec<_> = others
        .map(|other| {
            view! {
                <a
                    class="btn ghost sm lang"
                    href=format!("{lang_path}?lang={}", other.tag())
                    hreflang=other.tag()
                    lang=other.tag()
                >
                    {icon("globe", "i")}
                    <span>{other.name()}</span>
                </a>
            }
        })
        .collect();
    view! {
        <header class="export-top">
            <span class="brand">
                <svg viewBox="0 0 20 20" aria-hidden="true" fill="currentColor">
                    <use href="#i-brand" />
                </svg>
                "Jobdeck"
            </span>
            {others}
        </header>
    }
}

/// Which zone the times are in.
pub(super) fn foot(locale: Locale, has_times: bool) -> impl IntoView {
    let local = locale.format("export-times-local", &[("zone", "{zone}".into())]);
    let zone =
        has_times.then(|| view! { <span id="export-zone" data-local=local>{locale.text("export-times-utc")}</span> });
    view! { <footer class="export-foot">{zone}</footer> }
}

/// A card without a file.
pub(super) fn problem(
    problem: Problem,
    head: &str,
    lead: &str,
    back: Option<String>,
    locale: Locale,
) -> impl IntoView + use<> {
    let icon_name = match problem {
        Problem::LinkInvalid => "link",
        Problem::LinkExpired | Problem::NotReady(_) => "clock",
        Problem::FileGone { .. } => "s-canceled",
        Problem::Trouble => "s-failed",
    };
    let (head, lead) = (head.to_owned(), lead.to_owned());
    let again = match problem {
        Problem::FileGone { id, can_again: true } => Some(view! {
            <form class="export-actions" method="post" action=format!("/e/{id}/again")>
                <button class="btn primary" type="submit">
                    {icon("retry", "i")}
                    <span>{locale.text("export-again")}</span>
                </button>
            </form>
        }),
        _ => None,
    };
    let back_class = if again.is_some() { "btn" } else { "btn primary" };
    view! {
        <article class="export-card" data-state="canceled">
            <div class="export-now">
                <h1>{icon(icon_name, "i")}<span>{head}</span></h1>
                <p class="lead">{lead}</p>
                {again}
                {back
                    .map(|back| {
                        view! {
                            <div class="export-actions">
                                <a class=back_class href=back>
                                    {locale.text("export-back")}
                                </a>
                            </div>
                        }
                    })}
            </div>
        </article>
    }
}

/// What was wrong with a text, and the form that sends it again.
pub(super) fn refused_text(refused: &RefusedText<'_>, locale: Locale) -> impl IntoView + use<> {
    let form = refused.markdown.map(|markdown| {
        // Written out: children of a text area are not escaped by the view. A line feed right after the tag is eaten.
        let area = format!(
            "<textarea class=\"textarea mono\" id=\"markdown\" name=\"markdown\" rows=\"16\" required>\n{}</textarea>",
            escape(markdown)
        );
        let formats = [("pdf", "PDF"), ("html", "HTML")].map(|(value, words)| {
            let chosen = if refused.format == "html" { "html" } else { "pdf" };
            view! {
                <label class="opt">
                    <input class="check radio" type="radio" name="format" value=value checked=value == chosen />
                    <span class="strong">{words}</span>
                </label>
            }
        });
        let (title, mishap) = (refused.title.replace('\0', "\u{fffd}"), refused.mishap.to_owned());
        view! {
            <form class="stack" method="post" action="/demo" enctype="multipart/form-data">
                <div class="field">
                    <label for="title">{locale.text("export-demo-title")}</label>
                    <input class="input" id="title" name="title" maxlength="200" value=title />
                </div>
                <fieldset>
                    <legend class="label">{locale.text("export-demo-as")}</legend>
                    <div class="opts">{formats.into_iter().collect_view()}</div>
                </fieldset>
                <div class="field">
                    <label for="markdown">{locale.text("export-demo-text")}</label>
                    <div inner_html=area></div>
                </div>
                <input type="hidden" name="mishap" value=mishap />
                <div class="export-actions">
                    <button class="btn primary" type="submit">
                        {locale.text("export-demo-send")}
                    </button>
                </div>
            </form>
        }
    });
    let kept = refused.markdown.is_some().then(|| view! { <p class="muted">{locale.text("export-demo-kept")}</p> });
    let reason = refused.reason.clone();
    view! {
        <article class="export-card" data-state="failed">
            <div class="export-now">
                <h1>{icon("s-failed", "i")}<span>{locale.text("export-demo-head")}</span></h1>
                <p class="lead" role="alert">
                    {reason}
                </p>
                {kept}
                {form}
                <p>
                    <a href="/demo">{locale.text("export-demo-back")}</a>
                </p>
            </div>
        </article>
    }
}
