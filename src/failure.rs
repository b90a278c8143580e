//! How an attempt ends badly: the class decides what happens next, the code says what it was.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longest error text kept, in bytes. Longer ones are cut at a character boundary.
pub const MAX_ERROR_BYTES: usize = 8 * 1024;

/// What a bad end means for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// May work later without a change: backs off and tries again while attempts are left.
    Retryable,
    /// A provider asked to wait: waits as long as told and gives the attempt back.
    RateLimited,
    /// The lease ran out: starts again, counted apart from attempts.
    Stalled,
    /// Would fail again: fails at once, whatever attempts are left.
    Unrecoverable,
}

impl FailureClass {
    /// The word used in SQL, URLs and CSS.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retryable => "retryable",
            Self::RateLimited => "rate_limited",
            Self::Stalled => "stalled",
            Self::Unrecoverable => "unrecoverable",
        }
    }
}

impl TryFrom<String> for FailureClass {
    type Error = String;
    fn try_from(word: String) -> Result<Self, Self::Error> {
        [Self::Retryable, Self::RateLimited, Self::Stalled, Self::Unrecoverable]
            .into_iter()
            .find(|class| class.as_str() == word)
            .ok_or_else(|| format!("unknown failure class {word:?}"))
    }
}

/// The codes every part of Jobdeck knows a sentence for. Handlers may use others; the deck shows those as they are.
pub mod code {
    #![allow(missing_docs, reason = "the names are the documentation; their sentences stand in the message files")]
    pub const TIMEOUT: &str = "timeout";
    pub const CONNECTION: &str = "connection";
    pub const HTTP_5XX: &str = "http_5xx";
    pub const PANIC: &str = "panic";
    pub const IO: &str = "io";
    pub const SLOW_DOWN: &str = "slow_down";
    pub const LEASE_LOST: &str = "lease_lost";
    pub const STALLED_OUT: &str = "stalled_out";
    pub const INVALID_PAYLOAD: &str = "invalid_payload";
    pub const INVALID_CONTENT: &str = "invalid_content";
    pub const NOT_FOUND: &str = "not_found";
    pub const PERMISSION: &str = "permission";
    pub const QUOTA: &str = "quota";
    pub const INVALID_CREDENTIALS: &str = "invalid_credentials";
}

/// Why a handler stopped without a result.
///
/// `detail` is for operators. `params` feed the plain sentence the end user reads, which is chosen by `code`
/// (`reason` selects a narrower sentence, such as `missing_glyph`).
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct JobError {
    /// Decides what happens next.
    pub class: FailureClass,
    /// What it was, in lower case with underscores.
    pub code: String,
    /// For operators; cleaned and cut to [`MAX_ERROR_BYTES`] when stored.
    pub detail: String,
    /// Facts for the end user's sentence. No secrets, no internals.
    pub params: Map<String, Value>,
    /// How long to wait before the next start, instead of the type's backoff. Only for retryable and rate-limited errors.
    pub retry_after: Option<Duration>,
    /// True when nothing went wrong and the handler only wants to run later.
    pub snooze: bool,
    /// Whose pause a rate-limited error starts for every worker. Default: the provider its type names.
    pub provider: Option<String>,
}

impl JobError {
    fn new(class: FailureClass, code: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            class,
            code: code.into(),
            detail: detail.into(),
            params: Map::new(),
            retry_after: None,
            snooze: false,
            provider: None,
        }
    }

    /// May work later without a change.
    pub fn retryable(code: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FailureClass::Retryable, code, detail)
    }

    /// Would fail again.
    pub fn unrecoverable(code: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FailureClass::Unrecoverable, code, detail)
    }

    /// A provider asked to wait for `retry_after`. The attempt is given back.
    pub fn rate_limited(retry_after: Duration, detail: impl Into<String>) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(FailureClass::RateLimited, code::SLOW_DOWN, detail) }
    }

    /// Run again after `delay`; nothing went wrong. The attempt is given back.
    pub fn snooze(delay: Duration, why: impl Into<String>) -> Self {
        Self { snooze: true, ..Self::rate_limited(delay, why) }
    }

    /// Names the provider whose pause a rate-limited error starts for every worker.
    #[must_use]
    pub fn provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// Adds a fact for the end user's sentence.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.params.insert(name.to_owned(), value.into());
        self
    }
}

impl From<std::io::Error> for JobError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        match error.kind() {
            Kind::TimedOut => Self::retryable(code::TIMEOUT, error.to_string()),
            Kind::ConnectionRefused | Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => {
                Self::retryable(code::CONNECTION, error.to_string())
            }
            Kind::NotFound => Self::unrecoverable(code::NOT_FOUND, error.to_string()),
            Kind::PermissionDenied => Self::unrecoverable(code::PERMISSION, error.to_string()),
            Kind::QuotaExceeded => Self::unrecoverable(code::QUOTA, error.to_string()),
            _ => Self::retryable(code::IO, error.to_string()),
        }
    }
}

/// Makes a text fit for a Postgres `text` column and for a page: no NUL, control characters shown as their Unicode
/// pictures, at most [`MAX_ERROR_BYTES`] bytes with an ellipsis where it was cut.
pub fn clean_error_text(text: &str) -> String {
    let mut clean = String::with_capacity(text.len().min(MAX_ERROR_BYTES));
    for character in text.chars() {
        let shown = match character {
            '\n' | '\t' => character,
            '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + character as u32).unwrap_or('\u{fffd}'),
            '\u{7f}' => '\u{2421}',
            other => other,
        };
        if clean.len() + shown.len_utf8() > MAX_ERROR_BYTES - '…'.len_utf8() {
            clean.push('…');
            break;
        }
        clean.push(shown);
    }
    clean
}
