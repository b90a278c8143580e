//! One batch of a bulk operation: finds the next jobs, locks them, changes them, writes the operation's new place, in one statement.

use uuid::Uuid;

use super::{BulkOperation, BulkTarget, states};
use crate::store::jobs::{contains_pattern, text_matches};
use crate::store::{JobFilter, Store, StoreError};
use crate::{BulkAction, BulkState, FailureClass, JobState};

/// What finding the jobs of a batch needs of a row.
macro_rules! found_columns {
    () => {
        "j.id, j.type, j.queue, j.status, j.error_class, j.error_code, j.idempotency_key, j.payload_preview, j.owner, j.last_error,
         j.cancel_requested_at, j.created_at, j.started_at, j.updated_at, j.finished_at"
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
                 and ", text_matches!("$8"), "
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
       on conflict (type, key) do update set (job_id, payload_digest, expires_at) = (
         select case when f.free then excluded.job_id else k.job_id end,
           case when f.free then excluded.payload_digest else k.payload_digest end,
           case when f.free then null else k.expires_at end
         from (select jobdeck.key_is_free(k.expires_at, k.job_id) as free) f)
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

impl Store {
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
}
