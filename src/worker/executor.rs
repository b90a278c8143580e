//! One attempt, from claim to recorded outcome.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::lease_watch::{LeaseWatch, StopReason};
use super::{Shared, WorkerMetrics};
use crate::store::{Accepted, Claim, Outcome};
use crate::{Ctx, FailureClass, JobError, JobState, Policy, StoreError, code};

pub(crate) type Run = Pin<Box<dyn Future<Output = Result<Value, JobError>> + Send>>;

/// How long a handler may take to stop after a person's cancel before it is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// How long recording an outcome is tried while the database is away. Longer than any lease: whoever is back first,
/// this worker or a reaper, decides.
const RECORD_FOR: Duration = Duration::from_secs(600);

/// How the handler's run ended, before anything is written.
enum Ended {
    Returned(Result<Value, JobError>),
    Stopped(StopReason),
}

pub(super) async fn execute(shared: Arc<Shared>, claim: Claim, deadline: Instant, permit: OwnedSemaphorePermit) {
    let lease = claim.lease();
    let watch = shared.watch(lease, deadline);
    WorkerMetrics::count(&shared.metrics.started);
    let Some(handler) = shared.handlers.get(&claim.job_type) else {
        // Claims name the types this worker knows, so this cannot happen; the lease would run out and be reaped.
        shared.leases.remove(lease);
        return;
    };
    let policy = handler.policy.clone();
    let last_stage = policy.stages.last().map(|stage| stage.name.clone());
    let ctx = Ctx::new(shared.store.clone(), claim.clone(), watch.clone(), last_stage.clone());
    let (run, payload) = (handler.run.clone(), claim.payload.clone());
    // In a task of its own: a panic, in the handler or before its first await, ends that task and nothing else.
    let task = tokio::spawn(async move { run(ctx, payload).await });
    let ended = wait(task, &watch, policy.timeout).await;
    record(&shared, &claim, &watch, &policy, last_stage.as_deref(), ended).await;
    shared.leases.remove(lease);
    drop(permit);
}

/// Waits for the handler, its time limit, or a reason to stop. A handler that does not stop is dropped; one that
/// never awaits cannot be, but its slot is freed and its outcome has no way to be written.
async fn wait(
    mut task: tokio::task::JoinHandle<Result<Value, JobError>>,
    watch: &LeaseWatch,
    timeout: Duration,
) -> Ended {
    let reason = tokio::select! {
        joined = &mut task => return Ended::Returned(flatten(joined)),
        () = tokio::time::sleep(timeout) => {
            watch.stop(StopReason::TimedOut);
            StopReason::TimedOut
        }
        reason = watch.stopped() => reason,
    };
    if reason == StopReason::Canceled
        && let Ok(joined) = tokio::time::timeout(CANCEL_GRACE, &mut task).await
    {
        return Ended::Returned(flatten(joined));
    }
    task.abort();
    Ended::Stopped(reason)
}

fn flatten(joined: Result<Result<Value, JobError>, tokio::task::JoinError>) -> Result<Value, JobError> {
    joined.unwrap_or_else(|error| Err(panic_error(error)))
}

/// What a task's panic means for the job.
pub(crate) fn panic_error(error: tokio::task::JoinError) -> JobError {
    if !error.is_panic() {
        return JobError::retryable(code::PANIC, "the handler's task was canceled");
    }
    let payload = error.into_panic();
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is not text".to_owned());
    JobError::retryable(code::PANIC, format!("handler panicked: {message}"))
}

async fn record(
    shared: &Shared,
    claim: &Claim,
    watch: &LeaseWatch,
    policy: &Policy,
    last_stage: Option<&str>,
    ended: Ended,
) {
    let (job_id, attempt) = (claim.job_id, claim.attempts);
    let span = tracing::info_span!("job", queue = %claim.queue, %job_id, r#type = %claim.job_type, attempt);
    let metrics = &shared.metrics;
    // A panic or an error after a stop signal is the stop's doing.
    let ended = match (ended, watch.reason()) {
        (Ended::Returned(Err(_)), Some(reason)) => Ended::Stopped(reason),
        (ended, _) => ended,
    };
    let accepted = match ended {
        Ended::Stopped(StopReason::LeaseLost) => {
            WorkerMetrics::count(&metrics.lease_lost);
            tracing::warn!(parent: &span, "lease lost, handler stopped");
            return;
        }
        Ended::Returned(Ok(result)) => {
            let completed =
                persist(watch, || shared.store.job_complete(shared.store.pool(), claim.lease(), &result, last_stage))
                    .await;
            match completed {
                Err(error) if !matches!(error, StoreError::LeaseLost(_)) && !error.is_transient() => {
                    // The result cannot be stored. The job must end all the same.
                    let error = JobError::unrecoverable("result", crate::handler::chain(&error));
                    end(shared, claim, watch, policy, Err(error)).await
                }
                other => other,
            }
        }
        Ended::Returned(Err(error)) => end(shared, claim, watch, policy, Err(error)).await,
        Ended::Stopped(StopReason::TimedOut) => {
            let text = format!("ran longer than {:?}", policy.timeout);
            end(shared, claim, watch, policy, Err(JobError::retryable(code::TIMEOUT, text))).await
        }
        Ended::Stopped(reason) => end(shared, claim, watch, policy, Ok(reason)).await,
    };
    match accepted {
        Ok(Accepted { state: JobState::Succeeded, .. }) => {
            WorkerMetrics::count(&metrics.succeeded);
            tracing::info!(parent: &span, "job succeeded");
        }
        Ok(Accepted { state, .. }) => {
            WorkerMetrics::count(&metrics.unsuccessful);
            tracing::info!(parent: &span, %state, "attempt ended");
        }
        Err(StoreError::LeaseLost(_)) => {
            WorkerMetrics::count(&metrics.lease_lost);
            tracing::warn!(parent: &span, "late outcome refused: the lease is lost");
        }
        Err(error) => {
            // The lease runs out and the job is reaped.
            tracing::error!(parent: &span, error = %crate::handler::chain(&error), "outcome not recorded");
        }
    }
}

async fn end(
    shared: &Shared,
    claim: &Claim,
    watch: &LeaseWatch,
    policy: &Policy,
    why: Result<StopReason, JobError>,
) -> Result<Accepted, StoreError> {
    let backoff = policy.backoff.delay(claim.attempts.unsigned_abs(), policy.jitter, fastrand::f64());
    let outcome = match &why {
        Ok(StopReason::Canceled) => Outcome::Canceled,
        Ok(_) => Outcome::Released,
        Err(error) => {
            let delay = error.retry_after.unwrap_or(backoff);
            tracing::info!(job_id = %claim.job_id, attempt = claim.attempts, class = error.class.as_str(),
                code = %error.code, "attempt went wrong");
            match error.class {
                FailureClass::RateLimited => Outcome::Waits { error, delay },
                _ => Outcome::Failed { error, delay },
            }
        }
    };
    persist(watch, || shared.store.job_end(claim.lease(), outcome.clone())).await
}

/// Repeats a write while the database is away. Each is safe to repeat: an outcome that was taken and whose reply was
/// lost is answered with yes.
async fn persist<F: Future<Output = Result<Accepted, StoreError>>>(
    watch: &LeaseWatch,
    write: impl Fn() -> F,
) -> Result<Accepted, StoreError> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(50);
    loop {
        match write().await {
            Err(error)
                if error.is_transient()
                    && begun.elapsed() < RECORD_FOR
                    && watch.reason() != Some(StopReason::LeaseLost) =>
            {
                tracing::warn!(error = %crate::handler::chain(&error), wait = ?pause, "outcome not recorded yet");
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
            result => return result,
        }
    }
}
