//! Removes ended jobs by their type's retention, in small batches with pauses between them.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::{Away, around};
use crate::store::{PruneRule, Removed};
use crate::{Store, StoreError};

const DUTY: &str = "prune";

/// How long another process waits at most before it takes over from one that died.
const HOLD_FOR: Duration = Duration::from_secs(30);

/// Pause between passes.
const EVERY: Duration = Duration::from_secs(15);

/// Jobs deleted in one statement: a few dozen milliseconds with their attempts.
const BATCH: i64 = 500;

/// Removes ended jobs that their type no longer keeps, idempotency keys whose time has run out, and bulk operations that ended
/// 90 days ago.
///
/// One process at a time has the duty; another takes over within 45 s after it died. Unfinished jobs are never touched. What was
/// removed is counted in `jobdeck.job_removals` and logged.
pub struct Pruner {
    store: Store,
    holder: String,
}

impl Pruner {
    /// `holder` names the process and must be unique.
    pub fn new(store: Store, holder: &str) -> Self {
        Self { store, holder: holder.to_owned() }
    }

    /// One pass: removes everything that is due when its turn comes. `None` if another process has the duty. What was removed is
    /// in the answer by type and state; a pass that loses the duty ends early.
    ///
    /// # Errors
    /// If the database does. What was removed before stays removed.
    pub async fn pass(&self) -> Result<Option<Vec<Removed>>, StoreError> {
        if !self.holds_duty().await? {
            return Ok(None);
        }
        let mut held_at = Instant::now();
        let mut removed = Vec::new();
        let mut connection = self.store.pool().acquire().await?;
        for rule in Store::prune_rules(&mut connection).await? {
            let Some(boundary) = Store::prune_boundary(&mut connection, &rule).await? else { continue };
            let mut n_jobs = 0;
            let mut from = None;
            let ended = loop {
                let begun = Instant::now();
                let batch = Store::prune_batch(&mut connection, &rule, boundary, from, BATCH).await;
                // Noted also when a later batch fails.
                let batch = match batch {
                    Ok(batch) => batch,
                    Err(error) => break Err(error),
                };
                n_jobs += batch.n_jobs;
                from = batch.last_finished_at.or(from);
                if batch.n_jobs < BATCH {
                    break Ok(true);
                }
                if !self.pause(begun.elapsed(), &mut held_at).await? {
                    break Ok(false);
                }
            };
            if n_jobs > 0 {
                removed.push(note(rule, n_jobs));
            }
            if !ended? {
                return Ok(Some(removed));
            }
        }
        Store::bulk_prune(&mut connection).await?;
        let mut from: Option<DateTime<Utc>> = None;
        loop {
            let begun = Instant::now();
            let (_, next) = Store::key_prune_batch(&mut connection, from, BATCH).await?;
            if next.is_none() || !self.pause(begun.elapsed(), &mut held_at).await? {
                return Ok(Some(removed));
            }
            from = next;
        }
    }

    async fn holds_duty(&self) -> Result<bool, StoreError> {
        self.store.duty_hold(DUTY, &self.holder, HOLD_FOR).await
    }

    /// Leaves the database to others for half as long as the batch took. False once the duty is lost.
    async fn pause(&self, took: Duration, held_at: &mut Instant) -> Result<bool, StoreError> {
        tokio::time::sleep((took / 2).min(Duration::from_secs(1))).await;
        if held_at.elapsed() < HOLD_FOR / 3 {
            return Ok(true);
        }
        *held_at = Instant::now();
        self.holds_duty().await
    }

    pub(super) async fn run(&self) {
        let mut away = Away::default();
        loop {
            away.note(DUTY, self.pass().await);
            tokio::time::sleep(around(EVERY)).await;
        }
    }
}

fn note(rule: PruneRule, n_jobs: i64) -> Removed {
    let PruneRule { job_type, state, .. } = rule;
    tracing::info!(job_type, %state, n_jobs, "old jobs removed");
    Removed { job_type, state, by_person: false, n_jobs }
}
