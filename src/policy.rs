//! What a type promises: where it waits, how often it is tried, which stages it passes.

mod key;
mod stage;

use std::time::Duration;

use crate::{Backoff, Retention, payload_path};

pub use key::{DuplicateBehaviour, KeyPolicy};
pub use stage::{Stage, StageLabel};

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
    /// Which jobs count as the same. Default `None`: no two do, unless [`crate::JobType::idempotency_key`] says so. A key that
    /// stands here wins over that method, so that enqueuers in Rust, HTTP and SQL agree.
    pub key: Option<KeyPolicy>,
    /// Payload paths whose values no view of the deck shows: `••••••` stands in their place in the payload, at the same paths of
    /// the result, and in the list's preview; searches do not find them. Paths go on through lists. Where results, error texts or
    /// the idempotency key quote such a value it is replaced too, if it is a text of four characters or a number of six digits at
    /// least; a key that is declared to hold one is hidden whole. Handlers, SQL and [`crate::Store::job_get`] get the real values.
    /// In force once a worker that knows the type has registered it, then for older jobs too. Default none.
    pub redact: Vec<String>,
    /// How long ended jobs are kept. Default: the newest 500 succeeded, 2,000 failed and 500 canceled.
    pub retention: Retention,
    /// Whose pauses stop this type: while a cool-down of that name lasts, none of its jobs is claimed. At most 200 bytes.
    /// Default none.
    pub provider: Option<String>,
    /// Jobs of the queue that run at once, over all workers; at least 1. Default `None`: no limit. It is the queue's, not the
    /// type's: of several types in one queue the smallest declared holds. A limit a person sets for the queue stays.
    pub concurrency: Option<i32>,
    /// Jobs of the queue with the same limit key that run at once, over all workers; at least 1. Default `None`: no limit.
    pub key_concurrency: Option<i32>,
    /// The payload path that gives the limit key, such as `customer_id`. Default none. A job where it is missing or null has no
    /// limit key; one where it is a list or an object is refused. [`crate::EnqueueOptions::limit_key`] wins over it.
    pub limit_key: Option<String>,
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
            key: None,
            redact: Vec::new(),
            retention: Retention::default(),
            provider: None,
            concurrency: None,
            key_concurrency: None,
            limit_key: None,
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
        self.stages.push(Stage::new(name, en, zh_cn));
        self
    }

    /// Sets the idempotency key: these payload paths, for ever, returning the existing job.
    #[must_use]
    pub fn keyed_by(mut self, fields: &[&str]) -> Self {
        self.key = Some(KeyPolicy::of(fields.iter().copied()));
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
        if let Some(problem) = self.backoff.problem() {
            return refuse("backoff", problem);
        }
        for (place, stage) in self.stages.iter().enumerate() {
            if !name_is_valid(&stage.name) {
                return refuse("stages", format!("{:?} {NAME_RULE}", stage.name));
            }
            if self.stages[..place].iter().any(|earlier| earlier.name == stage.name) {
                return refuse("stages", format!("{:?} is there twice", stage.name));
            }
            if stage.label.en.is_empty() || stage.label.zh_cn.is_empty() {
                return refuse("stages", format!("{:?} needs a label in each language", stage.name));
            }
        }
        if let Some(key) = &self.key {
            if !(1..=16).contains(&key.fields.len()) {
                return refuse("key.fields", format!("are {}, must be 1 to 16", key.fields.len()));
            }
            for (place, field) in key.fields.iter().enumerate() {
                if let Some(problem) = payload_path::problem(field) {
                    return refuse("key.fields", format!("{field:?} {problem}"));
                }
                if key.fields[..place].contains(field) {
                    return refuse("key.fields", format!("{field:?} is there twice"));
                }
            }
        }
        for (field, path) in
            self.redact.iter().map(|path| ("redact", path)).chain(self.limit_key.iter().map(|path| ("limit_key", path)))
        {
            if let Some(problem) = payload_path::problem(path) {
                return refuse(field, format!("{path:?} {problem}"));
            }
        }
        if let Err(problem) = self.retention.check() {
            return refuse("retention", problem);
        }
        if let Some(provider) = &self.provider
            && (provider.is_empty() || provider.len() > 200 || provider.contains('\0'))
        {
            return refuse("provider", format!("{provider:?} must be 1 to 200 bytes without NUL"));
        }
        for (field, limit) in [("concurrency", self.concurrency), ("key_concurrency", self.key_concurrency)] {
            if let Some(limit) = limit
                && limit < 1
            {
                return refuse(field, format!("is {limit}, must be at least 1"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Keep;

    /// Which value is refused, if one is.
    fn refused(change: impl FnOnce(&mut Policy)) -> Option<&'static str> {
        let mut policy = Policy::default();
        change(&mut policy);
        policy.check("some_type").err().map(|error| error.field)
    }

    fn keyed(fields: &[&str]) -> Option<KeyPolicy> {
        Some(KeyPolicy::of(fields.iter().copied()))
    }

    #[test]
    fn every_default_is_accepted_and_the_error_names_type_value_and_what_is_allowed() {
        assert_eq!(refused(|_| ()), None);
        let error = Policy { max_attempts: 0, ..Policy::default() }.check("some_type").unwrap_err();
        assert_eq!(error.to_string(), r#"policy of type "some_type": max_attempts is 0, must be at least 1"#);
    }

    #[test]
    fn type_with_other_letters_is_refused() {
        for name in ["", "naïve", ":a", "a b", &"x".repeat(101)] {
            assert_eq!(Policy::default().check(name).unwrap_err().field, "type", "{name:?}");
        }
    }

    #[test]
    fn queue_with_other_letters_is_refused() {
        assert_eq!(refused(|policy| policy.queue = "a/b".to_owned()), Some("queue"));
    }

    #[test]
    fn zero_attempts_are_refused() {
        assert_eq!(refused(|policy| policy.max_attempts = 0), Some("max_attempts"));
    }

    #[test]
    fn stalls_below_zero_are_refused() {
        assert_eq!(refused(|policy| policy.max_stalled = -1), Some("max_stalled"));
        assert_eq!(refused(|policy| policy.max_stalled = 0), None);
    }

    #[test]
    fn jitter_outside_zero_to_one_is_refused() {
        for jitter in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(|policy| policy.jitter = jitter), Some("jitter"), "{jitter}");
        }
    }

    #[test]
    fn timeout_of_zero_is_refused() {
        assert_eq!(refused(|policy| policy.timeout = Duration::ZERO), Some("timeout"));
    }

    #[test]
    fn backoff_that_shrinks_or_has_no_name_is_refused() {
        let (first, cap) = (Duration::from_secs(1), Duration::from_secs(9));
        for factor in [0.5, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(|policy| policy.backoff = Backoff::Exponential { first, factor, cap }), Some("backoff"));
        }
        let late = Backoff::Exponential { first: cap, factor: 2.0, cap: first };
        assert_eq!(refused(|policy| policy.backoff = late), Some("backoff"));
        assert_eq!(refused(|policy| policy.backoff = Backoff::custom("", |_| Duration::ZERO, cap)), Some("backoff"));
        assert_eq!(refused(|policy| policy.backoff = Backoff::custom("own", |_| Duration::ZERO, cap)), None);
    }

    #[test]
    fn stage_with_other_letters_twice_or_without_a_label_is_refused() {
        assert_eq!(refused(|policy| policy.stages = vec![Stage::named("a b")]), Some("stages"));
        assert_eq!(refused(|policy| policy.stages = vec![Stage::named("a"), Stage::named("a")]), Some("stages"));
        assert_eq!(refused(|policy| policy.stages = vec![Stage::new("a", "A", "")]), Some("stages"));
    }

    #[test]
    fn key_without_fields_with_a_field_twice_or_with_no_path_is_refused() {
        for fields in [&[] as &[&str], &["a", "a"], &["a."], &["", "b"], &["x"; 17]] {
            assert_eq!(refused(|policy| policy.key = keyed(fields)), Some("key.fields"), "{fields:?}");
        }
        assert_eq!(refused(|policy| policy.key = keyed(&["a", "b.c"])), None);
    }

    #[test]
    fn redaction_path_with_an_empty_segment_is_refused() {
        assert_eq!(refused(|policy| policy.redact = vec!["author..email".to_owned()]), Some("redact"));
    }

    #[test]
    fn limit_key_path_with_an_empty_segment_is_refused() {
        assert_eq!(refused(|policy| policy.limit_key = Some(String::new())), Some("limit_key"));
    }

    #[test]
    fn retention_of_less_than_no_job_is_refused() {
        assert_eq!(refused(|policy| policy.retention.failed = Keep::newest(-1)), Some("retention"));
    }

    #[test]
    fn provider_that_is_empty_or_too_long_is_refused() {
        for provider in [String::new(), "x".repeat(201), "a\0b".to_owned()] {
            assert_eq!(refused(|policy| policy.provider = Some(provider)), Some("provider"));
        }
    }

    #[test]
    fn limits_below_one_are_refused() {
        assert_eq!(refused(|policy| policy.concurrency = Some(0)), Some("concurrency"));
        assert_eq!(refused(|policy| policy.key_concurrency = Some(-1)), Some("key_concurrency"));
    }

    #[test]
    fn stages_of_one_word_have_words_in_both_languages() {
        assert_eq!(Stage::named("uploading"), Stage::new("uploading", "Uploading", "正在上传"));
        assert_eq!(Stage::named("checking_in"), Stage::new("checking_in", "Checking in", "Checking in"));
    }
}
