//! A job as stored, and the attempts that went wrong.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{FailureClass, JobState};

/// Names a job: a time-ordered random UUID (version 7). People see its last 8 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "postgres", derive(sqlx::Type), sqlx(transparent))]
pub struct JobId(pub Uuid);

impl JobId {
    /// The last 8 characters, enough to tell jobs on a page apart.
    pub fn short(&self) -> String {
        self.0.simple().to_string().split_off(24)
    }
}

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for JobId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// One row of `jobdeck.jobs`. All times are the database's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "postgres", derive(sqlx::FromRow))]
pub struct Job {
    /// Never used twice.
    pub id: JobId,
    /// What to do; column `type`.
    #[cfg_attr(feature = "postgres", sqlx(rename = "type"))]
    pub job_type: String,
    /// Where it waits.
    pub queue: String,
    /// A JSON object whose shape the type defines. A text that is no JSON this program can read stands as a string.
    #[cfg_attr(feature = "postgres", sqlx(try_from = "JsonColumn"))]
    pub payload: Value,
    /// Column `status`.
    #[cfg_attr(feature = "postgres", sqlx(rename = "status", try_from = "String"))]
    pub state: JobState,
    /// Higher runs first. Default 0.
    pub priority: i16,
    /// Starts that count, the present one included. Falls again when an attempt is given back.
    pub attempts: i32,
    /// How many attempts may be used, the first start included. Default 5.
    pub max_attempts: i32,
    /// Starts ever, also those given back.
    pub starts: i32,
    /// Not claimed before this time.
    pub run_after: DateTime<Utc>,
    /// The fencing number of the present or last execution; 0 before the first.
    pub token: i64,
    /// When the present execution was claimed; null unless running.
    pub locked_at: Option<DateTime<Utc>>,
    /// Which worker holds it; null unless running.
    pub locked_by: Option<String>,
    /// When the lease ends unless it is renewed; null unless running.
    pub lease_expires_at: Option<DateTime<Utc>>,
    /// How often a lease ran out since the start or since a person's retry.
    pub stalled_count: i32,
    /// How many stalls are borne; one more fails the job.
    pub max_stalled: i32,
    /// Start of the present or last attempt.
    pub started_at: Option<DateTime<Utc>>,
    /// Worker of the present or last attempt.
    pub last_worker: Option<String>,
    /// Where the present or last attempt is or stopped.
    pub stage: Option<String>,
    /// Percent of the present stage, 0 to 100.
    pub progress: Option<i16>,
    /// `{stage: time it was entered}`, of the present or last attempt.
    pub stages_at: Value,
    /// Operator's text of the last bad end.
    pub last_error: Option<String>,
    /// Class of the last bad end.
    #[cfg_attr(feature = "postgres", sqlx(try_from = "ClassColumn"))]
    pub error_class: Option<FailureClass>,
    /// Code of the last bad end.
    pub error_code: Option<String>,
    /// Facts for the end user's sentence, by name.
    pub error_params: Option<Value>,
    /// See [`crate::Policy`].
    pub idempotency_key: Option<String>,
    /// What the handler returned; only of a succeeded job.
    pub result: Option<Value>,
    /// Who or what enqueued it.
    pub created_by: Option<String>,
    /// Whose job it is, in the product's own words.
    pub owner: Option<String>,
    /// Set while a running job has been asked to stop.
    pub cancel_requested_at: Option<DateTime<Utc>>,
    /// Set if and only if the state is final.
    pub finished_at: Option<DateTime<Utc>>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// Last change a viewer can see.
    pub updated_at: DateTime<Utc>,
    /// Grows with each such change.
    pub version: i64,
}

/// A job as lists show it: no payload, no result, at most a short error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "postgres", derive(sqlx::FromRow))]
#[allow(missing_docs, reason = "each field is documented at `Job`")]
pub struct JobSummary {
    pub id: JobId,
    #[cfg_attr(feature = "postgres", sqlx(rename = "type"))]
    pub job_type: String,
    pub queue: String,
    #[cfg_attr(feature = "postgres", sqlx(rename = "status", try_from = "String"))]
    pub state: JobState,
    pub attempts: i32,
    pub max_attempts: i32,
    pub token: i64,
    pub version: i64,
    pub run_after: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub stage: Option<String>,
    pub progress: Option<i16>,
    /// First line of the last error, at most 200 characters.
    pub error: Option<String>,
    #[cfg_attr(feature = "postgres", sqlx(try_from = "ClassColumn"))]
    pub error_class: Option<FailureClass>,
    pub error_code: Option<String>,
    pub cancel_requested_at: Option<DateTime<Utc>>,
    /// The payload's short scalars as text, at most 120 characters.
    pub payload_preview: String,
    /// Whether any live worker knows the type.
    pub type_is_known: bool,
}

/// A job as its page shows it: what its type's policy redacts is replaced.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "postgres", derive(sqlx::FromRow))]
#[allow(missing_docs, reason = "fields not documented here are documented at `Job`")]
pub struct JobDetail {
    /// What lists show of it too.
    #[cfg_attr(feature = "postgres", sqlx(flatten))]
    pub summary: JobSummary,
    pub priority: i16,
    pub starts: i32,
    pub stalled_count: i32,
    pub max_stalled: i32,
    pub last_worker: Option<String>,
    pub stages_at: Value,
    pub created_by: Option<String>,
    pub owner: Option<String>,
    pub idempotency_key: Option<String>,
    /// The first [`JobDetail::SHOWN_CHARS`] characters of the payload as Postgres writes JSON.
    pub payload_start: String,
    /// Size of the whole text.
    pub payload_bytes: i64,
    /// As of the payload; only of a succeeded job.
    pub result_start: Option<String>,
    /// Size of the whole text.
    pub result_bytes: Option<i64>,
}

impl JobDetail {
    /// Most characters of a payload or a result on a page; the rest is a download.
    pub const SHOWN_CHARS: i32 = 20_000;
}

/// Where a job stands, without its payload: what a page reads that looks every few seconds.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "postgres", derive(sqlx::FromRow))]
#[allow(missing_docs, reason = "fields not documented here are documented at `Job`")]
pub struct JobGlance {
    pub id: JobId,
    #[cfg_attr(feature = "postgres", sqlx(rename = "status", try_from = "String"))]
    pub state: JobState,
    pub version: i64,
    pub attempts: i32,
    pub max_attempts: i32,
    pub starts: i32,
    pub run_after: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub stage: Option<String>,
    pub progress: Option<i16>,
    pub stages_at: Value,
    #[cfg_attr(feature = "postgres", sqlx(try_from = "ClassColumn"))]
    pub error_class: Option<FailureClass>,
    pub error_code: Option<String>,
    pub error_params: Option<Value>,
    pub result: Option<Value>,
    pub owner: Option<String>,
    pub cancel_requested_at: Option<DateTime<Utc>>,
    /// The payload's fields that were asked for, those that are there.
    pub fields: Value,
    /// The job that has taken this one's place: a rerun that holds its idempotency key.
    pub rerun: Option<JobId>,
    /// The database's clock when it was read.
    pub now: DateTime<Utc>,
}

/// How an attempt ended that did not end in success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// The handler returned an error, panicked or ran out of time.
    Failed,
    /// A provider asked to wait.
    RateLimited,
    /// The handler asked to run later.
    Snoozed,
    /// The lease ran out.
    Stalled,
    /// A stopping worker handed the job back.
    Released,
    /// A person's cancel reached the handler.
    Canceled,
}

impl AttemptOutcome {
    /// The word used in SQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::RateLimited => "rate_limited",
            Self::Snoozed => "snoozed",
            Self::Stalled => "stalled",
            Self::Released => "released",
            Self::Canceled => "canceled",
        }
    }
}

impl TryFrom<String> for AttemptOutcome {
    type Error = String;
    fn try_from(word: String) -> Result<Self, Self::Error> {
        [Self::Failed, Self::RateLimited, Self::Snoozed, Self::Stalled, Self::Released, Self::Canceled]
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
            .ok_or_else(|| format!("unknown outcome {word:?}"))
    }
}

/// One row of `jobdeck.attempts`: an attempt that did not succeed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "postgres", derive(sqlx::FromRow))]
pub struct Attempt {
    /// The job.
    pub job_id: JobId,
    /// The execution; one outcome per token.
    pub token: i64,
    /// Which attempt it was when it started.
    pub attempt: i32,
    /// How it ended.
    #[cfg_attr(feature = "postgres", sqlx(try_from = "String"))]
    pub outcome: AttemptOutcome,
    /// Who ran it.
    pub worker: Option<String>,
    /// Where it stopped.
    pub stage: Option<String>,
    /// When it was claimed.
    pub started_at: DateTime<Utc>,
    /// When its end was recorded.
    pub ended_at: DateTime<Utc>,
    /// What the end meant.
    #[cfg_attr(feature = "postgres", sqlx(try_from = "ClassColumn"))]
    pub error_class: Option<FailureClass>,
    /// What it was.
    pub error_code: Option<String>,
    /// Operator's text.
    pub error: Option<String>,
    /// Facts for the end user's sentence.
    pub error_params: Option<Value>,
    /// When the next start was planned; null when there was none.
    pub next_run_at: Option<DateTime<Utc>>,
}

/// How JSON arrives from SQL, where it is selected as text: a number out of range must not make a row unreadable.
#[cfg(feature = "postgres")]
#[derive(sqlx::Type)]
#[sqlx(transparent)]
pub(crate) struct JsonColumn(String);

#[cfg(feature = "postgres")]
impl From<JsonColumn> for Value {
    fn from(column: JsonColumn) -> Self {
        serde_json::from_str(&column.0).unwrap_or(Self::String(column.0))
    }
}

/// How a nullable class arrives from SQL, where it is selected as text.
#[cfg(feature = "postgres")]
pub(crate) struct ClassColumn(Option<String>);

#[cfg(feature = "postgres")]
impl sqlx::Type<sqlx::Postgres> for ClassColumn {
    fn type_info() -> sqlx::postgres::PgTypeInfo {
        <String as sqlx::Type<sqlx::Postgres>>::type_info()
    }
    fn compatible(ty: &sqlx::postgres::PgTypeInfo) -> bool {
        <String as sqlx::Type<sqlx::Postgres>>::compatible(ty)
    }
}

#[cfg(feature = "postgres")]
impl<'r> sqlx::Decode<'r, sqlx::Postgres> for ClassColumn {
    fn decode(value: sqlx::postgres::PgValueRef<'r>) -> Result<Self, sqlx::error::BoxDynError> {
        Ok(Self(<Option<String> as sqlx::Decode<'r, sqlx::Postgres>>::decode(value)?))
    }
}

#[cfg(feature = "postgres")]
impl TryFrom<ClassColumn> for Option<FailureClass> {
    type Error = String;
    fn try_from(column: ClassColumn) -> Result<Self, Self::Error> {
        column.0.map(FailureClass::try_from).transpose()
    }
}
