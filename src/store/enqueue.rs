//! Putting jobs into the queue, in a transaction of their own or in the caller's.

mod group;

use std::time::Duration;

use serde_json::Value;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::{PgExecutor, Postgres};

use group::{Entered, Landed};

pub(super) use group::EnqueueGroup;

use super::{Store, StoreError};
use crate::idempotency::{limit_key_of_payload, payload_digest};
use crate::{IdempotencyKey, JobId, JobType, Policy};

/// What becomes of a key that is there. Waits for a rival transaction and answers with the row that won; counts the duplicate there.
/// A key that has run out changes hands, unless its job has not ended. The same stands in `jobdeck.enqueue_jobs` for callers of SQL.
macro_rules! or_duplicate {
    () => {
        "
           on conflict (type, key) do update
             set (job_id, payload_digest, created_at, duplicates, last_duplicate_at, expires_at) = (
               select case when f.free then excluded.job_id else k.job_id end,
                 case when f.free then excluded.payload_digest else k.payload_digest end,
                 case when f.free then now() else k.created_at end, case when f.free then 0 else k.duplicates + 1 end,
                 case when f.free then null else now() end, case when f.free then null else k.expires_at end
               from (select jobdeck.key_is_free(k.expires_at, k.job_id) as free) f)
           returning k.key, k.job_id, k.payload_digest"
    };
}

/// What an enqueuer may set beside the payload. The rest is the type's policy.
#[derive(Clone, Debug, Default)]
pub struct EnqueueOptions {
    /// Not claimed before this long from now, by the database's clock. Default: at once. A hundred years at most.
    pub delay: Duration,
    /// Higher runs first. Default: the type's.
    pub priority: Option<i16>,
    /// Who or what enqueues it, as people read it.
    pub created_by: Option<String>,
    /// Whose job it is, in the product's own words.
    pub owner: Option<String>,
    /// Jobs with the same value share the queue's limit by key. At most 200 bytes.
    pub limit_key: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
}

/// What an enqueue came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The new job, or the one that holds the key.
    pub id: JobId,
    /// False when nothing was enqueued, because `id` holds the key.
    pub is_new: bool,
    /// True for a duplicate whose payload differs from the holder's.
    pub payload_differs: bool,
}

/// Deepest nesting of a payload or result. What is deeper could be stored, but not read again.
const MAX_DEPTH: usize = 100;

/// Refuses what Postgres cannot hold in jsonb, or what could not be read again, with the path to it.
pub(super) fn check_value(path: &mut String, depth: usize, value: &Value) -> Result<(), StoreError> {
    if depth > MAX_DEPTH {
        return Err(StoreError::InvalidValue { path: path.clone(), problem: "is nested more than 100 levels deep" });
    }
    let has_nul = |text: &str| text.contains('\0');
    const PROBLEM: &str = "holds a NUL character (\\u0000), which Postgres cannot store";
    match value {
        Value::String(text) if has_nul(text) => Err(StoreError::InvalidValue { path: path.clone(), problem: PROBLEM }),
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            let length = path.len();
            path.push_str(&format!("[{index}]"));
            let checked = check_value(path, depth + 1, item);
            path.truncate(length);
            checked
        }),
        Value::Object(fields) => fields.iter().try_for_each(|(name, field)| {
            let length = path.len();
            path.push('.');
            path.push_str(&name.replace('\0', "\\u0000"));
            let checked = if has_nul(name) {
                Err(StoreError::InvalidValue { path: path.clone(), problem: PROBLEM })
            } else {
                check_value(path, depth + 1, field)
            };
            path.truncate(length);
            checked
        }),
        _ => Ok(()),
    }
}

/// A name people read, without what Postgres cannot hold, at most 200 characters.
fn storable_name(name: String) -> String {
    name.chars().filter(|letter| *letter != '\0').take(200).collect()
}

/// The short scalars of a payload as `name=value`, at most 120 characters.
fn preview(payload: &Value) -> String {
    let mut text = String::new();
    for (name, value) in payload.as_object().into_iter().flatten() {
        let shown = match value {
            Value::String(value) if value.chars().count() <= 40 => value.replace(char::is_control, " "),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => continue,
        };
        let part = format!("{}{name}={shown}", if text.is_empty() { "" } else { " " });
        if text.chars().count() + part.chars().count() > 120 {
            break;
        }
        text.push_str(&part);
    }
    text
}

/// A job as it is written: checked, and with what the database need not work out.
struct Prepared {
    payload: String,
    preview: String,
    key: Option<String>,
    digest: Vec<u8>,
    limit_key: Option<String>,
}

fn prepare<T: JobType>(job: &T, policy: &Policy) -> Result<Prepared, StoreError> {
    let payload = serde_json::to_value(job)?;
    if !payload.is_object() {
        return Err(StoreError::PayloadNotAnObject { job_type: T::TYPE.to_owned() });
    }
    check_value(&mut "payload".to_owned(), 0, &payload)?;
    let text = payload.to_string();
    if text.len() > Store::MAX_PAYLOAD_BYTES {
        return Err(StoreError::PayloadTooLarge { bytes: text.len(), limit: Store::MAX_PAYLOAD_BYTES });
    }
    let key = match &policy.key {
        Some(declared) => Some(IdempotencyKey::of_payload(&declared.fields, &payload)?),
        None => job.idempotency_key(),
    };
    let key = key.map(|key| key.as_str().to_owned());
    // Without a key nobody compares payloads.
    let digest = if key.is_some() { payload_digest(&payload) } else { Vec::new() };
    let limit_key = policy.limit_key.as_deref().map(|path| limit_key_of_payload(path, &payload)).transpose()?.flatten();
    Ok(Prepared { limit_key, preview: preview(&payload), payload: text, key, digest })
}

/// What holds for all jobs of one call.
struct Shared {
    policy: Policy,
    options: EnqueueOptions,
}

impl Shared {
    fn of<T: JobType>(mut options: EnqueueOptions) -> Result<Self, StoreError> {
        let policy = T::policy();
        policy.check(T::TYPE)?;
        options.created_by = options.created_by.map(storable_name);
        options.owner = options.owner.map(storable_name);
        let texts = options.limit_key.iter().map(|text| ("limit_key", text));
        for (path, text) in texts.chain(options.tags.iter().map(|text| ("tags", text))) {
            let problem = match text {
                text if text.contains('\0') => "holds a NUL character",
                text if text.is_empty() => "is empty",
                text if text.len() > 200 => "is longer than 200 bytes",
                _ => continue,
            };
            return Err(StoreError::InvalidValue { path: path.to_owned(), problem });
        }
        Ok(Self { policy, options })
    }
}

/// A new row, complete.
#[derive(Debug)]
struct Row {
    job_type: &'static str,
    queue: String,
    payload: String,
    preview: String,
    priority: i16,
    max_attempts: i32,
    max_stalled: i32,
    delay_us: i64,
    created_by: Option<String>,
    owner: Option<String>,
    limit_key: Option<String>,
    tags: Vec<String>,
}

impl Row {
    /// As $1 to $12.
    fn bind_to<O>(self, statement: QueryAs<'_, Postgres, O, PgArguments>) -> QueryAs<'_, Postgres, O, PgArguments> {
        statement
            .bind(self.job_type)
            .bind(self.queue)
            .bind(self.payload)
            .bind(self.preview)
            .bind(self.priority)
            .bind(self.max_attempts)
            .bind(self.max_stalled)
            .bind(self.delay_us)
            .bind(self.created_by)
            .bind(self.owner)
            .bind(self.limit_key)
            .bind(self.tags)
    }
}

/// What a job is idempotent by.
struct Key {
    text: String,
    /// Of the payload, to tell a duplicate from a clash.
    digest: Vec<u8>,
}

impl Shared {
    /// A row to be, with its key when it has one.
    fn row<T: JobType>(&self, job: &T) -> Result<(Box<Row>, Option<Key>), StoreError> {
        let Self { policy, options } = self;
        let Prepared { payload, preview, key, digest, limit_key } = prepare(job, policy)?;
        let row = Box::new(Row {
            job_type: T::TYPE,
            queue: policy.queue.clone(),
            payload,
            preview,
            priority: options.priority.unwrap_or(policy.priority),
            max_attempts: policy.max_attempts,
            max_stalled: policy.max_stalled,
            delay_us: super::claims::micros(options.delay),
            created_by: options.created_by.clone(),
            owner: options.owner.clone(),
            limit_key: options.limit_key.clone().or(limit_key),
            tags: options.tags.clone(),
        });
        Ok((row, key.map(|text| Key { text, digest })))
    }
}

/// When a statement's rows are seen by workers, which decides whether its hint may be left to another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    /// With the statement, which is a transaction of its own.
    AtOnce,
    /// Whenever the caller commits, if ever.
    ByCaller,
}

impl Commit {
    fn is_at_once(self) -> bool {
        self == Self::AtOnce
    }
}

/// Inserts one row without a key.
async fn insert_row<'e>(executor: impl PgExecutor<'e>, row: Box<Row>, commit: Commit) -> Result<JobId, sqlx::Error> {
    let statement = sqlx::query_as(
        "insert into jobdeck.jobs (type, queue, payload, payload_preview, priority, max_attempts,
           max_stalled, run_after, created_by, owner, limit_key, tags)
         values ($1, $2, $3::jsonb, $4, $5, $6, $7, now() + $8 * interval '1 microsecond', $9, $10, $11, $12)
         returning id, case when $8 < 2000000 then jobdeck.wake($2, $13) end is null",
    );
    let (id, _): (JobId, Option<bool>) = row.bind_to(statement).bind(commit.is_at_once()).fetch_one(executor).await?;
    Ok(id)
}

/// Inserts one row unless another job holds its key.
async fn insert_keyed<'e>(
    executor: impl PgExecutor<'e>,
    row: Box<Row>,
    key: Key,
    commit: Commit,
) -> Result<Enqueued, StoreError> {
    let statement = sqlx::query_as(concat!(
        "with candidate as materialized (select jobdeck.uuid_v7() as id),
         holder as (
           insert into jobdeck.idempotency_keys as k (type, key, job_id, payload_digest)
           select $1, $13, id, $14 from candidate",
        or_duplicate!(),
        "),
         created as (
           insert into jobdeck.jobs (id, type, queue, payload, payload_preview, priority, max_attempts, max_stalled,
             run_after, created_by, owner, limit_key, tags, idempotency_key, payload_digest)
           select c.id, $1, $2, $3::jsonb, $4, $5, $6, $7, now() + $8 * interval '1 microsecond', $9, $10, $11, $12, $13, $14
           from candidate c where exists (select 1 from holder h where h.job_id = c.id)
           returning id)
         select h.job_id, exists (select 1 from created), h.payload_digest <> $14,
           (select case when $8 < 2000000 then jobdeck.wake($2, $15) end is null from created)
         from holder h",
    ));
    let (id, is_new, payload_differs, _): (JobId, bool, bool, Option<bool>) =
        row.bind_to(statement).bind(key.text).bind(key.digest).bind(commit.is_at_once()).fetch_one(executor).await?;
    Ok(Enqueued { id, is_new, payload_differs })
}

/// A Postgres array of texts as text.
fn array_text(texts: &[String]) -> String {
    let quoted: Vec<String> =
        texts.iter().map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))).collect();
    format!("{{{}}}", quoted.join(","))
}

/// The rows of $1 to $12 with their places and new ids; further columns follow.
macro_rules! input_rows {
    ($arrays:literal, $columns:literal) => {
        concat!(
            "with input as materialized (
           select i.*, jobdeck.uuid_v7() as id
           from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::integer[], $7::integer[],
             $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[]",
            $arrays,
            ") with ordinality as i (type, queue, payload, preview, priority, max_attempts, max_stalled, delay_us,
               created_by, owner, limit_key, tags",
            $columns,
            ", place))"
        )
    };
}

/// One column of the answer: the hints for the rows that were created and are due soon.
macro_rules! hints {
    ($created:literal, $commits_at_once:literal) => {
        concat!(
            "case when i.place = 1 then (
           select count(jobdeck.wake(due.queue, ",
            $commits_at_once,
            ")) from (
             select distinct queue from input where delay_us < 2000000 and ",
            $created,
            ") due) end"
        )
    };
}

fn bind_rows<'q, O>(
    statement: QueryAs<'q, Postgres, O, PgArguments>,
    rows: &'q [Box<Row>],
) -> QueryAs<'q, Postgres, O, PgArguments> {
    fn column<'r, V>(rows: &'r [Box<Row>], value: impl Fn(&'r Row) -> V) -> Vec<V> {
        rows.iter().map(|row| value(row)).collect()
    }
    statement
        .bind(column(rows, |row| row.job_type))
        .bind(column(rows, |row| row.queue.as_str()))
        .bind(column(rows, |row| row.payload.as_str()))
        .bind(column(rows, |row| row.preview.as_str()))
        .bind(column(rows, |row| row.priority))
        .bind(column(rows, |row| row.max_attempts))
        .bind(column(rows, |row| row.max_stalled))
        .bind(column(rows, |row| row.delay_us))
        .bind(column(rows, |row| row.created_by.as_deref()))
        .bind(column(rows, |row| row.owner.as_deref()))
        .bind(column(rows, |row| row.limit_key.as_deref()))
        .bind(column(rows, |row| array_text(&row.tags)))
}

/// Inserts rows without keys in one statement; answers their ids in the same order.
async fn insert_rows<'e>(
    executor: impl PgExecutor<'e>,
    rows: &[Box<Row>],
    commit: Commit,
) -> Result<Vec<JobId>, sqlx::Error> {
    let statement = sqlx::query_as(concat!(
        input_rows!("", ""),
        ", created as (
           insert into jobdeck.jobs (id, type, queue, payload, payload_preview, priority, max_attempts, max_stalled,
             run_after, created_by, owner, limit_key, tags)
           select i.id, i.type, i.queue, i.payload::jsonb, i.preview, i.priority, i.max_attempts, i.max_stalled,
             now() + i.delay_us * interval '1 microsecond', i.created_by, i.owner, i.limit_key, i.tags::text[]
           from input i)
         select i.id, ",
        hints!("true", "$13"),
        " from input i order by i.place",
    ));
    let ids: Vec<(JobId, Option<i64>)> =
        bind_rows(statement, rows).bind(commit.is_at_once()).fetch_all(executor).await?;
    Ok(ids.into_iter().map(|(id, _)| id).collect())
}

/// Inserts rows of one type, some of them with keys, in one statement; answers in the same order.
async fn insert_rows_keyed<'e>(
    executor: impl PgExecutor<'e>,
    rows: &[Box<Row>],
    keys: &[Option<Key>],
    commit: Commit,
) -> Result<Vec<Enqueued>, sqlx::Error> {
    let statement = sqlx::query_as(concat!(
        input_rows!(", $13::text[], $14::bytea[]", ", key, digest"),
        ", holder as (
           insert into jobdeck.idempotency_keys as k (type, key, job_id, payload_digest)
           -- In one order, so that calls with overlapping keys wait for each other without a deadlock.
           select distinct on (i.key) i.type, i.key, i.id, i.digest from input i where i.key is not null
           order by i.key, i.place",
        or_duplicate!(),
        "),
         created as (
           insert into jobdeck.jobs (id, type, queue, payload, payload_preview, priority, max_attempts, max_stalled,
             run_after, created_by, owner, limit_key, tags, idempotency_key, payload_digest)
           select i.id, i.type, i.queue, i.payload::jsonb, i.preview, i.priority, i.max_attempts, i.max_stalled,
             now() + i.delay_us * interval '1 microsecond', i.created_by, i.owner, i.limit_key, i.tags::text[], i.key, i.digest
           from input i where i.key is null or i.id in (select h.job_id from holder h)
           returning 1)
         select coalesce(h.job_id, i.id), h.job_id is null or h.job_id = i.id, coalesce(h.payload_digest <> i.digest, false), ",
        hints!("exists (select 1 from created)", "$15"),
        " from input i left join holder h on h.key = i.key
         order by i.place",
    ));
    let answers: Vec<(JobId, bool, bool, Option<i64>)> = bind_rows(statement, rows)
        // Planned for as many rows as there are, not for the few that a general plan supposes.
        .persistent(false)
        .bind(keys.iter().map(|key| key.as_ref().map(|key| key.text.as_str())).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.as_ref().map(|key| key.digest.as_slice())).collect::<Vec<_>>())
        .bind(commit.is_at_once())
        .fetch_all(executor)
        .await?;
    Ok(answers.into_iter().map(|(id, is_new, payload_differs, _)| Enqueued { id, is_new, payload_differs }).collect())
}

impl Enqueued {
    fn new_job(id: JobId) -> Self {
        Self { id, is_new: true, payload_differs: false }
    }
}

impl Store {
    /// Enqueues one job in a transaction of its own.
    ///
    /// When another job holds its key, nothing is enqueued and the holder is returned. Calls without a key that come while
    /// others are under way go together in one statement, and each returns when that has committed. A call that is dropped
    /// before it returns may have enqueued its job or not.
    ///
    /// # Errors
    /// If the payload cannot be stored ([`StoreError::InvalidValue`], [`StoreError::PayloadTooLarge`]) or the database
    /// refuses; nothing is written then.
    pub async fn enqueue<T: JobType>(&self, job: &T, options: EnqueueOptions) -> Result<Enqueued, StoreError> {
        let row = match Shared::of::<T>(options)?.row(job)? {
            (row, None) => row,
            (row, Some(key)) => return insert_keyed(&self.pool, row, key, Commit::AtOnce).await,
        };
        let landed = match self.enqueues.enter(row, &self.pool) {
            Entered::Alone(row, mut flight) => {
                let id = flight.run(async |connection| insert_row(connection, row, Commit::AtOnce).await).await?;
                return Ok(Enqueued::new_job(id));
            }
            Entered::Together(landed) => landed.await,
        };
        match landed {
            Ok(Landed::Enqueued(id)) => Ok(Enqueued::new_job(id)),
            Ok(Landed::Refused(row)) => Ok(Enqueued::new_job(insert_row(&self.pool, row, Commit::AtOnce).await?)),
            Ok(Landed::Failed(error)) => Err(error.into()),
            Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
        }
    }

    /// Enqueues one job with the caller's transaction (or any other executor): it is seen by workers if and only if
    /// that commits.
    ///
    /// A caller that meets another open transaction with the same key waits for its end: if it rolls back, this job is
    /// new. Under repeatable read that wait may end in SQLSTATE 40001, which is transient.
    ///
    /// # Errors
    /// As [`Store::enqueue`].
    pub async fn enqueue_in_tx<'e, T: JobType>(
        &self,
        executor: impl PgExecutor<'e>,
        job: &T,
        options: EnqueueOptions,
    ) -> Result<Enqueued, StoreError> {
        match Shared::of::<T>(options)?.row(job)? {
            (row, None) => Ok(Enqueued::new_job(insert_row(executor, row, Commit::ByCaller).await?)),
            (row, Some(key)) => insert_keyed(executor, row, key, Commit::ByCaller).await,
        }
    }

    /// Enqueues many jobs of one type in one statement: all of them or, on an error, none. The answers stand in the order of
    /// `jobs`, and they are claimed in that order.
    ///
    /// Of equal keys within `jobs` the first is enqueued; the others are duplicates of it. Keys are taken in one order, so
    /// that callers with overlapping keys wait for each other without a deadlock.
    ///
    /// # Errors
    /// As [`Store::enqueue`]; a payload that cannot be stored is named by its place: `jobs[57].payload.name`.
    pub async fn enqueue_many<T: JobType>(
        &self,
        jobs: &[T],
        options: EnqueueOptions,
    ) -> Result<Vec<Enqueued>, StoreError> {
        enqueue_all(&self.pool, jobs, options, Commit::AtOnce).await
    }

    /// As [`Store::enqueue_many`], with the caller's transaction.
    ///
    /// # Errors
    /// As [`Store::enqueue_many`].
    pub async fn enqueue_many_in_tx<'e, T: JobType>(
        &self,
        executor: impl PgExecutor<'e>,
        jobs: &[T],
        options: EnqueueOptions,
    ) -> Result<Vec<Enqueued>, StoreError> {
        enqueue_all(executor, jobs, options, Commit::ByCaller).await
    }
}

async fn enqueue_all<'e, T: JobType>(
    executor: impl PgExecutor<'e>,
    jobs: &[T],
    options: EnqueueOptions,
    commit: Commit,
) -> Result<Vec<Enqueued>, StoreError> {
    let shared = Shared::of::<T>(options)?;
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    // Jobs of one call become due a microsecond apart, in their order: those due at once up to now, others from then on.
    let first = if shared.options.delay.is_zero() { 1 - jobs.len() as i64 } else { 1 };
    let (mut rows, mut keys) = (Vec::with_capacity(jobs.len()), Vec::with_capacity(jobs.len()));
    for (index, job) in jobs.iter().enumerate() {
        let (mut row, key) = shared.row(job).map_err(|error| match error {
            StoreError::InvalidValue { path, problem } => {
                StoreError::InvalidValue { path: format!("jobs[{index}].{path}"), problem }
            }
            error => error,
        })?;
        row.delay_us += first + index as i64;
        rows.push(row);
        keys.push(key);
    }
    if keys.iter().any(Option::is_some) {
        return Ok(insert_rows_keyed(executor, &rows, &keys, commit).await?);
    }
    Ok(insert_rows(executor, &rows, commit).await?.into_iter().map(Enqueued::new_job).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nul_is_refused_with_its_path() {
        let refused = |value: Value| check_value(&mut "payload".to_owned(), 0, &value).unwrap_err().to_string();
        assert!(refused(json!({"a": {"b": ["x", "a\u{0}b"]}})).starts_with("payload.a.b[1]: holds a NUL"));
        assert!(refused(json!({"k\u{0}": 1})).starts_with("payload.k\\u0000: holds a NUL"));
        assert!(check_value(&mut "payload".to_owned(), 0, &json!({"a": "\\u0000"})).is_ok());
    }

    #[test]
    fn preview_is_short_and_leaves_long_texts_out() {
        let payload = json!({"project_id": 7, "markdown": "x".repeat(4_000_000), "title": "Notes"});
        assert_eq!(preview(&payload), "project_id=7 title=Notes");
    }
}
