//! A person's action on many jobs, as a tracked operation that goes on batch by batch.
//!
//! | | statement | who |
//! |---|---|---|
//! | press | [`Store::bulk_start`]: the operation and one audit row; the same press at the same time is the same operation | a person |
//! | batch | [`Store::bulk_step`]: the next jobs, their changes and the operation's new place, together | any process |
//! | abort | [`Store::bulk_abort`]: waits for the batch under way, then nothing more happens | a person |
//!
//! A batch holds the lock of the operation's row, so that there is one at a time; a process that is killed leaves the operation as
//! the last batch did, and the next process goes on from there. Jobs are passed in the order of their ids, which does not change
//! while they change, and only if they were there, and had ended, before the press. A row that something else has locked is not
//! waited for, since the batch would keep others waiting meanwhile; it is noted and looked at again.

/// A [`BulkOperation`] of row `o`.
macro_rules! operation_columns {
    () => {
        "o.id, o.action::text as action, o.target::text as target, o.state::text as state, o.requested_by, o.cutoff, o.total, o.done,
         o.refused, o.refusals, cardinality(o.deferred) as n_deferred, o.aborted_by, o.last_error, o.started_at, o.stepped_at,
         o.finished_at, o.looks, o.cursor, o.last_id"
    };
}

mod batch;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Actor, JobFilter, PageCursor, Store, StoreError};
use crate::{BulkAction, BulkState, JobId, JobState, JobSummary, clean_error_text};

/// Which jobs a bulk operation is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BulkTarget {
    /// These: at most [`Store::MAX_BULK_IDS`].
    #[serde(rename = "ids")]
    Jobs(Vec<JobId>),
    /// All that match when the button is pressed.
    #[serde(rename = "filter")]
    Matching(JobFilter),
}

/// A job that an operation left as it was, because another holds its idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The job.
    pub id: JobId,
    /// The job that holds the key.
    pub by: JobId,
}

/// One row of `jobdeck.bulk_operations`.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct BulkOperation {
    /// Never used twice.
    pub id: Uuid,
    /// What is done to each job.
    #[sqlx(try_from = "String")]
    pub action: BulkAction,
    /// To which, as JSON of a [`BulkTarget`].
    pub target: String,
    /// Where it stands.
    #[sqlx(try_from = "String")]
    pub state: BulkState,
    /// Who pressed.
    pub requested_by: String,
    /// The moment of the press.
    pub cutoff: DateTime<Utc>,
    /// How many jobs it was about at the press; `None` if counting them took too long.
    pub total: Option<i64>,
    /// Jobs changed.
    pub done: i64,
    /// Jobs left as they were, because another job holds their idempotency key.
    pub refused: i64,
    /// The first 10 of those.
    pub refusals: Json<Vec<Refusal>>,
    /// Jobs that something else has locked and that are looked at again.
    pub n_deferred: i32,
    /// Who stopped it.
    pub aborted_by: Option<String>,
    /// Why the last batch was refused, if it was.
    pub last_error: Option<String>,
    /// When it was pressed.
    pub started_at: DateTime<Utc>,
    /// End of the last batch.
    pub stepped_at: Option<DateTime<Utc>>,
    /// Set if and only if it no longer runs.
    pub finished_at: Option<DateTime<Utc>>,
    /// Rows that the next batch looks at.
    looks: i32,
    cursor: Uuid,
    last_id: Uuid,
}

impl BulkOperation {
    /// Which jobs it is about.
    ///
    /// # Errors
    /// If a newer version wrote what this one cannot read.
    pub fn target(&self) -> Result<BulkTarget, StoreError> {
        Ok(serde_json::from_str(&self.target)?)
    }

    /// Jobs that matched at the press, but no longer when their turn came: someone was faster. `None` while that is not known.
    pub fn gone(&self) -> Option<i64> {
        (self.state == BulkState::Done).then_some(())?;
        Some((self.total? - self.done - self.refused).max(0))
    }

    /// Jobs a second since the press, over all batches so far. `None` before the first.
    pub fn rate(&self) -> Option<f64> {
        let secs = (self.stepped_at? - self.started_at).as_seconds_f64();
        (secs > 0.0).then(|| (self.done + self.refused) as f64 / secs)
    }
}

/// An operation that runs, newly or already.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkStarted {
    /// The operation.
    pub operation: BulkOperation,
    /// False when the same one was pressed before and still runs: it goes on, and no second one starts.
    pub is_new: bool,
}

/// What an operation would be about if it were started now.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkPreview {
    /// Jobs it would change; `None` if counting them takes too long.
    pub total: Option<i64>,
    /// Jobs that match but are in a state that the action leaves alone, by state. Empty if counting takes too long.
    pub left_alone: Vec<(JobState, i64)>,
    /// Up to 10 jobs it would change, the newest.
    pub sample: Vec<JobSummary>,
    /// Those of the sample that would be refused, since another job holds their key.
    pub refusals: Vec<Refusal>,
}

impl BulkTarget {
    /// The same jobs in one form, so that the same press is known again.
    fn checked(&self) -> Result<Self, StoreError> {
        let mut target = self.clone();
        match &mut target {
            Self::Jobs(ids) => {
                ids.sort_unstable();
                ids.dedup();
                if ids.len() > Store::MAX_BULK_IDS {
                    let problem = "are more than 10,000; use a filter";
                    return Err(StoreError::InvalidValue { path: "ids".to_owned(), problem });
                }
            }
            Self::Matching(filter) => {
                let fields = [
                    ("filter.type", &filter.job_type),
                    ("filter.queue", &filter.queue),
                    ("filter.code", &filter.code),
                    ("filter.text", &filter.text),
                ];
                for (path, value) in fields {
                    if value.as_ref().is_some_and(|value| value.contains('\0')) {
                        return Err(StoreError::InvalidValue {
                            path: path.to_owned(),
                            problem: "holds a NUL character",
                        });
                    }
                }
            }
        }
        Ok(target)
    }
}

/// The states of `action` that the filter leaves.
fn states(action: BulkAction, filter: &JobFilter) -> Vec<JobState> {
    let states = action.states().iter().copied();
    states.filter(|state| filter.state.is_none_or(|only| only == *state)).collect()
}

impl Store {
    /// Most jobs that a bulk operation may name one by one.
    pub const MAX_BULK_IDS: usize = 10_000;

    /// How many jobs `target` is about in each state, its own state included. `None` if counting takes longer than 2 s.
    async fn bulk_counts(&self, target: &BulkTarget) -> Result<Option<Vec<(JobState, i64)>>, StoreError> {
        let counts = match target {
            BulkTarget::Matching(filter) => match self.job_counts(filter).await {
                Ok(counts) => JobState::ALL
                    .into_iter()
                    .filter(|state| filter.state.is_none_or(|only| only == *state))
                    .map(|state| (state, counts.of(state)))
                    .collect(),
                // The statement timeout of searches.
                Err(StoreError::Database(sqlx::Error::Database(error))) if error.code().as_deref() == Some("57014") => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            },
            BulkTarget::Jobs(ids) => {
                let rows: Vec<(String, i64)> = sqlx::query_as(
                    "select status::text, count(*) from jobdeck.jobs where id = any ($1) group by status order by status",
                )
                .bind(ids)
                .fetch_all(&self.pool)
                .await?;
                rows.into_iter()
                    .map(|(word, n)| Ok((word.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?, n)))
                    .collect::<Result<_, StoreError>>()?
            }
        };
        Ok(Some(counts))
    }

    /// What `action` on `target` would be about: count, sample, what is left alone or refused. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError::InvalidValue`] for a target that cannot be stored; what the database says.
    pub async fn bulk_preview(&self, action: BulkAction, target: &BulkTarget) -> Result<BulkPreview, StoreError> {
        const SAMPLE: usize = 10;
        let target = target.checked()?;
        let counts = self.bulk_counts(&target).await?;
        let (changed, left_alone): (Vec<_>, Vec<_>) =
            counts.iter().flatten().copied().filter(|(_, n)| *n > 0).partition(|(state, _)| action.applies_to(*state));
        let mut sample = Vec::new();
        match &target {
            BulkTarget::Matching(filter) => {
                for state in states(action, filter) {
                    let filter = JobFilter { state: Some(state), ..filter.clone() };
                    sample.extend(self.job_list(&filter, PageCursor::Newest, SAMPLE as i64).await?.jobs);
                }
            }
            BulkTarget::Jobs(ids) => {
                // The newest have the highest ids; a few more, since some may be left alone.
                let newest = &ids[ids.len().saturating_sub(200)..];
                sample = self.job_summaries(newest).await?;
                sample.retain(|job| action.applies_to(job.state));
            }
        }
        sample.sort_unstable_by_key(|job| std::cmp::Reverse(job.id));
        sample.truncate(SAMPLE);
        let refusals = if action == BulkAction::Retry {
            let ids: Vec<JobId> = sample.iter().map(|job| job.id).collect();
            let rows: Vec<(JobId, JobId)> = sqlx::query_as(
                "select j.id, k.job_id from jobdeck.jobs j
                 join jobdeck.idempotency_keys k on k.type = j.type and k.key = j.idempotency_key and k.job_id <> j.id
                 where j.id = any ($1) order by j.id desc",
            )
            .bind(ids)
            .fetch_all(&self.pool)
            .await?;
            rows.into_iter().map(|(id, by)| Refusal { id, by }).collect()
        } else {
            Vec::new()
        };
        Ok(BulkPreview {
            total: counts.as_ref().map(|_| changed.iter().map(|(_, n)| n).sum()),
            left_alone,
            sample,
            refusals,
        })
    }

    /// Starts `action` on `target`, or finds the same operation running: two presses at once give one. One audit row, with the
    /// target, in the same statement.
    ///
    /// Only jobs that matched now are touched: enqueued, and if ended, ended before this moment. With a state in the filter they
    /// must also have been in that state since. A cancel without one stops everything unfinished that was enqueued before.
    ///
    /// # Errors
    /// [`StoreError::InvalidValue`] for a target that cannot be stored; what the database says.
    pub async fn bulk_start(
        &self,
        action: BulkAction,
        target: &BulkTarget,
        actor: &Actor,
    ) -> Result<BulkStarted, StoreError> {
        const START: &str = concat!(
            "with edge (id) as (
               -- The first and the last job in each of the states, from the index that has it.
               (select j.id from jobdeck.jobs j
                where $8 && '{pending,retrying}'::text[] and j.status in ('pending', 'retrying') order by j.id limit 1)
               union all (select j.id from jobdeck.jobs j
                where $8 && '{pending,retrying}'::text[] and j.status in ('pending', 'retrying') order by j.id desc limit 1)
               union all (select j.id from jobdeck.jobs j where 'running' = any ($8) and j.status = 'running' and j.locked_by is not null)
               union all (select j.id from jobdeck.jobs j
                where 'failed' = any ($8) and j.status = 'failed' order by j.id limit 1)
               union all (select j.id from jobdeck.jobs j
                where 'failed' = any ($8) and j.status = 'failed' order by j.id desc limit 1)
               union all (select j.id from jobdeck.jobs j
                where 'canceled' = any ($8) and j.status = 'canceled' order by j.id limit 1)
               union all (select j.id from jobdeck.jobs j
                where 'canceled' = any ($8) and j.status = 'canceled' order by j.id desc limit 1)
               union all (select e.id from (
                   select type from jobdeck.job_counters union select type from jobdeck.job_counter_deltas) t
                 cross join lateral (
                   (select j.id from jobdeck.jobs j
                    where j.type = t.type and j.status = 'succeeded' order by j.id limit 1)
                   union all (select j.id from jobdeck.jobs j
                    where j.type = t.type and j.status = 'succeeded' order by j.id desc limit 1)) e
                 where 'succeeded' = any ($8))),
             ends as materialized (select min(e.id::text) as first_id, max(e.id::text) as last_id from edge e),
             started as (
               insert into jobdeck.bulk_operations as o
                 (action, target, target_digest, user_id, requested_by, total, cursor, last_id)
               select $1::text::jobdeck.bulk_action, $2::jsonb, $3, $4, $5, $7,
                 -- Right before the first: its time with 0 for all that is random.
                 coalesce((left(e.first_id, 14) || '0000-0000-000000000000')::uuid,
                   '00000000-0000-0000-0000-000000000000'),
                 coalesce(e.last_id::uuid, '00000000-0000-0000-0000-000000000000')
               from ends e
               -- The no-op update waits for a rival and returns its row.
               on conflict (action, target_digest) where state = 'running' do update set action = o.action
               returning *, xmax = 0 as is_new),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, after)
               select $4, $5, $6, 'bulk_' || $1 || '_jobs', s.id::text, 'done', s.target || jsonb_build_object('total', s.total)
               from started s where s.is_new)
             select ",
            operation_columns!(),
            ", o.is_new from started o"
        );
        #[derive(sqlx::FromRow)]
        struct Row {
            #[sqlx(flatten)]
            operation: BulkOperation,
            is_new: bool,
        }
        let target = target.checked()?;
        let text = serde_json::to_string(&target)?;
        let states: Vec<&str> = match &target {
            BulkTarget::Jobs(_) => Vec::new(),
            BulkTarget::Matching(filter) => states(action, filter).into_iter().map(JobState::as_str).collect(),
        };
        let total = match &target {
            BulkTarget::Jobs(ids) => i64::try_from(ids.len()).ok(),
            BulkTarget::Matching(_) => self
                .bulk_counts(&target)
                .await?
                .map(|counts| counts.iter().filter(|(state, _)| action.applies_to(*state)).map(|(_, n)| n).sum()),
        };
        let row: Row = sqlx::query_as(START)
            .bind(action.as_str())
            .bind(&text)
            .bind(Sha256::digest(text.as_bytes()).to_vec())
            .bind(actor.user_id)
            .bind(&actor.name)
            .bind(&actor.address)
            .bind(total)
            .bind(states)
            .fetch_one(&self.pool)
            .await?;
        Ok(BulkStarted { operation: row.operation, is_new: row.is_new })
    }

    /// Notes that a batch was refused. The operation goes on trying, but for one that `counts`: after 5 of those in a row, without
    /// a batch that went well between them, it has failed.
    ///
    /// # Errors
    /// If the database does.
    pub async fn bulk_note_error(&self, id: Uuid, error: &str, counts: bool) -> Result<(), StoreError> {
        sqlx::query(
            "update jobdeck.bulk_operations set last_error = $2, n_errors = n_errors + $3::integer,
               state = case when n_errors + $3::integer >= 5 then 'failed' else state end,
               finished_at = case when n_errors + $3::integer >= 5 then now() end
             where id = $1 and state = 'running'",
        )
        .bind(id)
        .bind(clean_error_text(error))
        .bind(i32::from(counts))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Stops the operation after the batch under way, with one audit row in the same statement. What was done stays done. `None` if
    /// it does not run; a repeated abort changes nothing.
    ///
    /// # Errors
    /// If the database does.
    pub async fn bulk_abort(&self, id: Uuid, actor: &Actor) -> Result<Option<BulkOperation>, StoreError> {
        const ABORT: &str = concat!(
            "with stopped as (
               update jobdeck.bulk_operations set state = 'aborted', finished_at = now(), aborted_by = $3
               where id = $1 and state = 'running' returning *),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, before, after)
               select $2, $3, $4, 'abort_bulk', s.id::text, 'done', jsonb_build_object('state', 'running'),
                 jsonb_build_object('state', 'aborted', 'done', s.done, 'refused', s.refused, 'total', s.total)
               from stopped s)
             select ",
            operation_columns!(),
            " from stopped o"
        );
        Ok(sqlx::query_as(ABORT)
            .bind(id)
            .bind(actor.user_id)
            .bind(&actor.name)
            .bind(&actor.address)
            .fetch_optional(&self.pool)
            .await?)
    }

    /// One operation.
    ///
    /// # Errors
    /// If the database does.
    pub async fn bulk_get(&self, id: Uuid) -> Result<Option<BulkOperation>, StoreError> {
        const ONE: &str = concat!("select ", operation_columns!(), " from jobdeck.bulk_operations o where o.id = $1");
        Ok(sqlx::query_as(ONE).bind(id).fetch_optional(&self.pool).await?)
    }

    /// The newest `limit` operations, newest first.
    ///
    /// # Errors
    /// If the database does.
    pub async fn bulk_list(&self, limit: i64) -> Result<Vec<BulkOperation>, StoreError> {
        const NEWEST: &str =
            concat!("select ", operation_columns!(), " from jobdeck.bulk_operations o order by o.id desc limit $1");
        Ok(sqlx::query_as(NEWEST).bind(limit).fetch_all(&self.pool).await?)
    }

    /// The operations that have a batch to go, oldest first.
    ///
    /// # Errors
    /// If the database does.
    pub async fn bulk_list_running(&self) -> Result<Vec<Uuid>, StoreError> {
        Ok(sqlx::query_scalar("select id from jobdeck.bulk_operations where state = 'running' order by id limit 100")
            .fetch_all(&self.pool)
            .await?)
    }

    /// Deletes operations that ended more than 90 days ago, at most 500 at once. What they did stays in the audit log. Returns how
    /// many are gone.
    ///
    /// # Errors
    /// If the database does.
    pub async fn bulk_prune(connection: &mut PgConnection) -> Result<u64, StoreError> {
        let done = sqlx::query(
            "delete from jobdeck.bulk_operations where id in (
               select id from jobdeck.bulk_operations
               where state <> 'running' and finished_at < now() - interval '90 days' order by id limit 500
               for update skip locked)",
        )
        .execute(connection)
        .await?;
        Ok(done.rows_affected())
    }
}
