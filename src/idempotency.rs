//! Which jobs count as the same.

use sha2::{Digest, Sha256};

/// A type's idempotency key: at most one job that waits, runs or has succeeded holds it. A failed or canceled job gives
/// it back, so that the same work can be asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// Longest key kept as it is, in bytes. Longer ones are replaced by their SHA-256.
    pub const MAX_BYTES: usize = 1024;

    /// Joins key fields. Two lists of fields give the same key only if they are equal, whatever separators they hold.
    pub fn of(fields: &[&dyn std::fmt::Display]) -> Self {
        let joined = fields
            .iter()
            .map(|field| field.to_string().replace('\\', "\\\\").replace(':', "\\:"))
            .collect::<Vec<_>>()
            .join(":");
        if joined.len() <= Self::MAX_BYTES && !joined.is_empty() && !joined.contains('\0') {
            Self(joined)
        } else {
            let digest = Sha256::digest(joined.as_bytes());
            Self(digest.iter().fold(String::from("sha256\\-"), |hex, byte| format!("{hex}{byte:02x}")))
        }
    }

    /// As stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
