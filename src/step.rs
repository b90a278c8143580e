//! Named parts of a job whose results are kept, so that the next attempt resumes behind them.

use std::future::Future;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fence::refused;
use crate::handler::chain;
use crate::store::keepable;
use crate::{Ctx, JobError};

impl Ctx {
    /// Largest result of a step, in bytes of JSON. Put larger things into a file and keep its name.
    pub const MAX_STEP_RESULT_BYTES: usize = 1024 * 1024;

    /// Runs a part of the job and keeps its result; a later attempt gets the result without running it.
    ///
    /// At least once: if the process dies before the result is kept, or the lease is lost meanwhile, the next execution runs the
    /// step again. For what must not happen twice see [`Ctx::once`], which may stand within a step.
    ///
    /// - `name`: 1 to 200 bytes, unique within the job: `format!("page {n}")` in a loop.
    /// - Results last as long as the job's row. A person's retry resumes behind them; a rerun is a new job and has none.
    /// - Two calls with one name in one execution run one after another; the second gets the result of the first.
    /// - The result is answered as it was kept: a NUL character in it has become `␀`.
    ///
    /// # Errors
    /// What `work` returns, and nothing is kept. Code `lease_lost` if the execution lost its job before or after; its result is then
    /// refused. Unrecoverable with code `result` if the result cannot be kept (larger than [`Ctx::MAX_STEP_RESULT_BYTES`], nested
    /// too deep) or what was kept does not fit `R`, because the program changed meanwhile.
    pub async fn step<R, F, Fut>(&self, name: &str, work: F) -> Result<R, JobError>
    where
        R: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<R, JobError>>,
    {
        let _turn = self.calls().turn("step", name, "").await;
        self.check_lease()?;
        let kept = self.repeat_while_held(|| self.store().step_get(self.lease(), name)).await.map_err(refused)?;
        if let Some(text) = kept {
            return serde_json::from_str(&text).map_err(|error| misfit(name, &error));
        }
        self.check_lease()?;
        let begun = Instant::now();
        let result = work().await?;
        let took = begun.elapsed();
        let result = serde_json::to_value(result).map_err(|error| {
            JobError::unrecoverable("result", format!("step {name:?}: its result cannot be written as JSON: {error}"))
        })?;
        let kept = keepable(&result, Self::MAX_STEP_RESULT_BYTES)
            .map_err(|problem| JobError::unrecoverable("result", format!("step {name:?}: {problem}")))?;
        match self.repeat_while_held(|| self.store().step_record(self.lease(), name, &kept, took)).await {
            Err(error) if error.refuses_value() => {
                return Err(JobError::unrecoverable("result", format!("step {name:?}: {}", chain(&error))));
            }
            recorded => recorded?,
        }
        serde_json::from_value(kept).map_err(|error| misfit(name, &error))
    }

    /// The names of the steps whose results are kept, in the order they were done.
    ///
    /// # Errors
    /// If the database refuses.
    pub async fn steps_done(&self) -> Result<Vec<String>, JobError> {
        Ok(self.repeat_while_held(|| self.store().step_names(self.job_id())).await?)
    }
}

fn misfit(name: &str, error: &serde_json::Error) -> JobError {
    let text =
        format!("step {name:?}: its kept result does not fit its type ({error}); rerun as a new job to begin anew");
    JobError::unrecoverable("result", text)
}
