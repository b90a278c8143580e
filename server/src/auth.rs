//! Signing in: passwords, cookies and how often someone may guess.

pub(crate) mod cookie;
pub(crate) mod password;
pub(crate) mod person;
pub(crate) mod strangers;
pub(crate) mod throttle;
pub(crate) mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

/// A sign-in ends when nothing is asked of it for this long. Event streams do not count.
pub(crate) const IDLE: Duration = Duration::from_secs(30 * 60);
/// A sign-in ends after this long whatever happens.
pub(crate) const LIFE: Duration = Duration::from_secs(12 * 60 * 60);
/// How long a first sign-in link works.
pub(crate) const SETUP_LIFE: Duration = Duration::from_secs(15 * 60);
/// Event streams one user may have open.
const STREAMS_PER_USER: usize = 6;

/// What sign-in keeps in memory.
#[derive(Default)]
pub(crate) struct Auth {
    pub(crate) hasher: password::Hasher,
    pub(crate) throttle: throttle::Throttle,
    pub(crate) strangers: strangers::Strangers,
    streams: Arc<Mutex<HashMap<Uuid, usize>>>,
}

impl Auth {
    /// A place for one more event stream of this user, until it is dropped. `None` when all are taken.
    pub(crate) fn stream_slot(&self, user_id: Uuid) -> Option<StreamSlot> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let open = streams.entry(user_id).or_default();
        if *open >= STREAMS_PER_USER {
            return None;
        }
        *open += 1;
        Some(StreamSlot { streams: self.streams.clone(), user_id })
    }
}

/// An open event stream, counted.
pub(crate) struct StreamSlot {
    streams: Arc<Mutex<HashMap<Uuid, usize>>>,
    user_id: Uuid,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = streams.get_mut(&self.user_id) {
            *open -= 1;
            if *open == 0 {
                streams.remove(&self.user_id);
            }
        }
    }
}
