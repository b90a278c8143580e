//! Jobs as the deck shows them.

use chrono::{DateTime, Utc};
use jobdeck::{AttemptOutcome, FailureClass, JobId, JobState};
use serde::{Deserialize, Serialize};

use crate::i18n::Locale;

/// A job as a row of the list; also the head of its page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Which job.
    pub id: JobId,
    /// Its type.
    pub job_type: String,
    /// Where it waits.
    pub queue: String,
    /// Where it stands.
    pub state: JobState,
    /// Attempts used, the present one included.
    pub attempts: i32,
    /// Attempts it may use.
    pub max_attempts: i32,
    /// Grows with each change; a lower one is never shown after a higher one.
    pub version: i64,
    /// Not claimed before this time.
    pub run_after: DateTime<Utc>,
    /// Start of the present or last attempt.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
    /// Where the present or last attempt is or stopped.
    pub stage: Option<String>,
    /// Percent of the present stage.
    pub progress: Option<i16>,
    /// First line of the last error.
    pub error: Option<String>,
    /// Class of the last bad end.
    pub error_class: Option<FailureClass>,
    /// Code of the last bad end.
    pub error_code: Option<String>,
    /// Whether a running job has been asked to stop.
    pub cancel_requested: bool,
    /// The payload's short scalars.
    pub preview: String,
    /// Whether a live worker knows the type.
    pub type_is_known: bool,
}

impl JobRow {
    /// Whether a person may send it back to the start.
    pub const fn can_be_retried(&self) -> bool {
        matches!(self.state, JobState::Failed | JobState::Canceled)
    }

    /// Whether a person may stop it.
    pub const fn can_be_canceled(&self) -> bool {
        !self.state.is_final() && !self.cancel_requested
    }

    /// How long the present or last attempt has run, in milliseconds; `None` before the first and while it waits.
    pub fn run_ms(&self, now: DateTime<Utc>) -> Option<i64> {
        let started = self.started_at?;
        match self.state {
            JobState::Running => Some((now - started).num_milliseconds().max(0)),
            _ => self.finished_at.map(|end| (end - started).num_milliseconds().max(0)),
        }
    }
}

/// How many jobs are in each state, in the order of [`JobState::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCountsView(pub [i64; 6]);

impl StateCountsView {
    /// Jobs in `state`; in any, for `None`.
    pub fn of(&self, state: Option<JobState>) -> i64 {
        match state {
            None => self.0.iter().sum(),
            Some(state) => JobState::ALL.iter().position(|other| *other == state).map_or(0, |place| self.0[place]),
        }
    }
}

/// A stage's name with its words, as the type's worker registered them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageView {
    /// The word handlers use.
    pub name: String,
    /// English.
    pub en: String,
    /// 简体中文.
    pub zh_cn: String,
    /// When the present or last attempt entered it. Only on a job's page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<DateTime<Utc>>,
}

impl StageView {
    /// Its words in `locale`.
    pub fn label(&self, locale: Locale) -> &str {
        match locale {
            Locale::En => &self.en,
            Locale::ZhCn => &self.zh_cn,
        }
    }
}

/// A registered type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeView {
    /// Its name.
    pub name: String,
    /// In the order a job passes them.
    pub stages: Vec<StageView>,
}

/// A page of the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobListView {
    /// Newest first.
    pub rows: Vec<JobRow>,
    /// Whether there are newer ones.
    pub has_newer: bool,
    /// Whether there are older ones.
    pub has_older: bool,
    /// Per state, under the same type and text. `None` if counting takes longer than reading.
    pub counts: Option<StateCountsView>,
    /// Jobs there are without any filter. Counted only when nothing matched; `None` also if that takes too long.
    pub n_unfiltered: Option<i64>,
    /// To choose from, and for the words of stages.
    pub types: Vec<TypeView>,
    /// The server's clock when the list was read.
    pub now: DateTime<Utc>,
}

/// A JSON value as text, cut to what a page can show. Numbers have all their digits; hidden values were replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JsonText {
    /// Indented by two spaces.
    pub text: String,
    /// Size of the whole as it is downloaded.
    pub bytes: u64,
    /// Whether `text` is only its beginning.
    pub is_cut: bool,
}

/// An attempt that did not succeed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptView {
    /// The execution.
    pub token: i64,
    /// Which attempt it was when it started.
    pub attempt: i32,
    /// How it ended.
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
    pub error_class: Option<FailureClass>,
    /// What it was.
    pub error_code: Option<String>,
    /// Operator's text.
    pub error: Option<String>,
    /// When the next start was planned.
    pub next_run_at: Option<DateTime<Utc>>,
}

/// A line of the audit trail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditView {
    /// Grows.
    pub id: i64,
    /// When.
    pub at: DateTime<Utc>,
    /// Who.
    pub actor: String,
    /// What, as verb_noun.
    pub action: String,
    /// Whether it was refused.
    pub refused: bool,
}

/// Why a job is not running. Only of waiting jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitView {
    /// Who paused its queue.
    pub paused_by: Option<String>,
    /// Live workers that know its type.
    pub n_workers: i64,
    /// Slots of those workers.
    pub n_slots: i64,
    /// Jobs that are claimed before it; `None` while it is not due.
    pub n_ahead: Option<i64>,
}

/// A job's page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// What the list shows too.
    pub row: JobRow,
    /// Higher runs first.
    pub priority: i16,
    /// Starts ever, also those given back.
    pub starts: i32,
    /// Leases that ran out.
    pub stalled_count: i32,
    /// Stalls that are borne.
    pub max_stalled: i32,
    /// Worker of the present or last attempt.
    pub last_worker: Option<String>,
    /// In the order the job passes them; those entered have a time.
    pub stages: Vec<StageView>,
    /// Who or what enqueued it.
    pub created_by: Option<String>,
    /// Whose job it is.
    pub owner: Option<String>,
    /// Its idempotency key.
    pub idempotency_key: Option<String>,
    /// Duplicates that landed on it.
    pub n_duplicates: i32,
    /// The last of them.
    pub last_duplicate_at: Option<DateTime<Utc>>,
    /// What it was given.
    pub payload: JsonText,
    /// What it returned.
    pub result: Option<JsonText>,
    /// Newest first.
    pub attempts: Vec<AttemptView>,
    /// Newest first.
    pub audit: Vec<AuditView>,
    /// Why it is not running.
    pub wait: Option<WaitView>,
    /// Where the recipient sees it.
    pub export_href: Option<String>,
    /// The server's clock when the job was read.
    pub now: DateTime<Utc>,
}

#[cfg(feature = "ssr")]
mod from_store {
    use jobdeck::store::{AuditEntry, RegisteredType, StateCounts};
    use jobdeck::{Attempt, JobSummary};

    use super::*;

    /// Most bytes of a payload or a result on a page, spaces included.
    const MAX_JSON_BYTES: usize = 20_000;

    impl From<JobSummary> for JobRow {
        fn from(job: JobSummary) -> Self {
            Self {
                id: job.id,
                job_type: job.job_type,
                queue: job.queue,
                state: job.state,
                attempts: job.attempts,
                max_attempts: job.max_attempts,
                version: job.version,
                run_after: job.run_after,
                started_at: job.started_at,
                finished_at: job.finished_at,
                created_at: job.created_at,
                updated_at: job.updated_at,
                stage: job.stage,
                progress: job.progress,
                error: job.error,
                error_class: job.error_class,
                error_code: job.error_code,
                cancel_requested: job.cancel_requested_at.is_some(),
                preview: job.payload_preview,
                type_is_known: job.type_is_known,
            }
        }
    }

    impl From<StateCounts> for StateCountsView {
        fn from(counts: StateCounts) -> Self {
            Self(counts.0)
        }
    }

    impl From<RegisteredType> for TypeView {
        fn from(registered: RegisteredType) -> Self {
            let stages = registered.stages.0.into_iter().map(|stage| StageView {
                name: stage.name,
                en: stage.label.en,
                zh_cn: stage.label.zh_cn,
                at: None,
            });
            Self { name: registered.job_type, stages: stages.collect() }
        }
    }

    impl From<Attempt> for AttemptView {
        fn from(attempt: Attempt) -> Self {
            Self {
                token: attempt.token,
                attempt: attempt.attempt,
                outcome: attempt.outcome,
                worker: attempt.worker,
                stage: attempt.stage,
                started_at: attempt.started_at,
                ended_at: attempt.ended_at,
                error_class: attempt.error_class,
                error_code: attempt.error_code,
                error: attempt.error,
                next_run_at: attempt.next_run_at,
            }
        }
    }

    impl From<AuditEntry> for AuditView {
        fn from(entry: AuditEntry) -> Self {
            Self {
                id: entry.id,
                at: entry.at,
                actor: entry.actor,
                action: entry.action,
                refused: entry.outcome == "refused",
            }
        }
    }

    impl JsonText {
        /// A value whose text begins with `start` and is `bytes` long. Works on the text alone: as numbers of this program, long
        /// ones would lose digits.
        pub(crate) fn of_start(start: &str, bytes: i64) -> Self {
            let bytes = u64::try_from(bytes).unwrap_or(0);
            let (text, is_whole) = indented(start, MAX_JSON_BYTES);
            Self { text, bytes, is_cut: !is_whole || (start.len() as u64) < bytes }
        }
    }

    /// JSON text indented by two spaces, as much of it as `max_bytes` hold, and whether that is all. Of a text that is no whole JSON
    /// everything up to its end.
    fn indented(json: &str, max_bytes: usize) -> (String, bool) {
        let mut out = String::new();
        let mut depth = 0_usize;
        let (mut in_text, mut escaped) = (false, false);
        let mut letters = json.chars().peekable();
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        };
        while let Some(letter) = letters.next() {
            let end = out.len();
            if in_text {
                out.push(letter);
                in_text = escaped || letter != '"';
                escaped = !escaped && letter == '\\';
            } else {
                match letter {
                    '{' | '[' => {
                        out.push(letter);
                        while letters.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                        if let Some(close) = letters.next_if(|next| matches!(next, '}' | ']')) {
                            out.push(close);
                        } else {
                            depth += 1;
                            line(&mut out, depth);
                        }
                    }
                    '}' | ']' => {
                        depth = depth.saturating_sub(1);
                        line(&mut out, depth);
                        out.push(letter);
                    }
                    ',' => {
                        out.push(letter);
                        line(&mut out, depth);
                    }
                    ':' => out.push_str(": "),
                    letter if letter.is_ascii_whitespace() => {}
                    letter => {
                        in_text = letter == '"';
                        out.push(letter);
                    }
                }
            }
            if out.len() > max_bytes {
                out.truncate(end);
                return (out, false);
            }
        }
        (out, true)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn numbers_keep_all_their_digits() {
            let json = r#"{"id": 123456789012345678901234567890, "sum": 0.10000000000000000000000000000001, "e": [1e400, -0]}"#;
            let text = JsonText::of_start(json, json.len() as i64);
            assert!(!text.is_cut);
            for digits in ["123456789012345678901234567890,", "0.10000000000000000000000000000001,", "1e400,", "-0\n"] {
                assert!(text.text.contains(digits), "{digits} is not in {}", text.text);
            }
        }

        #[test]
        fn text_is_indented_as_serde_does() {
            let value = serde_json::json!({"a": {}, "b": [], "c": [1, {"d": "x\"y\\\\{[,:]}"}, [[true]]], "中": null, "e": "\\"});
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            assert_eq!(indented(&value.to_string(), 10_000), (pretty.clone(), true));
            assert_eq!(indented(&pretty, 10_000), (pretty, true));
        }

        #[test]
        fn cut_text_says_so_wherever_it_is_cut() {
            let json = r#"{"a\"b": "中\\", "c": [1, {"d": []}]}"#;
            for end in (0..json.len()).filter(|end| json.is_char_boundary(*end)) {
                assert!(JsonText::of_start(&json[..end], json.len() as i64).is_cut, "{end}");
            }
            let long = format!("{{\"a\": \"{}\"}}", "中".repeat(7_000));
            let text = JsonText::of_start(&long, long.len() as i64);
            assert!(text.is_cut && text.text.len() <= MAX_JSON_BYTES && text.text.starts_with("{\n  \"a\": \"中"));
        }
    }
}
