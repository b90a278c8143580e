//! How long ended jobs are kept: which are due for removal at a given time. Pure; deletes nothing itself.
//!
//! The rule of a type is stored as jsonb in `job_types.retention`:
//!
//! ```json
//! {"succeeded": {"age_secs": null, "count": 500},
//!  "failed": {"age_secs": 2592000, "count": 2000},
//!  "canceled": {"age_secs": null, "count": null}}
//! ```

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::JobState;

/// How long the ended jobs of one type in one state are kept. A job goes as soon as either limit says so.
///
/// Only ended jobs are ever removed, whatever the limits; time counts from their end, not from when they were enqueued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// Removed this long after the end, in whole seconds. `None`: however old. Zero: at the pruner's next pass. A hundred years
    /// and more count as a hundred years, which no job reaches.
    #[serde(rename = "age_secs", default, with = "seconds")]
    pub age: Option<Duration>,
    /// Only so many are kept, those that ended last. `None`: however many. Zero: none, from the pruner's next pass on.
    #[serde(default)]
    pub count: Option<i64>,
}

impl Keep {
    /// Everything, for good.
    pub const FOREVER: Self = Self { age: None, count: None };

    /// The newest `count`, however old.
    pub const fn newest(count: i64) -> Self {
        Self { age: None, count: Some(count) }
    }

    /// Everything that ended less than `age` ago.
    pub const fn younger_than(age: Duration) -> Self {
        Self { age: Some(age), count: None }
    }

    /// Whether a job is due at `now` that ended at `finished_at`, and after which `newer` others of its type and state ended.
    pub fn is_due(&self, finished_at: DateTime<Utc>, newer: i64, now: DateTime<Utc>) -> bool {
        let too_old = self.age.is_some_and(|age| {
            let ago = now.signed_duration_since(finished_at);
            // An end in the future (a clock set back) is not old.
            ago.to_std().is_ok_and(|ago| ago >= age)
        });
        too_old || self.count.is_some_and(|count| newer >= count)
    }
}

/// What a type keeps of its ended jobs, by state.
///
/// Default: the newest 500 succeeded, 2,000 failed and 500 canceled of each type, with no limit of age: a row of a type that runs
/// once a month is not lost merely because time passed. Set an age where payloads hold what must not be kept (personal data),
/// and no count where somebody comes back for the result (a link that lasts a week needs `younger_than` a week). Of a type that
/// ends hundreds of jobs a second, 500 are the last few seconds.
///
/// Idempotency keys are not part of it: they hold for the time the type declares, whether or not the row is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retention {
    /// Of succeeded jobs. Default: the newest 500.
    pub succeeded: Keep,
    /// Of failed jobs. Default: the newest 2,000.
    pub failed: Keep,
    /// Of canceled jobs. Default: the newest 500.
    pub canceled: Keep,
}

impl Default for Retention {
    fn default() -> Self {
        Self { succeeded: Keep::newest(500), failed: Keep::newest(2_000), canceled: Keep::newest(500) }
    }
}

impl Retention {
    /// Everything, for good.
    pub const FOREVER: Self = Self { succeeded: Keep::FOREVER, failed: Keep::FOREVER, canceled: Keep::FOREVER };

    /// The rule for jobs in `state`: everything, if that is not a final state.
    pub fn of(&self, state: JobState) -> Keep {
        match state {
            JobState::Succeeded => self.succeeded,
            JobState::Failed => self.failed,
            JobState::Canceled => self.canceled,
            JobState::Pending | JobState::Running | JobState::Retrying => Keep::FOREVER,
        }
    }

    /// Refuses values that make no sense.
    ///
    /// # Errors
    /// What is wrong with the first of them, in words.
    pub fn check(&self) -> Result<(), String> {
        for (name, keep) in [("succeeded", self.succeeded), ("failed", self.failed), ("canceled", self.canceled)] {
            if let Some(count) = keep.count.filter(|count| *count < 0) {
                return Err(format!("{name}.count is {count}, must be at least 0"));
            }
        }
        Ok(())
    }
}

/// A duration as whole seconds, rounded up: nothing goes before its time.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the signature serde calls")]
    pub(super) fn serialize<S: Serializer>(age: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        let secs = |age: Duration| age.as_secs().saturating_add(u64::from(age.subsec_nanos() > 0));
        // What jsonb readers in every language can hold.
        age.map(|age| secs(age).min(i64::MAX.unsigned_abs())).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_secs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_documented_shape_and_reads_back() {
        let retention = Retention {
            failed: Keep { age: Some(Duration::from_millis(1500)), count: Some(3) },
            canceled: Keep::FOREVER,
            ..Retention::default()
        };
        let json = serde_json::to_value(retention).expect("written");
        let expected = serde_json::json!({
            "succeeded": {"age_secs": null, "count": 500},
            "failed": {"age_secs": 2, "count": 3},
            "canceled": {"age_secs": null, "count": null},
        });
        assert_eq!(json, expected);
        let read: Retention = serde_json::from_value(json).expect("read");
        assert_eq!(read.failed.age, Some(Duration::from_secs(2)), "rounded up");
        assert_eq!(Retention { failed: retention.failed, ..read }, retention);
    }

    #[test]
    fn a_state_left_out_has_its_default_and_nonsense_is_refused() {
        let read: Retention = serde_json::from_str(r#"{"failed": {"count": 1}}"#).expect("read");
        assert_eq!(read, Retention { failed: Keep::newest(1), ..Retention::default() });
        assert!(serde_json::from_str::<Retention>(r#"{"failed": {"age_secs": -1}}"#).is_err());
        let negative = Retention { canceled: Keep::newest(-1), ..Retention::default() };
        assert_eq!(negative.check(), Err("canceled.count is -1, must be at least 0".to_owned()));
        assert_eq!(Retention::default().check(), Ok(()));
    }

    #[test]
    fn either_limit_removes_and_a_hundred_years_remove_nothing() {
        let now: DateTime<Utc> = "2026-12-01T00:00:00Z".parse().expect("a time");
        let ago = |secs| now - chrono::Duration::seconds(secs);
        let keep = Keep { age: Some(Duration::from_secs(60)), count: Some(2) };
        assert!(!keep.is_due(ago(59), 1, now));
        assert!(keep.is_due(ago(60), 0, now), "old enough");
        assert!(keep.is_due(ago(0), 2, now), "two newer ones");
        assert!(Keep::younger_than(Duration::ZERO).is_due(now, 0, now));
        assert!(!Keep::younger_than(Duration::ZERO).is_due(ago(-1), 0, now), "an end in the future");
        let century = Keep::younger_than(Duration::from_secs(100 * 365 * 86_400));
        assert!(!century.is_due(DateTime::UNIX_EPOCH, i64::MAX, now));
        assert!(!Keep::younger_than(Duration::MAX).is_due(DateTime::UNIX_EPOCH, 0, now));
        assert!(!Keep::FOREVER.is_due(DateTime::UNIX_EPOCH, i64::MAX, now));
        assert!(Keep::newest(0).is_due(now, 0, now));
    }

    #[test]
    fn unfinished_states_have_no_rule() {
        for state in JobState::ALL.into_iter().filter(|state| !state.is_final()) {
            assert_eq!(Retention::default().of(state), Keep::FOREVER);
        }
    }
}
