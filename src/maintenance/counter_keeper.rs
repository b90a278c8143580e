//! Keeps the counters cheap to read and right: folds what was appended, and compares them with the table once a day.

use std::time::{Duration, Instant};

use super::{Away, around};
use crate::store::CounterMismatch;
use crate::{Store, StoreError};

/// Pause between folds.
const FOLD_EVERY: Duration = Duration::from_secs(1);

/// How long one fold may take.
const FOLD_WITHIN: Duration = Duration::from_secs(10);

const DUTY: &str = "check_counters";

/// How often the counters are compared with the table.
const CHECK_EVERY: Duration = Duration::from_secs(24 * 3600);

/// A process that has just started has other things to do.
const CHECK_NOT_BEFORE: Duration = Duration::from_secs(600);

/// Folds the counters' appended lines every second and compares the counters with `count(*)` once a day over all processes.
pub struct CounterKeeper {
    store: Store,
    holder: String,
}

impl CounterKeeper {
    /// `holder` names the process and must be unique.
    pub fn new(store: Store, holder: &str) -> Self {
        Self { store, holder: holder.to_owned() }
    }

    /// Compares and mends, as [`Store::counters_check`]. `None` if it was done within a day, by whichever process.
    ///
    /// It reads the whole table, on a connection of its own and for at most 15 minutes.
    ///
    /// # Errors
    /// If the database does; the next try is a day later.
    pub async fn check_if_due(&self) -> Result<Option<Vec<CounterMismatch>>, StoreError> {
        // Held for a day under a name of its own, so that this process too waits for its end.
        let holder = format!("{}-{:016x}", self.holder, fastrand::u64(..));
        if !self.store.duty_hold(DUTY, &holder, CHECK_EVERY).await? {
            return Ok(None);
        }
        Store::counters_check_apart(self.store.pool()).await.map(Some)
    }

    /// Runs until dropped.
    pub(super) async fn run(&self) {
        let started = Instant::now();
        let (mut folding, mut checking) = (Away::default(), Away::default());
        let mut check_at = started + around(CHECK_NOT_BEFORE);
        loop {
            tokio::time::sleep(around(FOLD_EVERY)).await;
            let fold = async {
                let mut connection = self.store.pool().acquire().await?;
                Store::counters_fold(&mut connection).await
            };
            let folded = tokio::time::timeout(FOLD_WITHIN, fold).await;
            folding.note("folding counters", folded.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into())));
            if Instant::now() < check_at {
                continue;
            }
            check_at = Instant::now() + around(CHECK_NOT_BEFORE);
            let mismatches =
                checking.note("checking counters", self.check_if_due().await).flatten().unwrap_or_default();
            for CounterMismatch { queue, job_type, state, counted, present } in mismatches {
                tracing::error!(%queue, r#type = %job_type, %state, counted, present, "a counter was wrong and has been set right");
            }
        }
    }
}
