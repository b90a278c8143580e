//! Lets equal calls of one execution run one after another, so that the second finds what the first kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// What a call is about: the kind of call, then its names.
pub(crate) type CallName = (&'static str, String, String);

/// The calls of one execution that are under way or wait for their turn.
#[derive(Default)]
pub(crate) struct CallLocks {
    turns: Arc<Mutex<Turns>>,
}

type Turns = HashMap<CallName, Arc<tokio::sync::Mutex<()>>>;

/// A call's turn, until it is dropped.
pub(crate) struct Turn {
    turns: Arc<Mutex<Turns>>,
    name: CallName,
    /// Given back before the entry is looked at.
    held: Option<OwnedMutexGuard<()>>,
}

fn locked(turns: &Mutex<Turns>) -> MutexGuard<'_, Turns> {
    turns.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CallLocks {
    /// Waits until no equal call of this execution is under way. A call that makes an equal one from within itself waits for ever,
    /// that is until its time is up.
    pub(crate) async fn turn(&self, kind: &'static str, name: &str, key: &str) -> Turn {
        let name = (kind, name.to_owned(), key.to_owned());
        let turn = locked(&self.turns).entry(name.clone()).or_default().clone();
        let held = Some(turn.lock_owned().await);
        Turn { turns: self.turns.clone(), name, held }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = locked(&self.turns);
        drop(self.held.take());
        // Entries are taken out of the map only under its lock, so a count of one means that nobody waits.
        if turns.get(&self.name).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(&self.name);
        }
    }
}
