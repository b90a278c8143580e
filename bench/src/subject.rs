//! Everything asked of Jobdeck: the job types, and each call that is measured.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use jobdeck::store::{Actor, JobFilter, PageCursor};
use jobdeck::{Ctx, EnqueueOptions, Enqueued, IdempotencyKey, JobError, JobState, JobType, Policy, Store};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Where all jobs of this program wait.
pub(crate) const QUEUE: &str = "bench";
/// Connections of a worker's store, as `jobdeck work` has by default.
pub(crate) const WORKER_CONNECTIONS: u32 = 10;
/// The longest a claim of the measured query holds its jobs.
const LEASE: Duration = Duration::from_secs(15);
/// Jobs that one measured claim takes.
pub(crate) const CLAIM: u32 = 10;

/// Text of the usual small size. The floor stores the same.
const NOTE: &str = "a hundred bytes or so, as most payloads have";

/// A job that does nothing.
#[derive(Serialize, Deserialize)]
pub(crate) struct Noop {
    pub(crate) number: u32,
    note: String,
}

impl Noop {
    pub(crate) fn new(number: u32) -> Self {
        Self { number, note: NOTE.to_owned() }
    }
}

impl JobType for Noop {
    const TYPE: &'static str = "bench_noop";

    fn policy() -> Policy {
        Policy::in_queue(QUEUE)
    }
}

/// The same with an idempotency key.
#[derive(Serialize, Deserialize)]
pub(crate) struct Keyed {
    number: u32,
    note: String,
}

impl Keyed {
    fn new(number: u32) -> Self {
        Self { number, note: NOTE.to_owned() }
    }
}

impl JobType for Keyed {
    const TYPE: &'static str = "bench_keyed";

    fn policy() -> Policy {
        Policy::in_queue(QUEUE)
    }

    fn idempotency_key(&self) -> Option<IdempotencyKey> {
        Some(IdempotencyKey::of(&[&self.number]))
    }
}

/// A job that takes its time.
#[derive(Serialize, Deserialize)]
pub(crate) struct Nap {
    secs: u64,
}

impl JobType for Nap {
    const TYPE: &'static str = "bench_nap";

    fn policy() -> Policy {
        Policy::in_queue(QUEUE)
    }
}

pub(crate) async fn nap(_: Ctx, job: Nap) -> Result<(), JobError> {
    tokio::time::sleep(Duration::from_secs(job.secs)).await;
    Ok(())
}

/// The payload of [`Noop`] as the floor stores it.
pub(crate) fn payload_text(number: u32) -> String {
    format!(r#"{{"number":{number},"note":"{NOTE}"}}"#)
}

pub(crate) async fn enqueue(store: &Store, number: u32) -> Result<()> {
    let enqueued = store.enqueue(&Noop::new(number), EnqueueOptions::default()).await?;
    ensure!(enqueued.is_new, "job {number} is a duplicate");
    Ok(())
}

pub(crate) async fn enqueue_keyed(store: &Store, number: u32) -> Result<()> {
    let enqueued = store.enqueue(&Keyed::new(number), EnqueueOptions::default()).await?;
    ensure!(enqueued.is_new, "job {number} is a duplicate");
    Ok(())
}

/// Enqueues jobs with keys.
pub(crate) async fn enqueue_bulk(store: &Store, numbers: Range<u32>) -> Result<()> {
    let jobs: Vec<Keyed> = numbers.map(Keyed::new).collect();
    let enqueued = enqueue_many(store, &jobs).await?;
    ensure!(enqueued.len() == jobs.len() && enqueued.iter().all(|job| job.is_new), "a job is a duplicate");
    Ok(())
}

async fn enqueue_many(store: &Store, jobs: &[Keyed]) -> Result<Vec<Enqueued>> {
    Ok(store.enqueue_many(jobs, EnqueueOptions::default()).await?)
}

pub(crate) async fn enqueue_naps(store: &Store, count: u32, secs: u64) -> Result<()> {
    for _ in 0..count {
        store.enqueue(&Nap { secs }, EnqueueOptions::default()).await?;
    }
    Ok(())
}

pub(crate) async fn pause(store: &Store) -> Result<()> {
    Ok(store.queue_pause(QUEUE, &actor()).await?)
}

pub(crate) async fn resume(store: &Store) -> Result<()> {
    Ok(store.queue_resume(QUEUE, &actor()).await?)
}

fn actor() -> Actor {
    Actor { name: "bench".to_owned(), ..Actor::default() }
}

/// Claims [`CLAIM`] jobs.
pub(crate) async fn claim(store: &Store) -> Result<()> {
    let types = [Noop::TYPE.to_owned()];
    let claims = store.job_claim_batch(QUEUE, &types, i64::from(CLAIM), LEASE, "bench").await?;
    ensure!(claims.len() == CLAIM as usize, "{} jobs claimed", claims.len());
    Ok(())
}

/// Counts jobs by state.
pub(crate) async fn counters(store: &Store) -> Result<()> {
    ensure!(store.job_counts(&JobFilter::default()).await?.total() > 0, "no job counted");
    Ok(())
}

/// The newest page of all jobs.
pub(crate) async fn list(store: &Store) -> Result<()> {
    page(store, JobFilter::default()).await
}

/// The newest page of a rare state.
pub(crate) async fn list_failed(store: &Store) -> Result<()> {
    page(store, JobFilter { state: Some(JobState::Failed), ..JobFilter::default() }).await
}

/// The newest page of one type.
pub(crate) async fn list_type(store: &Store) -> Result<()> {
    page(store, JobFilter { job_type: Some(Noop::TYPE.to_owned()), ..JobFilter::default() }).await
}

async fn page(store: &Store, filter: JobFilter) -> Result<()> {
    let page = store.job_list(&filter, PageCursor::Newest, 50).await?;
    ensure!(!page.jobs.is_empty(), "the page is empty");
    Ok(())
}

/// Puts jobs that wait into the table by one statement: setting up is not measured.
pub(crate) async fn fill_waiting(url: &str, count: u32) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    // A worker makes the queues it works; the measured claims have none.
    sqlx::query("insert into jobdeck.queues (name) values ('bench') on conflict do nothing")
        .execute(&mut connection)
        .await?;
    sqlx::query(
        "insert into jobdeck.jobs (type, queue, payload, payload_preview)
         select 'bench_noop', 'bench', jsonb_build_object('number', i, 'note', $2::text), 'number=' || i
         from generate_series(1, $1) i",
    )
    .bind(i32::try_from(count)?)
    .bind(NOTE)
    .execute(&mut connection)
    .await?;
    // Autovacuum would do so within a minute; until then the planner would guess.
    sqlx::query("analyze jobdeck.jobs").execute(&mut connection).await?;
    Ok(connection.close().await?)
}

/// Whether anything waits or runs.
pub(crate) async fn is_drained(url: &str) -> Result<bool> {
    let mut connection = PgConnection::connect(url).await?;
    let left = sqlx::query_scalar(
        "select exists (select 1 from jobdeck.jobs where queue = 'bench' and status in ('pending', 'retrying'))
           or exists (select 1 from jobdeck.jobs where status = 'running')",
    );
    let left: bool = left.fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(!left)
}

/// Puts finished jobs numbered `numbers` into the table: of four types, spread over the last 30 days, 1 in 50 failed and 1 in 100
/// canceled, 1 in 10 with a key.
///
/// Indexes that serve no constraint are dropped and made again from their own definition, which is quicker than filling them
/// row by row and leaves them as a rebuilt table has them.
pub(crate) async fn fill_finished(url: &str, numbers: Range<u64>) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql("set synchronous_commit = off; set maintenance_work_mem = '1GB'").execute(&mut connection).await?;
    let indexes: Vec<(String, String)> = sqlx::query_as(
        "select format('%I.%I', schemaname, indexname), indexdef from pg_indexes i
         where schemaname = 'jobdeck' and tablename = 'jobs'
           and not exists (select 1 from pg_constraint c
             where c.conindid = format('%I.%I', schemaname, indexname)::regclass)",
    )
    .fetch_all(&mut connection)
    .await?;
    for (name, _) in &indexes {
        sqlx::query(AssertSqlSafe(format!("drop index {name}"))).execute(&mut connection).await?;
    }
    let mut next = numbers.start;
    while next < numbers.end {
        let end = (next + 250_000).min(numbers.end);
        sqlx::query(FINISHED).bind(i64::try_from(next)?).bind(i64::try_from(end)?).execute(&mut connection).await?;
        next = end;
    }
    for (_, definition) in &indexes {
        sqlx::query(AssertSqlSafe(definition.as_str())).execute(&mut connection).await?;
    }
    sqlx::query("vacuum (analyze) jobdeck.jobs").execute(&mut connection).await?;
    sqlx::query("vacuum (analyze) jobdeck.idempotency_keys").execute(&mut connection).await?;
    Ok(connection.close().await?)
}

/// Ids are of version 7 and in order of time, as Jobdeck makes them, for the moment a job was created.
const FINISHED: &str = "
with made as materialized (
  select i, now() - interval '30 days' + i * interval '100 milliseconds' as at,
    (array['bench_noop', 'export_markdown', 'send_email', 'webhook'])[1 + i % 4] as type,
    (case when i % 50 = 0 then 'failed' when i % 100 = 1 then 'canceled' else 'succeeded' end)::jobdeck.job_state as status,
    case when i % 10 = 3 then 'history-' || i end as key,
    md5(i::text) as random
  from generate_series($1::bigint, $2::bigint - 1) i),
stored as (
  insert into jobdeck.jobs (id, type, queue, payload, payload_preview, status, attempts, starts, token, run_after, started_at,
    last_worker, last_error, error_class, error_code, result, idempotency_key, payload_digest, finished_at, created_at,
    updated_at, version)
  select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || substr(random, 1, 3) || '8'
      || substr(random, 4, 15))::uuid,
    type, 'bench', jsonb_build_object('number', i, 'note', random), 'number=' || i, status, 1, 1, 1, at, at, 'worker-1',
    case when status = 'failed' then 'connection refused' end,
    case when status = 'failed' then 'retryable'::jobdeck.failure_class end,
    case when status = 'failed' then 'connection' end,
    case when status = 'succeeded' then '{\"ok\": true}'::jsonb end,
    key, case when key is not null then decode(random || random, 'hex') end,
    at + interval '1 second', at, at + interval '1 second', 2
  from made
  returning id, type, idempotency_key, payload_digest, status)
insert into jobdeck.idempotency_keys (type, key, job_id, payload_digest)
select type, idempotency_key, id, payload_digest from stored where idempotency_key is not null and status = 'succeeded'";

/// Takes away what the measured queries left waiting or running.
pub(crate) async fn remove_unfinished(url: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql(
        "delete from jobdeck.jobs where queue = 'bench' and status in ('pending', 'retrying');
         delete from jobdeck.jobs where status = 'running';",
    )
    .execute(&mut connection)
    .await?;
    // The dead entries would lie before the next jobs that wait.
    sqlx::query("vacuum jobdeck.jobs").execute(&mut connection).await?;
    Ok(connection.close().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_stores_what_jobdeck_stores() {
        let ours: serde_json::Value = serde_json::to_value(Noop::new(7)).unwrap();
        assert_eq!(ours, serde_json::from_str::<serde_json::Value>(&payload_text(7)).unwrap());
    }
}
