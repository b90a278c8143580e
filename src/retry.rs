//! When a failed attempt is followed by another.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long to wait before the next attempt. `attempt` counts from 1: the attempt that just failed.
///
/// Default [`Backoff::Exponential`] with 10 s, factor 2, cap 10 min:
///
/// | failed attempt | 1 | 2 | 3 | 4 | 5 | 6 | 7 and on |
/// |---|---|---|---|---|---|---|---|
/// | wait before jitter | 10 s | 20 s | 40 s | 80 s | 160 s | 320 s | 600 s |
#[derive(Clone, Copy)]
pub enum Backoff {
    /// The same wait each time.
    Fixed(Duration),
    /// `first · factor^(attempt − 1)`, at most `cap`. Saturates at any attempt number.
    Exponential {
        /// Wait after the first failure.
        first: Duration,
        /// Growth from one failure to the next; at least 1.
        factor: f64,
        /// Longest wait, jitter included.
        cap: Duration,
    },
    /// What a function of the failed attempt's number says, at most `cap`. See [`Backoff::custom`].
    Custom {
        /// What the deck calls it; equal names mean the same function.
        name: &'static str,
        /// The wait before jitter. One that panics counts as `cap`.
        delay: fn(u32) -> Duration,
        /// Longest wait, jitter included.
        cap: Duration,
    },
}

impl PartialEq for Backoff {
    fn eq(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Fixed(wait), Self::Fixed(other)) => wait == other,
            (Self::Exponential { first, factor, cap }, Self::Exponential { first: f, factor: g, cap: c }) => {
                (first, factor, cap) == (f, g, c)
            }
            // By name: one function may have several addresses, and several functions one.
            (Self::Custom { name, cap, .. }, Self::Custom { name: n, cap: c, .. }) => (name, cap) == (n, c),
            _ => false,
        }
    }
}

impl std::fmt::Debug for Backoff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        DeclaredBackoff::from(self).fmt(f)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential { first: Duration::from_secs(10), factor: 2.0, cap: Duration::from_secs(600) }
    }
}

impl Backoff {
    /// An own function of the failed attempt's number, which counts from 1. Jitter is added to what it says, and the sum never
    /// exceeds `cap`.
    ///
    /// ```
    /// # use {jobdeck::Backoff, std::time::Duration};
    /// const SLOW_START: Backoff =
    ///     Backoff::custom("slow_start", |attempt| Duration::from_secs(if attempt < 3 { 1 } else { 300 }), Duration::from_secs(600));
    /// assert_eq!(SLOW_START.base_delay(7), Duration::from_secs(300));
    /// ```
    pub const fn custom(name: &'static str, delay: fn(u32) -> Duration, cap: Duration) -> Self {
        Self::Custom { name, delay, cap }
    }

    /// What makes no sense about it, in words.
    pub(crate) fn problem(&self) -> Option<String> {
        match *self {
            Self::Exponential { first, factor, cap } if !(factor >= 1.0 && factor.is_finite() && first <= cap) => {
                Some(format!("{self:?} needs a factor of at least 1 and first ≤ cap"))
            }
            Self::Custom { name, .. } if !crate::policy::name_is_valid(name) => {
                Some(format!("needs a name of 1 to 100 of A-Z a-z 0-9 _ . : -, {name:?} is none"))
            }
            _ => None,
        }
    }

    /// The longest wait this backoff can give, jitter included.
    pub fn cap(&self) -> Duration {
        match *self {
            Self::Fixed(wait) => wait.saturating_mul(2),
            Self::Exponential { cap, .. } | Self::Custom { cap, .. } => cap,
        }
    }

    /// The wait after failed attempt number `attempt`, before jitter.
    pub fn base_delay(&self, attempt: u32) -> Duration {
        match *self {
            Self::Fixed(wait) => wait,
            Self::Exponential { first, factor, cap } => {
                if first.is_zero() {
                    // Zero times the infinite growth of a late attempt would be no number.
                    return Duration::ZERO;
                }
                let exponent = f64::from(attempt.max(1) - 1);
                let secs = first.as_secs_f64() * factor.max(1.0).powf(exponent);
                // Infinity and anything above the cap saturate.
                if secs < cap.as_secs_f64() { Duration::from_secs_f64(secs) } else { cap }
            }
            // A panic here would end the execution before its outcome is written.
            Self::Custom { delay, cap, .. } => {
                std::panic::catch_unwind(|| delay(attempt.max(1))).map_or(cap, |wait| wait.min(cap))
            }
        }
    }

    /// The wait after failed attempt number `attempt`.
    ///
    /// `jitter` from 0 to 1 is the share of the wait that varies to both sides, `random` from 0 to 1 where in that
    /// window the wait falls. Never below 0, never above [`Backoff::cap`].
    pub fn delay(&self, attempt: u32, jitter: f64, random: f64) -> Duration {
        let base = self.base_delay(attempt).as_secs_f64();
        let shift = jitter.clamp(0.0, 1.0) * (2.0 * random.clamp(0.0, 1.0) - 1.0);
        let secs = (base * (1.0 + shift)).max(0.0);
        if secs < self.cap().as_secs_f64() { Duration::from_secs_f64(secs) } else { self.cap() }
    }
}

/// A backoff as registered in `job_types.backoff`: what a program that lacks an own function knows of it.
///
/// ```json
/// {"kind": "fixed", "delay_ms": 5000}
/// {"kind": "exponential", "first_ms": 10000, "factor": 2.0, "cap_ms": 600000}
/// {"kind": "custom", "name": "slow_start", "cap_ms": 600000}
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DeclaredBackoff {
    /// The same wait each time.
    Fixed {
        /// The wait, in milliseconds.
        delay_ms: u64,
    },
    /// See [`Backoff::Exponential`].
    Exponential {
        /// Wait after the first failure, in milliseconds.
        first_ms: u64,
        /// Growth from one failure to the next.
        factor: f64,
        /// Longest wait, in milliseconds.
        cap_ms: u64,
    },
    /// A function that only the worker has.
    Custom {
        /// Its name.
        name: String,
        /// Longest wait, in milliseconds.
        cap_ms: u64,
    },
}

impl DeclaredBackoff {
    /// The wait after failed attempt number `attempt`, before jitter. `None` if only the worker's own function knows.
    pub fn base_delay(&self, attempt: u32) -> Option<Duration> {
        let backoff = match *self {
            Self::Fixed { delay_ms } => Backoff::Fixed(Duration::from_millis(delay_ms)),
            Self::Exponential { first_ms, factor, cap_ms } => Backoff::Exponential {
                first: Duration::from_millis(first_ms),
                factor,
                cap: Duration::from_millis(cap_ms),
            },
            Self::Custom { .. } => return None,
        };
        Some(backoff.base_delay(attempt))
    }
}

impl From<&Backoff> for DeclaredBackoff {
    fn from(backoff: &Backoff) -> Self {
        let ms = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        match *backoff {
            Backoff::Fixed(wait) => Self::Fixed { delay_ms: ms(wait) },
            Backoff::Exponential { first, factor, cap } => {
                Self::Exponential { first_ms: ms(first), factor, cap_ms: ms(cap) }
            }
            Backoff::Custom { name, cap, .. } => Self::Custom { name: name.to_owned(), cap_ms: ms(cap) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(60);

    #[test]
    fn own_function_is_capped_and_one_that_panics_waits_the_cap() {
        let squares = Backoff::custom("squares", |attempt| Duration::from_secs(u64::from(attempt).pow(2)), CAP);
        assert_eq!([1, 3, 64, u32::MAX].map(|attempt| squares.base_delay(attempt).as_secs()), [1, 9, 60, 60]);
        assert!(squares.delay(64, 1.0, 1.0) <= CAP);
        let broken = Backoff::custom("broken", |attempt| CAP / (attempt - attempt), CAP);
        assert_eq!(broken.base_delay(1), CAP);
    }

    #[test]
    fn own_functions_are_equal_by_name_and_cap() {
        let named = |name| Backoff::custom(name, |_| Duration::ZERO, CAP);
        assert_eq!(named("a"), named("a"));
        assert_ne!(named("a"), named("b"));
        assert_ne!(named("a"), Backoff::Fixed(Duration::ZERO));
    }

    #[test]
    fn registered_backoff_reads_back_and_gives_the_same_waits() {
        let declared = DeclaredBackoff::from(&Backoff::default());
        let json = serde_json::to_value(&declared).expect("written");
        let expected = serde_json::json!({"kind": "exponential", "first_ms": 10000, "factor": 2.0, "cap_ms": 600000});
        assert_eq!(json, expected);
        let read: DeclaredBackoff = serde_json::from_value(json).expect("read");
        assert_eq!(read.base_delay(3), Some(Backoff::default().base_delay(3)));
        assert_eq!(DeclaredBackoff::from(&Backoff::custom("own", |_| CAP, CAP)).base_delay(1), None);
    }
}
