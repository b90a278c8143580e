//! What one execution knows of its right to run, as told by the keeper.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, watch};

use crate::store::LeaseRef;

/// Why an execution should stop before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The database no longer knows it as the holder, or the local deadline passed unrenewed.
    LeaseLost,
    /// A person asked.
    Canceled,
    /// It ran longer than its type allows.
    TimedOut,
    /// The worker's grace time is over.
    ShuttingDown,
}

struct Inner {
    stop: watch::Sender<Option<StopReason>>,
    /// On the worker's monotonic clock: the time before the claim or heartbeat was sent, plus the lease, less a margin.
    deadline: Mutex<Instant>,
}

/// Shared by the execution, its [`crate::Ctx`] and the keeper.
#[derive(Clone)]
pub(crate) struct LeaseWatch {
    inner: Arc<Inner>,
}

impl LeaseWatch {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { inner: Arc::new(Inner { stop: watch::Sender::new(None), deadline: Mutex::new(deadline) }) }
    }

    /// Whether effects may still be started.
    pub(crate) fn is_held(&self) -> bool {
        *self.inner.stop.borrow() != Some(StopReason::LeaseLost) && Instant::now() < self.deadline()
    }

    pub(crate) fn must_stop(&self) -> bool {
        self.inner.stop.borrow().is_some() || !self.is_held()
    }

    pub(crate) fn reason(&self) -> Option<StopReason> {
        *self.inner.stop.borrow()
    }

    /// Waits until the execution should stop, and says why.
    pub(crate) async fn stopped(&self) -> StopReason {
        let mut stop = self.inner.stop.subscribe();
        // The sender lives in self, so waiting cannot fail.
        stop.wait_for(Option::is_some).await.ok().and_then(|reason| *reason).unwrap_or(StopReason::LeaseLost)
    }

    /// The first reason given stays, but for a lost lease, which outweighs the others.
    pub(crate) fn stop(&self, reason: StopReason) {
        self.inner.stop.send_if_modified(|present| {
            let changes = present.is_none() || (reason == StopReason::LeaseLost && *present != Some(reason));
            if changes {
                *present = Some(reason);
            }
            changes
        });
    }

    pub(crate) fn deadline(&self) -> Instant {
        *self.inner.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn renew(&self, deadline: Instant) {
        *self.inner.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}

/// The executions of one worker.
#[derive(Clone, Default)]
pub(crate) struct HeldLeases {
    held: Arc<Mutex<HashMap<LeaseRef, LeaseWatch>>>,
    /// Told when the last one is gone.
    emptied: Arc<Notify>,
}

/// One execution's place among them. Dropped with it, also by a panic, so that no lease outlives its execution.
pub(crate) struct HeldLease {
    leases: HeldLeases,
    lease: LeaseRef,
    pub(crate) watch: LeaseWatch,
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        let mut held = self.leases.lock();
        held.remove(&self.lease);
        if held.is_empty() {
            self.leases.emptied.notify_waiters();
        }
    }
}

impl HeldLeases {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<LeaseRef, LeaseWatch>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, lease: LeaseRef, deadline: Instant) -> HeldLease {
        let watch = LeaseWatch::new(deadline);
        self.lock().insert(lease, watch.clone());
        HeldLease { leases: self.clone(), lease, watch }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Waits until there is none.
    pub(crate) async fn emptied(&self) {
        loop {
            let told = self.emptied.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.is_empty() {
                return;
            }
            told.await;
        }
    }

    pub(crate) fn all(&self) -> HashMap<LeaseRef, LeaseWatch> {
        self.lock().clone()
    }

    pub(crate) fn stop_all(&self, reason: StopReason) {
        self.lock().values().for_each(|watch| watch.stop(reason));
    }
}
