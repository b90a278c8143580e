//! Runs jobs: claims them in batches sized to the free slots, keeps their leases, writes their outcomes.
//!
//! Three parts work side by side. The claim loops (one per queue) and the executions run on the caller's runtime. The
//! keeper ([`keeper`]) has a thread and a connection of its own, so a handler that blocks every runtime thread loses no
//! lease. The listener ([`listener`]) only shortens the wait between polls; without it everything still runs.

mod completer;
mod executor;
mod isolation;
mod keeper;
mod kept_connection;
mod lanes;
mod lease_watch;
mod listener;
mod panics;
mod scheduler;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio::sync::watch;

use crate::store::{ClaimedUntil, Stalls};
use crate::{Handler, JobType, Policy, PolicyError, Schedule, ScheduleError, Store, StoreError};

use completer::Completer;
use isolation::Isolation;
use kept_connection::KeptConnection;
use lanes::{Lane, Slot};
pub(crate) use lease_watch::LeaseWatch;
use lease_watch::StopReason;
pub(crate) use panics::panic_error;
pub use scheduler::Scheduler;

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
    /// A schedule makes no sense.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
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
    prunes: bool,
    schedules: Vec<Schedule>,
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

    /// Whether this worker takes its turn at removing old jobs by their types' [`crate::Retention`]. Default: yes.
    #[must_use]
    pub fn prunes(mut self, prunes: bool) -> Self {
        self.prunes = prunes;
        self
    }

    /// Enqueues a job at each tick of `schedule`, together with all other workers that declare it: one job for each tick.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
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
        scheduler::check(&self.schedules)?;
        let Timing { lease, heartbeat_every, .. } = self.timing;
        if heartbeat_every.is_zero() || lease < heartbeat_every.saturating_mul(3) {
            return Err(WorkerError::LeaseTooShort { lease, heartbeat_every });
        }
        Ok(Worker {
            queues: self.queues,
            store: self.store,
            database_url: self.database_url,
            name: self.name,
            handlers: self.handlers,
            timing: self.timing,
            prunes: self.prunes,
            schedules: self.schedules,
            metrics: Arc::default(),
        })
    }
}

/// Connections of the worker itself, beside those of heartbeat and listener: claims, outcomes, housekeeping. Handlers use the
/// store they were given, so that none of them can starve the queue.
const OWN_CONNECTIONS: u32 = 4;

/// Claim loops that may keep a connection while much waits; the others leave what remains of [`OWN_CONNECTIONS`] after each claim.
const MAX_KEEPING: usize = 2;

/// Connections for maintenance, so that it takes none from claims and outcomes: a pass of the pruner holds one throughout.
const MAINTENANCE_CONNECTIONS: u32 = 3;

/// What the parts of a running worker share.
struct Shared {
    /// For handlers.
    store: Store,
    /// For the worker itself.
    own: Store,
    database_url: String,
    name: String,
    handlers: HashMap<String, RegisteredHandler>,
    timing: Timing,
    leases: lease_watch::HeldLeases,
    isolation: Isolation,
    completer: Completer,
    /// Queues whose limits may leave jobs waiting until one of ours ends.
    limited: Mutex<HashSet<String>>,
    metrics: Arc<WorkerMetrics>,
}

/// Runs jobs until told to stop. A process may have several.
pub struct Worker {
    queues: Vec<(String, usize)>,
    store: Store,
    database_url: String,
    name: String,
    handlers: HashMap<String, RegisteredHandler>,
    timing: Timing,
    prunes: bool,
    schedules: Vec<Schedule>,
    metrics: Arc<WorkerMetrics>,
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
            prunes: true,
            schedules: Vec::new(),
            error: None,
        }
    }

    /// Its name in the registry and in `locked_by`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its counters; they go on counting while it runs.
    pub fn metrics(&self) -> Arc<WorkerMetrics> {
        self.metrics.clone()
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
        let Worker { queues, store, database_url, name, handlers, timing, prunes, schedules, metrics } = self;
        panics::install();
        tokio::pin!(shutdown);
        let (stop_claiming, claiming) = watch::channel(false);
        let own = Store::connect_lazy(&database_url, OWN_CONNECTIONS)?;
        // In a set, so that they end with this future if the caller drops it.
        let mut background = tokio::task::JoinSet::new();
        let completer = Completer::start(&mut background, own.clone(), executor::RECORD_FOR);
        let shared = Arc::new(Shared {
            store,
            own,
            database_url,
            name,
            handlers,
            timing,
            leases: lease_watch::HeldLeases::default(),
            isolation: Isolation::default(),
            completer,
            limited: Mutex::default(),
            metrics,
        });
        let starting = keeper::Keeper::start(shared.clone(), queues.clone());
        let mut keeper = tokio::select! {
            started = starting => started?,
            () = &mut shutdown => return Ok(()),
        };
        let n_slots: usize = queues.iter().map(|(_, slots)| slots).sum();
        let n_connections = shared.store.pool().options().get_max_connections();
        if n_slots > n_connections as usize {
            tracing::warn!(
                slots = n_slots,
                connections = n_connections,
                "handlers share fewer connections than there are slots: those that use the database may wait for each other"
            );
        }
        let lanes: Vec<Lane> = queues
            .into_iter()
            .map(|(queue, slots)| {
                // A job may wait in another queue than its type's: enqueuers can say so, and types move.
                let types = shared.handlers.keys().cloned().collect();
                Lane::new(queue, slots, types)
            })
            .collect();
        let lanes = Arc::new(lanes);
        let scheduler = Scheduler::new(shared.own.clone(), &shared.name, schedules)?;
        background.spawn(listener::listen(shared.database_url.clone(), lanes.clone(), scheduler.waker()));
        background.spawn(async move { scheduler.declare_and_run().await });
        let maintenance = Store::connect_lazy(&shared.database_url, MAINTENANCE_CONNECTIONS)?;
        let name = shared.name.clone();
        background.spawn(async move { crate::maintain(maintenance, &name, prunes).await });
        let mut loops = tokio::task::JoinSet::new();
        loops.spawn(isolation::run_apart(shared.clone(), lanes.clone(), claiming.clone()));
        for index in 0..lanes.len() {
            loops.spawn(claim_loop(shared.clone(), lanes.clone(), index, claiming.clone()));
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
            for lane in lanes.iter() {
                lane.drained().await;
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

/// How long a claim loop goes on behind its last claim before it looks at all that waits.
const LOOK_AT_ALL_EVERY: Duration = Duration::from_millis(50);

/// How soon after a hint a claim loop looks again. Hints are debounced, so that a job may have come without one of its own.
const LOOKS_AFTER_HINT: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(25)];

/// Claims jobs of one queue whenever there are free slots and due jobs.
async fn claim_loop(shared: Arc<Shared>, lanes: Arc<Vec<Lane>>, index: usize, mut stopping: watch::Receiver<bool>) {
    let lane = &lanes[index];
    let mut pause = Duration::from_millis(100);
    let mut looks = [].iter();
    let mut many_wait = false;
    let mut seen_until = None;
    let mut connection = KeptConnection::default();
    let mut behind: Option<ClaimedUntil> = None;
    let mut looked_at_all = Instant::now();
    loop {
        let slots = tokio::select! {
            slots = connection.release_unless_soon(lane.take(many_wait)) => slots,
            _ = stopping.wait_for(|stop| *stop) => return,
        };
        // Interest in a hint is registered before the query runs, so that one sent in between is not missed.
        let hint = lane.waker.notified();
        tokio::pin!(hint);
        hint.as_mut().enable();

        let Some(open) = shared.isolation.try_open() else {
            // Jobs that stalled are about to run apart and need these slots.
            drop(slots);
            tokio::select! {
                open = shared.isolation.open() => drop(open),
                _ = stopping.wait_for(|stop| *stop) => return,
            }
            continue;
        };
        let limit = slots.len();
        lane.forget_due();
        behind = behind.filter(|_| looked_at_all.elapsed() < LOOK_AT_ALL_EVERY);
        let goes_on = behind.is_some();
        if !goes_on {
            looked_at_all = Instant::now();
        }
        let which = behind.take().map_or(Which::All(Stalls::None), Which::Behind);
        let claimed = claim_into(&shared, &lanes, index, slots, which, &mut connection).await;
        drop(open);
        let claimed = claimed.map(|(n_claimed, until)| {
            behind = until.filter(|_| n_claimed == limit);
            n_claimed
        });
        // What it found behind the last claim says nothing about the rest.
        many_wait = matches!(claimed, Ok(n_claimed) if n_claimed == limit || goes_on);
        if !many_wait || index >= MAX_KEEPING {
            connection.release();
        }
        let wait = match claimed {
            Ok(n_claimed) => {
                pause = Duration::from_millis(100);
                if n_claimed == limit || goes_on {
                    Duration::ZERO
                } else {
                    match looks.next() {
                        Some(soon) => *soon,
                        None => until_next_look(&shared, lane, &mut seen_until).await,
                    }
                }
            }
            Err(error) => {
                tracing::warn!(queue = %lane.queue, error = %crate::handler::chain(&error), wait = ?pause, "claim failed");
                let wait = pause.mul_f64(0.9 + 0.2 * fastrand::f64());
                pause = (pause * 2).min(Duration::from_secs(5));
                wait
            }
        };
        if *stopping.borrow() {
            return;
        }
        if !wait.is_zero() {
            tokio::select! {
                () = lane.sleep(wait) => {}
                () = hint => looks = LOOKS_AFTER_HINT.iter(),
                _ = stopping.wait_for(|stop| *stop) => return,
            }
        }
    }
}

/// How long a claim loop sleeps without a hint: until a job becomes due, or until the next poll.
///
/// A job may become due after the claim read the clock and before this asks, so what counts is what became due since this asked
/// last, which was before that claim. A job that nobody may take is looked for once more for it and not again.
async fn until_next_look(shared: &Shared, lane: &Lane, seen_until: &mut Option<DateTime<Utc>>) -> Duration {
    // Workers that were started together do not poll together.
    let poll = shared.timing.poll_every.mul_f64(0.9 + 0.2 * fastrand::f64());
    let next = shared.own.job_next_due(&lane.queue, &lane.types, *seen_until);
    match tokio::time::timeout(poll, next).await {
        Ok(Ok(next)) => {
            *seen_until = Some(next.now);
            next.due_in().map_or(poll, |due_in| due_in.max(lanes::REST).min(poll))
        }
        // The next claim says what is wrong.
        Ok(Err(_)) => poll,
        Err(_) => lanes::REST,
    }
}

/// Which jobs a claim takes.
enum Which {
    /// The most urgent of all that wait.
    All(Stalls),
    /// The next ones behind an earlier claim.
    Behind(ClaimedUntil),
}

/// Claims as many jobs as there are `slots` and starts them. Returns how many, and where more of their kind may wait.
///
/// Not raced against the stop signal: a claim dropped halfway would leave jobs leased to nobody. Only a database that does not
/// answer is given up; what it may have leased is reaped.
async fn claim_into(
    shared: &Arc<Shared>,
    lanes: &Arc<Vec<Lane>>,
    index: usize,
    slots: Vec<Slot>,
    which: Which,
    connection: &mut KeptConnection,
) -> Result<(usize, Option<ClaimedUntil>), StoreError> {
    let lane = &lanes[index];
    let lease = shared.timing.lease;
    let sent = Instant::now();
    let limit = slots.len() as i64;
    let claims = connection
        .run(shared.own.pool(), lease, async |connection| {
            let worker = &shared.name;
            match &which {
                Which::All(stalls) => {
                    Store::job_claim_stalled(connection, &lane.queue, &lane.types, limit, lease, worker, *stalls).await
                }
                Which::Behind(last) => {
                    Store::job_claim_behind(connection, &lane.queue, last, limit, lease, worker).await
                }
            }
        })
        .await?;
    let until = ClaimedUntil::of(&claims);
    let deadline = sent + lease.mul_f64(0.8);
    let n_claimed = claims.len();
    for (claim, slot) in claims.into_iter().zip(slots) {
        // Held from here on, also while every thread is busy and the execution waits to be polled.
        let held = shared.leases.add(claim.lease(), deadline);
        let (shared, lanes) = (shared.clone(), lanes.clone());
        tokio::spawn(async move {
            let due_in = executor::execute(shared.clone(), claim, held, slot).await;
            let lane = &lanes[index];
            if let Some(delay) = due_in {
                lane.due_in(delay);
            }
            if shared.limited.lock().unwrap_or_else(PoisonError::into_inner).contains(&lane.queue) {
                lane.waker.notify_one();
            }
        });
    }
    Ok((n_claimed, until))
}
