//! What an execution writes beside its own row, and the guard that lets it only while it holds its job.

use std::future::Future;
use std::time::Duration;

use sqlx::{Postgres, Transaction};

use crate::{Ctx, EnqueueOptions, Enqueued, JobError, JobType, StoreError, code};

/// How long one try of a write may take.
const WRITE_WITHIN: Duration = Duration::from_secs(10);

impl Ctx {
    /// Makes the caller's transaction commit only while this execution holds its job. Call it last, right before the commit: it locks
    /// the job's row, which keeps the lease from being renewed until the transaction ends.
    ///
    /// # Errors
    /// Code `lease_lost` if another may be running the job. The transaction can then only be rolled back: a commit commits nothing.
    pub async fn fence(&self, tx: &mut Transaction<'_, Postgres>) -> Result<(), JobError> {
        // Asked of the database also when the local deadline has passed: its answer ruins the transaction of a lost execution.
        self.store().lease_hold(&mut **tx, self.lease()).await?;
        Ok(self.check_lease()?)
    }

    /// Enqueues a job on behalf of this one, only while this execution holds its job. An attempt that is repeated enqueues again:
    /// give the other type an idempotency key, or enqueue in [`Ctx::once_in`].
    ///
    /// # Errors
    /// Code `lease_lost` if another may be running this job; unrecoverable if the payload cannot be stored; if the database refuses.
    /// Nothing is enqueued then.
    pub async fn enqueue<T: JobType>(&self, job: &T, options: EnqueueOptions) -> Result<Enqueued, JobError> {
        self.check_lease()?;
        let mut tx = self.store().begin().await?;
        let enqueued = self.enqueue_in(&mut tx, job, options).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(enqueued)
    }

    /// As [`Ctx::enqueue`], for many jobs of one type: all of them or none.
    ///
    /// # Errors
    /// As [`Ctx::enqueue`].
    pub async fn enqueue_many<T: JobType>(
        &self,
        jobs: &[T],
        options: EnqueueOptions,
    ) -> Result<Vec<Enqueued>, JobError> {
        self.check_lease()?;
        let mut tx = self.store().begin().await?;
        let enqueued = self.store().enqueue_many_in_tx(&mut *tx, jobs, options).await.map_err(refused)?;
        self.fence(&mut tx).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(enqueued)
    }

    /// As [`Ctx::enqueue`], in the caller's transaction; see [`Ctx::fence`].
    ///
    /// # Errors
    /// As [`Ctx::enqueue`]. The transaction should be rolled back, as dropping it does.
    pub async fn enqueue_in<T: JobType>(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        job: &T,
        options: EnqueueOptions,
    ) -> Result<Enqueued, JobError> {
        let enqueued = self.store().enqueue_in_tx(&mut **tx, job, options).await.map_err(refused)?;
        self.fence(tx).await?;
        Ok(enqueued)
    }

    /// Repeats a call while the database is away and the lease may still hold. A write must be safe to repeat: one that was taken
    /// and whose reply was lost is answered with yes.
    pub(crate) async fn repeat_while_held<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        write: impl Fn() -> F,
    ) -> Result<T, StoreError> {
        let mut pause = Duration::from_millis(50);
        let mut unknown = false;
        loop {
            let written = tokio::time::timeout(WRITE_WITHIN, write()).await;
            match written.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into())) {
                // An earlier try may still be committing, and this one's snapshot may not have seen it: look once more.
                Err(StoreError::LeaseLost(_)) if unknown => unknown = false,
                Err(error) if error.is_transient() && self.check_lease().is_ok() => {
                    unknown = true;
                    tracing::warn!(job_id = %self.job_id(), error = %crate::handler::chain(&error), "not written yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                result => return result,
            }
        }
    }
}

/// What a refusal means for the job: a value that cannot be stored will not be stored next time either.
pub(crate) fn refused(error: StoreError) -> JobError {
    if error.refuses_value() {
        JobError::unrecoverable(code::INVALID_CONTENT, crate::handler::chain(&error))
    } else {
        error.into()
    }
}
