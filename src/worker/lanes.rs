//! The slots of each queue a worker takes jobs from.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Jobs in one claim at most. Larger claims make several workers walk over each other's locked rows.
const MAX_CLAIM: usize = 100;

/// How long free slots are gathered while many jobs wait.
const GATHER_FOR: Duration = Duration::from_millis(2);

/// How often executions that are ready to end get a turn before a claim, when there is more for their slots.
const TURNS: u32 = 8;

/// Outcomes that may wait to be written, for each slot. More than one, so that the next jobs start while the last ones are
/// being recorded; bounded, so that a slow database holds the worker back.
const UNWRITTEN_PER_SLOT: usize = 3;

/// How long a lane sleeps at least when jobs become due one after the other.
pub(super) const REST: Duration = Duration::from_millis(10);

/// One queue with the slots a worker has for it.
pub(super) struct Lane {
    pub(super) queue: String,
    /// Types of this queue that the worker knows.
    pub(super) types: Vec<String>,
    /// Ends the wait between looks for jobs.
    pub(super) waker: Notify,
    /// The soonest time at which a job of this worker is due again, of those that came to be known since the last look.
    due_at: watch::Sender<Option<Instant>>,
    slots: usize,
    free: Arc<Semaphore>,
    unwritten: Arc<Semaphore>,
}

/// Room for one execution: a slot while its handler runs, and the right to have an unwritten outcome until that is recorded.
pub(super) struct Slot {
    running: Option<OwnedSemaphorePermit>,
    _unwritten: OwnedSemaphorePermit,
}

impl Slot {
    /// The handler has ended: another may start.
    pub(super) fn handler_ended(&mut self) {
        self.running = None;
    }
}

impl Lane {
    pub(super) fn new(queue: String, slots: usize, types: Vec<String>) -> Self {
        Self {
            queue,
            types,
            waker: Notify::new(),
            due_at: watch::Sender::new(None),
            slots,
            free: Arc::new(Semaphore::new(slots)),
            unwritten: Arc::new(Semaphore::new(slots * UNWRITTEN_PER_SLOT)),
        }
    }

    /// A job of this queue is due in `delay`; the database knows it already.
    pub(super) fn due_in(&self, delay: Duration) {
        let Some(at) = Instant::now().checked_add(delay) else { return };
        self.due_at.send_if_modified(|known| {
            let is_sooner = known.is_none_or(|known| at < known);
            if is_sooner {
                *known = Some(at);
            }
            is_sooner
        });
    }

    /// A look at the database begins: it finds everything that was made known before.
    pub(super) fn forget_due(&self) {
        self.due_at.send_replace(None);
    }

    /// Sleeps for `wait`, or until a job is due that was made known since the last look began.
    pub(super) async fn sleep(&self, wait: Duration) {
        let now = Instant::now();
        let mut due_at = self.due_at.subscribe();
        loop {
            let due = due_at.borrow_and_update().map_or(now + wait, |due| due.max(now + REST).min(now + wait));
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => return,
                _ = due_at.changed() => {}
            }
        }
    }

    /// Waits for a slot and takes with it all others that are free, up to one claim.
    ///
    /// With `many_wait`, more than one job is known to wait: then half of the slots are waited for, but not longer than
    /// [`GATHER_FOR`], and others that are about to be free, since one claim of ten costs little more than a claim of one.
    pub(super) async fn take(&self, many_wait: bool) -> Vec<Slot> {
        let Some(first) = self.next().await else { return Vec::new() };
        let mut slots = vec![first];
        if many_wait {
            let wanted = (self.slots / 2).min(MAX_CLAIM);
            let gather = async {
                while slots.len() < wanted
                    && let Some(slot) = self.next().await
                {
                    slots.push(slot);
                }
            };
            // What was gathered until then stays.
            let _ = tokio::time::timeout(GATHER_FOR, gather).await;
        }
        let mut patience = if many_wait { TURNS } else { 0 };
        while slots.len() < MAX_CLAIM.min(self.slots) {
            match self.try_take() {
                Some(slot) => slots.push(slot),
                None if patience > 0 => {
                    patience -= 1;
                    tokio::task::yield_now().await;
                }
                None => break,
            }
        }
        slots
    }

    async fn next(&self) -> Option<Slot> {
        // In this order everywhere: a slot that waits for the right to an outcome keeps others from starting, which is what it is for.
        let running = self.free.clone().acquire_owned().await.ok()?;
        let unwritten = self.unwritten.clone().acquire_owned().await.ok()?;
        Some(Slot { running: Some(running), _unwritten: unwritten })
    }

    /// A slot, if one is free now.
    pub(super) fn try_take(&self) -> Option<Slot> {
        let running = self.free.clone().try_acquire_owned().ok()?;
        let unwritten = self.unwritten.clone().try_acquire_owned().ok()?;
        Some(Slot { running: Some(running), _unwritten: unwritten })
    }

    /// Waits until every execution has ended and its outcome is recorded. Nothing must be claimed meanwhile.
    pub(super) async fn drained(&self) {
        let all = u32::try_from(self.slots * UNWRITTEN_PER_SLOT).unwrap_or(u32::MAX);
        let _ = self.unwritten.acquire_many(all).await;
    }
}
