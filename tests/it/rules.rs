//! The rules a row obeys, as constraints in the schema and as a random walk by three workers over real SQL.

use std::time::Duration;

use jobdeck::store::{Claim, Outcome};
use jobdeck::{JobError, JobId, JobState};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use crate::support::{Db, Note, lease, person};

/// A row in `state`, written past the library.
async fn insert(db: &Db, state: JobState) -> JobId {
    let id = JobId(uuid::Uuid::now_v7());
    sqlx::query(
        "insert into jobdeck.jobs (id, type, payload, status, token, attempts, started_at, locked_at, locked_by,
           lease_expires_at, finished_at)
         select $1, 'note', '{}', $2::jobdeck.job_state, case when $2 = 'pending' then 0 else 1 end,
           case when $2 = 'running' then 1 else 0 end, case when $2 = 'running' then now() end,
           case when $2 = 'running' then now() end, case when $2 = 'running' then 'A' end,
           case when $2 = 'running' then now() end, case when $3 then now() end",
    )
    .bind(id)
    .bind(state.as_str())
    .bind(state.is_final())
    .execute(db.store.pool())
    .await
    .expect("inserted");
    id
}

#[tokio::test]
async fn sql_allows_exactly_the_transitions_of_the_table() {
    let db = Db::new().await;
    for from in JobState::ALL {
        for to in JobState::ALL {
            if from == to {
                continue;
            }
            let id = insert(&db, from).await;
            let changed = sqlx::query(
                "update jobdeck.jobs set status = $2::jobdeck.job_state,
                   token = token + case when $2 = 'running' then 1 else 0 end,
                   locked_at = case when $2 = 'running' then now() end,
                   locked_by = case when $2 = 'running' then 'B' end,
                   attempts = case when $2 = 'running' then 1 else 0 end, started_at = now(),
                   lease_expires_at = case when $2 = 'running' then now() end,
                   finished_at = case when $3 then now() end
                 where id = $1",
            )
            .bind(id)
            .bind(to.as_str())
            .bind(to.is_final())
            .execute(db.store.pool())
            .await;
            assert_eq!(changed.is_ok(), from.reaches(to), "{from} to {to}: {changed:?}");
        }
    }
}

#[tokio::test]
async fn forbidden_rows_are_refused_by_named_constraints() {
    let db = Db::new().await;
    let cases: &[(JobState, &str, &'static str)] = &[
        (JobState::Pending, "job_attempts_in_range", "update jobdeck.jobs set attempts = -1"),
        (JobState::Running, "job_running_has_started", "update jobdeck.jobs set attempts = 0"),
        (JobState::Running, "job_running_has_started", "update jobdeck.jobs set started_at = null"),
        (JobState::Pending, "job_times_plausible", "update jobdeck.jobs set run_after = 'infinity'"),
        (JobState::Pending, "job_times_plausible", "update jobdeck.jobs set run_after = '-infinity'"),
        (JobState::Pending, "job_times_plausible", "update jobdeck.jobs set run_after = '290000-01-01Z'"),
        (JobState::Running, "job_times_plausible", "update jobdeck.jobs set lease_expires_at = '-infinity'"),
        (JobState::Running, "job_attempts_in_range", "update jobdeck.jobs set attempts = 6"),
        (JobState::Pending, "job_waiting_has_attempts_left", "update jobdeck.jobs set attempts = 5"),
        (JobState::Running, "job_running_iff_leased", "update jobdeck.jobs set lease_expires_at = null"),
        (JobState::Running, "job_running_iff_leased", "update jobdeck.jobs set locked_by = null"),
        (JobState::Pending, "job_running_iff_leased", "update jobdeck.jobs set locked_by = 'A'"),
        (JobState::Failed, "job_finished_at_iff_final", "update jobdeck.jobs set finished_at = null"),
        (JobState::Pending, "job_finished_at_iff_final", "update jobdeck.jobs set finished_at = now()"),
        (JobState::Canceled, "job_result_only_if_succeeded", "update jobdeck.jobs set result = '1'"),
        (JobState::Running, "job_progress_is_percent", "update jobdeck.jobs set progress = 101"),
        (JobState::Running, "job_transition_allowed", "update jobdeck.jobs set token = token + 1"),
        (JobState::Retrying, "job_transition_allowed", "update jobdeck.jobs set token = token - 1"),
        (JobState::Failed, "job_transition_allowed", "update jobdeck.jobs set token = 0"),
        (JobState::Running, "job_stalls_in_range", "update jobdeck.jobs set stalled_count = 5"),
        (JobState::Pending, "job_payload_is_object", "update jobdeck.jobs set payload = '[]'"),
        (JobState::Pending, "job_type_valid", "update jobdeck.jobs set type = 'a/b'"),
    ];
    for (state, constraint, statement) in cases {
        sqlx::query("truncate jobdeck.jobs cascade").execute(db.store.pool()).await.expect("emptied");
        insert(&db, *state).await;
        let refused = sqlx::query(*statement).execute(db.store.pool()).await.expect_err(statement);
        let named = refused.as_database_error().and_then(|error| error.constraint());
        assert_eq!(named, Some(*constraint), "{statement}");
    }
}

/// One step of the random walk. The numbers choose among what is there.
#[derive(Clone, Debug)]
enum Step {
    Enqueue,
    Claim(u8),
    Heartbeat(u8),
    Progress(u8),
    Complete(u8),
    Fail(u8, bool),
    Snooze(u8),
    Release(u8),
    Expire(u8),
    Reap,
    Cancel(u8),
    Retry(u8),
    MakeDue,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Enqueue),
        6 => any::<u8>().prop_map(Step::Claim),
        1 => any::<u8>().prop_map(Step::Heartbeat),
        1 => any::<u8>().prop_map(Step::Progress),
        3 => any::<u8>().prop_map(Step::Complete),
        3 => any::<(u8, bool)>().prop_map(|(n, retryable)| Step::Fail(n, retryable)),
        2 => any::<u8>().prop_map(Step::Snooze),
        1 => any::<u8>().prop_map(Step::Release),
        3 => any::<u8>().prop_map(Step::Expire),
        3 => Just(Step::Reap),
        1 => any::<u8>().prop_map(Step::Cancel),
        2 => any::<u8>().prop_map(Step::Retry),
        3 => Just(Step::MakeDue),
    ]
}

/// Every execution ever started, also those that lost their lease and write late.
#[derive(Default)]
struct Walk {
    jobs: Vec<JobId>,
    executions: Vec<Claim>,
}

impl Walk {
    fn execution(&self, n: u8) -> Option<&Claim> {
        // Late writers are as likely as present holders.
        (!self.executions.is_empty()).then(|| &self.executions[usize::from(n) % self.executions.len()])
    }

    fn job(&self, n: u8) -> Option<JobId> {
        (!self.jobs.is_empty()).then(|| self.jobs[usize::from(n) % self.jobs.len()])
    }

    /// Takes a step. A write of an execution that no longer holds its job must change nothing.
    async fn take(&mut self, db: &Db, step: &Step) {
        let retryable = JobError::retryable("timeout", "slow");
        let unrecoverable = JobError::unrecoverable("permission", "no");
        let snooze = JobError::snooze(Duration::ZERO, "later");
        let delay = Duration::ZERO;
        match *step {
            Step::Enqueue => self.jobs.push(db.enqueue(&Note::new("walk")).await),
            Step::Claim(n) => {
                let claimed = db.claim_many(&format!("worker-{}", n % 3), i64::from(n % 4) + 1).await;
                assert!(claimed.len() <= usize::from(n % 4) + 1);
                self.executions.extend(claimed);
            }
            Step::Expire(n) => {
                let _ = sqlx::query("update jobdeck.jobs set lease_expires_at = now() - interval '1 second' where id = $1 and status = 'running'")
                    .bind(self.job(n))
                    .execute(db.store.pool())
                    .await
                    .expect("expired");
            }
            Step::Reap => drop(db.reap().await),
            Step::MakeDue => {
                sqlx::query("update jobdeck.jobs set run_after = now() where status = 'retrying'")
                    .execute(db.store.pool())
                    .await
                    .expect("due");
            }
            Step::Cancel(n) => {
                if let Some(id) = self.job(n) {
                    db.store.job_cancel(id, &person()).await.expect("answered");
                }
            }
            Step::Retry(n) => {
                if let Some(id) = self.job(n) {
                    db.store.job_retry(id, &person()).await.expect("answered");
                }
            }
            Step::Heartbeat(n) => {
                if let Some(claim) = self.execution(n) {
                    let before = db.job(claim.job_id).await;
                    let mut connection = db.store.pool().acquire().await.expect("connected");
                    let held =
                        jobdeck::Store::lease_heartbeat(&mut connection, &[lease(claim)], Duration::from_secs(15))
                            .await;
                    let holds = before.state == JobState::Running && before.token == claim.token;
                    assert_eq!(held.expect("answered").len(), usize::from(holds));
                }
            }
            Step::Progress(n) => {
                if let Some(claim) = self.execution(n) {
                    let before = db.job(claim.job_id).await;
                    let written = db.store.job_set_progress(lease(claim), n % 101).await;
                    self.check_fence(db, claim, &before, written.is_ok(), false).await;
                }
            }
            Step::Complete(n) => {
                if let Some(claim) = self.execution(n) {
                    let before = db.job(claim.job_id).await;
                    let ended = db.store.job_complete(db.store.pool(), lease(claim), &json!(claim.token), None).await;
                    let repeated = ended.as_ref().is_ok_and(|accepted| accepted.repeated);
                    self.check_fence(db, claim, &before, ended.is_ok(), repeated).await;
                }
            }
            Step::Fail(n, _) | Step::Snooze(n) | Step::Release(n) => {
                if let Some(claim) = self.execution(n) {
                    let before = db.job(claim.job_id).await;
                    let outcome = match step {
                        Step::Fail(_, true) => Outcome::Failed { error: &retryable, delay },
                        Step::Fail(_, false) => Outcome::Failed { error: &unrecoverable, delay },
                        Step::Snooze(_) => Outcome::Waits { error: &snooze, delay },
                        _ => Outcome::Released,
                    };
                    let ended = db.store.job_end(lease(claim), outcome).await;
                    let repeated = ended.as_ref().is_ok_and(|accepted| accepted.repeated);
                    self.check_fence(db, claim, &before, ended.is_ok(), repeated).await;
                }
            }
        }
    }

    /// A holder's write is taken; anyone else's changes nothing, whatever the answer.
    async fn check_fence(&self, db: &Db, claim: &Claim, before: &jobdeck::Job, taken: bool, repeated: bool) {
        let holds = before.state == JobState::Running && before.token == claim.token;
        assert_eq!(holds, taken && !repeated, "execution {claim:?} met {before:?}");
        if !holds {
            assert_eq!(&db.job(claim.job_id).await, before);
        }
    }

    /// What must hold after each step, beyond what constraints enforce.
    async fn check(&self, db: &Db) {
        let broken: Vec<(JobId, String)> = sqlx::query_as(
            "select j.id, 'more starts than ends' from jobdeck.jobs j
             where j.starts > (select count(*) from jobdeck.attempts a where a.job_id = j.id)
               + case when j.status in ('running', 'succeeded') then 1 else 0 end
             union all
             select j.id, 'token below a past one' from jobdeck.jobs j
             where exists (select 1 from jobdeck.attempts a where a.job_id = j.id and a.token > j.token)
             union all
             select j.id, 'an outcome of a running or succeeded token' from jobdeck.jobs j
             where j.status in ('running', 'succeeded')
               and exists (select 1 from jobdeck.attempts a where a.job_id = j.id and a.token = j.token)",
        )
        .fetch_all(db.store.pool())
        .await
        .expect("checked");
        assert!(broken.is_empty(), "{broken:?}");
        let mut started: Vec<_> = self.executions.iter().map(|claim| (claim.job_id, claim.token)).collect();
        started.sort_unstable();
        started.dedup();
        assert_eq!(started.len(), self.executions.len(), "two executions never share a token");
    }
}

#[test]
fn random_walks_of_three_workers_keep_the_rules() {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let db = runtime.block_on(Db::new());
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let walked = runner.run(&proptest::collection::vec(step(), 40), |steps| {
        runtime.block_on(async {
            sqlx::query("truncate jobdeck.jobs, jobdeck.idempotency_keys, jobdeck.audit_log cascade")
                .execute(db.store.pool())
                .await
                .expect("emptied");
            let mut walk = Walk::default();
            for step in &steps {
                walk.take(&db, step).await;
                walk.check(&db).await;
            }
        });
        Ok(())
    });
    if let Err(error) = walked {
        panic!("{error}");
    }
}
