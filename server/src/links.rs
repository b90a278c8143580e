//! Signed links: what a person without an account may do with one job, and until when.
//!
//! A link is `base64url(body + tag)`. The body is 45 bytes: key id (4), job id (16), expiry in seconds since 1970 (8),
//! rights (1), the user who gave it (16), all big-endian; the tag is HMAC-SHA-256 over a fixed label and the body. Nothing is
//! stored, so a link is revoked by retiring its key. A link has exactly one spelling: padding, other alphabets and stray bits are
//! refused.
//!
//! Checking a link asks the database nothing. Each process reads the keys anew every few seconds ([`LinkSigner::keep_fresh`]); keys
//! that could not be read for 8 s vouch for nothing, so a retired key is dead everywhere within 10 s, open streams included.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jobdeck::store::LinkKey;
use jobdeck::{JobId, Store};
use sha2::Sha256;
use uuid::Uuid;

use crate::shutdown::Shutdown;

/// How long a link works unless said otherwise.
pub const DEFAULT_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How often the keys are read, and how long that may take.
const READ_EVERY: Duration = Duration::from_secs(3);
const READ_WITHIN: Duration = Duration::from_secs(4);
/// How long keys are good for without being read again. With the 2 s between two checks of an open stream it makes 10 s.
const KEYS_LIFE: Duration = Duration::from_secs(8);

const BODY_BYTES: usize = 4 + 16 + 8 + 1 + 16;
const TAG_BYTES: usize = 32;

/// Keeps these tags apart from any other use of the same key.
const LABEL: &[u8] = b"jobdeck job link 2\0";

/// What a link allows beside seeing the job and its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRights {
    /// Stop it.
    pub cancel: bool,
    /// Have it made again.
    pub again: bool,
}

impl LinkRights {
    /// Look and fetch the file, nothing else.
    pub const SEE_ONLY: Self = Self { cancel: false, again: false };
    /// Everything the person who asked for an export may do.
    pub const ALL: Self = Self { cancel: true, again: true };

    const SEE: u8 = 1;
    const CANCEL: u8 = 2;
    const AGAIN: u8 = 4;

    fn to_byte(self) -> u8 {
        Self::SEE | if self.cancel { Self::CANCEL } else { 0 } | if self.again { Self::AGAIN } else { 0 }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let known = byte & !(Self::SEE | Self::CANCEL | Self::AGAIN) == 0;
        (known && byte & Self::SEE != 0)
            .then_some(Self { cancel: byte & Self::CANCEL != 0, again: byte & Self::AGAIN != 0 })
    }
}

/// A verified link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportLink {
    /// The one job it is about.
    pub job_id: JobId,
    /// When it stops working.
    pub expires_at: DateTime<Utc>,
    /// What it allows.
    pub rights: LinkRights,
    /// The user who gave it. Nil for nobody.
    pub issued_by: Uuid,
}

/// Why a link does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Mistyped, made up, or signed by a key that was retired.
    #[error("link is not valid")]
    Invalid,
    /// It was right once.
    #[error("link has expired")]
    Expired,
    /// It is rightly signed, but for 8 s nobody could tell whether its key was retired meanwhile.
    #[error("signing keys could not be read")]
    Unsure,
}

/// Makes and checks links. Cheap to clone; clones share their keys.
#[derive(Clone, Debug)]
pub struct LinkSigner {
    ring: Arc<RwLock<KeyRing>>,
}

#[derive(Debug)]
struct KeyRing {
    /// Newest first.
    keys: Vec<LinkKey>,
    /// Before the question was sent.
    read_at: Instant,
}

impl LinkSigner {
    /// Reads the keys; a database without one gets its first.
    ///
    /// # Errors
    /// If the database does, or the system has no randomness.
    pub async fn load(store: &Store) -> anyhow::Result<Self> {
        let read_at = Instant::now();
        Ok(Self::at(read(store).await?, read_at))
    }

    /// `keys`: newest first. They are good for 8 s.
    pub fn new(keys: Vec<LinkKey>) -> Self {
        Self::at(keys, Instant::now())
    }

    fn at(keys: Vec<LinkKey>, read_at: Instant) -> Self {
        Self { ring: Arc::new(RwLock::new(KeyRing { keys, read_at })) }
    }

    /// Reads the keys again every 3 s until the process stops.
    pub fn keep_fresh(&self, store: Store, shutdown: Shutdown) {
        let signer = self.clone();
        let read_forever = async move {
            loop {
                tokio::time::sleep(READ_EVERY).await;
                let read_at = Instant::now();
                match tokio::time::timeout(READ_WITHIN, read(&store)).await {
                    Ok(Ok(keys)) => {
                        *signer.ring.write().unwrap_or_else(PoisonError::into_inner) = KeyRing { keys, read_at };
                    }
                    Ok(Err(error)) => tracing::warn!(%error, "the keys that sign links could not be read"),
                    Err(_) => tracing::warn!("the keys that sign links could not be read in time"),
                }
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.requested() => {}
                () = read_forever => {}
            }
        });
    }

    /// The path of a link on this server that works for [`DEFAULT_LIFE`].
    pub fn path(&self, job_id: JobId, rights: LinkRights, issued_by: Uuid) -> String {
        format!("/e/{}", self.sign(job_id, Utc::now() + DEFAULT_LIFE, rights, issued_by))
    }

    /// A link that works until `expires_at`, to the second.
    pub fn sign(&self, job_id: JobId, expires_at: DateTime<Utc>, rights: LinkRights, issued_by: Uuid) -> String {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        // A key that other processes may not have read yet signs only where there is no other. Without a key nothing verifies
        // either; the store always hands out at least one.
        let Some(key) = ring.keys.iter().find(|key| key.is_settled).or(ring.keys.first()) else { return String::new() };
        let mut token = Vec::with_capacity(BODY_BYTES + TAG_BYTES);
        token.extend_from_slice(&key.id.to_be_bytes());
        token.extend_from_slice(job_id.0.as_bytes());
        token.extend_from_slice(&u64::try_from(expires_at.timestamp()).unwrap_or(0).to_be_bytes());
        token.push(rights.to_byte());
        token.extend_from_slice(issued_by.as_bytes());
        let tag = mac(key, &token).finalize().into_bytes();
        token.extend_from_slice(&tag);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// What `token` allows now.
    ///
    /// # Errors
    /// [`LinkError::Expired`] and [`LinkError::Unsure`] only when everything else is right.
    pub fn verify(&self, token: &str) -> Result<ExportLink, LinkError> {
        self.verify_at(token, Utc::now(), Instant::now())
    }

    fn verify_at(&self, token: &str, now: DateTime<Utc>, clock: Instant) -> Result<ExportLink, LinkError> {
        let token = URL_SAFE_NO_PAD.decode(token).map_err(|_| LinkError::Invalid)?;
        if token.len() != BODY_BYTES + TAG_BYTES {
            return Err(LinkError::Invalid);
        }
        let (body, tag) = token.split_at(BODY_BYTES);
        let key_id = i32::from_be_bytes(field(body, 0));
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        let key = ring.keys.iter().find(|key| key.id == key_id).ok_or(LinkError::Invalid)?;
        // Takes the same time wherever the first difference is.
        mac(key, body).verify_slice(tag).map_err(|_| LinkError::Invalid)?;
        let expiry = i64::try_from(u64::from_be_bytes(field(body, 20))).map_err(|_| LinkError::Invalid)?;
        let expires_at = DateTime::from_timestamp(expiry, 0).ok_or(LinkError::Invalid)?;
        let rights = LinkRights::from_byte(body[28]).ok_or(LinkError::Invalid)?;
        if expires_at <= now {
            return Err(LinkError::Expired);
        }
        if clock.saturating_duration_since(ring.read_at) >= KEYS_LIFE {
            return Err(LinkError::Unsure);
        }
        let (job_id, issued_by) = (JobId(Uuid::from_bytes(field(body, 4))), Uuid::from_bytes(field(body, 29)));
        Ok(ExportLink { job_id, expires_at, rights, issued_by })
    }
}

async fn read(store: &Store) -> anyhow::Result<Vec<LinkKey>> {
    let mut fresh = [0; 32];
    getrandom::fill(&mut fresh)?;
    Ok(store.link_keys(fresh).await?)
}

fn mac(key: &LinkKey, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.secret).expect("HMAC takes a key of any length");
    mac.update(LABEL);
    mac.update(body);
    mac
}

/// `N` bytes of a body whose length was checked.
fn field<const N: usize>(body: &[u8], from: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&body[from..from + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: i32, secret: u8) -> LinkKey {
        LinkKey { id, secret: vec![secret; 32], is_settled: true }
    }

    fn signer() -> LinkSigner {
        LinkSigner::new(vec![key(2, 7), key(1, 9)])
    }

    /// With every right, for an hour.
    fn sign(signer: &LinkSigner) -> String {
        signer.sign(job(), Utc::now() + Duration::from_secs(3600), LinkRights::ALL, Uuid::nil())
    }

    fn job() -> JobId {
        "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
    }

    #[test]
    fn link_verifies_until_it_expires() {
        let signer = signer();
        let now = Utc::now();
        let rights = LinkRights { cancel: true, again: false };
        let (user, clock) = (Uuid::from_u128(7), Instant::now());
        let token = signer.sign(job(), now + Duration::from_secs(60), rights, user);
        let link = signer.verify_at(&token, now, clock).unwrap();
        assert_eq!((link.job_id, link.rights, link.issued_by), (job(), rights, user));
        assert_eq!(signer.verify_at(&token, link.expires_at - Duration::from_secs(1), clock), Ok(link));
        assert_eq!(signer.verify_at(&token, link.expires_at, clock), Err(LinkError::Expired));
    }

    #[test]
    fn keys_that_were_not_read_again_in_time_vouch_for_nothing() {
        let signer = signer();
        let token = sign(&signer);
        let read_at = signer.ring.read().unwrap().read_at;
        assert!(signer.verify_at(&token, Utc::now(), read_at + Duration::from_millis(7_999)).is_ok());
        let late = read_at + Duration::from_secs(8);
        assert_eq!(signer.verify_at(&token, Utc::now(), late), Err(LinkError::Unsure));
        assert_eq!(signer.verify_at(&format!("{}A", &token[1..]), Utc::now(), late), Err(LinkError::Invalid));
    }

    #[test]
    fn key_that_others_may_not_know_signs_only_where_there_is_no_other() {
        let fresh = LinkKey { is_settled: false, ..key(3, 5) };
        let old = LinkSigner::new(vec![key(2, 7)]);
        assert!(old.verify(&sign(&LinkSigner::new(vec![fresh.clone(), key(2, 7)]))).is_ok());
        assert_eq!(old.verify(&sign(&LinkSigner::new(vec![fresh]))), Err(LinkError::Invalid));
    }

    #[test]
    fn older_key_still_verifies_and_a_retired_one_does_not() {
        let old = sign(&LinkSigner::new(vec![key(1, 9)]));
        assert_eq!(signer().verify(&old).unwrap().job_id, job());
        assert_eq!(LinkSigner::new(vec![key(2, 7)]).verify(&old), Err(LinkError::Invalid));
    }

    #[test]
    fn wrong_secret_under_the_same_key_id_is_refused() {
        let token = sign(&LinkSigner::new(vec![key(2, 8)]));
        assert_eq!(signer().verify(&token), Err(LinkError::Invalid));
    }

    #[test]
    fn every_change_of_one_bit_is_refused() {
        let signer = signer();
        let bytes = URL_SAFE_NO_PAD.decode(sign(&signer)).unwrap();
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[place] ^= 1 << bit;
                let token = URL_SAFE_NO_PAD.encode(changed);
                assert_eq!(signer.verify(&token), Err(LinkError::Invalid), "byte {place}, bit {bit}");
            }
        }
    }

    #[test]
    fn every_change_of_one_character_is_refused() {
        let signer = signer();
        let token = sign(&signer);
        for place in 0..token.len() {
            for other in "AQgwZ09-_=+/ .".chars().filter(|other| !token[place..].starts_with(*other)) {
                let changed = format!("{}{other}{}", &token[..place], &token[place + 1..]);
                assert_eq!(signer.verify(&changed), Err(LinkError::Invalid), "{changed}");
            }
        }
    }

    #[test]
    fn tampering_with_an_expired_link_does_not_tell_that_it_was_right() {
        let signer = signer();
        let token = signer.sign(job(), Utc::now() - Duration::from_secs(1), LinkRights::ALL, Uuid::nil());
        assert_eq!(signer.verify(&token), Err(LinkError::Expired));
        let mut bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        bytes[27] ^= 1;
        assert_eq!(signer.verify(&URL_SAFE_NO_PAD.encode(bytes)), Err(LinkError::Invalid));
    }

    #[test]
    fn link_has_one_spelling() {
        let signer = signer();
        let token = sign(&signer);
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        // 77 bytes leave 2 unused bits in the last character.
        let last = token.chars().last().unwrap();
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let stray = alphabet.chars().nth(alphabet.find(last).unwrap() + 1).unwrap();
        let others = [
            format!("{token}="),
            format!("{token}=="),
            format!("{token}A"),
            format!("{token}AAAA"),
            format!(" {token}"),
            format!("{token}\n"),
            format!("{}{stray}", &token[..token.len() - 1]),
            base64::engine::general_purpose::URL_SAFE.encode(&bytes),
            token[..token.len() - 1].to_owned(),
            String::new(),
            "x".repeat(100_000),
            "ü".repeat(41),
        ];
        for other in others {
            assert_eq!(signer.verify(&other), Err(LinkError::Invalid), "{other:?}");
        }
        assert!(signer.verify(&token).is_ok());
    }

    #[test]
    fn unknown_rights_are_refused() {
        for byte in (0..=u8::MAX).filter(|byte| ![1, 3, 5, 7].contains(byte)) {
            assert_eq!(LinkRights::from_byte(byte), None, "{byte}");
        }
        for byte in [1, 3, 5, 7] {
            assert_eq!(LinkRights::from_byte(byte).unwrap().to_byte(), byte);
        }
    }
}
