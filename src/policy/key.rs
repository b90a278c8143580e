//! Which jobs of a type count as the same, declared as data so that Rust, HTTP and SQL enqueuers get the same key.

use std::time::Duration;

/// A type's idempotency key: at most one job that waits, runs or has succeeded holds the same one.
///
/// The key is made of the payload alone, by [`IdempotencyKey::of_payload`](crate::IdempotencyKey::of_payload) in Rust and by
/// `jobdeck.key_of_payload` in SQL, which give the same text. A failed or canceled job gives its key back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPolicy {
    /// Dotted payload paths, 1 to 16, in the order they are joined. Each must lead to a text, a number, true or false: a job
    /// where one is missing, null, a list or an object is refused, because a job without a key would silently run twice.
    pub fields: Vec<String>,
    /// What a duplicate gets. Default [`DuplicateBehaviour::ReturnExisting`].
    pub on_duplicate: DuplicateBehaviour,
    /// How long the key blocks after its job succeeded, by the database's clock; the hundredth year is the last. Default
    /// `None`: for ever, also after the job's row is pruned. Zero: duplicates are only held off while the job waits or runs.
    pub keep: Option<Duration>,
}

impl KeyPolicy {
    /// A key of these payload paths that blocks for ever and returns the existing job.
    pub fn of<S: Into<String>>(fields: impl IntoIterator<Item = S>) -> Self {
        Self {
            fields: fields.into_iter().map(Into::into).collect(),
            on_duplicate: DuplicateBehaviour::default(),
            keep: None,
        }
    }
}

/// What an enqueuer gets whose key another job holds. Either way nothing is enqueued, the answer names the holder and says
/// that it is not new; a duplicate is counted at the holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DuplicateBehaviour {
    /// The caller is meant to use the holder: its result or file is the answer to the request.
    #[default]
    ReturnExisting,
    /// The caller is meant to do nothing: the request was a repetition (a webhook sent twice, say) and has no answer of its own.
    Ignore,
}

impl DuplicateBehaviour {
    /// The word used in SQL and in the derive.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReturnExisting => "return_existing",
            Self::Ignore => "ignore",
        }
    }
}

impl TryFrom<String> for DuplicateBehaviour {
    type Error = String;
    fn try_from(word: String) -> Result<Self, Self::Error> {
        [Self::ReturnExisting, Self::Ignore]
            .into_iter()
            .find(|behaviour| behaviour.as_str() == word)
            .ok_or_else(|| format!("unknown behaviour {word:?}: one of return_existing, ignore"))
    }
}
