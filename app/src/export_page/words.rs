//! The sentences of the page: which message fits, and its facts.

use chrono::{DateTime, Utc};
use jobdeck::{FailureClass, JobState, code};
use serde_json::{Map, Value};

use super::ExportView;
use crate::format;
use crate::i18n::{Arg, Locale};

/// Stands for an element inside a message; a noncharacter, so no text has it.
pub(super) const SLOT: char = '\u{fdd0}';

/// One line for the reader of a failed or retried job, without elements: what the recipient of an export is told.
/// `attempts` is how many were used, `gave_up` whether none is left.
pub fn recipient_sentence(
    locale: Locale,
    class: Option<FailureClass>,
    error_code: &str,
    params: &Map<String, Value>,
    attempts: i32,
    gave_up: bool,
) -> String {
    if gave_up {
        failure(locale, class, error_code, params, attempts).replace(SLOT, text(params, "code_point").unwrap_or("?"))
    } else {
        retry(locale, error_code, params, None)
    }
}

/// Why the next try is needed. `at` marks where the time of the next try stands; without one it is left to the reader.
pub(super) fn retry(locale: Locale, error_code: &str, params: &Map<String, Value>, at: Option<String>) -> String {
    let is_storage = text(params, "reason") == Some("storage");
    let of_storage = is_storage && matches!(error_code, code::CONNECTION | code::IO | code::TIMEOUT);
    let name = if of_storage { "storage" } else { error_code };
    let at = at.unwrap_or_else(|| "…".to_owned());
    locale
        .find(&format!("export-retry-{}", key(name)), &[("time", at.into())])
        .unwrap_or_else(|| locale.text("export-retry-other"))
}

/// Why there is no file. A [`SLOT`] stands for the code point of a missing character.
pub(super) fn failure(
    locale: Locale,
    class: Option<FailureClass>,
    error_code: &str,
    params: &Map<String, Value>,
    attempts: i32,
) -> String {
    let reason = text(params, "reason").unwrap_or_default();
    if error_code == code::INVALID_CONTENT {
        return content_fault(locale, reason, params);
    }
    if class == Some(FailureClass::Retryable) {
        return locale.format("export-failed-gave-up", &[("n", attempts.into())]);
    }
    let name = if reason == "storage" { reason } else { error_code };
    locale.find(&format!("export-failed-{}", key(name)), &[]).unwrap_or_else(|| locale.text("export-failed-other"))
}

fn content_fault(locale: Locale, reason: &str, params: &Map<String, Value>) -> String {
    let line = params.get("line").and_then(Value::as_i64);
    let number = |name: &str| Arg::from(params.get(name).and_then(Value::as_i64).unwrap_or_default());
    let name = match reason {
        "broken_image" => format!("export-image-{}", key(text(params, "fault").unwrap_or("other"))),
        "missing_glyph" if line.is_none() => "export-content-missing_glyph-title".to_owned(),
        reason => format!("export-content-{}", key(reason)),
    };
    let args = [
        // Line numbers are not quantities: no comma.
        ("line", Arg::from(line.map_or_else(|| "?".to_owned(), |line| line.to_string()))),
        ("limit", number("limit_mb")),
        ("seconds", number("seconds")),
        ("code", SLOT.to_string().into()),
    ];
    locale.find(&name, &args).unwrap_or_else(|| {
        let fallback = if reason == "broken_image" { "export-image-other" } else { "export-content-other" };
        locale.find(fallback, &args).unwrap_or_default()
    })
}

/// What the reader can do about it, best first.
pub(super) fn advice(locale: Locale, export: &ExportView) -> Vec<String> {
    let reason = text(&export.error_params, "reason").unwrap_or_default();
    let names: &[&str] = match (export.error_code.as_deref().unwrap_or_default(), reason) {
        (code::INVALID_CONTENT, "empty_text") => &["export-advice-empty"],
        (code::INVALID_CONTENT, "too_large" | "too_slow") => &["export-advice-split"],
        (code::INVALID_CONTENT, "contains_nul") => &["export-advice-text-file"],
        (code::INVALID_CONTENT, "missing_glyph") => &["export-advice-remove-character", "export-advice-html"],
        (code::INVALID_CONTENT, "broken_image") => &["export-advice-image"],
        (code::INVALID_CONTENT, "too_deep") => &["export-advice-flatten"],
        (code::INVALID_CONTENT, _) => &["export-advice-change-text"],
        (code::INVALID_PAYLOAD | code::NOT_FOUND, reason) if reason != "storage" => &["export-advice-from-document"],
        _ => &["export-advice-again", "export-advice-ask"],
    };
    names.iter().filter_map(|name| locale.find(name, &[])).collect()
}

/// Whether trying again without a change would end the same way.
pub(super) fn would_fail_again(export: &ExportView) -> bool {
    export.error_code.as_deref() == Some(code::INVALID_CONTENT)
}

/// The stage's words; a stage nobody translated shows its name.
pub(super) fn stage(locale: Locale, name: &str) -> String {
    locale.find(&format!("export-stage-{}", key(name)), &[]).unwrap_or_else(|| name.to_owned())
}

/// The card's heading.
pub(super) fn heading(export: &ExportView, locale: Locale) -> String {
    match export.state {
        JobState::Pending => locale.text("export-head-waiting"),
        JobState::Running if export.is_canceling => locale.text("export-head-canceling"),
        JobState::Running => {
            export.stage.as_deref().map_or_else(|| locale.text("export-head-starting"), |name| stage(locale, name))
        }
        JobState::Retrying => locale.text("export-head-retrying"),
        JobState::Succeeded => locale.text("export-head-ready"),
        JobState::Failed => locale.text("export-head-failed"),
        JobState::Canceled => locale.text("export-head-canceled"),
    }
}

/// The window's title: the answer first, the product last.
pub(super) fn window_title(export: &ExportView, locale: Locale) -> String {
    let what = match (export.state, export.percent) {
        (JobState::Pending, _) => match export.facts.ahead {
            Some(ahead) if export.facts.slots > 0 => {
                locale.format("export-short-place", &[("place", place(locale, ahead + 1).into())])
            }
            _ => locale.text("export-short-waiting"),
        },
        (JobState::Running, Some(percent)) if !export.is_canceling => locale
            .format("export-short-percent", &[("stage", heading(export, locale).into()), ("percent", percent.into())]),
        (JobState::Failed, _) => locale.text("export-short-failed"),
        (JobState::Canceled, _) => locale.text("export-short-canceled"),
        _ => heading(export, locale),
    };
    locale.format("export-title", &[("what", what.into())])
}

/// What a screen reader says: the state, and a number where there is one.
pub(super) fn say(export: &ExportView, locale: Locale) -> String {
    match (export.state, export.percent) {
        (JobState::Pending, _) => {
            let mut parts = vec![locale.text("export-short-waiting")];
            if let Some(ahead) = export.facts.ahead.filter(|_| export.facts.slots > 0) {
                parts.push(locale.format("export-ahead", &[("n", ahead.into())]));
            }
            parts.join(match locale {
                Locale::En => ", ",
                Locale::ZhCn => "，",
            })
        }
        (JobState::Running, Some(percent)) if !export.is_canceling => locale
            .format("export-say-percent", &[("stage", heading(export, locale).into()), ("percent", percent.into())]),
        (JobState::Retrying, _) => locale.text("export-say-retrying"),
        _ => heading(export, locale),
    }
}

/// A place in a line: `4th` in English, a bare number in Chinese, whose messages say "第 4 位".
pub(super) fn place(locale: Locale, number: i64) -> String {
    let digits = format::count(number);
    match locale {
        Locale::ZhCn => digits,
        Locale::En => {
            let suffix = match (number % 10, number % 100) {
                (_, 11..=13) => "th",
                (1, _) => "st",
                (2, _) => "nd",
                (3, _) => "rd",
                _ => "th",
            };
            format!("{digits}{suffix}")
        }
    }
}

/// A span of seconds in round numbers: `40–70 s`, `1–2 min`, never below "a few seconds".
pub(super) fn range(locale: Locale, low: f64, high: f64) -> String {
    let (low, high) = (low.max(0.0), high.max(low).max(0.0));
    if high < 10.0 {
        return locale.text("export-few-seconds");
    }
    if high < 90.0 {
        let round = |secs: f64, up: bool| {
            let steps = secs / 5.0;
            ((if up { steps.ceil() } else { steps.floor() }) as i64) * 5
        };
        let (low, high) = (round(low, false).max(1), round(high, true));
        return locale.format("export-range-seconds", &[("low", low.into()), ("high", high.into())]);
    }
    let (low, high) = ((low / 60.0).floor() as i64, (high / 60.0).ceil() as i64);
    let low = low.clamp(1, (high - 1).max(1));
    locale.format("export-range-minutes", &[("low", low.into()), ("high", high.into())])
}

/// When the file is there, in seconds from now, for a job that waits behind others.
pub(super) fn ready_in(export: &ExportView) -> Option<(f64, f64)> {
    let (low, high) = export.facts.run_seconds?;
    let slots = export.facts.slots;
    if slots < 1 {
        return None;
    }
    let rounds = 1.0 + (export.facts.ahead.unwrap_or(0) / slots) as f64;
    Some((low * rounds, high * rounds))
}

/// What is left of a running attempt; `None` without experience.
pub(super) fn left(export: &ExportView, locale: Locale) -> Option<String> {
    let (_, high) = export.facts.run_seconds?;
    let ran = milliseconds(export.started_at?, export.facts.now) as f64 / 1000.0;
    Some(if ran > high * 1.5 + 10.0 {
        locale.text("export-longer")
    } else if high - ran < 10.0 {
        locale.text("export-left-few")
    } else {
        let rounded = ((high - ran) / 5.0).ceil() * 5000.0;
        locale.format("export-left", &[("duration", format::long_duration(locale, rounded as i64).into())])
    })
}

/// A duration in a sentence; below ten seconds with a tenth.
pub(super) fn duration(locale: Locale, from: DateTime<Utc>, to: DateTime<Utc>) -> String {
    let milliseconds = milliseconds(from, to);
    if milliseconds < 10_000 {
        // Less than a tenth is shown as one: it did take time.
        let tenths = (milliseconds as f64 / 100.0).round().max(1.0) / 10.0;
        return locale.format("duration-seconds", &[("s", tenths.into())]);
    }
    format::long_duration(locale, milliseconds)
}

/// `0:38`
pub(super) fn stopwatch(from: DateTime<Utc>, to: DateTime<Utc>) -> String {
    let seconds = milliseconds(from, to) / 1000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

fn milliseconds(from: DateTime<Utc>, to: DateTime<Utc>) -> i64 {
    (to - from).num_milliseconds().max(0)
}

fn text<'p>(params: &'p Map<String, Value>, name: &str) -> Option<&'p str> {
    params.get(name).and_then(Value::as_str)
}

/// Only words like `http_5xx` can be part of a message key; anything else from data finds none.
fn key(word: &str) -> &str {
    let is_plain = word.len() <= 40 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain { word } else { "other" }
}
