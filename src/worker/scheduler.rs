//! Enqueues the job of each tick.
//!
//! Every worker does this for the schedules it declares and for those that people made. They need no leader: a tick and its job are
//! one statement, guarded by what was read and by the key (schedule, tick), so whoever comes second finds nothing to do. The
//! database's clock says what is due. Between ticks a scheduler sleeps; what changes meanwhile comes as a hint, or is found by the
//! next look.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use tokio::sync::Notify;

use crate::schedule::Plan;
use crate::store::{DueSchedule, Tick, TickOutcome};
use crate::{Recurrence, Schedule, ScheduleError, Store, StoreError};

/// How long a scheduler sleeps at most. Also how soon it notices a change without a hint, and a clock that was set forward.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How long it sleeps at least, so that a schedule whose row another worker is just changing is not asked for all the time.
const REST: Duration = Duration::from_millis(20);

/// How often a scheduler notes that it is there. The deck allows three of these.
const SEEN_EVERY: Duration = Duration::from_secs(60);

/// How often old ticks are removed.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

/// How long one statement may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How long a schedule that cannot be run is left alone: the first and the longest of its rests.
const FIRST_REST: Duration = Duration::from_secs(2);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// A schedule that could not be run, as it was then.
struct Resting {
    version: i64,
    until: Instant,
    rest: Duration,
}

/// Enqueues the jobs of schedules. Each [`crate::Worker`] has one; a program without a worker may run its own.
pub struct Scheduler {
    store: Store,
    worker: String,
    schedules: Vec<Schedule>,
    names: Vec<String>,
    waker: Arc<Notify>,
}

/// Refuses schedules that make no sense, and two of one name.
pub(super) fn check(schedules: &[Schedule]) -> Result<(), ScheduleError> {
    for (place, schedule) in schedules.iter().enumerate() {
        schedule.check()?;
        if schedules[..place].iter().any(|earlier| earlier.name == schedule.name) {
            let problem = "is declared twice".to_owned();
            return Err(ScheduleError { schedule: schedule.name.clone(), field: "name", problem });
        }
    }
    Ok(())
}

impl Scheduler {
    /// For `schedules` and those that people made. `worker` is who the history names.
    ///
    /// # Errors
    /// The first value that makes no sense, by name.
    pub fn new(store: Store, worker: &str, schedules: Vec<Schedule>) -> Result<Self, ScheduleError> {
        check(&schedules)?;
        let names = schedules.iter().map(|schedule| schedule.name.clone()).collect();
        Ok(Self { store, worker: worker.to_owned(), schedules, names, waker: Arc::default() })
    }

    /// Writes the declarations, once, at start: they replace those in the database, unless theirs have a higher revision. Pauses stay.
    ///
    /// # Errors
    /// If the database does.
    pub async fn declare(&self) -> Result<(), StoreError> {
        bounded(self.store.schedule_declare(&self.schedules)).await
    }

    /// Ends the sleep between looks.
    pub(super) fn waker(&self) -> Arc<Notify> {
        self.waker.clone()
    }

    /// Sees to everything that is due now, and returns what became of it. [`Scheduler::run`] does this whenever something is.
    ///
    /// # Errors
    /// If the database does; what was seen to before stays so.
    pub async fn pass(&self) -> Result<Vec<Tick>, StoreError> {
        let mut ticks = Vec::new();
        self.look(&mut HashMap::new(), &mut ticks).await?;
        Ok(ticks)
    }

    /// Removes all but the newest 1,000 ticks of each schedule from the history. [`Scheduler::run`] does this every ten minutes.
    ///
    /// # Errors
    /// If the database does.
    pub async fn prune(&self) -> Result<(), StoreError> {
        bounded(self.store.schedule_prune(&self.names)).await
    }

    /// Sees to what is due until dropped. A lost database does not end it; what was missed is made up for by each schedule's rule.
    pub async fn run(&self) {
        self.run_from(true).await;
    }

    /// As [`Scheduler::run`], but writes the declarations first: a worker does not wait for that to take jobs.
    pub(super) async fn declare_and_run(&self) {
        self.run_from(false).await;
    }

    async fn run_from(&self, mut is_declared: bool) {
        let mut resting = HashMap::new();
        let (mut seen_at, mut pruned_at) = (None::<Instant>, Instant::now());
        let mut is_away = false;
        let mut pause = Duration::from_millis(500);
        loop {
            // A hint that comes while looking is kept, so the look after it finds what it was about.
            let looked = async {
                if !is_declared {
                    self.declare().await?;
                    is_declared = true;
                }
                if seen_at.is_none_or(|seen| seen.elapsed() >= SEEN_EVERY) {
                    bounded(self.store.schedule_seen(&self.names)).await?;
                    seen_at = Some(Instant::now());
                }
                if pruned_at.elapsed() >= PRUNE_EVERY {
                    self.prune().await?;
                    pruned_at = Instant::now();
                }
                self.look(&mut resting, &mut Vec::new()).await
            };
            let wait = match looked.await {
                Ok(wait) => {
                    if std::mem::take(&mut is_away) {
                        tracing::info!("schedules go on");
                    }
                    pause = Duration::from_millis(500);
                    wait
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_away, true) {
                        tracing::warn!(error = %crate::handler::chain(&error), "schedules wait for the database");
                    }
                    let wait = pause.mul_f64(0.9 + 0.2 * fastrand::f64());
                    pause = (pause * 2).min(Duration::from_secs(5));
                    wait
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.waker.notified() => tokio::time::sleep(REST).await,
            }
        }
    }

    /// One look at all schedules. Returns how long nothing will be due, by the database's clock.
    async fn look(
        &self,
        resting: &mut HashMap<String, Resting>,
        ticks: &mut Vec<Tick>,
    ) -> Result<Duration, StoreError> {
        let rows = bounded(self.store.schedule_list_due(&self.names)).await?;
        // Counted from the reply, so that the next look does not come too early by the time it took.
        let read = Instant::now();
        let mut wait = LOOK_EVERY;
        for row in rows {
            let due_in = (row.next_at - row.now).to_std().unwrap_or_default();
            if !due_in.is_zero() {
                wait = wait.min(due_in);
                continue;
            }
            if let Some(rests) = resting.get(&row.name).filter(|rests| rests.version == row.version)
                && let Some(left) = rests.until.checked_duration_since(Instant::now())
            {
                wait = wait.min(read.elapsed() + left);
                continue;
            }
            match self.see_to(&row, ticks).await {
                Ok(next_in) => {
                    resting.remove(&row.name);
                    wait = wait.min(next_in);
                }
                Err(error) if !is_of_one_schedule(&error) => return Err(error),
                Err(error) => {
                    let rest = resting.get(&row.name).map_or(FIRST_REST, |rests| (rests.rest * 2).min(LONGEST_REST));
                    tracing::warn!(schedule = %row.name, error = %crate::handler::chain(&error), ?rest, "schedule not run");
                    let until = Instant::now() + rest;
                    wait = wait.min(read.elapsed() + rest);
                    resting.insert(row.name, Resting { version: row.version, until, rest });
                }
            }
        }
        Ok(wait.saturating_sub(read.elapsed()).max(REST))
    }

    /// Enqueues what is due of one schedule. Returns when its next tick comes, counted from when the row was read.
    async fn see_to(&self, row: &DueSchedule, ticks: &mut Vec<Tick>) -> Result<Duration, StoreError> {
        let recurrence = match Recurrence::parse(&row.cron, &row.zone) {
            Ok(recurrence) => recurrence,
            Err(problem) => {
                // Changed by hand, or declared by a version that reads more than this one.
                let error =
                    ScheduleError { schedule: row.name.clone(), field: problem.field, problem: problem.problem };
                bounded(self.store.schedule_note_problem(row, &error.to_string())).await?;
                return Err(error.into());
            }
        };
        let plan = Plan::of(&recurrence, row.missed, row.next_at, row.now);
        let done = bounded(self.store.schedule_run(row, &plan, &self.worker)).await?;
        for tick in &done {
            match tick.outcome {
                TickOutcome::Refused => {
                    tracing::warn!(schedule = %row.name, tick = %tick.tick_at, error = tick.error, "job of a tick was refused");
                }
                _ => {
                    let job_id = tick.job_id.map(tracing::field::display);
                    tracing::info!(schedule = %row.name, tick = %tick.tick_at, outcome = tick.outcome.as_str(), job_id, "tick");
                }
            }
        }
        if let Some(missed) = plan.missed
            && !done.is_empty()
        {
            tracing::warn!(schedule = %row.name, n_ticks = missed.n_ticks, first = %missed.first, last = %missed.last,
                "ticks were missed");
        }
        ticks.extend(done);
        let next_in = plan.next_at.map_or(TimeDelta::MAX, |next_at| next_at - row.now);
        Ok(next_in.to_std().unwrap_or_default())
    }
}

/// Whether the other schedules may fare better: not so when the database is away.
fn is_of_one_schedule(error: &StoreError) -> bool {
    let StoreError::Database(sqlx::Error::Database(refused)) = error else { return !error.is_transient() };
    // 40 deadlocks, 55 locks that were waited for in vain
    !error.is_transient() || refused.code().is_some_and(|code| code.starts_with("40") || code.starts_with("55"))
}

/// A half-open connection must not stop the schedules.
async fn bounded<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, call).await;
    answer.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))
}
