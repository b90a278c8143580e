//! What a type promises: where it waits, how often it is tried, which stages it passes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Backoff;

/// A label inside running or succeeded that people read, such as "Uploading".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The word handlers use, in lower case.
    pub name: String,
    /// The words people read.
    pub label: StageLabel,
}

/// A stage's words by language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLabel {
    /// English.
    pub en: String,
    /// 简体中文.
    #[serde(rename = "zh-CN")]
    pub zh_cn: String,
}

/// Policy of a type. Built once at start; a value that makes no sense is refused by [`Policy::check`] with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Default `default`.
    pub queue: String,
    /// Higher runs first. Default 0.
    pub priority: i16,
    /// Attempts in all, the first start included. Default 5, at least 1.
    pub max_attempts: i32,
    /// Default exponential: 10 s doubling to 10 min.
    pub backoff: Backoff,
    /// Share of the wait that varies, 0 to 1. Default 0.2.
    pub jitter: f64,
    /// Longest run of one attempt. Default 1 h. The slot is freed, the late outcome refused. Code that never awaits cannot
    /// be stopped and may still run beside the next attempt.
    pub timeout: Duration,
    /// Stalls that are borne; one more fails the job. Default 3.
    pub max_stalled: i32,
    /// In the order a job passes them. The last one is shown while succeeded. Default none.
    pub stages: Vec<Stage>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            queue: "default".to_owned(),
            priority: 0,
            max_attempts: 5,
            backoff: Backoff::default(),
            jitter: 0.2,
            timeout: Duration::from_secs(3600),
            max_stalled: 3,
            stages: Vec::new(),
        }
    }
}

/// A policy value that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("policy of type {job_type:?}: {field} {problem}")]
pub struct PolicyError {
    /// Whose policy.
    pub job_type: String,
    /// Which value.
    pub field: &'static str,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

/// The letters a type or queue name may have: they appear in URLs, CSS and metrics.
pub(crate) fn name_is_valid(name: &str) -> bool {
    let mut letters = name.bytes();
    name.len() <= 100
        && letters.next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'.' | b':' | b'-'))
}

impl Policy {
    /// A policy that waits in `queue` and else has the defaults.
    pub fn in_queue(queue: &str) -> Self {
        Self { queue: queue.to_owned(), ..Self::default() }
    }

    /// Adds a stage.
    #[must_use]
    pub fn stage(mut self, name: &str, en: &str, zh_cn: &str) -> Self {
        let label = StageLabel { en: en.to_owned(), zh_cn: zh_cn.to_owned() };
        self.stages.push(Stage { name: name.to_owned(), label });
        self
    }

    /// Refuses values that make no sense.
    ///
    /// # Errors
    /// The first such value, by name.
    pub fn check(&self, job_type: &str) -> Result<(), PolicyError> {
        const NAME_RULE: &str = "must be 1 to 100 of A-Z a-z 0-9 _ . : - and not start with . : or -";
        let refuse = |field, problem: String| Err(PolicyError { job_type: job_type.to_owned(), field, problem });
        if !name_is_valid(job_type) {
            return refuse("type", NAME_RULE.to_owned());
        }
        if !name_is_valid(&self.queue) {
            return refuse("queue", format!("{:?} {NAME_RULE}", self.queue));
        }
        if self.max_attempts < 1 {
            return refuse("max_attempts", format!("is {}, must be at least 1", self.max_attempts));
        }
        if self.max_stalled < 0 {
            return refuse("max_stalled", format!("is {}, must be at least 0", self.max_stalled));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return refuse("jitter", format!("is {}, must be from 0 to 1", self.jitter));
        }
        if self.timeout.is_zero() {
            return refuse("timeout", "is zero, must be longer".to_owned());
        }
        if let Backoff::Exponential { first, factor, cap } = self.backoff
            && !(factor >= 1.0 && factor.is_finite() && first <= cap)
        {
            return refuse("backoff", format!("{:?} needs factor ≥ 1 and first ≤ cap", self.backoff));
        }
        for (place, stage) in self.stages.iter().enumerate() {
            if !name_is_valid(&stage.name) {
                return refuse("stages", format!("{:?} {NAME_RULE}", stage.name));
            }
            if self.stages[..place].iter().any(|earlier| earlier.name == stage.name) {
                return refuse("stages", format!("{:?} is there twice", stage.name));
            }
        }
        Ok(())
    }
}
