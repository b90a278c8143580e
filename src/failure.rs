//! How an attempt ends badly: the class decides what happens next, the code says what it was.
//!
//! Errors of the libraries that handlers use most become a [`JobError`] by `?`. Each has a file below this one with the
//! table it follows: [`io`], and with feature `postgres` [`http`] (statuses, `Retry-After`), [`database`] (sqlx) and
//! [`task`] (tokio), with the features of their names [`client`] (reqwest), [`smtp`] (lettre) and [`storage`]
//! (object_store). What none of them knows backs off and tries again: a needless try costs less than a lost job.

mod io;
mod text;

#[cfg(feature = "reqwest")]
mod client;
#[cfg(feature = "postgres")]
mod database;
#[cfg(feature = "postgres")]
mod facts;
#[cfg(feature = "postgres")]
mod http;
#[cfg(feature = "postgres")]
mod retry_after;
#[cfg(feature = "lettre")]
mod smtp;
#[cfg(feature = "object_store")]
mod storage;
#[cfg(feature = "postgres")]
mod task;

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[cfg(feature = "postgres")]
pub(crate) use database::is_transient;
#[cfg(feature = "postgres")]
pub(crate) use facts::{clean_code, clean_params};
#[cfg(feature = "postgres")]
pub use retry_after::{MAX_RETRY_AFTER, MIN_RETRY_AFTER, parse_retry_after};
pub use text::{MAX_ERROR_BYTES, clean_error_text};

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

    /// All of them.
    pub const ALL: [&str; 20] = [
        TIMEOUT,
        CONNECTION,
        HTTP_5XX,
        PANIC,
        IO,
        DATABASE,
        SLOW_DOWN,
        MAIL_DEFERRED,
        LEASE_LOST,
        STALLED_OUT,
        INVALID_PAYLOAD,
        INVALID_CONTENT,
        INVALID_RECIPIENT,
        NOT_FOUND,
        PERMISSION,
        QUOTA,
        INVALID_CREDENTIALS,
        MAIL_REFUSED,
        HTTP_4XX,
        HTTP_UNEXPECTED,
    ];

    pub const TIMEOUT: &str = "timeout";
    pub const CONNECTION: &str = "connection";
    pub const HTTP_5XX: &str = "http_5xx";
    pub const PANIC: &str = "panic";
    pub const IO: &str = "io";
    pub const DATABASE: &str = "database";
    pub const SLOW_DOWN: &str = "slow_down";
    pub const MAIL_DEFERRED: &str = "mail_deferred";
    pub const LEASE_LOST: &str = "lease_lost";
    pub const STALLED_OUT: &str = "stalled_out";
    pub const INVALID_PAYLOAD: &str = "invalid_payload";
    pub const INVALID_CONTENT: &str = "invalid_content";
    pub const INVALID_RECIPIENT: &str = "invalid_recipient";
    pub const NOT_FOUND: &str = "not_found";
    pub const PERMISSION: &str = "permission";
    pub const QUOTA: &str = "quota";
    pub const INVALID_CREDENTIALS: &str = "invalid_credentials";
    pub const MAIL_REFUSED: &str = "mail_refused";
    pub const HTTP_4XX: &str = "http_4xx";
    pub const HTTP_UNEXPECTED: &str = "http_unexpected";
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
    /// Who asked to wait, such as `openai` or `openai:project-7`: jobs of every worker that name the same provider wait
    /// along. Only for rate-limited errors.
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

    /// A provider asked to wait until `until`, by this host's clock; a past time means now. The attempt is given back.
    /// Where the provider says how long instead of until when, prefer [`JobError::rate_limited`]: two clocks may differ.
    pub fn rate_limited_until(until: DateTime<Utc>, detail: impl Into<String>) -> Self {
        Self::rate_limited((until - Utc::now()).to_std().unwrap_or_default(), detail)
    }

    /// Run again after `delay`; nothing went wrong. The attempt is given back.
    pub fn snooze(delay: Duration, why: impl Into<String>) -> Self {
        Self { snooze: true, ..Self::rate_limited(delay, why) }
    }

    /// Names who asked to wait, so that every job that uses this provider waits too, in all workers. One key a limit: an
    /// account's key where limits are by account.
    #[must_use]
    pub fn provider(mut self, key: impl Into<String>) -> Self {
        self.provider = Some(key.into());
        self
    }

    /// Adds a fact for the end user's sentence.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.params.insert(name.to_owned(), value.into());
        self
    }
}
