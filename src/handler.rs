//! What a team writes: a job type, and the function that does the work.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{Postgres, Transaction};
use tokio::sync::Mutex;

use crate::call_locks::CallLocks;
use crate::store::{Claim, LeaseRef};
use crate::worker::LeaseWatch;
use crate::{IdempotencyKey, JobError, JobId, Policy, Store, StoreError, code};

/// A kind of job: its payload's shape, its name and its policy.
pub trait JobType: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Stored in column `type`. Changing it orphans the jobs that wait.
    const TYPE: &'static str;

    /// Queue, attempts, backoff, stages. Called at start and at each enqueue.
    fn policy() -> Policy {
        Policy::default()
    }

    /// Which jobs count as the same. `None`: no two do.
    ///
    /// Default: what [`Policy::key`] declares. Overriding it serves types that declare no key there and enqueue from Rust alone; a
    /// declared key wins over what this returns, because SQL and HTTP enqueuers know only that one.
    fn idempotency_key(&self) -> Option<IdempotencyKey> {
        let key = Self::policy().key?;
        IdempotencyKey::of_payload(&key.fields, &serde_json::to_value(self).ok()?).ok()
    }
}

/// The execution no longer holds its job: another may be running it. Whatever it still writes is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lease of job {job_id} with token {token} is lost")]
pub struct LeaseLost {
    /// The job.
    pub job_id: JobId,
    /// The fencing number of the execution that lost it.
    pub token: i64,
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::LeaseLost(lost) => lost.into(),
            StoreError::Database(error) => error.into(),
            error if error.refuses_value() => Self::unrecoverable(code::INVALID_CONTENT, chain(&error)),
            error => Self::retryable(code::DATABASE, chain(&error)),
        }
    }
}

impl From<LeaseLost> for JobError {
    fn from(lost: LeaseLost) -> Self {
        // The store refuses this outcome like any other write of a lost execution.
        Self::retryable(code::LEASE_LOST, lost.to_string())
    }
}

/// An error with its sources, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// What a handler knows of its execution and may tell the queue. Cheap to clone.
#[derive(Clone)]
pub struct Ctx {
    inner: Arc<CtxInner>,
}

struct CtxInner {
    store: Store,
    claim: Claim,
    watch: LeaseWatch,
    last_stage: Option<String>,
    /// When progress was last written, and what it was.
    progress: Mutex<Option<(Instant, u8)>>,
    calls: CallLocks,
}

impl Ctx {
    /// Progress is written at most this often.
    pub const PROGRESS_EVERY: Duration = Duration::from_millis(500);

    pub(crate) fn new(store: Store, claim: Claim, watch: LeaseWatch, last_stage: Option<String>) -> Self {
        Self {
            inner: Arc::new(CtxInner {
                store,
                claim,
                watch,
                last_stage,
                progress: Mutex::new(None),
                calls: CallLocks::default(),
            }),
        }
    }

    /// An execution run by hand instead of by a [`crate::Worker`]: for tests, and for programs that claim by themselves.
    /// `lease` is what the claim asked for, counted from now; nobody renews it.
    pub fn for_claim(store: Store, claim: Claim, lease: Duration) -> Self {
        Self::new(store, claim, LeaseWatch::new(Instant::now() + lease.mul_f64(0.8)), None)
    }

    /// The job.
    pub fn job_id(&self) -> JobId {
        self.inner.claim.job_id
    }

    /// This start's fencing number. Different for each start of a job, growing.
    pub fn token(&self) -> i64 {
        self.inner.claim.token
    }

    /// This attempt, counted from 1.
    pub fn attempt(&self) -> i32 {
        self.inner.claim.attempts
    }

    /// Attempts in all.
    pub fn max_attempts(&self) -> i32 {
        self.inner.claim.max_attempts
    }

    /// Starts ever, this one included, also those whose attempt was given back.
    pub fn starts(&self) -> i32 {
        self.inner.claim.starts
    }

    /// The store, for enqueuing further jobs.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn lease(&self) -> LeaseRef {
        self.inner.claim.lease()
    }

    /// Lets equal calls of this execution run one after another.
    pub(crate) fn calls(&self) -> &CallLocks {
        &self.inner.calls
    }

    pub(crate) fn check_lease(&self) -> Result<(), LeaseLost> {
        if self.inner.watch.is_held() { Ok(()) } else { Err(LeaseLost { job_id: self.job_id(), token: self.token() }) }
    }

    /// Enters a stage; the deck and the waiting person's page show its label.
    ///
    /// # Errors
    /// If the lease is lost or the database refuses; `?` is right for both.
    pub async fn stage(&self, name: &str) -> Result<(), JobError> {
        self.check_lease()?;
        *self.inner.progress.lock().await = None;
        Ok(self.inner.store.job_set_stage(self.lease(), name).await?)
    }

    /// Notes how far the present stage is, in percent; above 100 counts as 100. Written at most twice a second, and never
    /// falling; calls in between cost nothing.
    ///
    /// # Errors
    /// If the lease is lost or the database refuses.
    pub async fn progress(&self, percent: u8) -> Result<(), JobError> {
        self.check_lease()?;
        let percent = percent.min(100);
        let mut last = self.inner.progress.lock().await;
        if last.is_some_and(|(at, value)| percent <= value || at.elapsed() < Self::PROGRESS_EVERY) {
            return Ok(());
        }
        self.inner.store.job_set_progress(self.lease(), percent).await?;
        *last = Some((Instant::now(), percent));
        Ok(())
    }

    /// Whether the handler should stop: a person asked, the lease is lost, the time is up or the worker gives up waiting.
    pub fn is_canceled(&self) -> bool {
        self.inner.watch.must_stop()
    }

    /// Ends when the handler should stop. See [`Ctx::is_canceled`].
    pub async fn canceled(&self) {
        self.inner.watch.stopped().await;
    }

    /// Refuses to go on while `provider` has asked for a pause: call it right before the provider, with `?`. The job then waits
    /// until the pause is over, without using up an attempt.
    ///
    /// # Errors
    /// Class `rate_limited` with the time left; if the database refuses.
    pub async fn provider_is_ready(&self, provider: &str) -> Result<(), JobError> {
        self.check_lease()?;
        match self.inner.store.cool_down_left(provider).await? {
            None => Ok(()),
            Some(left) => Err(JobError::rate_limited(left, format!("{provider} asked for a pause")).provider(provider)),
        }
    }

    /// Runs CPU-heavy or blocking work off the async threads. The closure cannot be interrupted: if the execution ends
    /// meanwhile, its result is dropped.
    ///
    /// # Errors
    /// What the closure returns; a panic in it becomes code `panic`.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        self.check_lease()?;
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(crate::worker::panic_error(error)),
        }
    }

    /// Commits the caller's transaction and the job's success together, or neither: exactly once in the database.
    /// The handler should return right after; what it returns is then ignored.
    ///
    /// # Errors
    /// If the lease is lost, the transaction is rolled back and nothing of it stays. If the reply to COMMIT is lost, the
    /// outcome is unknown to the handler; a rerun is refused by the fence if it had been committed.
    ///
    /// Begin the transaction with [`Store::begin`].
    pub async fn complete_in(
        &self,
        mut tx: Transaction<'_, Postgres>,
        result: &impl Serialize,
    ) -> Result<(), JobError> {
        let result =
            serde_json::to_value(result).map_err(|error| JobError::unrecoverable("result", error.to_string()))?;
        let taken =
            self.inner.store.job_complete(&mut *tx, self.lease(), &result, self.inner.last_stage.as_deref()).await;
        match taken {
            Ok(accepted) if !accepted.repeated => Ok(tx.commit().await.map_err(StoreError::from)?),
            // Completed before by this very token: its effects are there already, these must not come a second time.
            Ok(_) => Ok(tx.rollback().await.map_err(StoreError::from)?),
            Err(error) => {
                tx.rollback().await.map_err(StoreError::from)?;
                Err(error.into())
            }
        }
    }
}

type BoxedRun = Pin<Box<dyn Future<Output = Result<serde_json::Value, JobError>> + Send>>;

/// A function that does jobs of one type: `async fn(Ctx, T) -> Result<impl Serialize, JobError>`.
///
/// # Panics
/// A panic in it is one failed attempt of class `retryable` and code `panic`, with its message and place; the worker and
/// other jobs go on. So is one in a task or closure that it waits for with `?`. In a program built with
/// `panic = "abort"` a panic ends the whole worker instead: its jobs are taken back when their leases run out, each of
/// them counts as stalled, and the one that panics fails after `max_stalled`. A panic in a destructor while another
/// unwinds ends the program too.
pub trait Handler<T>: Send + Sync + 'static {
    /// Starts one execution. A payload that does not fit the type fails it for good.
    fn run(&self, ctx: Ctx, payload: serde_json::Value) -> BoxedRun;
}

impl<T, F, Fut, R> Handler<T> for F
where
    T: JobType,
    F: Fn(Ctx, T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, JobError>> + Send + 'static,
    R: Serialize,
{
    fn run(&self, ctx: Ctx, payload: serde_json::Value) -> BoxedRun {
        let job: T = match serde_json::from_value(payload) {
            Ok(job) => job,
            Err(error) => {
                let error = JobError::unrecoverable(code::INVALID_PAYLOAD, format!("payload: {error}"));
                return Box::pin(async move { Err(error) });
            }
        };
        let run = self(ctx, job);
        Box::pin(async move {
            let result = run.await?;
            serde_json::to_value(result).map_err(|error| JobError::unrecoverable("result", error.to_string()))
        })
    }
}
