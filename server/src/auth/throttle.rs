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
/// Accounts and pairs remembered besides the accounts that exist. When there are more, the half goes that has cost the
/// least guesses: whoever wants one with many failures forgotten must first fail as often with ten thousand others.
const MAX_ENTRIES: usize = 20_000;

type Key = (String, Option<String>);

#[derive(Default)]
pub(crate) struct Throttle {
    failures: Mutex<HashMap<Key, Failures>>,
}

#[derive(Clone, Copy)]
struct Failures {
    n: u32,
    last: Instant,
    /// Of an account that exists: these are as many as there are users, and are never forgotten early.
    is_kept: bool,
}

/// A guess under way. It counts as a failure until it is said to be right.
#[must_use]
pub(crate) struct Guess<'t> {
    throttle: &'t Throttle,
    keys: [Key; 2],
    /// What was known of each before this guess.
    before: [Option<Failures>; 2],
    begun: Instant,
}

impl Throttle {
    /// Allows a guess or says how long to wait.
    pub(crate) fn begin(&self, account: &str, address: Option<&str>, now: Instant) -> Result<Guess<'_>, Duration> {
        // Longer than any real address, and a bound on what a stranger makes us keep.
        let account: String = account.trim().chars().take(254).collect::<String>().to_lowercase();
        let pair = (account.clone(), Some(address.unwrap_or_default().to_owned()));
        let keys = [pair, (account, None)];
        let mut failures = self.lock();
        let is_recent = |entry: &Failures| now.saturating_duration_since(entry.last) < FORGET_AFTER;
        for key in &keys {
            if failures.get(key).is_some_and(|entry| !is_recent(entry)) {
                failures.remove(key);
            }
        }
        if failures.len() > MAX_ENTRIES {
            failures.retain(|_, entry| is_recent(entry));
        }
        if failures.len() > MAX_ENTRIES {
            forget_half(&mut failures);
        }
        let wait = keys.iter().zip([FREE_PER_PAIR, FREE_PER_ACCOUNT]).filter_map(|(key, free)| {
            let entry = failures.get(key)?;
            (entry.last + wait_after(entry.n, free)).checked_duration_since(now).filter(|wait| !wait.is_zero())
        });
        if let Some(wait) = wait.max() {
            return Err(wait);
        }
        // Counted before the password is checked, so that guesses at the same time do not all slip through.
        let before = keys.each_ref().map(|key| failures.get(key).copied());
        for key in &keys {
            let entry = failures.entry(key.clone()).or_insert(Failures { n: 0, last: now, is_kept: false });
            entry.n += 1;
            entry.last = now;
        }
        Ok(Guess { throttle: self, keys, before, begun: now })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guess<'_> {
    /// The account exists: its failures are remembered for their whole hour, however many others there are.
    pub(crate) fn is_for_an_account(&self) {
        if let Some(entry) = self.throttle.lock().get_mut(&self.keys[1]) {
            entry.is_kept = true;
        }
    }

    /// The password was right: the account starts anew.
    pub(crate) fn was_right(self) {
        let mut failures = self.throttle.lock();
        for key in &self.keys {
            failures.remove(key);
        }
    }

    /// The password was never looked at: everything is as if there had been no guess.
    pub(crate) fn was_not_made(self) {
        let mut failures = self.throttle.lock();
        for (key, before) in self.keys.iter().zip(self.before) {
            let Some(entry) = failures.get_mut(key) else { continue };
            entry.n = entry.n.saturating_sub(1);
            match before {
                _ if entry.n == 0 => {
                    failures.remove(key);
                }
                // Unless someone has guessed since.
                Some(before) if entry.last == self.begun => entry.last = before.last,
                _ => {}
            }
        }
    }
}

/// Drops the half with the fewest failures, of those the oldest.
fn forget_half(failures: &mut HashMap<Key, Failures>) {
    let worth = |entry: &Failures| (entry.n, entry.last);
    let mut worths: Vec<_> = failures.values().filter(|entry| !entry.is_kept).map(worth).collect();
    let middle = worths.len() / 2;
    if middle == 0 {
        return;
    }
    let (_, middle, _) = worths.select_nth_unstable(middle - 1);
    failures.retain(|_, entry| entry.is_kept || worth(entry) > *middle);
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

    #[test]
    fn guesses_that_were_not_made_leave_nothing_and_move_no_wait() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for n in 0..1000 {
            throttle.begin(&format!("{n}@example.com"), Some("a"), now).map(Guess::was_not_made).unwrap();
        }
        assert!(throttle.lock().is_empty());
        while fail(&throttle, "a", now).is_ok() {}
        let later = now + Duration::from_secs(2);
        throttle.begin("ana@example.com", Some("a"), later).map(Guess::was_not_made).unwrap();
        assert!(fail(&throttle, "a", later).is_ok(), "the wait is over, and no new one has begun");
    }

    #[test]
    fn a_flood_of_other_addresses_does_not_bring_guesses_back() {
        for exists in [true, false] {
            let throttle = Throttle::default();
            let begun = Instant::now();
            // Each from another address, so that what slows down is the account.
            let guess = |n: u32, now| {
                throttle.begin("ana@example.com", Some(&format!("a{n}")), now).inspect(|guess| {
                    if exists {
                        guess.is_for_an_account();
                    }
                })
            };
            let n_guesses = (0..).take_while(|n| guess(*n, begun).is_ok()).count();
            assert_eq!(n_guesses, 26);
            for n in 0..60_000 {
                let now = begun + Duration::from_micros(n);
                let _ = throttle.begin(&format!("{n}@flood.example"), Some("b"), now).map(|_guess| ());
            }
            assert!(guess(99, begun + Duration::from_millis(900)).is_err(), "exists: {exists}");
            assert!(throttle.lock().len() <= MAX_ENTRIES + 2);
        }
    }

    #[test]
    fn accounts_that_exist_outlast_a_flood_that_fails_as_often() {
        let throttle = Throttle::default();
        let now = Instant::now();
        throttle.begin("ana@example.com", Some("a"), now).map(|guess| guess.is_for_an_account()).unwrap();
        while fail(&throttle, "a", now).is_ok() {}
        for n in 0..15_000 {
            for _ in 0..6 {
                let _ = throttle.begin(&format!("{n}@flood.example"), Some("b"), now).map(|_guess| ());
            }
        }
        let entry = throttle.lock().get(&("ana@example.com".to_owned(), None)).map(|entry| entry.n);
        assert_eq!(entry, Some(6));
    }
}
