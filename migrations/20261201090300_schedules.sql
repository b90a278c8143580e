-- Jobs that come again and again: what is to be enqueued when, and what became of each time. See docs/schedules.md.

create table jobdeck.schedules (
  name text primary key constraint schedule_name_valid check (
    name collate "C" !~ '[^A-Za-z0-9_.:-]' and name collate "C" !~ '^[.:-]' and octet_length(name) between 1 and 100),
  -- five or six fields; read by workers, in `zone`
  cron text not null constraint schedule_cron_length check (octet_length(cron) between 1 and 200),
  -- a name of the IANA time zone database
  zone text not null constraint schedule_zone_length check (octet_length(zone) between 1 and 100),
  type text not null,
  payload jsonb not null constraint schedule_payload_is_object check (jsonb_typeof(payload) = 'object'),
  -- the payload's field that gets the tick's time; null is none
  tick_field text constraint schedule_tick_field_length check (octet_length(tick_field) between 1 and 200),
  -- null is the type's
  queue text,
  priority smallint,
  -- the idempotency key of types that make theirs in Rust code
  key text constraint schedule_key_length check (octet_length(key) between 1 and 1024),
  owner text,
  tags text[] not null default '{}',
  -- what becomes of ticks that nobody was there for: skip, once or all
  missed text not null default 'once' constraint schedule_missed_known check (missed in ('skip', 'once', 'all')),
  -- of 'all': how many of them run
  missed_at_most integer constraint schedule_missed_at_most_in_range check (missed_at_most between 1 and 1000),
  -- a declaration replaces those of its own or a lower revision
  revision integer not null default 0,
  -- the person who made it; null when a program declares it
  created_by text,
  -- the next tick to be seen to; null when the expression has no more
  next_at timestamptz constraint schedule_next_at_plausible check (next_at between '1970-01-01Z' and '9999-12-31Z'),
  paused_at timestamptz,
  paused_by text,
  -- why workers cannot run it: an expression or zone that they cannot read
  problem text,
  -- grows with each change of what is to be done and when, a tick apart
  version bigint not null default 0,
  -- when a worker that runs it was last there, to the minute
  seen_at timestamptz,
  created_at timestamptz not null default now(),
  -- last change of what is to be done and when
  changed_at timestamptz not null default now(),
  constraint schedule_paused_by_iff_paused check ((paused_at is null) = (paused_by is null)),
  constraint schedule_missed_at_most_iff_all check ((missed = 'all') = (missed_at_most is not null))
);

-- enqueued: there is a job. duplicate: another job held the idempotency key. refused: the job was not acceptable, see `error`.
-- skipped: missed, and not made up for.
create type jobdeck.tick_outcome as enum ('enqueued', 'duplicate', 'refused', 'skipped');

-- What became of each tick.
create table jobdeck.schedule_ticks (
  schedule text not null references jobdeck.schedules (name) on delete cascade,
  -- the time the schedule names, or that of a person's press
  tick_at timestamptz not null,
  outcome jobdeck.tick_outcome not null,
  -- the new job, or the one that held the key. No foreign key: the tick stays when the job goes
  job_id uuid,
  error text,
  -- missed ticks this row stands for: those that were skipped, this one included, or those merged into this run
  n_missed integer not null default 0 constraint tick_missed_not_negative check (n_missed >= 0),
  -- the first of them
  missed_from timestamptz,
  -- the person who pressed "run now"; null for a tick that came by itself
  requested_by text,
  -- which worker saw to it
  worker text,
  created_at timestamptz not null default now(),
  -- Promises one job for each tick, however many workers see to it.
  primary key (schedule, tick_at),
  constraint tick_job_iff_enqueued check ((outcome in ('enqueued', 'duplicate')) = (job_id is not null)),
  constraint tick_error_iff_refused check ((outcome = 'refused') = (error is not null)),
  constraint tick_missed_from_iff_missed check ((n_missed > 0) = (missed_from is not null))
);
-- Serves the job's page.
create index schedule_tick_job_idx on jobdeck.schedule_ticks (job_id) where job_id is not null;

-- Enqueues the job of one tick and notes it, in the caller's transaction; the schedule's row must be locked. Nothing happens if the
-- tick has its row already.
create function jobdeck.enqueue_tick(
  schedule jobdeck.schedules, due timestamptz, n_missed integer, missed_from timestamptz, by_person text, by_worker text)
returns jobdeck.schedule_ticks
language plpgsql as $$
declare
  tick jobdeck.schedule_ticks;
  made record;
begin
  if exists (select from jobdeck.schedule_ticks t where t.schedule = enqueue_tick.schedule.name and t.tick_at = due) then
    return null;
  end if;
  tick.schedule := schedule.name;
  tick.tick_at := due;
  tick.n_missed := enqueue_tick.n_missed;
  tick.missed_from := enqueue_tick.missed_from;
  tick.requested_by := by_person;
  tick.worker := by_worker;
  tick.created_at := now();
  begin
    select e.id, e.is_new into strict made from jobdeck.enqueue(
      type => schedule.type,
      payload => case when schedule.tick_field is null then schedule.payload
        -- Not the session's zone, but always UTC.
        else schedule.payload
          || jsonb_build_object(schedule.tick_field, (to_jsonb(due at time zone 'UTC') #>> '{}') || 'Z') end,
      queue => schedule.queue, priority => schedule.priority::integer, key => schedule.key,
      owner => schedule.owner, created_by => 'schedule ' || schedule.name,
      tags => schedule.tags) e;
    tick.job_id := made.id;
    tick.outcome := case when made.is_new then 'enqueued' else 'duplicate' end;
  exception
    -- What the value is to blame for would be refused again; anything else ends the call and is tried again.
    when data_exception or integrity_constraint_violation or program_limit_exceeded then
      tick.outcome := 'refused';
      tick.error := left(sqlerrm, 1000);
  end;
  insert into jobdeck.schedule_ticks select tick.*;
  return tick;
end
$$;

-- Sees to the ticks of one schedule that are due, and moves it on to `new_next_at`. `run_at` are the ticks that get a job; missed
-- ones stand in the first of them, or if `skipped_at` is given, in a row of their own. Nothing happens if another worker was faster,
-- or if the schedule is no longer as the caller read it.
create function jobdeck.run_schedule(
  of_schedule text, seen_version bigint, seen_next_at timestamptz, run_at timestamptz[], n_missed integer, missed_from timestamptz,
  skipped_at timestamptz, new_next_at timestamptz, by_worker text)
returns setof jobdeck.schedule_ticks
language plpgsql
-- A key that someone's open transaction holds must not keep the other schedules waiting.
set lock_timeout = '2s' as $$
declare
  schedule jobdeck.schedules;
  tick jobdeck.schedule_ticks;
  due timestamptz;
  is_first boolean := true;
begin
  select s.* into schedule from jobdeck.schedules s
  where s.name = of_schedule and s.version = seen_version and s.next_at = seen_next_at and s.next_at <= now() and s.paused_at is null
    and not exists (select from unnest(run_at) as r (due) where r.due > now())
  for update skip locked;
  if not found then
    return;
  end if;
  update jobdeck.schedules s set next_at = new_next_at, problem = null where s.name = of_schedule;
  if skipped_at is not null then
    insert into jobdeck.schedule_ticks (schedule, tick_at, outcome, n_missed, missed_from, worker)
    values (of_schedule, skipped_at, 'skipped', run_schedule.n_missed, run_schedule.missed_from, by_worker)
    on conflict do nothing;
  end if;
  foreach due in array run_at loop
    tick := jobdeck.enqueue_tick(schedule, due,
      case when is_first and skipped_at is null then run_schedule.n_missed else 0 end,
      case when is_first and skipped_at is null then run_schedule.missed_from end, null, by_worker);
    is_first := false;
    if tick.schedule is not null then
      return next tick;
    end if;
  end loop;
end
$$;
