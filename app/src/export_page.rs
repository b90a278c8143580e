//! The page of the person who waits for an export. Drawn on the server only: a small script swaps the card, nothing is
//! hydrated.

mod view;
mod words;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use jobdeck::{Attempt, AttemptOutcome, FailureClass, JobGlance, JobId, JobState};
use leptos::prelude::RenderHtml as _;
use serde_json::{Map, Value};

pub use words::recipient_sentence;

use crate::i18n::Locale;
use crate::model::Theme;
use crate::ssr::Assets;

/// The stages an export passes after it waited, in order.
pub const STAGES: [&str; 4] = ["generating", "rendering", "uploading", "downloadable"];

/// What the page shows of the payload.
pub const PAYLOAD_FIELDS: [&str; 2] = ["title", "export_format"];

/// What the page says of one export.
#[derive(Clone, Debug)]
pub struct ExportView {
    job_id: JobId,
    version: i64,
    state: JobState,
    is_canceling: bool,
    title: Option<String>,
    format: String,
    stage: Option<String>,
    percent: Option<i16>,
    stages_at: HashMap<String, DateTime<Utc>>,
    /// The attempt that runs or was the last.
    attempt: i32,
    max_attempts: i32,
    error_class: Option<FailureClass>,
    error_code: Option<String>,
    error_params: Map<String, Value>,
    created_at: DateTime<Utc>,
    /// Since when it waited for its first start.
    waits_since: DateTime<Utc>,
    first_started_at: Option<DateTime<Utc>>,
    started_at: Option<DateTime<Utc>>,
    interrupted_at: Option<DateTime<Utc>>,
    run_after: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
    file: Option<ExportFile>,
    facts: ExportFacts,
}

/// The finished file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExportFile {
    bytes: u64,
    pages: Option<u32>,
}

/// What the page needs beside the job's row.
#[derive(Clone, Debug)]
pub struct ExportFacts {
    /// Jobs that start before this one, while it waits and is due.
    pub ahead: Option<i64>,
    /// Seconds that exports usually run, from and to.
    pub run_seconds: Option<(f64, f64)>,
    /// Exports that can run at the same time; 0 when no machine can run one.
    pub slots: i64,
    /// The signed path of this page, to be passed on.
    pub link: String,
    /// When that link stops working.
    pub link_expires_at: DateTime<Utc>,
    /// Whether the reader may stop it.
    pub can_cancel: bool,
    /// Whether the reader may have it made again.
    pub can_again: bool,
    /// The present moment.
    pub now: DateTime<Utc>,
    /// The language, if the address names it: it is kept in every link of the page.
    pub lang: Option<Locale>,
}

/// See [`ExportView::fingerprint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    version: i64,
    ahead: Option<i64>,
    slots: i64,
    is_due: bool,
    left: Option<String>,
}

/// What surrounds the card.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The reader's language.
    pub locale: Locale,
    /// A forced colour scheme.
    pub theme: Option<Theme>,
    /// Style sheet, script and icon.
    pub assets: &'a Assets,
    /// Of the content policy.
    pub nonce: &'a str,
}

/// Said once above the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Banner {
    /// The same export was asked for before.
    SameExport,
}

/// A page instead of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Mistyped, withdrawn, someone else's, or never there: all read the same.
    LinkInvalid,
    /// It was right once.
    LinkExpired,
    /// The file was asked for before it was made.
    NotReady(JobId),
    /// The file was removed from the store.
    FileGone {
        /// The export.
        id: JobId,
        /// Whether the reader may have it made again.
        can_again: bool,
    },
    /// A fault on our side.
    Trouble,
}

impl ExportView {
    /// What the page says of `job`, read with [`PAYLOAD_FIELDS`], whose `attempts` are those that went wrong.
    pub fn new(job: &JobGlance, attempts: &[Attempt], facts: ExportFacts) -> Self {
        let payload_text = |name: &str| job.fields.get(name).and_then(Value::as_str).map(str::trim);
        let title = payload_text("title").filter(|title| !title.is_empty());
        let stages_at = job.stages_at.as_object().into_iter().flatten().filter_map(|(stage, at)| {
            let at = DateTime::parse_from_rfc3339(at.as_str()?).ok()?;
            Some((stage.clone(), at.to_utc()))
        });
        let recent = present_history(job, attempts);
        let file = job.result.as_ref().and_then(|result| {
            let file = result.get("file")?;
            let pages = file.get("pages").and_then(Value::as_u64).and_then(|pages| u32::try_from(pages).ok());
            Some(ExportFile { bytes: file.get("bytes")?.as_u64()?, pages })
        });
        Self {
            job_id: job.id,
            version: job.version,
            state: job.state,
            is_canceling: job.state == JobState::Running && job.cancel_requested_at.is_some(),
            title: title.map(str::to_owned),
            format: payload_text("export_format").unwrap_or("file").to_uppercase(),
            stage: job.stage.clone(),
            percent: job.progress,
            stages_at: stages_at.collect(),
            attempt: job.attempts,
            max_attempts: job.max_attempts,
            error_class: job.error_class,
            error_code: job.error_code.clone(),
            error_params: job.error_params.as_ref().and_then(Value::as_object).cloned().unwrap_or_default(),
            created_at: job.created_at,
            // A person's retry makes it due anew.
            waits_since: if recent.is_empty() { job.run_after.max(job.created_at) } else { job.created_at },
            first_started_at: recent.iter().map(|attempt| attempt.started_at).chain(job.started_at).min(),
            started_at: job.started_at,
            interrupted_at: recent
                .iter()
                .find(|attempt| attempt.outcome != AttemptOutcome::Released)
                .map(|attempt| attempt.ended_at),
            run_after: job.run_after,
            finished_at: job.finished_at,
            file,
            facts,
        }
    }

    /// What the card is made from, without its clock: equal fingerprints need no new card.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint {
            version: self.version,
            ahead: self.facts.ahead,
            slots: self.facts.slots,
            is_due: self.run_after <= self.facts.now,
            left: words::left(self, Locale::En),
        }
    }

    /// Whether nothing more happens by itself.
    pub fn is_final(&self) -> bool {
        self.state.is_final()
    }

    /// `/e/<job id>`.
    fn path(&self) -> String {
        format!("/e/{}", self.job_id)
    }

    /// A path below [`ExportView::path`] that keeps the language.
    fn path_to(&self, action: &str) -> String {
        let lang = self.facts.lang.map_or_else(String::new, |lang| format!("?lang={}", lang.tag()));
        format!("{}/{action}{lang}", self.path())
    }
}

/// The attempts since the job was enqueued or a person sent it back to the start: what happened before is not told
/// again. A history ends where the attempt numbers, newest first, no longer fall.
fn present_history<'a>(job: &JobGlance, attempts: &'a [Attempt]) -> Vec<&'a Attempt> {
    let mut next = match job.state {
        JobState::Running | JobState::Succeeded => job.attempts,
        _ => job.attempts + 1,
    };
    let belongs = |attempt: &&Attempt| {
        // A start that was given back has the number of the one after it.
        let may_repeat = !matches!(attempt.outcome, AttemptOutcome::Failed | AttemptOutcome::Canceled);
        let belongs = attempt.attempt < next || (may_repeat && attempt.attempt == next);
        next = attempt.attempt;
        belongs
    };
    attempts.iter().take_while(belongs).collect()
}

/// The whole page.
pub fn render_page(export: &ExportView, frame: &Frame<'_>, banner: Option<Banner>) -> String {
    let locale = frame.locale;
    let mut main = String::new();
    if banner == Some(Banner::SameExport) {
        let words = if export.is_final() { "export-banner-made" } else { "export-banner-running" };
        main.push_str(&view::banner(&locale.text(words)).to_html());
    }
    main.push_str(&view::sign(locale).to_html());
    main.push_str(&render_card(export, locale));
    main.push_str(&view::status(&words::say(export, locale)).to_html());
    let head = Head {
        title: words::window_title(export, locale),
        refresh: !export.is_final(),
        script: true,
        lang_path: export.path(),
    };
    document(frame, &head, &main)
}

/// The part of the page that changes, as the event stream sends it.
pub fn render_card(export: &ExportView, locale: Locale) -> String {
    view::card(export, locale).to_html()
}

/// A page that says why there is no export to see. `path` is where it stands, for the language switch.
pub fn render_problem(problem: Problem, frame: &Frame<'_>, path: &str) -> String {
    let locale = frame.locale;
    let name = match problem {
        Problem::LinkInvalid => "invalid",
        Problem::LinkExpired => "expired",
        Problem::NotReady(_) => "not-ready",
        Problem::FileGone { .. } => "gone",
        Problem::Trouble => "trouble",
    };
    let words = |part: &str| locale.find(&format!("export-{name}-{part}"), &[]).unwrap_or_default();
    let back = match problem {
        Problem::NotReady(id) | Problem::FileGone { id, .. } => Some(format!("/e/{id}")),
        _ => None,
    };
    let head = Head {
        title: locale.format("export-title", &[("what", words("head").into())]),
        refresh: false,
        script: false,
        lang_path: path.to_owned(),
    };
    document(frame, &head, &view::problem(problem, &words("head"), &words("lead"), back, locale).to_html())
}

/// A text that was not exported, so that nothing of it is lost.
#[derive(Clone, Debug, Default)]
pub struct RefusedText<'a> {
    /// What was wrong, in the reader's language.
    pub reason: String,
    /// As sent; characters that are no text are replaced.
    pub title: &'a str,
    /// As sent. `None` when it was too much to read.
    pub markdown: Option<&'a str>,
    /// `pdf` or `html`.
    pub format: &'a str,
    /// As sent.
    pub mishap: &'a str,
}

/// The answer to a text that was not exported: what was wrong, and the same form with the text in it.
pub fn render_refused_text(refused: &RefusedText<'_>, frame: &Frame<'_>) -> String {
    let locale = frame.locale;
    let head = Head {
        title: locale.format("export-title", &[("what", locale.text("export-demo-head").into())]),
        refresh: false,
        script: false,
        lang_path: String::new(),
    };
    document(frame, &head, &view::refused_text(refused, locale).to_html())
}

struct Head {
    title: String,
    refresh: bool,
    script: bool,
    /// Where the language switch leads; empty for an answer to a form, which cannot be asked for again.
    lang_path: String,
}

/// The document around `main`. Everything that is data passes [`escape`] or a view.
fn document(frame: &Frame<'_>, head: &Head, main: &str) -> String {
    let Frame { locale, theme, assets, nonce } = *frame;
    let theme = theme.map_or_else(String::new, |theme| format!(" data-theme=\"{}\"", theme.as_str()));
    let refresh = if head.refresh { "<noscript><meta http-equiv=\"refresh\" content=\"3\"></noscript>" } else { "" };
    let script = if head.script {
        format!("<script defer nonce=\"{}\" src=\"{}\"></script>", escape(nonce), escape(&assets.progress_js))
    } else {
        String::new()
    };
    format!(
        "<!doctype html><html lang=\"{lang}\"{theme}><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"robots\" content=\"noindex\"><title>{title}</title>{refresh}\
         <link rel=\"icon\" href=\"{icon}\" type=\"image/svg+xml\"><link rel=\"stylesheet\" href=\"{css}\">{script}</head>\
         <body>{sprite}<div class=\"export\">{top}<main class=\"export-main\" id=\"main\">{main}</main>{foot}</div></body>\
         </html>",
        lang = locale.tag(),
        title = escape(&head.title),
        icon = escape(&assets.icon),
        css = escape(&assets.css),
        sprite = view::SPRITE,
        top = view::top(locale, &head.lang_path).to_html(),
        foot = view::foot(locale, head.script).to_html(),
    )
}

/// Text as it may stand between tags and in double quotes.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + text.len() / 8);
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // No page may hold it; browsers show the same.
            '\0' => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests;
