//! One attempt, from claim to recorded outcome.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::lanes::Slot;
use super::lease_watch::{HeldLease, LeaseWatch, StopReason};
use super::panics::panic_error;
use super::{Shared, WorkerMetrics};
use crate::store::{Accepted, Claim, Outcome};
use crate::{Ctx, FailureClass, JobError, JobState, Policy, StoreError, code};

pub(crate) type Run = Pin<Box<dyn Future<Output = Result<Value, JobError>> + Send>>;

/// How long a handler may take to stop after a person's cancel before it is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// How long a dropped handler is waited for.
const ABORT_GRACE: Duration = Duration::from_millis(500);

/// How long one try to write an outcome may take.
const WRITE_WITHIN: Duration = Duration::from_secs(10);

/// How long recording an outcome is tried while the database is away. Longer than any lease: whoever is back first,
/// this worker or a reaper, decides.
pub(super) const RECORD_FOR: Duration = Duration::from_secs(600);

/// How the handler's run ended, before anything is written.
enum Ended {
    Returned(Result<Value, JobError>),
    Stopped(StopReason),
}

/// Returns how long the job waits until it is due again, if it does and this worker recorded it.
pub(super) async fn execute(shared: Arc<Shared>, claim: Claim, held: HeldLease, mut slot: Slot) -> Option<Duration> {
    let watch = held.watch.clone();
    // Claims name the types this worker knows; another would run out of its lease and be reaped.
    let handler = shared.handlers.get(&claim.job_type)?;
    if !watch.is_held() {
        // Polled too late, because every thread was busy or the machine slept: another may be running it.
        WorkerMetrics::count(&shared.metrics.lease_lost);
        return None;
    }
    WorkerMetrics::count(&shared.metrics.started);
    let policy = handler.policy.clone();
    let last_stage = policy.stages.last().map(|stage| stage.name.clone());
    let ctx = Ctx::new(shared.store.clone(), claim.clone(), watch.clone(), last_stage.clone());
    let ended = match serde_json::from_str(&claim.payload) {
        Ok(payload) => {
            let (run, starts) = (handler.run.clone(), watch.clone());
            // In a task of its own: a panic, in the handler or before its first await, ends that task and nothing else.
            let task = tokio::spawn(async move {
                if starts.is_held() {
                    run(ctx, payload).await
                } else {
                    Err(JobError::retryable(code::LEASE_LOST, "late"))
                }
            });
            wait(task, &watch, policy.timeout).await
        }
        Err(error) => Ended::Returned(Err(JobError::unrecoverable(
            code::INVALID_PAYLOAD,
            format!("payload cannot be read: {error}"),
        ))),
    };
    slot.handler_ended();
    let due_in = record(&shared, &claim, &watch, &policy, last_stage.as_deref(), ended).await;
    drop(held);
    drop(slot);
    due_in
}

/// Waits for the handler, its time limit, or a reason to stop. A handler that does not stop is dropped; one that
/// never awaits cannot be, but its slot is freed and its outcome has no way to be written.
async fn wait(
    mut task: tokio::task::JoinHandle<Result<Value, JobError>>,
    watch: &LeaseWatch,
    timeout: Duration,
) -> Ended {
    let reason = tokio::select! {
        // A result that is there counts, also when the time is up at the same moment.
        biased;
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
    // The next attempt should not begin beside this one: wait for the task to be gone, unless its code never awaits.
    match tokio::time::timeout(ABORT_GRACE, &mut task).await {
        Ok(Ok(Ok(result))) => Ended::Returned(Ok(result)),
        _ => Ended::Stopped(reason),
    }
}

fn flatten(joined: Result<Result<Value, JobError>, tokio::task::JoinError>) -> Result<Value, JobError> {
    joined.unwrap_or_else(|error| Err(panic_error(error)))
}

async fn record(
    shared: &Shared,
    claim: &Claim,
    watch: &LeaseWatch,
    policy: &Policy,
    last_stage: Option<&str>,
    ended: Ended,
) -> Option<Duration> {
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
            return None;
        }
        Ended::Returned(Ok(result)) => {
            match shared.completer.complete(claim.lease(), &result, last_stage).await {
                Err(error) if error.refuses_value() => {
                    // The result cannot be stored. The job must end all the same.
                    let error = JobError::unrecoverable("result", crate::handler::chain(&error));
                    end(shared, claim, policy, Err(error)).await
                }
                other => other.map(|accepted| (accepted, None)),
            }
        }
        Ended::Returned(Err(error)) => end(shared, claim, policy, Err(error)).await,
        Ended::Stopped(StopReason::TimedOut) => {
            let text = format!("ran longer than {:?}", policy.timeout);
            end(shared, claim, policy, Err(JobError::retryable(code::TIMEOUT, text))).await
        }
        Ended::Stopped(reason) => end(shared, claim, policy, Ok(reason)).await,
    };
    match accepted {
        Ok((Accepted { state: JobState::Succeeded, .. }, _)) => {
            WorkerMetrics::count(&metrics.succeeded);
            tracing::info!(parent: &span, "job succeeded");
        }
        Ok((Accepted { state, .. }, delay)) => {
            WorkerMetrics::count(&metrics.unsuccessful);
            tracing::info!(parent: &span, %state, "attempt ended");
            return delay.filter(|_| state == JobState::Retrying);
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
    None
}

async fn end(
    shared: &Shared,
    claim: &Claim,
    policy: &Policy,
    why: Result<StopReason, JobError>,
) -> Result<(Accepted, Option<Duration>), StoreError> {
    let backoff = policy.backoff.delay(claim.attempts.unsigned_abs(), policy.jitter, fastrand::f64());
    let mut due_in = None;
    let outcome = match &why {
        Ok(StopReason::Canceled) => Outcome::Canceled,
        Ok(_) => Outcome::Released,
        Err(error) => {
            let delay = error.retry_after.unwrap_or(backoff);
            due_in = Some(delay);
            tracing::info!(job_id = %claim.job_id, attempt = claim.attempts, class = error.class.as_str(),
                code = %error.code, "attempt went wrong");
            match error.class {
                FailureClass::RateLimited => Outcome::Waits { error, delay },
                _ => Outcome::Failed { error, delay },
            }
        }
    };
    let accepted = persist(|| shared.own.job_end(claim.lease(), outcome.clone())).await?;
    Ok((accepted, due_in))
}

/// Repeats a write while the database is away. Each is safe to repeat: an outcome that was taken and whose reply was
/// lost is answered with yes.
async fn persist<F: Future<Output = Result<Accepted, StoreError>>>(
    write: impl Fn() -> F,
) -> Result<Accepted, StoreError> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(50);
    let mut unknown = false;
    loop {
        let written = tokio::time::timeout(WRITE_WITHIN, write()).await;
        match written.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into())) {
            // An earlier try may still be committing, and this one's snapshot may not have seen it: look once more.
            Err(StoreError::LeaseLost(_)) if unknown => unknown = false,
            Err(error @ StoreError::LeaseLost(_)) => return Err(error),
            Err(error) if !error.refuses_value() && begun.elapsed() < RECORD_FOR => {
                unknown = true;
                tracing::warn!(error = %crate::handler::chain(&error), wait = ?pause, "outcome not recorded yet");
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            result => return result,
        }
    }
}
