//! Takes bulk operations further, a batch at a time and each in turn.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{Away, around};
use crate::{BulkState, Store, StoreError};

/// How soon a new operation is noticed at the latest.
const LOOK_EVERY: Duration = Duration::from_millis(900);

/// Jobs changed in one statement: short enough that nobody who waits for one of them notices.
const BATCH: i32 = 500;

pub(super) async fn run(store: &Store) {
    let mut away = Away::default();
    loop {
        let moved = away.note("bulk", round(store).await).unwrap_or(false);
        if !moved {
            tokio::time::sleep(around(LOOK_EVERY)).await;
        }
    }
}

/// One batch of each operation. Whether any of them may have more to do at once.
async fn round(store: &Store) -> Result<bool, StoreError> {
    let mut moved = false;
    for id in store.bulk_list_running().await? {
        let begun = Instant::now();
        match store.bulk_step(id, BATCH).await {
            Ok(Some(operation)) => {
                if operation.state == BulkState::Done {
                    tracing::info!(%id, action = %operation.action, done = operation.done, refused = operation.refused, "bulk operation done");
                } else {
                    // One that waits for rows locked elsewhere is looked at again with the next round.
                    moved |= operation.n_deferred == 0;
                }
                tokio::time::sleep((begun.elapsed() / 2).min(Duration::from_secs(1))).await;
            }
            // Another process is at it.
            Ok(None) => {}
            Err(error) => note_error(store, id, error).await?,
        }
    }
    Ok(moved)
}

async fn note_error(store: &Store, id: Uuid, error: StoreError) -> Result<(), StoreError> {
    if let StoreError::Json(error) = &error {
        tracing::debug!(%id, %error, "bulk operation of a newer version, left to others");
        return Ok(());
    }
    let is_transient = error.is_transient();
    let text = crate::handler::chain(&error);
    tracing::warn!(%id, error = %text, "batch of a bulk operation was refused");
    // Without a connection there is nowhere to note it.
    store.bulk_note_error(id, &text, !is_transient).await
}
