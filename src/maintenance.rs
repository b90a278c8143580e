//! What must be done from time to time, by whichever process is there: removing old jobs, taking bulk operations further, keeping
//! the counters.
//!
//! Each service is harmless when two processes do it at once; where one is enough, a duty by lease sees to that. Errors are logged
//! once until it works again, and never reach a job: the services have a connection of their own.

mod bulk_runner;
mod counter_keeper;
mod pruner;

use std::time::Duration;

pub use counter_keeper::CounterKeeper;
pub use pruner::Pruner;

use crate::{Store, StoreError};

/// Runs the maintenance services until dropped: bulk operations, counters, and removing old jobs if `prunes`. Workers do this by
/// themselves; a process without a worker may, so that they go on while no worker runs.
///
/// `holder` names the process in `jobdeck.duties` and must be unique.
pub async fn maintain(store: Store, holder: &str, prunes: bool) {
    let pruner = Pruner::new(store.clone(), holder);
    let prune = async {
        if prunes {
            pruner.run().await;
        }
    };
    let counters = CounterKeeper::new(store.clone(), holder);
    tokio::join!(prune, bulk_runner::run(&store), counters.run());
}

/// A wait of about `base`, so that processes that were started together do not work together.
fn around(base: Duration) -> Duration {
    base.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Logs the first of several failures in a row.
#[derive(Default)]
struct Away(bool);

impl Away {
    fn note<T>(&mut self, what: &str, result: Result<T, StoreError>) -> Option<T> {
        match result {
            Ok(value) => {
                if std::mem::take(&mut self.0) {
                    tracing::info!(service = what, "works again");
                }
                Some(value)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.0, true) {
                    tracing::warn!(service = what, error = %crate::handler::chain(&error), "failed, trying again");
                }
                None
            }
        }
    }
}
