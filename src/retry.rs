//! When a failed attempt is followed by another.

use std::time::Duration;

/// How long to wait before the next attempt. `attempt` counts from 1: the attempt that just failed.
///
/// Default [`Backoff::Exponential`] with 10 s, factor 2, cap 10 min:
///
/// | failed attempt | 1 | 2 | 3 | 4 | 5 | 6 | 7 and on |
/// |---|---|---|---|---|---|---|---|
/// | wait before jitter | 10 s | 20 s | 40 s | 80 s | 160 s | 320 s | 600 s |
#[derive(Clone, Copy, Debug, PartialEq)]
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
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential { first: Duration::from_secs(10), factor: 2.0, cap: Duration::from_secs(600) }
    }
}

impl Backoff {
    /// The longest wait this backoff can give, jitter included.
    pub fn cap(&self) -> Duration {
        match *self {
            Self::Fixed(wait) => wait.saturating_mul(2),
            Self::Exponential { cap, .. } => cap,
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
