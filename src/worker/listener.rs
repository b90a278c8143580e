//! Shortens the wait between polls: a NOTIFY says that some queue got a job, or that a schedule is another.
//!
//! A hint, never a promise. After each reconnection every queue is looked at once, since hints may have been missed.

use std::sync::Arc;
use std::time::Duration;

use super::lanes::Lane;
use sqlx::postgres::PgListener;
use tokio::sync::Notify;

/// How often the connection is checked. A half-open one gives no sign by itself.
const CHECK_EVERY: Duration = Duration::from_secs(10);
const CHECK_WITHIN: Duration = Duration::from_secs(5);

const SCHEDULES: &str = "jobdeck_schedules";

pub(super) async fn listen(database_url: String, lanes: Arc<Vec<Lane>>, schedules: Arc<Notify>) {
    let mut pause = Duration::from_millis(500);
    let mut is_away = false;
    loop {
        match PgListener::connect(&database_url).await {
            Ok(mut listener) => {
                if let Err(error) = listener.listen_all(["jobdeck_jobs", SCHEDULES]).await {
                    tracing::debug!(%error, "LISTEN failed");
                } else {
                    if std::mem::take(&mut is_away) {
                        tracing::info!("listener is back");
                    }
                    pause = Duration::from_millis(500);
                    lanes.iter().for_each(|lane| lane.waker.notify_one());
                    schedules.notify_one();
                    receive(&mut listener, &lanes, &schedules).await;
                }
            }
            Err(error) => tracing::debug!(%error, "listener could not connect"),
        }
        if !std::mem::replace(&mut is_away, true) {
            tracing::warn!("listener lost, polling goes on");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(8));
    }
}

/// Returns when the connection is gone.
async fn receive(listener: &mut PgListener, lanes: &[Lane], schedules: &Notify) {
    loop {
        match tokio::time::timeout(CHECK_EVERY, listener.try_recv()).await {
            Ok(Ok(Some(hint))) if hint.channel() == SCHEDULES => schedules.notify_one(),
            // Hints are debounced over all queues, so that one may stand for another's.
            Ok(Ok(Some(_))) => lanes.iter().for_each(|lane| lane.waker.notify_one()),
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => {
                let check = sqlx::query("select 1").execute(&mut *listener);
                if !matches!(tokio::time::timeout(CHECK_WITHIN, check).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}
