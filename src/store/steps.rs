//! Results of named parts of a job, kept across its attempts.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::kept::check_text;
use super::{LeaseRef, Store, StoreError};
use crate::{JobId, LeaseLost};

/// One row of `jobdeck.steps`, as the deck shows it.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct Step {
    /// Which part of the job.
    pub name: String,
    /// The execution that did it.
    pub token: i64,
    /// What it returned, as JSON text, its first 1,000 characters.
    pub result_preview: String,
    /// How long it ran, in milliseconds.
    pub took_ms: i64,
    /// When its result was kept.
    pub done_at: DateTime<Utc>,
}

impl Store {
    /// The kept result of a step as JSON text, if an execution of this job has done it.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if the execution no longer holds the job.
    pub(crate) async fn step_get(&self, lease: LeaseRef, name: &str) -> Result<Option<String>, StoreError> {
        check_text("step name", name, 200)?;
        let held: Option<Option<String>> = sqlx::query_scalar(
            "select s.result::text from jobdeck.jobs j left join jobdeck.steps s on s.job_id = j.id and s.name = $3
             where j.id = $1 and j.token = $2 and j.status = 'running'",
        )
        .bind(lease.job_id)
        .bind(lease.token)
        .bind(name)
        .fetch_optional(&self.pool)
        .await?;
        held.ok_or_else(|| LeaseLost { job_id: lease.job_id, token: lease.token }.into())
    }

    /// Keeps the result of a step. Sent again by the same execution it is answered with yes and changes nothing.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if the execution no longer holds the job.
    pub(crate) async fn step_record(
        &self,
        lease: LeaseRef,
        name: &str,
        result: &Value,
        took: Duration,
    ) -> Result<(), StoreError> {
        let held: bool = sqlx::query_scalar(
            "with held as (
               update jobdeck.jobs set version = version + 1, updated_at = now()
               where id = $1 and token = $2 and status = 'running'
               returning id),
             kept as (
               insert into jobdeck.steps (job_id, name, token, result, took_ms)
               select id, $3, $2, $4, $5 from held
               on conflict do nothing)
             select exists (select 1 from held)",
        )
        .bind(lease.job_id)
        .bind(lease.token)
        .bind(name)
        .bind(result)
        .bind(i64::try_from(took.as_millis()).unwrap_or(i64::MAX))
        .fetch_one(&self.pool)
        .await?;
        if held { Ok(()) } else { Err(LeaseLost { job_id: lease.job_id, token: lease.token }.into()) }
    }

    /// The steps of a job that are done, in that order; 200 at most.
    ///
    /// # Errors
    /// If the database does.
    pub async fn step_list(&self, job_id: JobId) -> Result<Vec<Step>, StoreError> {
        Ok(sqlx::query_as(
            "select name, token, left(result::text, 1000) as result_preview, took_ms, done_at
             from jobdeck.steps where job_id = $1 order by done_at, name limit 200",
        )
        .bind(job_id)
        .fetch_all(&self.pool)
        .await?)
    }

    /// The names of all steps of a job that are done, in that order.
    ///
    /// # Errors
    /// If the database does.
    pub(crate) async fn step_names(&self, job_id: JobId) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar("select name from jobdeck.steps where job_id = $1 order by done_at, name")
            .bind(job_id)
            .fetch_all(&self.pool)
            .await?)
    }
}
