//! Renews this worker's leases and takes back those of silent workers, from a thread and a connection of its own.
//!
//! A handler that blocks every thread of the caller's runtime therefore loses no lease. All statements are bounded in
//! time; a broken connection is replaced, and what the outage cost is decided by the database afterwards.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::sync::{oneshot, watch};

use super::lease_watch::StopReason;
use super::{Shared, WorkerError};
use crate::store::{LeaseRef, connect_options};
use crate::{Policy, Store, StoreError};

/// How long the first connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Leases taken back in one statement.
const REAP_BATCH: i64 = 100;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Working,
    /// Takes no more jobs, but still holds some.
    Stopping,
    Stopped,
}

pub(super) struct Keeper {
    phase: watch::Sender<Phase>,
    thread: JoinHandle<()>,
    /// Resolves when the thread is gone, whatever ended it.
    gone: oneshot::Receiver<()>,
}

impl Keeper {
    /// Connects, registers the worker and starts keeping.
    pub(super) async fn start(shared: Arc<Shared>, queues: Vec<(String, usize)>) -> Result<Self, WorkerError> {
        let (phase, watched) = watch::channel(Phase::Working);
        let (ready, started) = oneshot::channel();
        let (alive, gone) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("jobdeck-keeper".to_owned()).spawn(move || {
            let _alive = alive;
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(keep(shared, queues, watched, ready)),
                Err(error) => drop(ready.send(Err(error.into()))),
            }
        })?;
        match started.await {
            Ok(Ok(())) => Ok(Self { phase, thread, gone }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(std::io::Error::other("the heartbeat thread ended at once").into()),
        }
    }

    /// Waits until the thread has ended without being told to.
    pub(super) async fn ended(&mut self) {
        let _ = (&mut self.gone).await;
    }

    pub(super) fn announce_stop(&self) {
        self.phase.send_replace(Phase::Stopping);
    }

    pub(super) async fn stop(self) {
        self.phase.send_replace(Phase::Stopped);
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
    }
}

struct Registration {
    types: Vec<String>,
    policies: Vec<(String, Policy)>,
    queues: Vec<String>,
    slots: i32,
}

async fn keep(
    shared: Arc<Shared>,
    queues: Vec<(String, usize)>,
    mut phase: watch::Receiver<Phase>,
    ready: oneshot::Sender<Result<(), WorkerError>>,
) {
    let registration = Registration {
        types: shared.handlers.keys().cloned().collect(),
        policies: shared.handlers.iter().map(|(name, handler)| (name.clone(), handler.policy.clone())).collect(),
        slots: queues.iter().map(|(_, slots)| i32::try_from(*slots).unwrap_or(i32::MAX)).sum(),
        queues: queues.into_iter().map(|(queue, _)| queue).collect(),
    };
    let first = tokio::time::timeout(CONNECT_WITHIN, connect(&shared, &registration)).await;
    let mut connection = match first.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into())) {
        Ok(connection) => {
            let _ = ready.send(Ok(()));
            Some(connection)
        }
        Err(error) => return drop(ready.send(Err(error.into()))),
    };
    // Beside the rounds, since one that hangs lasts longer than what is left between a deadline and the end of its lease.
    let mut deadlines = tokio::task::JoinSet::new();
    deadlines.spawn(watch_deadlines(shared.clone()));
    let mut last_heartbeat: Option<Instant> = None;
    let mut away_since: Option<Instant> = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(shared.timing.look_every) => {}
            told = phase.wait_for(|phase| *phase == Phase::Stopped) => {
                if told.is_err() {
                    // The worker's future was dropped: nobody renews these leases any more.
                    shared.leases.stop_all(StopReason::LeaseLost);
                }
                break;
            }
        }
        let stopping = *phase.borrow() == Phase::Stopping;
        let mut stopped = phase.clone();
        let beat = last_heartbeat
            .is_none_or(|last| last.elapsed() + shared.timing.look_every / 2 >= shared.timing.heartbeat_every);
        let round = async {
            let mut held = match connection.take() {
                Some(connection) => connection,
                None => connect(&shared, &registration).await?,
            };
            look(&shared, &registration, &mut held, beat, stopping).await?;
            Ok::<_, StoreError>(held)
        };
        // A half-open connection must not cost the lease: the round is given up while there is time for another.
        let round = async {
            tokio::select! {
                round = tokio::time::timeout(shared.timing.heartbeat_every, round) => Some(round),
                _ = stopped.wait_for(|phase| *phase == Phase::Stopped) => None,
            }
        };
        let Some(round) = round.await else { break };
        match round {
            Ok(Ok(held)) => {
                connection = Some(held);
                if beat {
                    last_heartbeat = Some(Instant::now());
                }
                if let Some(since) = away_since.take() {
                    tracing::info!(worker = %shared.name, away = ?since.elapsed(), "heartbeat is back");
                }
            }
            failed => {
                if away_since.is_none() {
                    away_since = Some(Instant::now());
                    let error = match failed {
                        Ok(Err(error)) => crate::handler::chain(&error),
                        _ => "no answer in time".to_owned(),
                    };
                    tracing::warn!(worker = %shared.name, %error, "heartbeat failed, trying again");
                }
            }
        }
    }
    if let Some(mut connection) = connection {
        let goodbye = async {
            let _ = Store::worker_remove(&mut connection, &shared.name).await;
            let _ = connection.close().await;
        };
        let _ = tokio::time::timeout(Duration::from_millis(400), goodbye).await;
    }
}

/// Tells executions to stop whose lease was not renewed in time.
async fn watch_deadlines(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(shared.timing.look_every / 4).await;
        for watch in shared.leases.all().values() {
            if Instant::now() >= watch.deadline() {
                watch.stop(StopReason::LeaseLost);
            }
        }
    }
}

async fn connect(shared: &Shared, registration: &Registration) -> Result<PgConnection, StoreError> {
    let mut connection = connect_options(&shared.database_url)?.connect().await?;
    let Registration { policies, queues, slots, .. } = registration;
    Store::worker_register(&mut connection, &shared.name, policies, queues, *slots).await?;
    Ok(connection)
}

/// One round: heartbeat or only a look for cancels, then the reaper.
async fn look(
    shared: &Shared,
    registration: &Registration,
    connection: &mut PgConnection,
    beat: bool,
    stopping: bool,
) -> Result<(), StoreError> {
    let Registration { queues, types, .. } = registration;
    let watches = shared.leases.all();
    let leases: Vec<LeaseRef> = watches.keys().copied().collect();
    if beat && !leases.is_empty() {
        let sent = Instant::now();
        let held = Store::lease_heartbeat(connection, &leases, shared.timing.lease).await?;
        let mut lost = watches;
        for renewed in held {
            let Some(watch) = lost.remove(&LeaseRef { job_id: renewed.job_id, token: renewed.token }) else { continue };
            if renewed.renewed {
                watch.renew(sent + shared.timing.lease.mul_f64(0.8));
            }
            if renewed.cancel_requested {
                watch.stop(StopReason::Canceled);
            }
        }
        // An execution that recorded its outcome since the list was made is among these; nobody listens any more there.
        lost.values().for_each(|watch| watch.stop(StopReason::LeaseLost));
    } else if !leases.is_empty() {
        for lease in Store::lease_list_canceled(connection, &leases).await? {
            if let Some(watch) = watches.get(&lease) {
                watch.stop(StopReason::Canceled);
            }
        }
    }
    if beat {
        // After the leases, which matter more.
        Store::worker_heartbeat(connection, &shared.name, stopping).await?;
        *shared.limited.lock().unwrap_or_else(PoisonError::into_inner) = Store::queue_list_limited(connection).await?;
    }
    let reaped = reap(shared, connection).await;
    if !stopping {
        let (once, often) = Store::job_suspects_due(connection, queues, types).await?;
        shared.isolation.announce(once, often);
    }
    match reaped {
        // A row that cannot be taken back must not look like a lost connection.
        Err(error) if !error.is_transient() => {
            tracing::error!(error = %crate::handler::chain(&error), "stalled jobs could not be taken back");
            Ok(())
        }
        reaped => reaped,
    }
}

async fn reap(shared: &Shared, connection: &mut PgConnection) -> Result<(), StoreError> {
    let expired = Store::lease_list_expired(connection, REAP_BATCH).await?;
    if expired.is_empty() {
        return Ok(());
    }
    for (job_id, state) in Store::job_reap(connection, &expired).await? {
        shared.metrics.reaped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tracing::warn!(%job_id, %state, "job stalled: its worker went silent");
    }
    Ok(())
}
