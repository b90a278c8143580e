//! How many audit entries people without an account can cause. In memory, per process.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Entries within [`PERIOD`].
const MAX_NOTES: u32 = 60;
const PERIOD: Duration = Duration::from_secs(60);

/// Counts strangers' refused sign-ins.
#[derive(Default)]
pub(crate) struct Strangers(Mutex<Option<Period>>);

struct Period {
    begun: Instant,
    n: u32,
}

impl Strangers {
    /// Whether this one is to be noted, and if so with which reason: how many were left out before it, if any.
    pub(crate) fn note(&self, now: Instant) -> Option<Option<String>> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(period) = present.as_mut().filter(|period| now.saturating_duration_since(period.begun) < PERIOD) {
            period.n = period.n.saturating_add(1);
            return (period.n <= MAX_NOTES).then_some(None);
        }
        let n_left_out = present.as_ref().map_or(0, |period| period.n.saturating_sub(MAX_NOTES));
        *present = Some(Period { begun: now, n: 1 });
        Some((n_left_out > 0).then(|| format!("{n_left_out} more before this one were not noted one by one")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_a_minute_are_noted_and_the_others_counted() {
        let strangers = Strangers::default();
        let begun = Instant::now();
        let n_noted = (0..1000).filter(|n| strangers.note(begun + Duration::from_millis(*n)).is_some()).count();
        assert_eq!(n_noted, 60);
        let next = strangers.note(begun + PERIOD).expect("noted");
        assert_eq!(next.as_deref(), Some("940 more before this one were not noted one by one"));
        assert_eq!(strangers.note(begun + PERIOD), Some(None));
    }
}
