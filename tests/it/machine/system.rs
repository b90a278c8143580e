//! The real store, driven by the reference's steps and read in the reference's terms.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jobdeck::store::{
    Accepted, CancelOutcome, DeleteOutcome, ExpiredLease, LeaseRef, Outcome, QueueLimits, RetryOutcome, Stalls,
};
use jobdeck::{EnqueueOptions, JobError, JobId, Store, StoreError};
use serde_json::json;

use super::reference::{Answer, End, JobView, Kind, Suspects, Transition, View};
use crate::support::{Brittle, Db, Keyed, Note, person};

const HOUR: Duration = Duration::from_secs(3600);

pub(super) struct System<'a> {
    db: &'a Db,
    jobs: Vec<JobId>,
    executions: Vec<LeaseRef>,
    reading: Vec<ExpiredLease>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: JobId,
    status: String,
    attempts: i32,
    starts: i32,
    token: i64,
    stalled: i32,
    due: bool,
    leased: bool,
    cancel_requested: bool,
    holds_key: bool,
    result: Option<i64>,
    #[sqlx(json)]
    ended: BTreeMap<i64, String>,
}

impl<'a> System<'a> {
    /// An empty queue.
    pub(super) async fn start(db: &'a Db) -> Self {
        sqlx::raw_sql(
            "truncate jobdeck.jobs, jobdeck.idempotency_keys, jobdeck.audit_log, jobdeck.job_counters,
               jobdeck.job_counter_deltas, jobdeck.job_removals cascade;
             update jobdeck.queues set paused_at = null, paused_by = null, concurrency_limit = null",
        )
        .execute(db.store.pool())
        .await
        .expect("emptied");
        Self { db, jobs: Vec::new(), executions: Vec::new(), reading: Vec::new() }
    }

    fn place(&self, id: JobId) -> usize {
        self.jobs.iter().position(|job| *job == id).unwrap_or_else(|| panic!("job {id} was enqueued"))
    }

    pub(super) async fn take(&mut self, transition: &Transition) -> Answer {
        let store = &self.db.store;
        match *transition {
            Transition::Enqueue { kind, priority, delayed } => self.enqueue(kind, priority, delayed).await,
            Transition::Claim { worker, at_most, suspects, knows_brittle } => {
                let mut types = vec!["note".to_owned(), "keyed".to_owned()];
                types.extend(knows_brittle.then(|| "brittle".to_owned()));
                let stalls = match suspects {
                    Suspects::None => Stalls::None,
                    Suspects::Once => Stalls::Once,
                    Suspects::Often => Stalls::Often,
                };
                let (limit, worker) = (i64::from(at_most), format!("worker-{worker}"));
                let lease = Duration::from_secs(900);
                let claims =
                    Store::job_claim_stalled(store.pool(), "default", &types, limit, lease, &worker, stalls).await;
                let claims = claims.expect("claimed");
                self.executions.extend(claims.iter().map(|claim| claim.lease()));
                Answer::Claimed(claims.iter().map(|claim| (self.place(claim.job_id), claim.token)).collect())
            }
            Transition::Heartbeat(execution) => {
                let mut connection = store.pool().acquire().await.expect("connected");
                let lease = self.executions[execution];
                let held = Store::lease_heartbeat(&mut connection, &[lease], Duration::from_secs(900)).await;
                let held = held.expect("answered");
                assert!(held.len() <= 1 && held.iter().all(|held| held.renewed), "{held:?}");
                Answer::Held(held.first().map(|held| held.cancel_requested))
            }
            Transition::Progress(execution) => match store.job_set_progress(self.executions[execution], 50).await {
                Ok(()) => Answer::Held(Some(false)),
                Err(StoreError::LeaseLost(_)) => Answer::Held(None),
                Err(error) => panic!("progress: {error:?}"),
            },
            Transition::Complete(execution) => {
                let lease = self.executions[execution];
                ended(store.job_complete(store.pool(), lease, &json!(lease.token), None).await)
            }
            Transition::End { execution, end, delayed } => {
                let delay = if delayed { HOUR } else { Duration::ZERO };
                let error = match end {
                    End::Fails => JobError::retryable("timeout", "slow"),
                    End::FailsForGood => JobError::unrecoverable("permission", "no"),
                    End::Snoozes => JobError::snooze(delay, "later"),
                    End::MustWait | End::Releases | End::Stops => JobError::rate_limited(delay, "slowly"),
                };
                let outcome = match end {
                    End::Fails | End::FailsForGood => Outcome::Failed { error: &error, delay },
                    End::Snoozes | End::MustWait => Outcome::Waits { error: &error, delay },
                    End::Releases => Outcome::Released,
                    End::Stops => Outcome::Canceled,
                };
                ended(store.job_end(self.executions[execution], outcome).await)
            }
            Transition::ReaperReads => {
                let mut connection = store.pool().acquire().await.expect("connected");
                self.reading = Store::lease_list_expired(&mut connection, 100).await.expect("listed");
                Answer::Read(self.reading.iter().map(|lease| self.place(lease.job_id)).collect::<BTreeSet<_>>())
            }
            Transition::ReaperWrites => {
                let mut connection = store.pool().acquire().await.expect("connected");
                let reading = std::mem::take(&mut self.reading);
                let reaped = Store::job_reap(&mut connection, &reading).await.expect("reaped");
                Answer::Reaped(reaped.into_iter().map(|(id, state)| (self.place(id), state)).collect())
            }
            Transition::Cancel(job) => match store.job_cancel(self.jobs[job], &person()).await.expect("answered") {
                CancelOutcome::Canceled => Answer::Canceled,
                CancelOutcome::Requested => Answer::Requested,
                CancelOutcome::AlreadyFinal(state) => Answer::Refused(state),
                CancelOutcome::NotFound => Answer::NotFound,
            },
            Transition::Retry(job) => match store.job_retry(self.jobs[job], &person()).await.expect("answered") {
                RetryOutcome::Queued => Answer::Queued,
                RetryOutcome::NotRetryable(state) => Answer::Refused(state),
                RetryOutcome::KeyHeld { by } => Answer::KeyHeld(self.place(by)),
                RetryOutcome::NotFound => Answer::NotFound,
            },
            Transition::Delete(job) => match store.job_delete(self.jobs[job], &person()).await.expect("answered") {
                DeleteOutcome::Deleted => Answer::Deleted,
                DeleteOutcome::NotFinal(state) => Answer::Refused(state),
                DeleteOutcome::NotFound => Answer::NotFound,
            },
            Transition::Pause(true) => {
                store.queue_pause("default", &person()).await.expect("paused");
                Answer::Nothing
            }
            Transition::Pause(false) => {
                store.queue_resume("default", &person()).await.expect("resumed");
                Answer::Nothing
            }
            Transition::Limit(limit) => {
                let limits = QueueLimits { concurrency: limit.map(i32::from), per_key: None };
                store.queue_set_limits("default", limits, &person()).await.expect("set");
                Answer::Nothing
            }
            Transition::AnHourPasses => {
                sqlx::raw_sql(
                    "update jobdeck.jobs set run_after = run_after - interval '1 hour' where status in ('pending', 'retrying');
                     update jobdeck.jobs set lease_expires_at = lease_expires_at - interval '1 hour' where status = 'running'",
                )
                .execute(store.pool())
                .await
                .expect("passed");
                Answer::Nothing
            }
            Transition::FoldCounters => {
                let mut connection = store.pool().acquire().await.expect("connected");
                Store::counters_fold(&mut connection).await.expect("folded");
                Answer::Nothing
            }
        }
    }

    async fn enqueue(&mut self, kind: Kind, priority: i16, delayed: bool) -> Answer {
        let store = &self.db.store;
        let delay = if delayed { HOUR } else { Duration::ZERO };
        let options = EnqueueOptions { priority: Some(priority), delay, ..EnqueueOptions::default() };
        let enqueued = match kind {
            Kind::Note => store.enqueue(&Note::new("walk"), options).await,
            Kind::Brittle => store.enqueue(&Brittle {}, options).await,
            Kind::Keyed(key) => store.enqueue(&Keyed::new(&key.to_string()), options).await,
        };
        let enqueued = enqueued.expect("enqueued");
        if enqueued.is_new {
            self.jobs.push(enqueued.id);
        }
        Answer::Enqueued { job: self.place(enqueued.id), is_new: enqueued.is_new }
    }

    pub(super) async fn read(&self) -> View {
        let store = &self.db.store;
        let rows: Vec<Row> = sqlx::query_as(
            "select j.id, j.status::text as status, j.attempts, j.starts, j.token, j.stalled_count as stalled,
               j.status in ('pending', 'retrying') and j.run_after <= now() as due, j.lease_expires_at is not null as leased,
               j.cancel_requested_at is not null as cancel_requested,
               exists (select from jobdeck.idempotency_keys k where k.job_id = j.id) as holds_key,
               (j.result #>> '{}')::bigint as result,
               (select coalesce(jsonb_object_agg(a.token, a.outcome), '{}') from jobdeck.attempts a where a.job_id = j.id) as ended
             from jobdeck.jobs j",
        )
        .fetch_all(store.pool())
        .await
        .expect("read");
        let mut jobs = vec![None; self.jobs.len()];
        for row in rows {
            jobs[self.place(row.id)] = Some(JobView {
                state: row.status.parse().expect("a state"),
                attempts: row.attempts,
                starts: row.starts,
                token: row.token,
                stalled: row.stalled,
                due: row.due,
                leased: row.leased,
                cancel_requested: row.cancel_requested,
                holds_key: row.holds_key,
                result: row.result,
                ended: row.ended,
            });
        }
        let counters = store.job_counters().await.expect("counted").into_iter();
        let counters = counters.map(|counter| ((counter.job_type, counter.state.as_str().to_owned()), counter.n_jobs));
        View {
            jobs,
            counters: counters.collect(),
            n_audited: self.db.scalar("select count(*) from jobdeck.audit_log").await,
        }
    }
}

fn ended(answer: Result<Accepted, StoreError>) -> Answer {
    match answer {
        Ok(Accepted { state, repeated }) => Answer::Ended(Some((state, repeated))),
        Err(StoreError::LeaseLost(_)) => Answer::Ended(None),
        Err(error) => panic!("outcome: {error:?}"),
    }
}
