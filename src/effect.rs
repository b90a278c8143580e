//! Doing something to the outside world once, however often the job runs. What that can mean and what it cannot: docs/effects.md.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::{PgConnection, Postgres, Transaction};
use uuid::Uuid;

use crate::fence::refused;
use crate::handler::chain;
use crate::store::{EffectBegun, EffectCall, EffectEnd, keepable};
use crate::{Ctx, JobError, JobId};

/// Code of an effect that was begun before, may have happened, and must not be repeated. See [`Ctx::once_at_most`].
pub const EFFECT_UNKNOWN: &str = "effect_unknown";

/// Code of a job that waits because a running job is at the same effect.
pub const EFFECT_HELD: &str = "effect_held";

/// How long a job waits before it looks again whether the other one has done the effect.
const HELD_RETRY: Duration = Duration::from_secs(1);

/// How often an effect is asked for again because somebody else changed it at the same moment.
const MAX_CHANGES: u32 = 20;

/// What an effect came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectOutcome<R> {
    /// This call did it.
    Done(R),
    /// It had happened before and was not repeated.
    AlreadyDone {
        /// What was kept of it.
        result: R,
        /// The job that did it: this one or another with the same key.
        job_id: JobId,
        /// When it was recorded.
        done_at: DateTime<Utc>,
    },
}

impl<R> EffectOutcome<R> {
    /// Its result, whenever it happened.
    pub fn into_result(self) -> R {
        match self {
            Self::Done(result) | Self::AlreadyDone { result, .. } => result,
        }
    }

    /// Whether it had happened before this call.
    pub const fn was_done_before(&self) -> bool {
        matches!(self, Self::AlreadyDone { .. })
    }
}

/// What the function that performs an effect is told. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Once {
    provider_token: Uuid,
    maybe_done: bool,
    tries: u32,
    not_done: Arc<AtomicBool>,
}

impl Once {
    /// What to give the provider as its idempotency key: the same for this name and key for ever, whichever job asks.
    pub const fn provider_token(&self) -> Uuid {
        self.provider_token
    }

    /// Whether an earlier try may have happened: it was begun and its end is not known. A provider that knows the token answers
    /// with what it did then; where it does not, ask it first.
    pub const fn maybe_done(&self) -> bool {
        self.maybe_done
    }

    /// Which try this is, counted from 1.
    pub const fn tries(&self) -> u32 {
        self.tries
    }

    /// Says that this call certainly did nothing (the provider refused it, no connection was made), and hands `error` on:
    /// `return Err(once.not_done(error))`. Without it a call that ends with an error may have happened.
    #[must_use = "the error is what the effect should return"]
    pub fn not_done(&self, error: impl Into<JobError>) -> JobError {
        self.not_done.store(true, Ordering::SeqCst);
        error.into()
    }
}

impl Ctx {
    /// Largest result of an effect, in bytes of JSON. The ledger is kept for ever; put large things elsewhere and keep their names.
    pub const MAX_EFFECT_RESULT_BYTES: usize = 64 * 1024;

    /// Performs an effect unless the ledger says that `name` was done for `key`: then its result is answered, whichever job did
    /// it. At least once with one provider token, so exactly once with a provider that honours idempotency keys.
    ///
    /// The ledger is written before (`started`) and after (`done`, with the result). If the process dies in between, nobody knows
    /// whether it happened: the next execution performs it again with the same [`Once::provider_token`] and reads
    /// [`Once::maybe_done`]. For providers without idempotency keys see [`Ctx::once_at_most`].
    ///
    /// - `name`: what is done, such as `charge`; 1 to 100 letters, digits and `_ . : -`.
    /// - `key`: to what, such as the order's number; 1 to 1,024 bytes, unique within the name across all jobs and types. For
    ///   several parts, or long ones: [`crate::IdempotencyKey::of`].
    /// - While a running job is at the same effect, this job is put off for a second with its attempt given back; then it finds
    ///   the result. Equal calls of one execution run one after another.
    /// - No effect starts once the lease may be lost, by the monotonic clock of this machine.
    /// - The result is answered as it was kept: a NUL character in it has become `␀`.
    ///
    /// # Errors
    /// What `perform` returns: the effect is unknown then, unless it says [`Once::not_done`]. Code `lease_lost` if the execution
    /// lost its job before or after; a result of a lost execution is refused, so the effect stays unknown. Unrecoverable with code
    /// `result` if the effect happened but its result cannot be kept or read (larger than [`Ctx::MAX_EFFECT_RESULT_BYTES`], nested
    /// too deep, another type than before): it is not repeated.
    pub async fn once<R, F, Fut>(&self, name: &str, key: &str, perform: F) -> Result<EffectOutcome<R>, JobError>
    where
        R: Serialize + DeserializeOwned,
        F: FnOnce(Once) -> Fut,
        Fut: Future<Output = Result<R, JobError>>,
    {
        self.perform(name, key, true, perform).await
    }

    /// As [`Ctx::once`], but never repeats an effect that may have happened: at most once, for providers without idempotency keys.
    ///
    /// # Errors
    /// As [`Ctx::once`]; unrecoverable with code [`EFFECT_UNKNOWN`] if an earlier try was begun and its end is not known. A person
    /// finds out, notes it with [`crate::Store::effect_settle`], and retries the job.
    pub async fn once_at_most<R, F, Fut>(&self, name: &str, key: &str, perform: F) -> Result<EffectOutcome<R>, JobError>
    where
        R: Serialize + DeserializeOwned,
        F: FnOnce(Once) -> Fut,
        Fut: Future<Output = Result<R, JobError>>,
    {
        self.perform(name, key, false, perform).await
    }

    /// Performs an effect that consists of rows in the same database, in the caller's transaction: exactly once. `write` runs only
    /// if the effect is new; its rows, the ledger's entry and whatever else the transaction holds commit together or not at all.
    ///
    /// Begin the transaction with [`crate::Store::begin`]. From here to its end the job's row is locked, which keeps the lease from
    /// being renewed: commit within a few seconds. A transaction that meets another one with the same effect waits for its end.
    ///
    /// # Errors
    /// What `write` returns; as [`Ctx::once`] otherwise. After an error the transaction must be rolled back, as dropping it does;
    /// after a lost lease nothing else is possible.
    pub async fn once_in<R, F>(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        name: &str,
        key: &str,
        write: F,
    ) -> Result<EffectOutcome<R>, JobError>
    where
        R: Serialize + DeserializeOwned,
        F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<R, JobError>>,
    {
        let call = self.effect_call(name, key);
        match self.begin_in(tx, call).await? {
            Begun::Before { result, job_id, done_at } => {
                Ok(EffectOutcome::AlreadyDone { result: read_result(name, result)?, job_id, done_at })
            }
            Begun::Yours(_) => {
                let result = write(&mut *tx).await?;
                let result = to_kept(&result).map_err(|problem| result_error(name, &problem))?;
                self.store().effect_end(&mut **tx, call, &EffectEnd::Done(&result)).await.map_err(refused)?;
                Ok(EffectOutcome::Done(from_kept(name, result)?))
            }
        }
    }

    /// As [`Ctx::once_in`] for an effect without a result: true if it is new, and its rows are the caller's to write now, in this
    /// transaction; false if it was done.
    ///
    /// # Errors
    /// As [`Ctx::once_in`].
    pub async fn effect_in(&self, tx: &mut Transaction<'_, Postgres>, name: &str, key: &str) -> Result<bool, JobError> {
        let call = self.effect_call(name, key);
        match self.begin_in(tx, call).await? {
            Begun::Before { .. } => Ok(false),
            Begun::Yours(_) => {
                self.store().effect_end(&mut **tx, call, &EffectEnd::Done(&Value::Null)).await.map_err(refused)?;
                Ok(true)
            }
        }
    }

    fn effect_call<'a>(&self, name: &'a str, key: &'a str) -> EffectCall<'a> {
        EffectCall { lease: self.lease(), name, key, call_id: Uuid::now_v7() }
    }

    async fn perform<R, F, Fut>(
        &self,
        name: &str,
        key: &str,
        repeats_unknown: bool,
        perform: F,
    ) -> Result<EffectOutcome<R>, JobError>
    where
        R: Serialize + DeserializeOwned,
        F: FnOnce(Once) -> Fut,
        Fut: Future<Output = Result<R, JobError>>,
    {
        let _turn = self.calls().turn("effect", name, key).await;
        let call = self.effect_call(name, key);
        let once = match self.begin(call, repeats_unknown).await? {
            Begun::Yours(once) => once,
            Begun::Before { result, job_id, done_at } => {
                return Ok(EffectOutcome::AlreadyDone { result: read_result(name, result)?, job_id, done_at });
            }
        };
        if let Err(lost) = self.check_lease() {
            // Writing took until the deadline. Nothing happened, and if the lease holds after all, that is worth knowing.
            let _ = self.store().effect_end(self.store().pool(), call, &EffectEnd::NotDone).await;
            return Err(lost.into());
        }
        let result = match perform(once.clone()).await {
            Ok(result) => result,
            Err(error) => {
                if once.not_done.load(Ordering::SeqCst)
                    && let Err(unnoted) = self.end(call, EffectEnd::NotDone).await
                {
                    tracing::warn!(job_id = %self.job_id(), effect = name, error = %unnoted,
                        "an effect that was not done stays unknown");
                }
                return Err(error);
            }
        };
        let problem = match to_kept(&result) {
            Ok(kept) => match self.end(call, EffectEnd::Done(&kept)).await {
                // It happened. That it did must be on record, whatever came back.
                Err(error) if error.refuses_value() => chain(&error),
                ended => {
                    ended?;
                    return Ok(EffectOutcome::Done(from_kept(name, kept)?));
                }
            },
            Err(problem) => problem,
        };
        self.end(call, EffectEnd::DoneWithout(&problem)).await?;
        Err(result_error(name, &problem))
    }

    async fn begin(&self, call: EffectCall<'_>, repeats_unknown: bool) -> Result<Begun, JobError> {
        for _ in 0..MAX_CHANGES {
            self.check_lease()?;
            let begin = || self.store().effect_begin(self.store().pool(), call, repeats_unknown);
            if let Some(begun) = judge(call, self.repeat_while_held(begin).await.map_err(refused)?)? {
                return Ok(begun);
            }
        }
        Err(contended(call))
    }

    /// An effect in a transaction leaves no unknown end, so one that is unknown was another kind of effect and is not repeated.
    async fn begin_in(&self, tx: &mut Transaction<'_, Postgres>, call: EffectCall<'_>) -> Result<Begun, JobError> {
        if self.check_lease().is_err() {
            // Asks the database, so that a handler that goes on regardless commits nothing either.
            self.fence(tx).await?;
        }
        for _ in 0..MAX_CHANGES {
            if let Some(begun) = judge(call, self.store().effect_begin(&mut **tx, call, false).await.map_err(refused)?)?
            {
                if matches!(begun, Begun::Before { .. }) {
                    self.fence(tx).await?;
                }
                return Ok(begun);
            }
        }
        Err(contended(call))
    }

    async fn end(&self, call: EffectCall<'_>, end: EffectEnd<'_>) -> Result<(), crate::StoreError> {
        self.repeat_while_held(|| self.store().effect_end(self.store().pool(), call, &end)).await
    }
}

enum Begun {
    Yours(Once),
    Before { result: Result<String, String>, job_id: JobId, done_at: DateTime<Utc> },
}

/// What the ledger's answer means for the caller; none: ask again.
fn judge(call: EffectCall<'_>, answer: EffectBegun) -> Result<Option<Begun>, JobError> {
    let EffectCall { name, key, .. } = call;
    match answer {
        EffectBegun::Yours { provider_token, tries, maybe_done } => Ok(Some(Begun::Yours(Once {
            provider_token,
            maybe_done,
            tries: tries.unsigned_abs(),
            not_done: Arc::default(),
        }))),
        EffectBegun::Done { result, job_id, done_at } => Ok(Some(Begun::Before { result, job_id, done_at })),
        EffectBegun::Held { by } => {
            let wait = JobError::snooze(HELD_RETRY, format!("effect {name:?} for {key:?} is being done by job {by}"));
            Err(JobError { code: EFFECT_HELD.to_owned(), ..wait })
        }
        EffectBegun::Unknown { by, started_at } => Err(JobError::unrecoverable(
            EFFECT_UNKNOWN,
            format!(
                "effect {name:?} for {key:?} was begun by job {by} at {started_at} and may have happened; it is not repeated"
            ),
        )),
        EffectBegun::Changed => Ok(None),
    }
}

fn contended(call: EffectCall<'_>) -> JobError {
    let wait = JobError::snooze(HELD_RETRY, format!("effect {:?} for {:?} is changed by others", call.name, call.key));
    JobError { code: EFFECT_HELD.to_owned(), ..wait }
}

fn to_kept(result: &impl Serialize) -> Result<Value, String> {
    let value =
        serde_json::to_value(result).map_err(|error| format!("its result cannot be written as JSON: {error}"))?;
    keepable(&value, Ctx::MAX_EFFECT_RESULT_BYTES)
}

fn from_kept<R: DeserializeOwned>(name: &str, kept: Value) -> Result<R, JobError> {
    serde_json::from_value(kept)
        .map_err(|error| result_error(name, &format!("its kept result does not fit its type: {error}")))
}

fn read_result<R: DeserializeOwned>(name: &str, kept: Result<String, String>) -> Result<R, JobError> {
    let text = kept.map_err(|problem| result_error(name, &problem))?;
    serde_json::from_str(&text)
        .map_err(|error| result_error(name, &format!("its kept result does not fit its type: {error}")))
}

fn result_error(name: &str, problem: &str) -> JobError {
    JobError::unrecoverable("result", format!("effect {name:?} is done, but {problem}"))
}
