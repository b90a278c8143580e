//! Random values that people carry; the database holds only their digests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// 256 random bits as 43 characters that need no escaping in URLs and cookies.
///
/// # Errors
/// If the operating system has no randomness to give.
pub(crate) fn random() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no random numbers from the system: {error}"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// What is stored of a token: its SHA-256. `None` for a text that no token looks like.
pub(crate) fn digest(token: &str) -> Option<[u8; 32]> {
    let is_plausible = token.len() == 43 && token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    is_plausible.then(|| Sha256::digest(token).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_have_digests() {
        let (one, two) = (random().unwrap(), random().unwrap());
        assert_ne!(one, two);
        assert_ne!(digest(&one).unwrap(), digest(&two).unwrap());
        assert_eq!(digest("short"), None);
        assert_eq!(digest(&format!("{}!", &one[..42])), None);
    }
}
