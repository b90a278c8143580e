//! Keeps jobs that stalled apart from the others, because one of them may have killed its process.
//!
//! Those that stalled once may have been dragged down by another, so they run together, but without jobs that never stalled. Those
//! that stalled again run alone. While such jobs run, the worker takes no others; so one poison job takes innocent ones along once
//! or twice, and they never fail for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, RwLock, RwLockReadGuard, watch};

use super::Shared;
use super::kept_connection::KeptConnection;
use super::lanes::Lane;
use crate::store::Stalls;

/// How long running jobs are waited for before those that stalled once start beside them: a dead worker's jobs must not
/// wait for long ones.
const WAIT_FOR_EMPTY: Duration = Duration::from_secs(1);

/// How long a worker stops taking jobs to become empty for one that must run alone, and how long it goes on as usual
/// before it tries again.
const DRAIN_FOR: Duration = Duration::from_secs(30);

/// How long a worker goes on as usual after it found none to claim: a limit holds them back, or another worker was faster.
const REST_AFTER_NOTHING: Duration = Duration::from_secs(5);

/// What runs apart for this long does not kill its process at once: other jobs may start again.
const APART_FOR: Duration = Duration::from_secs(60);

/// Whether claims may be made, and whether jobs that stalled are due.
#[derive(Default)]
pub(super) struct Isolation {
    gate: RwLock<()>,
    once_due: AtomicBool,
    often_due: AtomicBool,
    due: Notify,
}

impl Isolation {
    /// Waits until claims may be made. The guard is held until what was claimed is listed as held.
    pub(super) async fn open(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().await
    }

    /// As [`Isolation::open`], without waiting.
    pub(super) fn try_open(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.gate.try_read().ok()
    }

    /// Told by the keeper, which looks every second.
    pub(super) fn announce(&self, once: bool, often: bool) {
        self.once_due.store(once, Ordering::Relaxed);
        self.often_due.store(often, Ordering::Relaxed);
        if once || often {
            self.due.notify_one();
        }
    }
}

/// Runs jobs that stalled whenever some are due.
pub(super) async fn run_apart(shared: Arc<Shared>, lanes: Arc<Vec<Lane>>, mut stopping: watch::Receiver<bool>) {
    let (mut once_again_at, mut often_again_at) = (Instant::now(), Instant::now());
    loop {
        tokio::select! {
            () = shared.isolation.due.notified() => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
        if shared.isolation.once_due.swap(false, Ordering::Relaxed) && Instant::now() >= once_again_at {
            let closed = shared.isolation.gate.write().await;
            let was_emptied = tokio::time::timeout(WAIT_FOR_EMPTY, shared.leases.emptied()).await.is_ok();
            let n_claimed = claim(&shared, &lanes, Stalls::Once, &stopping).await;
            // Beside long neighbours there is nothing to keep apart.
            if n_claimed > 0 && was_emptied {
                let _ = tokio::time::timeout(APART_FOR, shared.leases.emptied()).await;
            }
            drop(closed);
            if n_claimed == 0 {
                once_again_at = Instant::now() + REST_AFTER_NOTHING;
            }
        }
        if shared.isolation.often_due.swap(false, Ordering::Relaxed) && Instant::now() >= often_again_at {
            let closed = shared.isolation.gate.write().await;
            let until = Instant::now() + APART_FOR;
            let left = || until.saturating_duration_since(Instant::now());
            let mut n_claimed = 0;
            while tokio::time::timeout(DRAIN_FOR.min(left()), shared.leases.emptied()).await.is_ok()
                && !left().is_zero()
                && claim(&shared, &lanes, Stalls::Often, &stopping).await > 0
            {
                n_claimed += 1;
                let _ = tokio::time::timeout(left(), shared.leases.emptied()).await;
            }
            drop(closed);
            // The others get their turn, also when one runs on or many wait.
            let goes_on = left().is_zero() || !shared.leases.is_empty();
            often_again_at = Instant::now()
                + if goes_on {
                    DRAIN_FOR
                } else if n_claimed == 0 {
                    REST_AFTER_NOTHING
                } else {
                    Duration::ZERO
                };
        }
    }
}

/// Claims and starts; returns how many.
async fn claim(
    shared: &Arc<Shared>,
    lanes: &Arc<Vec<Lane>>,
    stalls: Stalls,
    stopping: &watch::Receiver<bool>,
) -> usize {
    let mut n_started = 0;
    for (index, lane) in lanes.iter().enumerate() {
        if *stopping.borrow() || (stalls == Stalls::Often && n_started > 0) {
            break;
        }
        let limit = if stalls == Stalls::Often { 1 } else { usize::MAX };
        let slots: Vec<_> = std::iter::from_fn(|| lane.try_take()).take(limit.min(1000)).collect();
        if slots.is_empty() {
            continue;
        }
        let which = super::Which::All(stalls);
        match super::claim_into(shared, lanes, index, slots, which, &mut KeptConnection::default()).await {
            Ok((n, _)) => n_started += n,
            Err(error) => {
                tracing::warn!(queue = %lane.queue, error = %crate::handler::chain(&error), "claim of stalled jobs failed");
            }
        }
    }
    n_started
}
