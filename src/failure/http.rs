//! HTTP statuses.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{JobError, code, retry_after};

/// How much of a response's body goes into the detail.
const MAX_BODY_BYTES: usize = 1024;

impl JobError {
    /// What an unsuccessful HTTP status means for the job, without headers and body.
    ///
    /// | status | class | code |
    /// |---|---|---|
    /// | 408 | retryable | `timeout` |
    /// | 425, 5xx | retryable | `http_5xx` |
    /// | 429 | rate-limited | `slow_down` |
    /// | 400, 422 | unrecoverable | `invalid_payload` |
    /// | 413, 415 | unrecoverable | `invalid_content` |
    /// | 401, 407 | unrecoverable | `invalid_credentials` |
    /// | 402 | unrecoverable | `quota` |
    /// | 403, 451 | unrecoverable | `permission` |
    /// | 404, 410 | unrecoverable | `not_found` |
    /// | other 4xx | unrecoverable | `http_4xx` |
    /// | below 400, above 599 | unrecoverable | `http_unexpected` |
    pub fn from_status(status: u16, detail: impl Into<String>) -> Self {
        match status {
            408 => Self::retryable(code::TIMEOUT, detail),
            425 | 500..=599 => Self::retryable(code::HTTP_5XX, detail),
            429 => Self::slow_down(None, detail),
            400 | 422 => Self::unrecoverable(code::INVALID_PAYLOAD, detail),
            413 | 415 => Self::unrecoverable(code::INVALID_CONTENT, detail),
            401 | 407 => Self::unrecoverable(code::INVALID_CREDENTIALS, detail),
            402 => Self::unrecoverable(code::QUOTA, detail),
            403 | 451 => Self::unrecoverable(code::PERMISSION, detail),
            404 | 410 => Self::unrecoverable(code::NOT_FOUND, detail),
            400..=499 => Self::unrecoverable(code::HTTP_4XX, detail),
            _ => Self::unrecoverable(code::HTTP_UNEXPECTED, detail),
        }
    }

    /// What an unsuccessful HTTP response means for the job: as [`JobError::from_status`] says, and
    ///
    /// - the wait a 408, 425, 429 or 5xx asks for in `Retry-After` is kept, by seconds or by date, at most
    ///   [`MAX_RETRY_AFTER`](crate::MAX_RETRY_AFTER); `retry-after-ms` and GitHub's `x-ratelimit-reset` are understood.
    ///   A 429 that names none waits for the type's backoff.
    /// - a 403 that asks to wait is a rate limit too (GitHub),
    /// - a 429 whose body says `insufficient_quota` is code `quota`: waiting does not help (OpenAI).
    ///
    /// `header` looks a value up by its lower-case name, so that it works with every HTTP client; `body` is what was read of
    /// it, its first 1 KiB goes into the detail. With reqwest, `JobError::check_response` does all of this.
    ///
    /// ```
    /// # use jobdeck::{FailureClass, JobError};
    /// let headers = [("retry-after", "30")];
    /// let header = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    /// let error = JobError::from_response(429, header, "too many requests").provider("openai");
    /// assert_eq!(error.class, FailureClass::RateLimited);
    /// assert_eq!(error.retry_after.unwrap().as_secs(), 30);
    /// ```
    pub fn from_response<'h>(status: u16, header: impl Fn(&str) -> Option<&'h str>, body: impl AsRef<[u8]>) -> Self {
        Self::from_response_at(status, header, body, Utc::now())
    }

    /// [`JobError::from_response`] with the time that dates are counted from if the response has no `Date` of its own.
    pub fn from_response_at<'h>(
        status: u16,
        header: impl Fn(&str) -> Option<&'h str>,
        body: impl AsRef<[u8]>,
        now: DateTime<Utc>,
    ) -> Self {
        let body = body.as_ref();
        let asked = retry_after::asked_by(header, now);
        let detail = detail(status, body);
        match (status, asked) {
            (429, _) if says(body, "insufficient_quota") => Self::unrecoverable(code::QUOTA, detail),
            (429, _) | (403, Some(_)) => Self::slow_down(asked, detail),
            (408 | 425 | 500..=599, _) => Self { retry_after: asked, ..Self::from_status(status, detail) },
            _ => Self::from_status(status, detail),
        }
    }

    /// A provider asked to wait, and may have said how long.
    fn slow_down(asked: Option<Duration>, detail: impl Into<String>) -> Self {
        Self { retry_after: asked, ..Self::rate_limited(Duration::ZERO, detail) }
    }
}

fn detail(status: u16, body: &[u8]) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(MAX_BODY_BYTES)]);
    let start = start.trim().trim_end_matches('\u{fffd}');
    let more = if body.len() > MAX_BODY_BYTES { "…" } else { "" };
    if start.is_empty() { format!("HTTP {status}") } else { format!("HTTP {status}: {start}{more}") }
}

fn says(body: &[u8], word: &str) -> bool {
    body.windows(word.len()).take(4 * MAX_BODY_BYTES).any(|window| window == word.as_bytes())
}
