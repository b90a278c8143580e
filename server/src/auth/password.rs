//! Passwords: which are good enough, and how they are hashed.

mod guess;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use tokio::sync::Semaphore;

/// Fewest characters of a password.
pub(crate) const MIN_CHARS: usize = 15;
/// Most bytes of a password.
pub(crate) const MAX_BYTES: usize = 1024;
/// Hashes computed at once: each takes 19 MiB and a core.
const AT_ONCE: usize = 2;
/// Callers that may wait for a turn.
const MAX_WAITING: usize = 16;

/// A hash that no password has, with the cost of a real one: an unknown address takes as long as a known one.
const DUMMY: &str = "$argon2id$v=19$m=19456,t=2,p=1$am9iZGVjay1kdW1teS1zYQ$b3VyLW93bi1kdW1teS1oYXNoLW9mLTMyLWJ5dGVzLSE";

/// Why a password was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WeakPassword {
    #[error("a password needs at least {MIN_CHARS} characters")]
    TooShort,
    #[error("a password may have at most {MAX_BYTES} bytes")]
    TooLong,
    #[error("this password is a common one: others try it first")]
    Common,
    #[error("a password may not be made of the e-mail address or the name")]
    Own,
    #[error("a password may not be a row of keys, few characters or a pattern that repeats")]
    Pattern,
}

/// Too many are waiting for a turn.
#[derive(Debug, thiserror::Error)]
#[error("too many passwords to check at once")]
pub(crate) struct Busy;

/// Whether a new password of this person is good enough.
pub(crate) fn check(password: &str, email: &str, name: &str) -> Result<(), WeakPassword> {
    if password.len() > MAX_BYTES {
        Err(WeakPassword::TooLong)
    } else if password.chars().count() < MIN_CHARS {
        Err(WeakPassword::TooShort)
    } else {
        guess::check(password, email, name)
    }
}

/// argon2id with the cost that OWASP's password storage sheet asks for: 19 MiB, two passes, one lane.
fn argon2() -> Argon2<'static> {
    let params = Params::new(19_456, 2, 1, None).expect("fixed parameters are valid");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Hashes a password, here and now, as a PHC string.
///
/// # Errors
/// If the operating system has no randomness to give.
pub(crate) fn hash(password: &str) -> anyhow::Result<String> {
    let hash = argon2().hash_password(password.as_bytes()).map_err(|error| anyhow::anyhow!("cannot hash: {error}"))?;
    Ok(hash.to_string())
}

fn verify(password: &str, hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| argon2().verify_password(password.as_bytes(), &hash).is_ok())
}

/// Hashes and checks passwords off the async threads, a bounded number at once.
pub(crate) struct Hasher {
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Default for Hasher {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(AT_ONCE)), waiting: AtomicUsize::new(0) }
    }
}

impl Hasher {
    /// Whether `password` belongs to `hash`. Without a hash the answer is no, after the same time.
    pub(crate) async fn verify(&self, password: String, hash: Option<String>) -> Result<bool, Busy> {
        self.run(move || {
            let is_right = verify(&password, hash.as_deref().unwrap_or(DUMMY));
            is_right && hash.is_some()
        })
        .await
    }

    /// Hashes a new password.
    pub(crate) async fn hash(&self, password: String) -> Result<anyhow::Result<String>, Busy> {
        self.run(move || hash(&password)).await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Busy> {
        let waiting = Waiting::new(&self.waiting)?;
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| Busy)?;
        drop(waiting);
        // The turn ends with the work, also when the caller has gone away meanwhile.
        let work = move || {
            let result = work();
            drop(turn);
            result
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| Busy)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Result<Self, Busy> {
        let waiting = Self(count);
        if count.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING { Err(Busy) } else { Ok(waiting) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_counted_in_characters_and_bounded_in_bytes() {
        let check = |password: &str| check(password, "ana@example.com", "Ana Costa");
        assert_eq!(check("fourteen chars"), Err(WeakPassword::TooShort));
        assert_eq!(check("fifteen chars!!"), Ok(()));
        assert_eq!(check("四个字也不够长"), Err(WeakPassword::TooShort));
        let long: String = (0..1024).map(|n| n.to_string()).collect::<String>().chars().take(1024).collect();
        assert_eq!(check(&long), Ok(()));
        assert_eq!(check(&format!("{long}x")), Err(WeakPassword::TooLong));
    }

    #[test]
    fn hash_names_algorithm_and_cost() {
        let hash = hash("correct horse battery").unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert!(verify("correct horse battery", &hash));
        assert!(!verify("correct horse batterz", &hash));
    }

    #[test]
    fn dummy_is_a_valid_hash_of_the_same_cost() {
        let dummy = PasswordHash::new(DUMMY).unwrap();
        let real = hash("correct horse battery").unwrap();
        let real = PasswordHash::new(&real).unwrap();
        assert_eq!(dummy.params.to_string(), real.params.to_string());
        assert_eq!(dummy.hash.unwrap().len(), real.hash.unwrap().len());
    }

    #[tokio::test]
    async fn the_seventeenth_in_the_queue_is_sent_away() {
        let hasher = Hasher::default();
        let _all = hasher.turns.acquire_many(AT_ONCE as u32).await.unwrap();
        let queue: Vec<_> = (0..MAX_WAITING).map(|_| Waiting::new(&hasher.waiting).unwrap()).collect();
        assert!(hasher.verify(String::new(), None).await.is_err());
        drop(queue);
        assert!(Waiting::new(&hasher.waiting).is_ok());
    }
}
