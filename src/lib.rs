#![doc = include_str!("../README.md")]
//!
//! # Where to start
//!
//! [`JobType`] says what to do, [`Store::enqueue`] puts it into the queue, [`Worker`] does it. Without the feature
//! `postgres` only the pure parts are built, which the browser shares: [`JobState`], [`JobId`], [`FailureClass`].

mod bulk;
mod failure;
mod job;
mod payload_path;
mod policy;
mod retention;
mod retry;
mod state;

pub use bulk::{BulkAction, BulkState};
pub use failure::{FailureClass, JobError, MAX_ERROR_BYTES, clean_error_text, code};
#[cfg(feature = "postgres")]
pub use failure::{MAX_RETRY_AFTER, MIN_RETRY_AFTER, parse_retry_after};
pub use job::{Attempt, AttemptOutcome, Job, JobDetail, JobGlance, JobId, JobSummary};
pub use policy::{DuplicateBehaviour, KeyPolicy, Policy, PolicyError, Stage, StageLabel};
pub use retention::{Keep, Retention};
pub use retry::{Backoff, DeclaredBackoff};
pub use state::{JobState, Transition, UnknownState};

#[cfg(feature = "postgres")]
mod call_locks;
#[cfg(feature = "postgres")]
mod effect;
#[cfg(feature = "postgres")]
mod fence;
#[cfg(feature = "postgres")]
mod handler;
#[cfg(feature = "postgres")]
mod idempotency;
#[cfg(feature = "postgres")]
mod maintenance;
#[cfg(feature = "postgres")]
mod schedule;
#[cfg(feature = "postgres")]
mod step;
#[cfg(feature = "postgres")]
pub mod store;
#[cfg(feature = "postgres")]
mod worker;

#[cfg(feature = "postgres")]
pub use {
    effect::{EFFECT_HELD, EFFECT_UNKNOWN, EffectOutcome, Once},
    handler::{Ctx, Handler, JobType, LeaseLost},
    idempotency::{IdempotencyKey, KeyError},
    maintenance::{CounterKeeper, Pruner, maintain},
    schedule::{MissedPolicy, MovedTick, Recurrence, RecurrenceError, Schedule, ScheduleError},
    store::{EnqueueOptions, Enqueued, Store, StoreError},
    worker::{Scheduler, Worker, WorkerBuilder, WorkerError, WorkerMetrics},
};

#[cfg(feature = "derive")]
pub use jobdeck_macros::JobType;
