//! A database per test, job types to enqueue, and bounded waiting.

use std::time::{Duration, Instant};

use jobdeck::store::{Actor, Claim, LeaseRef, Stalls};
use jobdeck::{Backoff, EnqueueOptions, IdempotencyKey, Job, JobId, JobState, JobType, Policy, Store};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

/// A database of its own, dropped with the value's process (names are unique, the test cluster is thrown away).
pub(crate) struct Db {
    pub(crate) store: Store,
    pub(crate) url: String,
}

/// Where tests make their databases.
fn server_url() -> String {
    std::env::var("JOBDECK_TEST_DATABASE_URL").unwrap_or_else(|_| {
        panic!("JOBDECK_TEST_DATABASE_URL is not set: run `cargo xtask test`, or name a Postgres on which databases may be made")
    })
}

impl Db {
    pub(crate) async fn empty() -> Self {
        let server = server_url();
        let name = format!("jobdeck_test_{}", uuid::Uuid::now_v7().simple());
        let mut connection = PgConnection::connect(&server).await.expect("test server answers");
        sqlx::query(sqlx::AssertSqlSafe(format!("create database {name}")))
            .execute(&mut connection)
            .await
            .expect("database made");
        connection.close().await.expect("closed");
        let (base, options) = server.split_once('?').map_or((server.as_str(), ""), |(base, options)| (base, options));
        let base = base.rsplit_once('/').expect("URL names a database").0;
        let url = format!("{base}/{name}{}{options}", if options.is_empty() { "" } else { "?" });
        Self { store: Store::connect(&url, 12).await.expect("database answers"), url }
    }

    pub(crate) async fn new() -> Self {
        let db = Self::empty().await;
        db.store.migrate().await.expect("migrated");
        sqlx::query("insert into jobdeck.queues (name) values ('default')")
            .execute(db.store.pool())
            .await
            .expect("queue");
        db
    }

    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("connected")
    }

    pub(crate) async fn enqueue(&self, job: &impl JobType) -> JobId {
        self.store.enqueue(job, EnqueueOptions::default()).await.expect("enqueued").id
    }

    /// Claims one job for `worker`.
    pub(crate) async fn claim(&self, worker: &str) -> Claim {
        self.claim_many(worker, 1).await.pop().expect("a job is due")
    }

    pub(crate) async fn claim_many(&self, worker: &str, limit: i64) -> Vec<Claim> {
        let types = [Note::TYPE, Keyed::TYPE, Brittle::TYPE].map(str::to_owned);
        let lease = Duration::from_secs(15);
        for stalls in [Stalls::None, Stalls::Once, Stalls::Often] {
            let claimed =
                Store::job_claim_stalled(self.store.pool(), "default", &types, limit, lease, worker, stalls).await;
            let claimed = claimed.expect("claimed");
            if !claimed.is_empty() {
                return claimed;
            }
        }
        Vec::new()
    }

    /// Ends the lease of a running job by the database's clock.
    pub(crate) async fn expire(&self, id: JobId) {
        let done = sqlx::query("update jobdeck.jobs set lease_expires_at = now() - interval '1 second' where id = $1 and status = 'running'")
            .bind(id)
            .execute(self.store.pool())
            .await
            .expect("expired");
        assert_eq!(done.rows_affected(), 1, "job {id} is running");
    }

    /// Reads the expired leases and takes them back.
    pub(crate) async fn reap(&self) -> Vec<(JobId, JobState)> {
        let mut connection = self.connection().await;
        let expired = Store::lease_list_expired(&mut connection, 100).await.expect("listed");
        Store::job_reap(&mut connection, &expired).await.expect("reaped")
    }

    pub(crate) async fn job(&self, id: JobId) -> Job {
        self.store.job_get(id).await.expect("read").expect("job is there")
    }

    /// Makes a waiting job due.
    pub(crate) async fn make_due(&self, id: JobId) {
        sqlx::query("update jobdeck.jobs set run_after = now() where id = $1")
            .bind(id)
            .execute(self.store.pool())
            .await
            .expect("due");
    }

    /// Waits until `id` is in `state`, at most 20 s.
    pub(crate) async fn wait_for(&self, id: JobId, state: JobState) -> Job {
        self.wait_until(id, &format!("{state}"), |job| job.state == state).await
    }

    pub(crate) async fn wait_until(&self, id: JobId, what: &str, done: impl Fn(&Job) -> bool) -> Job {
        let begun = Instant::now();
        loop {
            let job = self.job(id).await;
            if done(&job) {
                return job;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "waited 20 s for {what}, last seen: {job:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn scalar(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(self.store.pool()).await.expect("a number")
    }
}

pub(crate) fn person() -> Actor {
    Actor { name: "Ana Costa".to_owned(), ..Actor::default() }
}

pub(crate) fn lease(claim: &Claim) -> LeaseRef {
    claim.lease()
}

/// No key, default policy but a fast backoff.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Note {
    pub(crate) text: String,
}

impl Note {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned() }
    }
}

impl JobType for Note {
    const TYPE: &'static str = "note";
    fn policy() -> Policy {
        Policy { backoff: Backoff::Fixed(Duration::from_millis(50)), ..Policy::default() }.stage(
            "writing",
            "Writing",
            "正在书写",
        )
    }
}

/// Its key is `key`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Keyed {
    pub(crate) key: String,
    pub(crate) body: String,
}

impl Keyed {
    pub(crate) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), body: "same".to_owned() }
    }
}

impl JobType for Keyed {
    const TYPE: &'static str = "keyed";
    fn idempotency_key(&self) -> Option<IdempotencyKey> {
        Some(IdempotencyKey::of(&[&self.key]))
    }
}

/// Two attempts, one stall.
#[derive(Serialize, Deserialize)]
pub(crate) struct Brittle {}

impl JobType for Brittle {
    const TYPE: &'static str = "brittle";
    fn policy() -> Policy {
        Policy { max_attempts: 2, max_stalled: 1, backoff: Backoff::Fixed(Duration::ZERO), ..Policy::default() }
    }
}
