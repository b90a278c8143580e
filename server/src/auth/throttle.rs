//! How often someone may guess a password. In memory, per process; it delays new sign-ins and never touches open ones.
//!
//! Failures are counted per account and address, and more generously per account alone, so that one attacker neither
//! guesses from many addresses nor easily keeps the owner out. From the first failure over the free ones each
//! wait is twice the last, at most a quarter of an hour. An hour without a failure forgets them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Failures without a wait for one account from one address.
const FREE_PER_PAIR: u32 = 5;
/// Failures without a wait for one account from anywhere.
const FREE_PER_ACCOUNT: u32 = 25;
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);
const FORGET_AFTER: Duration = Duration::from_secs(60 * 60);
/// Accounts and pairs remembered; the oldest half goes when there are more.
const MAX_ENTRIES: usize = 20_000;

type Key = (String, Option<String>);

#[derive(Default)]
pub(crate) struct Throttle {
    failures: Mutex<HashMap<Key, Failures>>,
}

struct Failures {
    n: u32,
    last: Instant,
}

/// A guess under way. It counts as a failure until it is said to be right.
#[must_use]
pub(crate) struct Guess<'t> {
    throttle: &'t Throttle,
    keys: [(Key, u32); 2],
}

impl Throttle {
    /// Allows a guess or says how long to wait.
    pub(crate) fn begin(&self, account: &str, address: Option<&str>, now: Instant) -> Result<Guess<'_>, Duration> {
        // Longer than any real address, and a bound on what a stranger makes us keep.
        let account: String = account.trim().chars().take(254).collect::<String>().to_lowercase();
        let pair = (account.clone(), Some(address.unwrap_or_default().to_owned()));
        let keys = [(pair, FREE_PER_PAIR), ((account, None), FREE_PER_ACCOUNT)];
        let mut failures = self.lock();
        failures.retain(|_, entry| now.saturating_duration_since(entry.last) < FORGET_AFTER);
        if failures.len() > MAX_ENTRIES {
            let mut times: Vec<Instant> = failures.values().map(|entry| entry.last).collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            failures.retain(|_, entry| entry.last > middle);
        }
        let wait = keys.iter().filter_map(|(key, free)| {
            let entry = failures.get(key)?;
            (entry.last + wait_after(entry.n, *free)).checked_duration_since(now).filter(|wait| !wait.is_zero())
        });
        if let Some(wait) = wait.max() {
            return Err(wait);
        }
        // Counted before the password is checked, so that guesses at the same time do not all slip through.
        for (key, _) in &keys {
            let entry = failures.entry(key.clone()).or_insert(Failures { n: 0, last: now });
            entry.n += 1;
            entry.last = now;
        }
        Ok(Guess { throttle: self, keys })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guess<'_> {
    /// The password was right: the account starts anew.
    pub(crate) fn was_right(self) {
        let mut failures = self.throttle.lock();
        for (key, _) in &self.keys {
            failures.remove(key);
        }
    }

    /// The password was never looked at: the guess does not count.
    pub(crate) fn was_not_made(self) {
        let mut failures = self.throttle.lock();
        for (key, _) in &self.keys {
            if let Some(entry) = failures.get_mut(key) {
                entry.n = entry.n.saturating_sub(1);
            }
        }
    }
}

/// The wait after `n` failures: none for the free ones, then 1 s, doubling.
fn wait_after(n: u32, free: u32) -> Duration {
    match n.checked_sub(free + 1) {
        None => Duration::ZERO,
        Some(over) => Duration::from_secs(1u64.checked_shl(over).unwrap_or(u64::MAX)).min(LONGEST_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(throttle: &Throttle, address: &str, now: Instant) -> Result<(), Duration> {
        throttle.begin("ana@example.com", Some(address), now).map(|_guess| ())
    }

    #[test]
    fn from_the_sixth_failure_the_wait_doubles_up_to_a_quarter_of_an_hour() {
        let throttle = Throttle::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..18 {
            if let Err(wait) = fail(&throttle, "a", now) {
                waits.push(wait.as_secs());
                now += wait;
                fail(&throttle, "a", now).unwrap();
            }
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
    }

    #[test]
    fn many_addresses_get_at_most_a_hundred_guesses_an_hour() {
        let throttle = Throttle::default();
        let begun = Instant::now();
        let guesses = (0..3600 * 4)
            .filter(|n| fail(&throttle, &format!("a{}", n % 50), begun + Duration::from_millis(n * 250)).is_ok())
            .count();
        assert!((25..=100).contains(&guesses), "{guesses}");
    }

    #[test]
    fn other_accounts_and_right_passwords_are_not_delayed() {
        let throttle = Throttle::default();
        let now = Instant::now();
        while fail(&throttle, "a", now).is_ok() {}
        assert!(throttle.begin("bo@example.com", Some("a"), now).is_ok());
        fail(&throttle, "b", now).unwrap();
        throttle.begin("Ana@Example.com ", Some("b"), now).map(Guess::was_right).unwrap();
        assert!((0..5).all(|_| fail(&throttle, "b", now).is_ok()));
    }

    #[test]
    fn guesses_that_were_not_made_do_not_count() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for _ in 0..20 {
            throttle.begin("ana@example.com", Some("a"), now).map(Guess::was_not_made).unwrap();
        }
        assert!(fail(&throttle, "a", now).is_ok());
    }
}
