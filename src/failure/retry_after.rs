//! How long a server asks its clients to wait.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// Longest wait that a response can ask for: 24 hours. A broken or hostile header must not park a job, and with it all
/// jobs of its provider, for years; a provider that still is not ready after a day says so again, which costs no attempt.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Shortest wait that a response can ask for: 1 second. Waits for a provider use up no attempt, so "now" would be a loop
/// without end and without a pause.
pub const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Reads the value of a `Retry-After` header (RFC 9110, section 10.2.3): seconds, or a date in one of the three forms of
/// HTTP, counted from `now`.
///
/// Times that are over count as [`MIN_RETRY_AFTER`], longer ones than [`MAX_RETRY_AFTER`] as that. Also read: negative
/// seconds (as over), fractions of a second (rounded up), and a number sent twice (`5, 5`; the first counts).
/// `None` if it is neither a number nor a date.
pub fn parse_retry_after(value: &str, now: DateTime<Utc>) -> Option<Duration> {
    let value = value.trim();
    if let Some(wait) = value.split(',').next().and_then(whole_seconds) {
        return Some(bounded(Duration::from_secs(wait)));
    }
    Some(from_now_until(http_date(value)?, now))
}

/// How long the headers of a response ask to wait, if they do. `header` looks a value up by its lower-case name.
///
/// In this order: `retry-after-ms` (milliseconds; OpenAI, Azure), `retry-after`, and `x-ratelimit-reset` as GitHub means
/// it (seconds since 1970, counts only if `x-ratelimit-remaining` is 0; smaller numbers mean other things elsewhere).
/// Times of day are counted from the response's own `date`, so that a clock that differs from the server's does no harm,
/// and from `now` if there is none.
pub(super) fn asked_by<'h>(header: impl Fn(&str) -> Option<&'h str>, now: DateTime<Utc>) -> Option<Duration> {
    let now = header("date").and_then(http_date).unwrap_or(now);
    let milliseconds = || {
        let ms = whole_seconds(header("retry-after-ms")?)?;
        Some(bounded(Duration::from_millis(ms)))
    };
    let seconds_or_date = || parse_retry_after(header("retry-after")?, now);
    let reset = || {
        let is_used_up = header("x-ratelimit-remaining")?.trim() == "0";
        let epoch = whole_seconds(header("x-ratelimit-reset")?).filter(|secs| is_used_up && *secs >= 1_000_000_000)?;
        let at = i64::try_from(epoch).ok().and_then(|secs| DateTime::from_timestamp(secs, 0));
        Some(at.map_or(MAX_RETRY_AFTER, |at| from_now_until(at, now)))
    };
    milliseconds().or_else(seconds_or_date).or_else(reset)
}

fn bounded(wait: Duration) -> Duration {
    wait.clamp(MIN_RETRY_AFTER, MAX_RETRY_AFTER)
}

fn from_now_until(until: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    let wait: TimeDelta = until - now;
    bounded(wait.to_std().unwrap_or_default())
}

fn http_date(value: &str) -> Option<DateTime<Utc>> {
    httpdate::parse_http_date(value.trim()).ok().map(DateTime::from)
}

/// A decimal number, rounded up to a whole one; a negative one is 0, one too large for the type its largest.
fn whole_seconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = !whole.is_empty() && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !is_number {
        return None;
    }
    let rounded_up = u64::from(fraction.bytes().any(|digit| digit != b'0'));
    let number = whole.parse::<u64>().unwrap_or(u64::MAX).saturating_add(rounded_up);
    Some(if is_negative { 0 } else { number })
}
