//! Schedules and what became of their ticks. What a person does leaves one audit row in the same statement.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use sqlx::types::Json;

use super::enqueue::check_value;
use super::{Actor, Store, StoreError};
use crate::schedule::Plan;
use crate::{JobId, MissedPolicy, Recurrence, Schedule};

/// One row of `jobdeck.schedules`. All times are the database's.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct ScheduleInfo {
    /// Unique.
    pub name: String,
    /// When, by the clock of `zone`; see [`Recurrence`].
    pub cron: String,
    /// A name of the IANA database.
    pub zone: String,
    /// What its jobs do; column `type`.
    #[sqlx(rename = "type")]
    pub job_type: String,
    /// Of each job, but for `tick_field`.
    #[sqlx(json)]
    pub payload: Value,
    /// The payload's field that gets the tick's time.
    pub tick_field: Option<String>,
    /// Where its jobs wait; the type's queue if none.
    pub queue: Option<String>,
    /// Of its jobs; the type's if none.
    pub priority: Option<i16>,
    /// Whose jobs they are.
    pub owner: Option<String>,
    /// Of its jobs.
    pub tags: Vec<String>,
    /// What becomes of missed ticks.
    #[sqlx(flatten)]
    pub missed: MissedPolicy,
    /// Which declarations may replace it: those of its own or a higher revision.
    pub revision: i32,
    /// The person who made it; none if a program declares it.
    pub created_by: Option<String>,
    /// The next tick, also while it is paused; none if there is no other.
    pub next_at: Option<DateTime<Utc>>,
    /// Since when it is paused.
    pub paused_at: Option<DateTime<Utc>>,
    /// By whom.
    pub paused_by: Option<String>,
    /// Why workers cannot run it.
    pub problem: Option<String>,
    /// When a worker that runs it was last there, to the minute.
    pub seen_at: Option<DateTime<Utc>>,
    /// Whether a worker that runs it was there in the last three minutes. If not, no program declares it any more, or none is up.
    pub is_run: bool,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Last change of what is to be done and when.
    pub changed_at: DateTime<Utc>,
}

impl ScheduleInfo {
    /// The next ticks, at most `n`; none while it is paused or cannot be read.
    pub fn next_runs(&self, n: usize) -> Vec<DateTime<Utc>> {
        let (Some(next_at), None, Ok(recurrence)) =
            (self.next_at, self.paused_at, Recurrence::parse(&self.cron, &self.zone))
        else {
            return Vec::new();
        };
        let later = recurrence.upcoming(next_at, n.saturating_sub(1));
        std::iter::once(next_at).chain(later).take(n).collect()
    }
}

impl<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> for MissedPolicy {
    fn from_row(row: &'r sqlx::postgres::PgRow) -> Result<Self, sqlx::Error> {
        use sqlx::Row;
        let at_most: Option<i32> = row.try_get("missed_at_most")?;
        Ok(match row.try_get::<&str, _>("missed")? {
            "skip" => Self::Skip,
            "all" => Self::All { at_most: at_most.and_then(|at_most| u16::try_from(at_most).ok()).unwrap_or(1) },
            _ => Self::Once,
        })
    }
}

/// What became of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TickOutcome {
    /// A job was enqueued.
    Enqueued,
    /// Another job holds the idempotency key, so there is no new one.
    Duplicate,
    /// The job was not acceptable: the type's policy, or what a payload may be. The next tick tries again.
    Refused,
    /// It was missed and not made up for.
    Skipped,
}

impl TickOutcome {
    /// The word used in SQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enqueued => "enqueued",
            Self::Duplicate => "duplicate",
            Self::Refused => "refused",
            Self::Skipped => "skipped",
        }
    }
}

impl TryFrom<String> for TickOutcome {
    type Error = String;
    fn try_from(word: String) -> Result<Self, Self::Error> {
        [Self::Enqueued, Self::Duplicate, Self::Refused, Self::Skipped]
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
            .ok_or_else(|| format!("unknown outcome {word:?}"))
    }
}

/// One row of `jobdeck.schedule_ticks`: what became of one tick, or of a person's "run now". The newest 1,000 of each schedule are
/// kept.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct Tick {
    /// Whose tick.
    pub schedule: String,
    /// The time the schedule names, or that of the press.
    pub tick_at: DateTime<Utc>,
    /// What became of it.
    #[sqlx(try_from = "String")]
    pub outcome: TickOutcome,
    /// The new job, or the one that held the key. It may be pruned meanwhile.
    pub job_id: Option<JobId>,
    /// Why it was refused.
    pub error: Option<String>,
    /// Missed ticks this row stands for, counted up to 10,000: of a skipped one, itself and those before it; else those merged into
    /// this run.
    pub n_missed: i32,
    /// The first of them.
    pub missed_from: Option<DateTime<Utc>>,
    /// Who pressed "run now".
    pub requested_by: Option<String>,
    /// Which worker saw to it.
    pub worker: Option<String>,
    /// When it was seen to.
    pub created_at: DateTime<Utc>,
}

/// What a person's change of a schedule came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleChange {
    /// It is as asked now.
    Done,
    /// It was so before.
    Unchanged,
    /// There is no such schedule.
    NotFound,
}

/// What making a schedule came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleCreated {
    /// It is there.
    Created,
    /// Another has its name.
    NameTaken,
}

/// What deleting a schedule came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleDeleted {
    /// It is gone, and its history with it; its jobs stay.
    Deleted,
    /// A program that runs declares it: it would come back. Pause it instead.
    StillDeclared,
    /// There is no such schedule.
    NotFound,
}

/// What "run now" came to.
#[derive(Clone, Debug, PartialEq)]
pub enum RunNow {
    /// As in the history: with a job, or with the reason why there is none.
    Done(Tick),
    /// There is no such schedule.
    NotFound,
}

/// What a scheduler needs to know.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct DueSchedule {
    pub(crate) name: String,
    pub(crate) version: i64,
    pub(crate) cron: String,
    pub(crate) zone: String,
    #[sqlx(flatten)]
    pub(crate) missed: MissedPolicy,
    pub(crate) next_at: DateTime<Utc>,
    /// The database's clock.
    pub(crate) now: DateTime<Utc>,
}

/// A schedule as it is written.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    cron: &'a str,
    zone: &'a str,
    r#type: &'a str,
    payload: &'a Value,
    tick_field: Option<&'a str>,
    queue: Option<&'a str>,
    priority: Option<i16>,
    key: Option<&'a str>,
    owner: Option<String>,
    tags: &'a [String],
    missed: &'a str,
    missed_at_most: Option<u16>,
    revision: i32,
    next_at: Option<DateTime<Utc>>,
}

impl<'a> Row<'a> {
    fn of(schedule: &'a Schedule, now: DateTime<Utc>) -> Result<Self, StoreError> {
        Ok(Self {
            next_at: schedule.check()?.next_after(now),
            name: &schedule.name,
            cron: &schedule.cron,
            zone: &schedule.zone,
            r#type: &schedule.job_type,
            payload: &schedule.payload,
            tick_field: schedule.tick_field.as_deref(),
            queue: schedule.queue.as_deref(),
            priority: schedule.priority,
            key: schedule.key.as_deref(),
            owner: schedule.owner.as_ref().map(|owner| owner.chars().take(200).collect()),
            tags: &schedule.tags,
            missed: schedule.missed.as_str(),
            missed_at_most: schedule.missed.at_most(),
            revision: schedule.revision,
        })
    }
}

macro_rules! info {
    ($rest:literal) => {
        concat!(
            "select name, cron, zone, type, payload, tick_field, queue, priority, owner, tags, missed, missed_at_most, revision,
               created_by, next_at, paused_at, paused_by, problem, seen_at,
               coalesce(seen_at > now() - interval '3 minutes', false) as is_run, created_at, changed_at
             from jobdeck.schedules ",
            $rest
        )
    };
}

impl Store {
    /// Refuses payloads that could not be stored.
    pub(crate) fn payload_check(payload: &Value) -> Result<(), StoreError> {
        check_value(&mut "payload".to_owned(), 0, payload)?;
        let bytes = payload.to_string().len();
        if bytes > Self::MAX_PAYLOAD_BYTES {
            return Err(StoreError::PayloadTooLarge { bytes, limit: Self::MAX_PAYLOAD_BYTES });
        }
        Ok(())
    }

    /// Writes what a program declares, in one statement. A schedule that is as declared stays untouched; another becomes as
    /// declared unless its revision is higher. A person's pause stays. One whose expression or zone is another goes on with the
    /// next tick from now.
    ///
    /// Types that no worker has registered are registered with the policy this program knows.
    ///
    /// # Errors
    /// [`StoreError::Schedule`] if a value makes no sense; if the database does.
    pub async fn schedule_declare(&self, schedules: &[Schedule]) -> Result<(), StoreError> {
        if schedules.is_empty() {
            return Ok(());
        }
        let types: Vec<&str> = schedules.iter().map(|schedule| schedule.job_type.as_str()).collect();
        let (now, known): (DateTime<Utc>, Vec<String>) =
            sqlx::query_as("select now(), coalesce(array_agg(type), '{}') from jobdeck.job_types where type = any($1)")
                .bind(types)
                .fetch_one(&self.pool)
                .await?;
        let rows = schedules.iter().map(|schedule| Row::of(schedule, now)).collect::<Result<Vec<_>, _>>()?;
        let mut unknown: Vec<_> = schedules
            .iter()
            .filter(|schedule| !known.contains(&schedule.job_type))
            .filter_map(|schedule| Some((schedule.job_type.clone(), schedule.policy.clone()?)))
            .collect();
        unknown.sort_by(|one, other| one.0.cmp(&other.0));
        unknown.dedup_by(|one, other| one.0 == other.0);
        if !unknown.is_empty() {
            let mut connection = self.pool.acquire().await?;
            Self::job_type_register(&mut connection, &unknown).await?;
        }
        sqlx::query(
            "with input as materialized (
               select * from jsonb_to_recordset($1) as i (name text, cron text, zone text, type text, payload jsonb, tick_field text,
                 queue text, priority smallint, key text, owner text, tags text[], missed text, missed_at_most integer,
                 revision integer, next_at timestamptz)),
             changed as (
               insert into jobdeck.schedules as s (name, cron, zone, type, payload, tick_field, queue, priority, key, owner, tags,
                 missed, missed_at_most, revision, next_at, seen_at)
               select name, cron, zone, type, payload, tick_field, queue, priority, key, owner, tags, missed, missed_at_most,
                 revision, next_at, now()
               from input order by name
               on conflict (name) do update set cron = excluded.cron, zone = excluded.zone, type = excluded.type,
                 payload = excluded.payload, tick_field = excluded.tick_field, queue = excluded.queue,
                 priority = excluded.priority, key = excluded.key, owner = excluded.owner, tags = excluded.tags,
                 missed = excluded.missed, missed_at_most = excluded.missed_at_most, revision = excluded.revision,
                 created_by = null, problem = null, version = s.version + 1, changed_at = now(), seen_at = now(),
                 next_at = case when (s.cron, s.zone) is distinct from (excluded.cron, excluded.zone) then excluded.next_at
                   else s.next_at end
               where s.created_by is not null or (s.revision <= excluded.revision
                 and (s.cron, s.zone, s.type, s.payload, s.tick_field, s.queue, s.priority, s.key, s.owner, s.tags, s.missed,
                   s.missed_at_most, s.revision)
                 is distinct from (excluded.cron, excluded.zone, excluded.type, excluded.payload, excluded.tick_field,
                   excluded.queue, excluded.priority, excluded.key, excluded.owner, excluded.tags, excluded.missed,
                   excluded.missed_at_most, excluded.revision))
               returning 1)
             select pg_notify('jobdeck_schedules', '') from (select from changed limit 1) c",
        )
        .bind(Json(rows))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The schedules of these names and those people made, soonest first. Paused ones, and those without a further tick, are left
    /// out.
    pub(crate) async fn schedule_list_due(&self, names: &[String]) -> Result<Vec<DueSchedule>, StoreError> {
        Ok(sqlx::query_as(
            "select name, version, cron, zone, missed, missed_at_most, next_at, now() as now from jobdeck.schedules
             where (name = any($1) or created_by is not null) and paused_at is null and next_at is not null
             order by next_at, name",
        )
        .bind(names)
        .fetch_all(&self.pool)
        .await?)
    }

    /// Sees to the ticks of `plan`, in one statement with their jobs. Empty if another was faster or the schedule changed.
    pub(crate) async fn schedule_run(
        &self,
        schedule: &DueSchedule,
        plan: &Plan,
        worker: &str,
    ) -> Result<Vec<Tick>, StoreError> {
        let skipped_at = plan.missed.filter(|_| !plan.merges).map(|missed| missed.last);
        Ok(sqlx::query_as(
            "select schedule, tick_at, outcome::text, job_id, error, n_missed, missed_from, requested_by, worker, created_at
             from jobdeck.run_schedule($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(&schedule.name)
        .bind(schedule.version)
        .bind(schedule.next_at)
        .bind(&plan.run)
        .bind(plan.missed.map_or(0, |missed| missed.n_ticks))
        .bind(plan.missed.map(|missed| missed.first))
        .bind(skipped_at)
        .bind(plan.next_at)
        .bind(worker)
        .fetch_all(&self.pool)
        .await?)
    }

    /// Notes why a schedule cannot be run.
    pub(crate) async fn schedule_note_problem(&self, schedule: &DueSchedule, problem: &str) -> Result<(), StoreError> {
        sqlx::query(
            "update jobdeck.schedules set problem = $3
             where name = $1 and version = $2 and problem is distinct from $3",
        )
        .bind(&schedule.name)
        .bind(schedule.version)
        .bind(problem)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Notes that a worker is there that runs these schedules and those people made.
    pub(crate) async fn schedule_seen(&self, names: &[String]) -> Result<(), StoreError> {
        sqlx::query(
            "with stale as materialized (
               select name from jobdeck.schedules
               where (name = any($1) or created_by is not null) and coalesce(seen_at < now() - interval '50 seconds', true)
               order by name for update skip locked)
             update jobdeck.schedules s set seen_at = now() from stale where s.name = stale.name",
        )
        .bind(names)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Removes all but the newest 1,000 ticks of each of these schedules and of those people made.
    pub(crate) async fn schedule_prune(&self, names: &[String]) -> Result<(), StoreError> {
        sqlx::query(
            "delete from jobdeck.schedule_ticks t using (
               select s.name, (select h.tick_at from jobdeck.schedule_ticks h where h.schedule = s.name
                 order by h.tick_at desc offset 1000 limit 1) as last_at
               from jobdeck.schedules s where s.name = any($1) or s.created_by is not null) old
             where t.schedule = old.name and t.tick_at <= old.last_at",
        )
        .bind(names)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// All schedules, by name.
    ///
    /// # Errors
    /// If the database does.
    pub async fn schedule_list(&self) -> Result<Vec<ScheduleInfo>, StoreError> {
        Ok(sqlx::query_as(info!("order by name")).fetch_all(&self.pool).await?)
    }

    /// One schedule.
    ///
    /// # Errors
    /// If the database does.
    pub async fn schedule_get(&self, name: &str) -> Result<Option<ScheduleInfo>, StoreError> {
        Ok(sqlx::query_as(info!("where name = $1")).bind(name).fetch_optional(&self.pool).await?)
    }

    /// The newest ticks of each of these schedules, at most `limit` of each, newest first.
    ///
    /// # Errors
    /// If the database does.
    pub async fn schedule_history(&self, names: &[String], limit: i64) -> Result<Vec<Tick>, StoreError> {
        Ok(sqlx::query_as(
            "select t.schedule, t.tick_at, t.outcome::text, t.job_id, t.error, t.n_missed, t.missed_from, t.requested_by,
               t.worker, t.created_at
             from unnest($1::text[]) as s (name)
             cross join lateral (
               select * from jobdeck.schedule_ticks t where t.schedule = s.name order by t.tick_at desc limit $2) t
             order by t.schedule, t.tick_at desc",
        )
        .bind(names)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?)
    }

    /// The tick a job came from, if a schedule enqueued it and the tick is still in the history.
    ///
    /// # Errors
    /// If the database does.
    pub async fn schedule_tick_of(&self, job_id: JobId) -> Result<Option<Tick>, StoreError> {
        Ok(sqlx::query_as(
            "select schedule, tick_at, outcome::text, job_id, error, n_missed, missed_from, requested_by, worker, created_at
             from jobdeck.schedule_ticks where job_id = $1 and outcome = 'enqueued'",
        )
        .bind(job_id)
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Makes a schedule for a person. Every worker runs it.
    ///
    /// # Errors
    /// [`StoreError::Schedule`] if a value makes no sense; if the database does.
    pub async fn schedule_create(&self, schedule: &Schedule, actor: &Actor) -> Result<ScheduleCreated, StoreError> {
        let now: DateTime<Utc> = sqlx::query_scalar("select now()").fetch_one(&self.pool).await?;
        let row = Row::of(schedule, now)?;
        let made: Option<bool> = sqlx::query_scalar(
            "with made as (
               insert into jobdeck.schedules (name, cron, zone, type, payload, tick_field, queue, priority, key, owner, tags,
                 missed, missed_at_most, revision, next_at, created_by)
               select name, cron, zone, type, payload, tick_field, queue, priority, key, owner, tags, missed, missed_at_most,
                 revision, next_at, $3
               from jsonb_to_record($1) as i (name text, cron text, zone text, type text, payload jsonb, tick_field text,
                 queue text, priority smallint, key text, owner text, tags text[], missed text, missed_at_most integer,
                 revision integer, next_at timestamptz)
               on conflict (name) do nothing
               returning name, cron, zone, type, missed),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, after)
               select $2, $3, $4, 'create_schedule', m.name, 'done', to_jsonb(m) - 'name' from made m)
             select pg_notify('jobdeck_schedules', name) is not null from made",
        )
        .bind(Json(row))
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .fetch_optional(&self.pool)
        .await?;
        Ok(if made.is_some() { ScheduleCreated::Created } else { ScheduleCreated::NameTaken })
    }

    /// Removes a schedule with its history: one that a person made, or that no running program declares. Its jobs stay.
    ///
    /// # Errors
    /// If the database does.
    pub async fn schedule_delete(&self, name: &str, actor: &Actor) -> Result<ScheduleDeleted, StoreError> {
        let (found, deleted): (bool, bool) = sqlx::query_as(
            "with gone as (
               delete from jobdeck.schedules s
               where s.name = $1 and (s.created_by is not null or coalesce(s.seen_at < now() - interval '3 minutes', true))
               returning s.name, s.cron, s.zone, s.type, s.missed, s.created_by),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, before)
               select $2, $3, $4, 'delete_schedule', g.name, 'done', to_jsonb(g) - 'name' from gone g)
             select exists (select from jobdeck.schedules where name = $1), exists (select from gone)",
        )
        .bind(name)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .fetch_one(&self.pool)
        .await?;
        Ok(match (found, deleted) {
            (_, true) => ScheduleDeleted::Deleted,
            (true, false) => ScheduleDeleted::StillDeclared,
            (false, false) => ScheduleDeleted::NotFound,
        })
    }

    /// Stops a schedule. Once this returns none of its ticks enqueues a job, until it is resumed.
    ///
    /// # Errors
    /// If the database does.
    pub async fn schedule_pause(&self, name: &str, actor: &Actor) -> Result<ScheduleChange, StoreError> {
        let (found, changed): (bool, bool) = sqlx::query_as(
            "with changed as (
               update jobdeck.schedules s set paused_at = now(), paused_by = $3, version = s.version + 1
               where s.name = $1 and s.paused_at is null
               returning s.name),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome)
               select $2, $3, $4, 'pause_schedule', c.name, 'done' from changed c)
             select exists (select from jobdeck.schedules where name = $1), exists (select from changed)",
        )
        .bind(name)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .fetch_one(&self.pool)
        .await?;
        Ok(change(found, changed))
    }

    /// Lets a paused schedule go on with the next tick from now; those that passed meanwhile are not made up for.
    ///
    /// # Errors
    /// If the database does.
    pub async fn schedule_resume(&self, name: &str, actor: &Actor) -> Result<ScheduleChange, StoreError> {
        loop {
            let row: Option<(String, String, i64, bool, DateTime<Utc>)> = sqlx::query_as(
                "select cron, zone, version, paused_at is not null, now() from jobdeck.schedules where name = $1",
            )
            .bind(name)
            .fetch_optional(&self.pool)
            .await?;
            let Some((cron, zone, version, is_paused, now)) = row else { return Ok(ScheduleChange::NotFound) };
            if !is_paused {
                return Ok(ScheduleChange::Unchanged);
            }
            // One that cannot be read stays as it is; workers note why.
            let next_at = Recurrence::parse(&cron, &zone).ok().map(|recurrence| recurrence.next_after(now));
            let changed: Option<bool> = sqlx::query_scalar(
                "with changed as (
                   update jobdeck.schedules s set paused_at = null, paused_by = null, version = s.version + 1,
                     next_at = case when $6 then $7 else s.next_at end
                   where s.name = $1 and s.version = $5 and s.paused_at is not null
                   returning s.name),
                 noted as (
                   insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome)
                   select $2, $3, $4, 'resume_schedule', c.name, 'done' from changed c)
                 select pg_notify('jobdeck_schedules', name) is not null from changed",
            )
            .bind(name)
            .bind(actor.user_id)
            .bind(&actor.name)
            .bind(&actor.address)
            .bind(version)
            .bind(next_at.is_some())
            .bind(next_at.flatten())
            .fetch_optional(&self.pool)
            .await?;
            // Otherwise it changed since it was read.
            if changed.is_some() {
                return Ok(ScheduleChange::Done);
            }
        }
    }

    /// Enqueues a job now, beside the schedule's own ticks; also while it is paused. Each press is a job of its own, as far as the
    /// type's idempotency key allows.
    ///
    /// # Errors
    /// If the database does.
    pub async fn schedule_run_now(&self, name: &str, actor: &Actor) -> Result<RunNow, StoreError> {
        let tick: Option<Tick> = sqlx::query_as(
            "with target as materialized (select s as schedule from jobdeck.schedules s where s.name = $1 for update),
             made as materialized (
               select m.* from target t
               cross join lateral jobdeck.enqueue_tick(t.schedule, clock_timestamp(), 0, null, $3, null) m),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, after)
               select $2, $3, $4, 'run_schedule', m.schedule, 'done', jsonb_build_object('outcome', m.outcome, 'job_id', m.job_id)
               from made m)
             select schedule, tick_at, outcome::text, job_id, error, n_missed, missed_from, requested_by, worker, created_at
             from made where schedule is not null",
        )
        .bind(name)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .fetch_optional(&self.pool)
        .await?;
        Ok(tick.map_or(RunNow::NotFound, RunNow::Done))
    }
}

fn change(found: bool, changed: bool) -> ScheduleChange {
    match (found, changed) {
        (_, true) => ScheduleChange::Done,
        (true, false) => ScheduleChange::Unchanged,
        (false, false) => ScheduleChange::NotFound,
    }
}
