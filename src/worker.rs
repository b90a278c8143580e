//! Runs jobs: claims them in batches sized to the free slots, keeps their leases, writes their outcomes.
//!
//! Three parts work side by side. The claim loops (one per queue) and the executions run on the caller's runtime. The
//! keeper ([`keeper`]) has a thread and a connection of its own, so a handler that blocks every runtime thread loses no
//! lease. The listener ([`listener`]) only shortens the wait between polls; without it everything still runs.

mod executor;
mod keeper;
mod lease_watch;
mod listener;
mod panics;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore, watch};

use crate::{Handler, JobType, Policy, PolicyError, Store, StoreError};

pub(crate) use lease_watch::LeaseWatch;
use lease_watch::StopReason;
pub(crate) use panics::panic_error;

/// When and how long. Defaults suit production; tests set them small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// How long a claim stays valid without a heartbeat, by the database's clock.
    pub(crate) lease: Duration,
    pub(crate) heartbeat_every: Duration,
    /// How often cancels and expired leases are looked for.
    pub(crate) look_every: Duration,
    /// How long a claim loop sleeps without a hint.
    pub(crate) poll_every: Duration,
    /// How long running jobs may go on after the shutdown signal.
    pub(crate) grace: Duration,
}

/// Counters since the worker started.
#[derive(Debug, Default)]
pub struct WorkerMetrics {
    started: AtomicU64,
    succeeded: AtomicU64,
    unsuccessful: AtomicU64,
    lease_lost: AtomicU64,
    reaped: AtomicU64,
}

impl WorkerMetrics {
    /// Executions started.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// Executions whose success was recorded.
    pub fn succeeded(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    /// Executions that ended in any other recorded way.
    pub fn unsuccessful(&self) -> u64 {
        self.unsuccessful.load(Ordering::Relaxed)
    }

    /// Executions whose late outcome was refused, or that stopped because their lease was gone.
    pub fn lease_lost(&self) -> u64 {
        self.lease_lost.load(Ordering::Relaxed)
    }

    /// Leases of any worker this one took back.
    pub fn reaped(&self) -> u64 {
        self.reaped.load(Ordering::Relaxed)
    }

    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Why a worker could not be built or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A type's policy makes no sense.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Two handlers for one type.
    #[error("type {0:?} is registered twice")]
    TypeTwice(String),
    /// A type waits in a queue this worker does not take jobs from.
    #[error(
        "type {job_type:?} waits in queue {queue:?}, which this worker does not work: add .queue({queue:?}, slots)"
    )]
    QueueNotWorked {
        /// The type.
        job_type: String,
        /// Its queue.
        queue: String,
    },
    /// A queue without slots.
    #[error("queue {0:?} has 0 slots, at least 1 is needed")]
    NoSlots(String),
    /// The lease is too short for the heartbeat.
    #[error("lease of {lease:?} is shorter than three heartbeats of {heartbeat_every:?}")]
    LeaseTooShort {
        /// As set.
        lease: Duration,
        /// As set.
        heartbeat_every: Duration,
    },
    /// The database could not be reached at start.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system gave no thread for heartbeats.
    #[error("no thread for heartbeats")]
    Thread(#[from] std::io::Error),
    /// No queue to work.
    #[error("the worker works no queue: add .queue(name, slots)")]
    NoQueue,
    /// The thread that keeps leases ended by itself. Its jobs were told to stop; others take them over.
    #[error("the heartbeat thread ended by itself")]
    KeeperEnded,
}

type AnyHandler = Arc<dyn Fn(crate::Ctx, serde_json::Value) -> executor::Run + Send + Sync>;

struct RegisteredHandler {
    policy: Policy,
    run: AnyHandler,
}

/// Builds a [`Worker`].
pub struct WorkerBuilder {
    store: Store,
    database_url: String,
    name: String,
    handlers: HashMap<String, RegisteredHandler>,
    queues: Vec<(String, usize)>,
    timing: Timing,
    error: Option<WorkerError>,
}

impl WorkerBuilder {
    /// Adds the function that does jobs of type `T`.
    #[must_use]
    pub fn register<T: JobType>(mut self, handler: impl Handler<T>) -> Self {
        let policy = T::policy();
        let problem = match policy.check(T::TYPE) {
            Err(error) => Some(error.into()),
            Ok(()) if self.handlers.contains_key(T::TYPE) => Some(WorkerError::TypeTwice(T::TYPE.to_owned())),
            Ok(()) => None,
        };
        self.error = self.error.or(problem);
        let run: AnyHandler = Arc::new(move |ctx, payload| handler.run(ctx, payload));
        self.handlers.insert(T::TYPE.to_owned(), RegisteredHandler { policy, run });
        self
    }

    /// Takes jobs from `queue`, at most `slots` at once; more than 10,000 count as 10,000.
    #[must_use]
    pub fn queue(mut self, queue: &str, slots: usize) -> Self {
        self.queues.push((queue.to_owned(), slots.min(10_000)));
        self
    }

    /// How people tell this worker from others. Default: host name, process id and a random part, so that it is unique.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// How long a claim stays valid without a heartbeat, and how often one is sent. Default 15 s and 3 s; the lease must
    /// be at least three heartbeats long.
    #[must_use]
    pub fn lease(mut self, lease: Duration, heartbeat_every: Duration) -> Self {
        self.timing.lease = lease;
        self.timing.heartbeat_every = heartbeat_every;
        self.timing.look_every = heartbeat_every.min(Duration::from_secs(1));
        self
    }

    /// How long the claim loops sleep without a hint. Default 2 s.
    #[must_use]
    pub fn poll_every(mut self, poll_every: Duration) -> Self {
        self.timing.poll_every = poll_every;
        self
    }

    /// How long running jobs may go on after the shutdown signal. Default 10 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.timing.grace = grace;
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    /// The first setting that makes no sense, by name.
    pub fn build(self) -> Result<Worker, WorkerError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.queues.is_empty() {
            return Err(WorkerError::NoQueue);
        }
        if let Some((queue, _)) = self.queues.iter().find(|(_, slots)| *slots == 0) {
            return Err(WorkerError::NoSlots(queue.clone()));
        }
        for (job_type, handler) in &self.handlers {
            let queue = &handler.policy.queue;
            if !self.queues.iter().any(|(worked, _)| worked == queue) {
                return Err(WorkerError::QueueNotWorked { job_type: job_type.clone(), queue: queue.clone() });
            }
        }
        let Timing { lease, heartbeat_every, .. } = self.timing;
        if heartbeat_every.is_zero() || lease < heartbeat_every.saturating_mul(3) {
            return Err(WorkerError::LeaseTooShort { lease, heartbeat_every });
        }
        Ok(Worker {
            queues: self.queues,
            shared: Arc::new(Shared {
                store: self.store,
                database_url: self.database_url,
                name: self.name,
                handlers: self.handlers,
                timing: self.timing,
                leases: lease_watch::HeldLeases::default(),
                metrics: Arc::default(),
            }),
        })
    }
}

struct Shared {
    store: Store,
    database_url: String,
    name: String,
    handlers: HashMap<String, RegisteredHandler>,
    timing: Timing,
    leases: lease_watch::HeldLeases,
    metrics: Arc<WorkerMetrics>,
}

/// Runs jobs until told to stop. A process may have several.
pub struct Worker {
    queues: Vec<(String, usize)>,
    shared: Arc<Shared>,
}

impl Worker {
    /// Starts building a worker on `store`. `database_url` is for the connections of its own: heartbeat and listener.
    pub fn builder(store: Store, database_url: &str) -> WorkerBuilder {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "worker".to_owned());
        let random = fastrand::u16(..);
        WorkerBuilder {
            store,
            database_url: database_url.to_owned(),
            name: format!("{}-{}-{random:04x}", host.trim(), std::process::id()),
            handlers: HashMap::new(),
            queues: Vec::new(),
            timing: Timing {
                lease: Duration::from_secs(15),
                heartbeat_every: Duration::from_secs(3),
                look_every: Duration::from_secs(1),
                poll_every: Duration::from_secs(2),
                grace: Duration::from_secs(10),
            },
            error: None,
        }
    }

    /// Its name in the registry and in `locked_by`.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its counters; they go on counting while it runs.
    pub fn metrics(&self) -> Arc<WorkerMetrics> {
        self.shared.metrics.clone()
    }

    /// Works until `shutdown` completes, then stops claiming, lets running jobs finish within the grace time, and hands
    /// the others back without using up an attempt.
    ///
    /// A lost database does not end it: it goes on trying, and what finished meanwhile is recorded if its lease still
    /// holds.
    ///
    /// # Errors
    /// Only at start: if the database cannot be reached.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), WorkerError> {
        let Worker { queues, shared } = self;
        panics::install();
        tokio::pin!(shutdown);
        let (stop_claiming, claiming) = watch::channel(false);
        let starting = keeper::Keeper::start(shared.clone(), queues.clone());
        let mut keeper = tokio::select! {
            started = starting => started?,
            () = &mut shutdown => return Ok(()),
        };
        let wakers: Arc<HashMap<String, Notify>> =
            Arc::new(queues.iter().map(|(queue, _)| (queue.clone(), Notify::new())).collect());
        // In sets, so that they end with this future if the caller drops it.
        let mut background = tokio::task::JoinSet::new();
        background.spawn(listener::listen(shared.database_url.clone(), wakers.clone()));
        let mut loops = tokio::task::JoinSet::new();
        let mut slots = Vec::new();
        for (queue, n_slots) in queues {
            let free = Arc::new(Semaphore::new(n_slots));
            slots.push((free.clone(), n_slots));
            loops.spawn(claim_loop(shared.clone(), queue, free, wakers.clone(), claiming.clone()));
        }
        tracing::info!(worker = %shared.name, "worker started");

        tokio::select! {
            () = shutdown => {}
            () = keeper.ended() => {
                shared.leases.stop_all(StopReason::LeaseLost);
                return Err(WorkerError::KeeperEnded);
            }
        }
        tracing::info!(worker = %shared.name, "worker stopping");
        let stopping = Instant::now();
        stop_claiming.send_replace(true);
        keeper.announce_stop();
        // A claim under way is let through, unless the database does not answer.
        let claims_done = async { while loops.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(1).min(shared.timing.grace), claims_done).await.is_err() {
            loops.abort_all();
        }

        let all_free = async {
            for (free, n_slots) in &slots {
                // Each execution holds one permit until its outcome is written.
                let _ = free.acquire_many(u32::try_from(*n_slots).unwrap_or(u32::MAX)).await;
            }
        };
        tokio::pin!(all_free);
        let grace_left = shared.timing.grace.saturating_sub(stopping.elapsed());
        if tokio::time::timeout(grace_left, &mut all_free).await.is_err() {
            shared.leases.stop_all(StopReason::ShuttingDown);
            // Handing back is one statement a job; what does not make it is reaped like the jobs of a dead worker.
            let _ = tokio::time::timeout(Duration::from_millis(1500), all_free).await;
        }
        keeper.stop().await;
        tracing::info!(worker = %shared.name, "worker stopped");
        Ok(())
    }
}

/// Claims jobs of one queue whenever there are free slots and due jobs.
async fn claim_loop(
    shared: Arc<Shared>,
    queue: String,
    free: Arc<Semaphore>,
    wakers: Arc<HashMap<String, Notify>>,
    mut stopping: watch::Receiver<bool>,
) {
    let types: Vec<String> = shared
        .handlers
        .iter()
        .filter(|(_, handler)| handler.policy.queue == queue)
        .map(|(job_type, _)| job_type.clone())
        .collect();
    let mut pause = Duration::from_millis(100);
    loop {
        let first = tokio::select! {
            permit = free.clone().acquire_owned() => permit,
            _ = stopping.wait_for(|stop| *stop) => return,
        };
        let Ok(first) = first else { return };
        let mut permits = vec![first];
        while permits.len() < 100
            && let Ok(permit) = free.clone().try_acquire_owned()
        {
            permits.push(permit);
        }
        // Interest in a hint is registered before the query runs, so that one sent in between is not missed.
        let hint = wakers[&queue].notified();
        tokio::pin!(hint);
        hint.as_mut().enable();

        // Not raced against the stop signal: a claim dropped halfway would leave jobs leased to nobody. Only a database
        // that does not answer is given up; what it may have leased is reaped.
        let sent = Instant::now();
        let limit = permits.len();
        let claim = shared.store.job_claim_batch(&queue, &types, limit as i64, shared.timing.lease, &shared.name);
        let claimed = tokio::time::timeout(shared.timing.lease, claim).await;
        let wait = match claimed.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into())) {
            Ok(claims) => {
                pause = Duration::from_millis(100);
                let full = claims.len() == limit;
                let deadline = sent + shared.timing.lease.mul_f64(0.8);
                for (claim, permit) in claims.into_iter().zip(permits) {
                    // Held from here on, also while every thread is busy and the execution waits to be polled.
                    let held = shared.leases.add(claim.lease(), deadline);
                    tokio::spawn(executor::execute(shared.clone(), claim, held, permit));
                }
                if full { Duration::ZERO } else { shared.timing.poll_every }
            }
            Err(error) => {
                tracing::warn!(%queue, error = %crate::handler::chain(&error), wait = ?pause, "claim failed");
                pause = (pause * 2).min(Duration::from_secs(5));
                pause
            }
        };
        if *stopping.borrow() {
            return;
        }
        if !wait.is_zero() {
            // Workers that were started together do not poll together.
            let wait = wait.mul_f64(0.9 + 0.2 * fastrand::f64());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = hint => {}
                _ = stopping.wait_for(|stop| *stop) => return,
            }
        }
    }
}
