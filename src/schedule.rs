//! What is to be enqueued again and again, and when.
//!
//! A [`Schedule`] is declared at a worker and stands as a row in `jobdeck.schedules`; a [`Recurrence`] works out its ticks; the
//! [`crate::Scheduler`] of each worker enqueues the job of each tick. See `docs/schedules.md`.

mod plan;
mod recurrence;

use serde_json::Value;

use crate::policy::name_is_valid;
use crate::{JobType, Policy, Store};

pub(crate) use plan::Plan;
pub use recurrence::{MovedTick, Recurrence, RecurrenceError};

/// What becomes of ticks that nobody was there for: no worker ran, or the database was away. Ticks that pass while a schedule is
/// paused are not missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedPolicy {
    /// They are left out. A tick counts as missed a minute after its time, or once the next one is due.
    Skip,
    /// One job, late, for the last of them. The default.
    #[default]
    Once,
    /// A job for each, in their order, but only for the last `at_most` of them.
    All {
        /// From 1 to 1,000.
        at_most: u16,
    },
}

impl MissedPolicy {
    /// The word used in SQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All { .. } => "all",
        }
    }

    /// The bound, of [`MissedPolicy::All`].
    pub const fn at_most(self) -> Option<u16> {
        match self {
            Self::All { at_most } => Some(at_most),
            Self::Skip | Self::Once => None,
        }
    }
}

/// A value of a schedule that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schedule {schedule:?}: {field} {problem}")]
pub struct ScheduleError {
    /// Whose value.
    pub schedule: String,
    /// Which value.
    pub field: &'static str,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

/// A job that comes again and again. What makes no sense is refused where it is used, with its name.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(crate) name: String,
    pub(crate) cron: String,
    pub(crate) zone: String,
    pub(crate) job_type: String,
    pub(crate) payload: Value,
    pub(crate) tick_field: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) priority: Option<i16>,
    pub(crate) key: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) missed: MissedPolicy,
    pub(crate) revision: i32,
    /// Of a type that is known in Rust.
    pub(crate) policy: Option<Policy>,
    /// What went wrong before there was a place to say so.
    problem: Option<(&'static str, String)>,
}

impl Schedule {
    /// `job` at each tick of `cron`, in UTC unless [`Schedule::zone`] says otherwise.
    ///
    /// `cron` has five fields (minute, hour, day of month, month, day of week) or six (second first), or is one of `@hourly`,
    /// `@daily`, `@weekly`, `@monthly`, `@yearly`. See [`Recurrence`].
    ///
    /// `name` is unique in the database: 1 to 100 of `A-Z a-z 0-9 _ . : -`, not starting with `. : -`.
    pub fn new<T: JobType>(name: &str, cron: &str, job: &T) -> Self {
        let mut schedule = match serde_json::to_value(job) {
            Ok(payload) => Self::of_payload(name, cron, T::TYPE, payload),
            Err(error) => Self {
                problem: Some(("payload", format!("cannot be written as JSON: {error}"))),
                ..Self::of_payload(name, cron, T::TYPE, Value::Null)
            },
        };
        let policy = T::policy();
        if policy.key.is_none() {
            schedule.key = job.idempotency_key().map(|key| key.as_str().to_owned());
        }
        schedule.policy = Some(policy);
        schedule
    }

    /// As [`Schedule::new`], for a type that this program does not know.
    pub fn of_payload(name: &str, cron: &str, job_type: &str, payload: Value) -> Self {
        Self {
            name: name.to_owned(),
            cron: cron.to_owned(),
            zone: "UTC".to_owned(),
            job_type: job_type.to_owned(),
            payload,
            tick_field: None,
            queue: None,
            priority: None,
            key: None,
            owner: None,
            tags: Vec::new(),
            missed: MissedPolicy::default(),
            revision: 0,
            policy: None,
            problem: None,
        }
    }

    /// The time zone in which `cron` is read, by its name in the IANA database, such as `Europe/Berlin`. Default `UTC`.
    #[must_use]
    pub fn zone(mut self, zone: &str) -> Self {
        self.zone = zone.to_owned();
        self
    }

    /// What becomes of ticks that nobody was there for. Default [`MissedPolicy::Once`].
    #[must_use]
    pub fn missed(mut self, missed: MissedPolicy) -> Self {
        self.missed = missed;
        self
    }

    /// Where its jobs wait. Default: the type's queue.
    #[must_use]
    pub fn queue(mut self, queue: &str) -> Self {
        self.queue = Some(queue.to_owned());
        self
    }

    /// Higher runs first. Default: the type's.
    #[must_use]
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Whose jobs they are, in the product's own words; cut after 200 characters. Default: nobody's.
    #[must_use]
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.to_owned());
        self
    }

    /// Adds a word to find its jobs by, 1 to 200 bytes.
    #[must_use]
    pub fn tag(mut self, tag: &str) -> Self {
        self.tags.push(tag.to_owned());
        self
    }

    /// The field of the payload that gets the tick's time, as RFC 3339 text in UTC. Default: none.
    ///
    /// A type whose idempotency key names this field has one job for each tick; one whose key does not gets no second job while
    /// the key is held, which the history shows as a duplicate.
    #[must_use]
    pub fn tick_field(mut self, field: &str) -> Self {
        self.tick_field = Some(field.to_owned());
        self
    }

    /// Which of two declarations counts: one with a lower revision than the row's changes nothing. Default 0, so that the worker
    /// that started last decides.
    #[must_use]
    pub fn revision(mut self, revision: i32) -> Self {
        self.revision = revision;
        self
    }

    /// Refuses values that make no sense.
    ///
    /// # Errors
    /// The first such value, by name.
    pub fn check(&self) -> Result<Recurrence, ScheduleError> {
        const NAME_RULE: &str = "must be 1 to 100 of A-Z a-z 0-9 _ . : - and not start with . : or -";
        let error = |field, problem: String| ScheduleError { schedule: self.name.clone(), field, problem };
        let refuse = |field, problem: String| Err(error(field, problem));
        if !name_is_valid(&self.name) {
            return refuse("name", NAME_RULE.to_owned());
        }
        if let Some((field, problem)) = &self.problem {
            return refuse(field, problem.clone());
        }
        let recurrence =
            Recurrence::parse(&self.cron, &self.zone).map_err(|wrong| error(wrong.field, wrong.problem))?;
        if !name_is_valid(&self.job_type) {
            return refuse("type", format!("{:?} {NAME_RULE}", self.job_type));
        }
        if let Some(policy) = &self.policy {
            policy
                .check(&self.job_type)
                .map_err(|wrong| error("policy", format!("{} {}", wrong.field, wrong.problem)))?;
        }
        if let Some(queue) = &self.queue
            && !name_is_valid(queue)
        {
            return refuse("queue", format!("{queue:?} {NAME_RULE}"));
        }
        if let MissedPolicy::All { at_most } = self.missed
            && !(1..=1000).contains(&at_most)
        {
            return refuse("missed.at_most", format!("is {at_most}, must be from 1 to 1000"));
        }
        if let Some(field) = &self.tick_field
            && (field.is_empty() || field.len() > 200 || field.contains('\0'))
        {
            return refuse("tick_field", format!("{field:?} must be 1 to 200 bytes without NUL"));
        }
        if self.owner.as_ref().is_some_and(|owner| owner.contains('\0')) {
            return refuse("owner", "holds a NUL character".to_owned());
        }
        if let Some(tag) = self.tags.iter().find(|tag| !(1..=200).contains(&tag.len()) || tag.contains('\0')) {
            return refuse("tags", format!("{tag:?} must be 1 to 200 bytes without NUL"));
        }
        if !self.payload.is_object() {
            return refuse("payload", "is not a JSON object".to_owned());
        }
        if let Err(problem) = Store::payload_check(&self.payload) {
            return refuse("payload", problem.to_string());
        }
        if let Some(key) = self.policy.as_ref().and_then(|policy| policy.key.as_ref()) {
            let mut payload = self.payload.clone();
            if let (Some(field), Some(fields)) = (&self.tick_field, payload.as_object_mut()) {
                fields.insert(field.clone(), Value::String(String::new()));
            }
            crate::IdempotencyKey::of_payload(&key.fields, &payload)
                .map_err(|wrong| error("payload", wrong.to_string()))?;
        }
        Ok(recurrence)
    }
}
