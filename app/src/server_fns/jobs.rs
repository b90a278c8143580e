//! Reading jobs, and what a person does to one.

#![allow(missing_docs, reason = "the server macro makes a struct of the arguments, which the functions describe")]

use leptos::prelude::*;
use leptos::server_fn::codec::PostUrl;
use serde::{Deserialize, Serialize};

use crate::error::AppError;
use crate::model::{JobListView, JobRow, JobView, Notice};

#[cfg(feature = "ssr")]
use {
    crate::model::{JobQuery, Permission, Refusal},
    crate::ssr::{answer, require, return_to_page},
    jobdeck::JobId,
};

/// What an action came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActionView {
    /// The job as it is now.
    pub row: JobRow,
    /// What to tell the reader.
    pub notice: Notice,
}

/// A page of the list that `address` (the parameters of `/jobs`) describes.
#[server(ListJobs, prefix = "/api/fn", endpoint = "list_jobs", input = PostUrl)]
pub async fn list_jobs(address: String) -> Result<JobListView, AppError> {
    let caller = require(Permission::ViewJobs, "list_jobs", None).await?;
    views::list(&caller.app.store, &JobQuery::parse(&address)).await.map_err(answer)
}

/// A job's page.
#[server(ReadJob, prefix = "/api/fn", endpoint = "read_job", input = PostUrl)]
pub async fn read_job(id: String) -> Result<JobView, AppError> {
    let caller = require(Permission::ViewJobs, "read_job", Some(&id)).await?;
    let id = id.parse().map_err(|_| answer(AppError::NotFound))?;
    views::job(&caller, id).await.map_err(answer)
}

/// A job's page, read again by itself because the job changed: unlike [`read_job`] it does not count as activity.
#[server(FollowJob, prefix = "/api/fn", endpoint = "follow_job", input = PostUrl)]
pub async fn follow_job(id: String) -> Result<JobView, AppError> {
    let caller = require(Permission::ViewJobs, "follow_job", Some(&id)).await?;
    let id = id.parse().map_err(|_| answer(AppError::NotFound))?;
    views::job(&caller.app, id).await.map_err(answer)
}

/// Sends a failed or canceled job back to the start. A plain form returns to the page `back`.
#[server(RetryJob, prefix = "/api/fn", endpoint = "retry_job", input = PostUrl)]
pub async fn retry_job(id: String, back: String) -> Result<ActionView, AppError> {
    let caller = match require(Permission::RetryJobs, "retry_job", Some(&id)).await {
        Ok(caller) => caller,
        Err(error) => return Err(views::refuse(&back, error)),
    };
    let done = async {
        use jobdeck::store::RetryOutcome;
        let id: JobId = id.parse().map_err(|_| AppError::Refused(Refusal::Gone))?;
        match caller.app.store.job_retry(id, &caller.actor).await? {
            RetryOutcome::Queued => views::acted(&caller.app.store, id, Notice::Retried).await,
            RetryOutcome::NotRetryable(state) => Err(AppError::Refused(Refusal::State(state))),
            RetryOutcome::KeyHeld { by } => Err(AppError::Refused(Refusal::KeyHeld(by))),
            RetryOutcome::NotFound => Err(AppError::Refused(Refusal::Gone)),
        }
    };
    views::finish(&back, done.await)
}

/// Stops a job that has not ended. A plain form returns to the page `back`.
#[server(CancelJob, prefix = "/api/fn", endpoint = "cancel_job", input = PostUrl)]
pub async fn cancel_job(id: String, back: String) -> Result<ActionView, AppError> {
    let caller = match require(Permission::CancelJobs, "cancel_job", Some(&id)).await {
        Ok(caller) => caller,
        Err(error) => return Err(views::refuse(&back, error)),
    };
    let done = async {
        use jobdeck::store::CancelOutcome;
        let id: JobId = id.parse().map_err(|_| AppError::Refused(Refusal::Gone))?;
        match caller.app.store.job_cancel(id, &caller.actor).await? {
            CancelOutcome::Canceled => views::acted(&caller.app.store, id, Notice::Canceled).await,
            CancelOutcome::Requested => views::acted(&caller.app.store, id, Notice::CancelRequested).await,
            CancelOutcome::AlreadyFinal(state) => Err(AppError::Refused(Refusal::State(state))),
            CancelOutcome::NotFound => Err(AppError::Refused(Refusal::Gone)),
        }
    };
    views::finish(&back, done.await)
}

#[cfg(feature = "ssr")]
mod views {
    use std::time::Duration;

    use chrono::{DateTime, TimeDelta, Utc};
    use jobdeck::store::{JobFilter, WorkerInfo};
    use jobdeck::{JobDetail, Store};

    use super::*;
    use crate::components::notice_line::notice_of;
    use crate::model::{JsonText, StageView, TypeView, WaitView};
    use crate::ssr::{Caller, LinkRequest};

    /// A worker that has been silent for longer is not counted as alive.
    const WORKER_LIFE: TimeDelta = TimeDelta::seconds(30);

    /// How long a list waits for its numbers. They come by the live stream when they are there.
    const COUNT_PATIENCE: Duration = Duration::from_millis(500);

    pub(super) async fn list(store: &Store, query: &JobQuery) -> Result<JobListView, AppError> {
        let filter = query.filter();
        let page = store.job_list(&filter, query.cursor(), i64::from(query.limit())).await?;
        let counts = store.job_counts_within(&filter, COUNT_PATIENCE).await?;
        let n_unfiltered = if page.jobs.is_empty() && query.is_narrowed() {
            store.job_counts_within(&JobFilter::default(), COUNT_PATIENCE).await?.map(|counts| counts.total())
        } else {
            None
        };
        Ok(JobListView {
            rows: page.jobs.into_iter().map(JobRow::from).collect(),
            has_newer: page.has_newer,
            has_older: page.has_older,
            counts: counts.map(Into::into),
            n_unfiltered,
            types: store.job_type_list().await?.into_iter().map(TypeView::from).collect(),
            now: store.now().await?,
        })
    }

    pub(super) async fn job(caller: &Caller, id: JobId) -> Result<JobView, AppError> {
        let store = &caller.app.store;
        let Some(job) = store.job_detail(id).await? else { return Err(AppError::NotFound) };
        let row = JobRow::from(job.summary.clone());
        let now = store.now().await?;
        let workers = store.worker_list().await?;
        let knowing: Vec<&WorkerInfo> = workers.iter().filter(|worker| knows(worker, &row.job_type, now)).collect();
        let wait = if row.state.is_waiting() {
            Some(WaitView {
                paused_by: store.queue_paused_by(&row.queue).await?,
                n_workers: knowing.len() as i64,
                n_slots: knowing.iter().map(|worker| i64::from(worker.slots)).sum(),
                n_ahead: store.job_count_ahead(id).await?,
            })
        } else {
            None
        };
        let types = store.job_type_list().await?;
        let registered = types.into_iter().find(|known| known.job_type == row.job_type).map(TypeView::from);
        let (n_duplicates, last_duplicate_at) = store.job_duplicates(id).await?;
        Ok(JobView {
            priority: job.priority,
            starts: job.starts,
            stalled_count: job.stalled_count,
            max_stalled: job.max_stalled,
            last_worker: job.last_worker.clone(),
            stages: stages(&job, registered),
            created_by: job.created_by.clone(),
            owner: job.owner.clone(),
            idempotency_key: job.idempotency_key.clone(),
            n_duplicates,
            last_duplicate_at,
            payload: JsonText::of_start(&job.payload_start, job.payload_bytes),
            result: job.result_start.as_ref().map(|start| JsonText::of_start(start, job.result_bytes.unwrap_or(0))),
            attempts: store.attempt_list(id).await?.into_iter().map(Into::into).collect(),
            audit: store.audit_list(&id.to_string(), 50).await?.into_iter().map(Into::into).collect(),
            wait,
            export_href: (row.job_type == "export_markdown").then(|| {
                (caller.app.export_link)(LinkRequest {
                    job_id: id,
                    issued_by: caller.user_id,
                    can_cancel: caller.role.allows(Permission::CancelJobs),
                    can_again: caller.role.allows(Permission::RetryJobs),
                })
            }),
            row,
            now,
        })
    }

    fn knows(worker: &WorkerInfo, job_type: &str, now: DateTime<Utc>) -> bool {
        worker.stopping_at.is_none()
            && now - worker.heartbeat_at < WORKER_LIFE
            && worker.types.iter().any(|known| known == job_type)
    }

    /// The registered stages in their order, then those only this job has passed in the order of time.
    fn stages(job: &JobDetail, registered: Option<TypeView>) -> Vec<StageView> {
        let entered_at = |name: &str| job.stages_at.get(name)?.as_str()?.parse::<DateTime<Utc>>().ok();
        let mut stages = registered.map_or_else(Vec::new, |registered| registered.stages);
        for stage in &mut stages {
            stage.at = entered_at(&stage.name);
        }
        let mut others: Vec<StageView> = job
            .stages_at
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| !stages.iter().any(|stage| stage.name == **name))
            .map(|(name, _)| StageView {
                name: name.clone(),
                en: crate::words::stage(crate::Locale::En, &[], &job.summary.job_type, name),
                zh_cn: crate::words::stage(crate::Locale::ZhCn, &[], &job.summary.job_type, name),
                at: entered_at(name),
            })
            .collect();
        others.sort_by_key(|stage| stage.at);
        stages.append(&mut others);
        stages
    }

    /// The answer of an action that changed the job.
    pub(super) async fn acted(store: &Store, id: JobId, notice: Notice) -> Result<ActionView, AppError> {
        let row = store.job_summaries(&[id]).await?.pop().ok_or(AppError::Refused(Refusal::Gone))?;
        Ok(ActionView { row: row.into(), notice })
    }

    /// Ends an action: a plain form returns to its page with the outcome, a script gets the outcome itself.
    pub(super) fn finish(back: &str, done: Result<ActionView, AppError>) -> Result<ActionView, AppError> {
        match done {
            Ok(view) => {
                return_to_page(back, view.notice);
                Ok(view)
            }
            Err(error) => Err(refuse(back, answer(error))),
        }
    }

    pub(super) fn refuse(back: &str, error: AppError) -> AppError {
        return_to_page(back, notice_of(&error));
        error
    }
}
