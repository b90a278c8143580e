//! Putting jobs into the queue, in a transaction of their own or in the caller's.

use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::PgExecutor;

use super::{Store, StoreError};
use crate::{JobId, JobType};

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

#[derive(sqlx::FromRow)]
struct EnqueuedRow {
    id: JobId,
    is_new: bool,
    payload_differs: bool,
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

impl Store {
    /// Enqueues one job in a transaction of its own.
    ///
    /// When another job holds its key, nothing is enqueued and the holder is returned.
    ///
    /// # Errors
    /// If the payload cannot be stored ([`StoreError::InvalidValue`], [`StoreError::PayloadTooLarge`]) or the database
    /// refuses; nothing is written then.
    pub async fn enqueue<T: JobType>(&self, job: &T, options: EnqueueOptions) -> Result<Enqueued, StoreError> {
        self.enqueue_in_tx(&self.pool, job, options).await
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
        let policy = T::policy();
        policy.check(T::TYPE)?;
        let payload = serde_json::to_value(job)?;
        if !payload.is_object() {
            return Err(StoreError::PayloadNotAnObject { job_type: T::TYPE.to_owned() });
        }
        check_value(&mut "payload".to_owned(), 0, &payload)?;
        let text = payload.to_string();
        if text.len() > Self::MAX_PAYLOAD_BYTES {
            return Err(StoreError::PayloadTooLarge { bytes: text.len(), limit: Self::MAX_PAYLOAD_BYTES });
        }
        let key = job.idempotency_key();
        let digest = Sha256::digest(text.as_bytes());
        let row: EnqueuedRow = sqlx::query_as(
            "with candidate as materialized (select jobdeck.uuid_v7() as id),
             holder as (
               insert into jobdeck.idempotency_keys as k (type, key, job_id, payload_digest)
               select $1, $2, id, $3 from candidate where $2 is not null
               -- Waits for a rival transaction and returns the row that won; counts the duplicate there.
               on conflict (type, key) do update set duplicates = k.duplicates + 1, last_duplicate_at = now()
               returning k.job_id, k.payload_digest),
             created as (
               insert into jobdeck.jobs (id, type, queue, payload, payload_preview, priority, max_attempts, max_stalled,
                 run_after, idempotency_key, payload_digest, created_by, owner)
               select c.id, $1, $4, $5, $6, $7, $8, $9, now() + $10 * interval '1 microsecond', $2,
                 case when $2 is null then null else $3 end, $11, $12
               from candidate c
               where $2 is null or exists (select 1 from holder h where h.job_id = c.id)
               returning id, queue)
             select coalesce((select job_id from holder), (select id from created)) as id,
               exists (select 1 from created) as is_new,
               coalesce((select h.payload_digest <> $3 from holder h), false) as payload_differs,
               (select pg_notify('jobdeck_jobs', queue) is not null from created where $10 = 0) as woken",
        )
        .bind(T::TYPE)
        .bind(key.as_ref().map(|key| key.as_str()))
        .bind(digest.as_slice())
        .bind(&policy.queue)
        .bind(&payload)
        .bind(preview(&payload))
        .bind(options.priority.unwrap_or(policy.priority))
        .bind(policy.max_attempts)
        .bind(policy.max_stalled)
        .bind(super::claims::micros(options.delay))
        .bind(options.created_by.map(storable_name))
        .bind(options.owner.map(storable_name))
        .fetch_one(executor)
        .await?;
        Ok(Enqueued { id: row.id, is_new: row.is_new, payload_differs: row.payload_differs })
    }
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
