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

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::jobs::contains_pattern;
use super::{Actor, JobFilter, PageCursor, Store, StoreError};
use crate::{BulkAction, BulkState, FailureClass, JobId, JobState, JobSummary, clean_error_text};

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

/// What finding the jobs of a batch needs of a row.
macro_rules! found_columns {
    () => {
        "j.id, j.type, j.queue, j.status, j.error_class, j.error_code, j.idempotency_key, j.payload_preview, j.owner, j.last_error,
         j.cancel_requested_at, j.created_at, j.started_at, j.updated_at, j.finished_at"
    };
}

/// A [`BulkOperation`] of row `o`.
macro_rules! operation_columns {
    () => {
        "o.id, o.action::text as action, o.target::text as target, o.state::text as state, o.requested_by, o.cutoff, o.total, o.done,
         o.refused, o.refusals, cardinality(o.deferred) as n_deferred, o.aborted_by, o.last_error, o.started_at, o.stepped_at,
         o.finished_at, o.looks, o.cursor, o.last_id"
    };
}

/// Whether row `j` is as it was at the press, as far as it tells: what ended later has failed anew, what was enqueued later is new.
/// $11 says that the operation is about one state, which the job must have entered before the press.
macro_rules! before_the_press {
    () => {
        "(case when j.status in ('succeeded', 'failed', 'canceled') then j.finished_at <= op.cutoff
             when j.status = 'running' then j.created_at <= op.cutoff and (not $11 or j.started_at <= op.cutoff)
               -- Asked to stop already.
               and j.cancel_requested_at is null
             else j.created_at <= op.cutoff and (not $11 or j.updated_at <= op.cutoff) end)"
    };
}

/// The next jobs in one state, whatever the filter leaves of them. The state stands in the text, so that the planner knows how
/// frequent it is. Between the first and the last of them it may choose to pass over jobs in other states; that there are none
/// before and after, where a state's jobs usually are (what waits is the newest), [`Store::bulk_start`] has seen to.
macro_rules! next_in_state {
    ($state:literal) => {
        concat!(
            "(select ",
            found_columns!(),
            " from jobdeck.jobs j
              where not $10 and '",
            $state,
            "' = any ($2) and j.status = '",
            $state,
            "'
                and j.id > $13 and j.id <= $14
              order by j.id limit $12)
             union all "
        )
    };
}

/// Finds and locks the jobs of the next batch. $1 operation, $2 states, $3 most jobs, $4 to $8 filter, $9 ids,
/// $10 whether there are ids, $12 most rows to look at in a state, $13 the cursor as it was read, $14 the last id. As values, not columns,
/// so that the planner knows what they leave.
macro_rules! step_head {
    ($($state:literal)*) => {
        concat!(
            "with op as materialized (
               select o.id, o.cursor, o.cutoff, o.deferred,
                 -- Not further while many locked rows wait for their turn.
                 case when cardinality(o.deferred) < 1000 then $3 else 0 end as room
               from jobdeck.bulk_operations o
               where o.id = $1 and o.state = 'running' and o.cursor = $13 for update skip locked),
             looked_at as materialized (
               select n.* from op cross join lateral (
                 ", $(next_in_state!($state),)* "
                 select ", found_columns!(), " from jobdeck.jobs j
                 where $10 and j.id = any ($9) and j.id > $13 and j.status::text = any ($2)) n
               order by n.id limit $12),
             matched as materialized (
               select j.id from looked_at j cross join op
               where ($4::text is null or j.type = $4) and ($5::text is null or j.queue = $5)
                 and ($6::text is null or j.error_class = $6::text::jobdeck.failure_class)
                 and ($7::text is null or j.error_code = $7)
                 and ($8::text is null or j.id::text ilike $8 or j.type ilike $8 or j.idempotency_key ilike $8
                   or j.payload_preview ilike $8 or j.owner ilike $8 or j.last_error ilike $8)
                 and ", before_the_press!(), "
               order by j.id limit (select room from op)),
             chosen as materialized (
               select id from matched
               union
               select j.id from op cross join unnest(op.deferred) as d (id) join jobdeck.jobs j on j.id = d.id
               where j.status::text = any ($2) and ", before_the_press!(), "),
             locked as materialized (
               select j.id, j.type, j.queue, j.status, j.idempotency_key, j.payload_digest, j.token, j.attempts, j.started_at,
                 j.locked_at, j.locked_by, j.lease_expires_at
               from op join jobdeck.jobs j on true
               where j.id in (select id from chosen) and j.status::text = any ($2) and ", before_the_press!(), "
               order by j.id for update of j skip locked), "
        )
    };
}

/// Writes the operation's new place. Needs `changed`, `refused`, and the first of those as
/// `named` (id, by).
macro_rules! step_tail {
    ($woken:literal) => {
        concat!(
            ", place as materialized (
               select op.id,
                 (select count(*) from looked_at) < $12
                   and (select count(*) from matched) < op.room as is_at_end,
                 coalesce(case when (select count(*) from matched) < op.room then (select max(id::text)::uuid from looked_at)
                   else (select max(id::text)::uuid from matched) end, op.cursor) as cursor,
                 array(select c.id from chosen c where c.id not in (select l.id from locked l) order by c.id)
                   as deferred,
                 (select count(*) from changed) as n_done, (select count(*) from refused) as n_refused
               from op),
             moved as (
               update jobdeck.bulk_operations o set cursor = p.cursor, deferred = p.deferred,
                 done = o.done + p.n_done, refused = o.refused + p.n_refused,
                 refusals = o.refusals || coalesce((select jsonb_agg(jsonb_build_object('id', r.id, 'by', r.by))
                   from (select id, by from named order by id limit 10 - jsonb_array_length(o.refusals)) r), '[]'),
                 -- A transaction that was open at the press may have added to what was counted.
                 total = greatest(o.total, o.done + p.n_done + o.refused + p.n_refused),
                 state = case when p.is_at_end and p.deferred = '{}' then 'done' else o.state end,
                 finished_at = case when p.is_at_end and p.deferred = '{}' then now() end,
                 looks = case when (select count(*) from matched) = op.room then greatest(o.looks / 2, 1000)
                   else least(o.looks * 2, 20000) end,
                 stepped_at = clock_timestamp(), n_errors = 0, last_error = null
               from place p join op on op.id = p.id where o.id = p.id
               returning o.*)
             select ", operation_columns!(), ", ", $woken, " as n_woken from moved o"
        )
    };
}

/// As `job_retry` in `admin.rs`, for each row.
const RETRY: &str = concat!(
    step_head!("failed" "canceled"),
    "keyed as materialized (
       select l.id, l.type, l.idempotency_key, l.payload_digest,
         (select o.id from jobdeck.jobs o where o.type = l.type and o.idempotency_key = l.idempotency_key
            and o.status in ('pending', 'running', 'retrying') limit 1) as rival
       from locked l where l.idempotency_key is not null),
     taken as (
       insert into jobdeck.idempotency_keys as k (type, key, job_id, payload_digest)
       -- Of several with one key the first goes back; in one order, as all who take many keys do.
       select distinct on (type, idempotency_key) type, idempotency_key, id, payload_digest from keyed where rival is null
       order by type, idempotency_key, id
       -- Locks the holder's row and returns it, unless its time has run out.
       on conflict (type, key) do update set
         job_id = case when k.expires_at <= now() then excluded.job_id else k.job_id end,
         payload_digest = case when k.expires_at <= now() then excluded.payload_digest else k.payload_digest end,
         expires_at = case when k.expires_at <= now() then null else k.expires_at end
       returning k.type, k.key, k.job_id),
     -- `in` and `not in` look each id up; the planner cannot know how many there are and would compare all with all.
     refused as materialized (
       select y.id, y.type, y.idempotency_key, y.rival from keyed y where y.id not in (select t.job_id from taken t)),
     named as (
       select r.id, coalesce(r.rival, t.job_id) as by
       from (select * from refused order by id limit 10) r
       left join taken t on t.type = r.type and t.key = r.idempotency_key),
     free as materialized (
       select l.id from locked l where l.idempotency_key is null or l.id in (select t.job_id from taken t)),
     changed as (
       update jobdeck.jobs j set status = 'pending', attempts = 0, stalled_count = 0, run_after = now(),
         finished_at = null, locked_at = null, locked_by = null, lease_expires_at = null, cancel_requested_at = null,
         stage = null, progress = null, stages_at = '{}',
         version = j.version + 1, updated_at = now()
       from free f where j.id = f.id
       returning j.id, j.queue),
     woken as (
       select jobdeck.wake(q.queue) from (select distinct queue from changed) q)",
    step_tail!("(select count(*) from woken)")
);

/// As `job_cancel` in `admin.rs`, for each row.
const CANCEL: &str = concat!(
    step_head!("pending" "running" "retrying"),
    "changed as (
       update jobdeck.jobs j set
         token = l.token, attempts = l.attempts, started_at = l.started_at, locked_at = l.locked_at,
         locked_by = l.locked_by, lease_expires_at = l.lease_expires_at,
         status = case when l.status = 'running' then l.status else 'canceled' end,
         finished_at = case when l.status = 'running' then null else now() end,
         cancel_requested_at = now(), version = j.version + 1, updated_at = now()
       from locked l where j.id = l.id
       returning j.id, j.type, j.idempotency_key, j.status),
     held as materialized (
       select k.type, k.key from jobdeck.idempotency_keys k
       join changed c on k.type = c.type and k.key = c.idempotency_key and k.job_id = c.id
       where c.status = 'canceled'
       -- In one order, as all who take many keys do.
       order by k.type, k.key for update of k),
     freed as (
       delete from jobdeck.idempotency_keys k using held h where k.type = h.type and k.key = h.key),
     refused as (select where false),
     named as (select null::uuid as id, null::uuid as by where false)",
    step_tail!("0::bigint")
);

/// As `job_delete` in `retention.rs`, for each row.
const DELETE: &str = concat!(
    step_head!("succeeded" "failed" "canceled"),
    "changed as (
       delete from jobdeck.jobs j using locked l where j.id = l.id
       returning l.id, l.type, l.status, l.idempotency_key),
     held as materialized (
       select k.type, k.key from jobdeck.idempotency_keys k
       join changed c on k.type = c.type and k.key = c.idempotency_key and k.job_id = c.id
       order by k.type, k.key for update of k),
     freed as (
       delete from jobdeck.idempotency_keys k using held h where k.type = h.type and k.key = h.key),
     counted as (
       insert into jobdeck.job_removals as r (type, status, by_person, n_jobs)
       select type, status, true, count(*) from changed group by type, status order by type, status
       on conflict (type, status, by_person) do update set n_jobs = r.n_jobs + excluded.n_jobs, last_at = now()),
     refused as (select where false),
     named as (select null::uuid as id, null::uuid as by where false)",
    step_tail!("0::bigint")
);

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
            "with ends as materialized (
               -- The first and the last job in each state. In this order only the index of states has them.
               select min(f.id::text) filter (where f.status = s.state::jobdeck.job_state) as first_id,
                 max(l.id::text) filter (where l.status = s.state::jobdeck.job_state) as last_id
               from unnest($8::text[]) as s (state)
               cross join lateral (
                 select j.id, j.status from jobdeck.jobs j where j.status <= s.state::jobdeck.job_state
                 order by j.status desc, j.id limit 1) f
               cross join lateral (
                 select j.id, j.status from jobdeck.jobs j where j.status >= s.state::jobdeck.job_state
                 order by j.status, j.id desc limit 1) l),
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

    /// Takes the operation one batch of at most `limit` jobs further, in one statement, and returns it as it is then. `None` if it
    /// does not run, or another process is at it just now. Killed halfway it leaves no trace.
    ///
    /// # Errors
    /// If the database refuses, nothing is changed; see [`Store::bulk_note_error`]. [`StoreError::Json`] if a newer version wrote
    /// a target that this one cannot read: leave the operation to others.
    pub async fn bulk_step(&self, id: Uuid, limit: i32) -> Result<Option<BulkOperation>, StoreError> {
        let Some(operation) = self.bulk_get(id).await?.filter(|operation| operation.state == BulkState::Running) else {
            return Ok(None);
        };
        let (filter, ids) = match operation.target()? {
            BulkTarget::Matching(filter) => (filter, None),
            BulkTarget::Jobs(ids) => (JobFilter::default(), Some(ids)),
        };
        let statement = match operation.action {
            BulkAction::Retry => RETRY,
            BulkAction::Cancel => CANCEL,
            BulkAction::Delete => DELETE,
        };
        let states: Vec<&str> = states(operation.action, &filter).into_iter().map(JobState::as_str).collect();
        Ok(sqlx::query_as(statement)
            // Planned for this filter.
            .persistent(false)
            .bind(id)
            .bind(states)
            .bind(limit.max(1))
            .bind(&filter.job_type)
            .bind(&filter.queue)
            .bind(filter.class.map(FailureClass::as_str))
            .bind(&filter.code)
            .bind(filter.text.as_deref().map(contains_pattern))
            .bind(ids.as_deref().unwrap_or_default())
            .bind(ids.is_some())
            .bind(filter.state.is_some())
            .bind(i64::from(operation.looks))
            .bind(operation.cursor)
            .bind(operation.last_id)
            .fetch_optional(&self.pool)
            .await?)
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
