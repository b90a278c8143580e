-- Exact counts in constant time, limits across workers, cool-downs, and claims that read only what they may take.

-- Looked at where the payload is written: what the triggers below look at, they look at with each change of a row.
create domain jobdeck.json_object as jsonb constraint job_payload_is_object check (jsonb_typeof(value) = 'object');

-- What must hold of a row: the name of what it breaks, null when it is sound. Triggers ask it for all rows of a statement at once:
-- check constraints of the table are read from the catalogue for each statement, and two dozen of them cost a single insert more
-- than all else it does. One expression, so that it is inlined there.
create function jobdeck.job_flaw(
  status jobdeck.job_state, attempts integer, max_attempts integer, starts integer, token bigint, lease_expires_at timestamptz,
  locked_by text, locked_at timestamptz, started_at timestamptz, finished_at timestamptz, run_after timestamptz,
  created_at timestamptz, updated_at timestamptz, has_result boolean, stalled_count integer, max_stalled integer,
  progress smallint, idempotency_key text, has_digest boolean, limit_key text, payload_preview text)
returns text
language sql immutable parallel safe as $$
  select case
    when attempts < 0 or attempts > max_attempts then 'job_attempts_in_range'
    when max_attempts < 1 then 'job_max_attempts_positive'
    when status in ('pending', 'retrying') and attempts >= max_attempts then 'job_waiting_has_attempts_left'
    when (status = 'running') <> (lease_expires_at is not null) or (status = 'running') <> (locked_by is not null)
      or (status = 'running') <> (locked_at is not null) then 'job_running_iff_leased'
    when status = 'running' and (token < 1 or attempts < 1 or started_at is null) then 'job_running_has_started'
    when (status in ('succeeded', 'failed', 'canceled')) <> (finished_at is not null) then 'job_finished_at_iff_final'
    when has_result and status <> 'succeeded' then 'job_result_only_if_succeeded'
    when max_stalled < 0 or stalled_count < 0 or stalled_count > max_stalled + 1 then 'job_stalls_in_range'
    when progress not between 0 and 100 then 'job_progress_is_percent'
    when idempotency_key is not null and not has_digest then 'job_key_has_digest'
    when octet_length(idempotency_key) not between 1 and 1024 then 'job_key_length'
    when octet_length(limit_key) not between 1 and 200 then 'job_limit_key_length'
    when length(payload_preview) > 200 then 'job_payload_preview_length'
    when starts < 0 or token < 0 then 'job_starts_not_negative'
    -- Infinity and years beyond the range of programs' date types would break every reader of the row.
    when least(run_after, created_at, updated_at, lease_expires_at, finished_at) < timestamptz '1970-01-01Z'
      or greatest(run_after, created_at, updated_at, lease_expires_at, finished_at) > timestamptz '9999-12-31Z'
      then 'job_times_plausible'
  end
$$;

-- The same for the names of its type and queue.
create function jobdeck.job_name_flaw(type text, queue text)
returns text
language sql immutable parallel safe as $$
  select case
    when type collate "C" !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$' then 'job_type_valid'
    when queue collate "C" !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$' then 'job_queue_valid'
  end
$$;

create function jobdeck.refuse_flaw(flaw text)
returns boolean
language plpgsql strict as $$
begin
  raise exception 'a job''s row would break %', flaw
    using errcode = 'check_violation', constraint = flaw, schema = 'jobdeck', table = 'jobs';
end
$$;

alter table jobdeck.jobs
  add column tags text[] not null default '{}',
  -- jobs with the same value share the queue's key_limit
  add column limit_key text collate "C",
  -- the job this one repeats, as a person asked; not a foreign key, since the original may be pruned
  add column rerun_of uuid;

alter table jobdeck.jobs
  drop constraint job_type_valid,
  drop constraint job_queue_valid,
  drop constraint job_payload_is_object,
  drop constraint job_payload_preview_length,
  drop constraint job_key_length,
  drop constraint job_progress_is_percent,
  drop constraint job_times_plausible,
  drop constraint job_attempts_in_range,
  drop constraint job_max_attempts_positive,
  drop constraint job_waiting_has_attempts_left,
  drop constraint job_running_iff_leased,
  drop constraint job_running_has_started,
  drop constraint job_finished_at_iff_final,
  drop constraint job_result_only_if_succeeded,
  drop constraint job_stalls_in_range,
  drop constraint job_key_has_digest,
  drop constraint job_starts_not_negative,
  alter column payload type jobdeck.json_object;

alter table jobdeck.queues
  -- running jobs of this queue at once, over all workers; null is no limit
  add column concurrency_limit integer constraint queue_concurrency_limit_positive check (concurrency_limit > 0),
  -- running jobs at once with the same limit_key, over all workers; null is no limit
  add column key_limit integer constraint queue_key_limit_positive check (key_limit > 0);

-- Providers that asked for a pause. Types that name the provider are not claimed before `until`.
create table jobdeck.cool_downs (
  provider text primary key constraint cool_down_provider_length check (octet_length(provider) between 1 and 200),
  until timestamptz not null constraint cool_down_until_plausible check (until between '1970-01-01Z' and '9999-12-31Z'),
  reason text,
  set_at timestamptz not null default now()
);

alter table jobdeck.job_types
  -- whose cool-down stops this type
  add column if not exists provider text;

-- One expression, so that it is inlined where it is called.
create or replace function jobdeck.uuid_v7() returns uuid
language sql volatile parallel safe as $$
  select (lpad(to_hex((date_part('epoch', clock_timestamp()) * 1000)::bigint), 12, '0') || '-7'
    -- Only the version digit differs from the random (version 4) id, whose variant bits are already right.
    || substr(gen_random_uuid()::text, 16))::uuid
$$;

-- A claim reads one range for each type and priority it may take: neither unknown types nor jobs due later are passed over.
drop index jobdeck.job_claim_idx;
create index job_claim_idx on jobdeck.jobs (queue, type, priority desc, run_after, id)
  where status in ('pending', 'retrying');
-- Serves the claim of jobs that stalled, which run apart from the others.
create index job_suspect_idx on jobdeck.jobs (queue, type, run_after)
  where status in ('pending', 'retrying') and stalled_count > 0;
-- Serves limits, the reaper and the list of running jobs, which name its whole condition: running jobs and no others are locked by someone.
-- The guard of every outcome names the state, and with that alone as the condition the planner would look for a few ids among all
-- running jobs. The lease is not in it, so that renewing one stays a heap-only update.
drop index jobdeck.job_running_idx;
create index job_running_idx on jobdeck.jobs (queue, limit_key) where status = 'running' and locked_by is not null;
-- Serve the deck's lists and operations on many jobs, newest first: what waits, what has ended by type, and what did not end well.
-- An index of all jobs by state or by type would be written at each of a job's changes; of these, a job that succeeds is written to
-- two, once each.
drop index jobdeck.job_status_idx;
drop index jobdeck.job_type_idx;
create index job_waiting_idx on jobdeck.jobs (id desc) where status in ('pending', 'retrying');
create index job_ended_idx on jobdeck.jobs (type, status, id desc) where status in ('succeeded', 'failed', 'canceled');
create index job_failed_idx on jobdeck.jobs (status, id desc) where status in ('failed', 'canceled');

-- The one table of transitions (docs/state-machine.md) and the rule that tokens only grow: whether one must not happen.
create function jobdeck.transition_is_forbidden(
  old_status jobdeck.job_state, new_status jobdeck.job_state, old_token bigint, new_token bigint)
returns boolean
language sql immutable parallel safe as $$
  select new_token < old_token
    or (new_token <> old_token and new_status <> 'running')
    or (old_status <> new_status and not (
      (old_status = 'pending' and new_status in ('running', 'canceled'))
      or (old_status = 'running' and new_status in ('succeeded', 'retrying', 'failed', 'canceled', 'pending'))
      or (old_status = 'retrying' and new_status in ('running', 'canceled'))
      or (old_status in ('failed', 'canceled') and new_status = 'pending')))
    or (new_status = 'running' and old_status <> 'running' and new_token <= old_token)
    or (new_status = 'running' and old_status = 'running' and new_token <> old_token)
$$;

-- How many jobs there are: the sum of both tables. Writers only append to the second, so that no two of them ever wait for
-- each other; what is appended is folded into the first every second or so.
create table jobdeck.job_counters (
  queue text collate "C" not null,
  type text collate "C" not null,
  status jobdeck.job_state not null,
  n_jobs bigint not null,
  primary key (queue, type, status)
);
create table jobdeck.job_counter_deltas (
  queue text collate "C" not null,
  type text collate "C" not null,
  status jobdeck.job_state not null,
  n_jobs bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_insert_scale_factor = 0,
  autovacuum_vacuum_insert_threshold = 50000);

-- Each counts what a statement changed and refuses it when it broke a rule: one look at its rows for both.
create function jobdeck.count_inserted() returns trigger
language plpgsql as $$
begin
  insert into jobdeck.job_counter_deltas (queue, type, status, n_jobs)
  select r.queue, r.type, r.status, count(*) from new_rows r group by r.queue, r.type, r.status
  having jobdeck.refuse_flaw(coalesce(
    min(jobdeck.job_flaw(r.status, r.attempts, r.max_attempts, r.starts, r.token, r.lease_expires_at,
      r.locked_by, r.locked_at, r.started_at, r.finished_at, r.run_after, r.created_at, r.updated_at,
      r.result is not null, r.stalled_count, r.max_stalled, r.progress, r.idempotency_key,
      r.payload_digest is not null, r.limit_key, r.payload_preview)),
    jobdeck.job_name_flaw(r.type, r.queue))) is null;
  return null;
end
$$;

create function jobdeck.count_deleted() returns trigger
language plpgsql as $$
begin
  insert into jobdeck.job_counter_deltas (queue, type, status, n_jobs)
  select r.queue, r.type, r.status, -count(*) from old_rows r group by r.queue, r.type, r.status;
  return null;
end
$$;

create function jobdeck.count_updated() returns trigger
language plpgsql as $$
begin
  insert into jobdeck.job_counter_deltas (queue, type, status, n_jobs)
  select c.queue, c.type, c.status, sum(c.n_jobs) from (
    -- Few groups, whatever the number of rows: what they were and what they are.
    select o.queue as old_queue, o.type as old_type, o.status as old_status, n.queue, n.type, n.status, count(*) as n_jobs,
      jobdeck.refuse_flaw(coalesce(
        min(case when jobdeck.transition_is_forbidden(o.status, n.status, o.token, n.token) then 'job_transition_allowed'
          else jobdeck.job_flaw(n.status, n.attempts, n.max_attempts, n.starts, n.token, n.lease_expires_at,
            n.locked_by, n.locked_at, n.started_at, n.finished_at, n.run_after, n.created_at, n.updated_at,
            n.result is not null, n.stalled_count, n.max_stalled, n.progress, n.idempotency_key,
            n.payload_digest is not null, n.limit_key, n.payload_preview) end),
        case when n.type <> o.type or n.queue <> o.queue then jobdeck.job_name_flaw(n.type, n.queue) end,
        -- An update that changes an id leaves rows without a partner.
        case when n.status is null or o.status is null then 'job_id_fixed' end)) as refused
    from new_rows n full join old_rows o on o.id = n.id
    group by o.queue, o.type, o.status, n.queue, n.type, n.status) g
  cross join lateral (values (g.queue, g.type, g.status, g.n_jobs), (g.old_queue, g.old_type, g.old_status, -g.n_jobs))
    as c (queue, type, status, n_jobs)
  group by c.queue, c.type, c.status
  having case when bool_or(g.refused) is null then sum(c.n_jobs) <> 0 end;
  return null;
end
$$;

drop trigger job_transition_allowed on jobdeck.jobs;
drop function jobdeck.refuse_transition();
create trigger job_count_inserted after insert on jobdeck.jobs referencing new table as new_rows
  for each statement execute function jobdeck.count_inserted();
create trigger job_count_deleted after delete on jobdeck.jobs referencing old table as old_rows
  for each statement execute function jobdeck.count_deleted();
create trigger job_count_updated after update on jobdeck.jobs referencing old table as old_rows new table as new_rows
  for each statement execute function jobdeck.count_updated();

insert into jobdeck.job_counters (queue, type, status, n_jobs)
select queue, type, status, count(*) from jobdeck.jobs group by queue, type, status;

-- Milliseconds of the last debounced hint. A sequence, because it is seen at once and by everyone, whatever becomes of the
-- transaction that moves it.
create sequence jobdeck.wake_clock minvalue 0 start 0;

-- Tells waiting workers that `queue` got a job: a hint, sent with the commit. A statement that is a transaction of its own says so, and
-- then one is sent at most every 5 ms, because commits with a notification wait for each other; a worker that was woken looks again
-- shortly after, and polls in any case. Other transactions leave that clock alone: they may stay open long after they moved it, or
-- roll back, and the jobs of those who kept silent meanwhile would wait for the next poll.
create function jobdeck.wake(queue text, commits_at_once boolean default false) returns void
language plpgsql as $$
declare
  now_ms bigint;
begin
  if commits_at_once then
    now_ms := date_part('epoch', clock_timestamp()) * 1000;
    if abs(now_ms - coalesce(pg_sequence_last_value('jobdeck.wake_clock'), 0)) < 5 then
      return;
    end if;
    perform setval('jobdeck.wake_clock', now_ms);
  end if;
  perform pg_notify('jobdeck_jobs', queue);
end
$$;

-- First half of the advisory locks of queues; the second is a hash of the name.
create function jobdeck.queue_lock() returns integer
language sql immutable parallel safe as $$ select 1785031537 $$;

create function jobdeck.queue_waits_for_claims() returns trigger
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(jobdeck.queue_lock(), hashtext(new.name));
  return new;
end
$$;
create trigger queue_waits_for_claims before update on jobdeck.queues
  for each row execute function jobdeck.queue_waits_for_claims();

-- Whether a worker takes jobs: it gave a sign of life lately and is not stopping. The one place that says how lately.
create function jobdeck.worker_is_alive(heartbeat_at timestamptz, stopping_at timestamptz) returns boolean
language sql stable parallel safe as $$
  select stopping_at is null and heartbeat_at > now() - interval '30 seconds'
$$;

-- Takes up to `max_jobs` due jobs of `from_queue` whose type is one of `of_types`, each with a new token and a lease.
--
-- Order: each point of priority is worth a minute of waiting, then id. So a job is overtaken only by those that became due at most
-- (difference in priority) minutes after it, and none starves.
--
-- `stalls`: 'none' takes jobs that never stalled; 'once' those that stalled once and may bear more; 'often' the others that
-- stalled. See docs/state-machine.md for how they are run.
--
-- `is_plain`: jobs of one type and one priority waited, in a queue without limits; so claim_jobs_behind may go on.
create function jobdeck.claim_jobs(
  from_queue text, of_types text[], max_jobs integer, lease interval, for_worker text, stalls text default 'none')
returns table (id uuid, token bigint, type text, queue text, payload text, attempts integer, max_attempts integer,
  starts integer, stalled_count integer, priority smallint, run_after timestamptz, is_plain boolean)
language plpgsql
-- Planned once a session, not at each call: planning costs more than the claim. And for a large table with many jobs waiting, whatever
-- the statistics say: they are often of a time when none waited, and then looking at all that wait and sorting it would seem cheap.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  gate record;
  allowed text[];
  levels jsonb;
  takes_turns boolean;
  room integer := max_jobs;
  taken uuid[];
  full_keys text[] := '{}';
begin
  -- Each type with each priority that waits: one probe of the index for each.
  with recursive known as materialized (
    select t.type from unnest(of_types) as t (type)
    where not exists (
      select from jobdeck.job_types jt join jobdeck.cool_downs c on c.provider = jt.provider
      where jt.type = t.type and c.until > now())),
  level (type, priority) as (
    select t.type, (select j.priority from jobdeck.jobs j
      where j.queue = from_queue and j.type = t.type and j.status in ('pending', 'retrying')
      order by j.priority desc limit 1)
    from known t
    union all
    select l.type, (select j.priority from jobdeck.jobs j
      where j.queue = from_queue and j.type = l.type and j.status in ('pending', 'retrying') and j.priority < l.priority
      order by j.priority desc limit 1)
    from level l where l.priority is not null)
  select jsonb_agg(jsonb_build_object('type', l.type, 'priority', l.priority)) filter (where l.priority is not null),
    (select array_agg(t.type) from known t),
    (select q.concurrency_limit is not null or q.key_limit is not null from jobdeck.queues q where q.name = from_queue)
  into levels, allowed, takes_turns
  from level l;
  if levels is null or takes_turns is null then
    return;
  end if;

  -- A lock that every change of the queue's row waits for (trigger queue_waits_for_claims), so that a pause that has committed is
  -- seen: the pause waits for claims under way, and later ones for it. Where claims must not pass each other (limits; more than one
  -- range to choose from) they take turns.
  takes_turns := takes_turns or jsonb_array_length(levels) > 1;
  if takes_turns then
    perform pg_advisory_xact_lock(jobdeck.queue_lock(), hashtext(from_queue));
  else
    perform pg_advisory_xact_lock_shared(jobdeck.queue_lock(), hashtext(from_queue));
  end if;
  select q.paused_at, q.concurrency_limit, q.key_limit into gate from jobdeck.queues q where q.name = from_queue;
  if not found or gate.paused_at is not null
    or (not takes_turns and (gate.concurrency_limit is not null or gate.key_limit is not null)) then
    return;
  end if;
  -- From here each statement sees all that claims before this one did.
  if gate.concurrency_limit is not null then
    room := least(room, gate.concurrency_limit
      - (select count(*) from jobdeck.jobs j where j.queue = from_queue and j.status = 'running' and j.locked_by is not null));
  end if;

  while room > 0 loop
    if gate.key_limit is not null then
      select coalesce(array_agg(k.limit_key), '{}') into full_keys from (
        select j.limit_key from jobdeck.jobs j
        where j.queue = from_queue and j.status = 'running' and j.locked_by is not null and j.limit_key is not null
        group by j.limit_key having count(*) >= gate.key_limit) k;
    end if;
    if stalls = 'none' and gate.key_limit is null and jsonb_array_length(levels) = 1 then
      select array_agg(c.id) into taken from (
        select j.id from jobdeck.jobs j
        where j.queue = from_queue and j.type = levels->0->>'type' and j.priority = (levels->0->>'priority')::smallint
          and j.status in ('pending', 'retrying') and j.run_after <= now() and j.stalled_count = 0
        order by j.run_after, j.id
        limit room for update of j skip locked) c;
    else
      with candidate as materialized (
        select c.id, c.limit_key, c.rank from (
          select (l.value->>'type') as type, (l.value->>'priority')::smallint as priority
          from jsonb_array_elements(levels) as l (value) where stalls = 'none') l
        cross join lateral (
          select j.id, j.limit_key, j.run_after - l.priority * interval '1 minute' as rank from jobdeck.jobs j
          where j.queue = from_queue and j.type = l.type and j.priority = l.priority
            and j.status in ('pending', 'retrying') and j.run_after <= now() and j.stalled_count = 0
            and (j.limit_key is null or j.limit_key <> all (full_keys))
          order by j.run_after, j.id
          limit room) c
        union all
        -- Few, and found by an index of their own.
        select j.id, j.limit_key, j.run_after - j.priority * interval '1 minute' from jobdeck.jobs j
        where stalls <> 'none' and j.queue = from_queue and j.type = any (allowed)
          and j.status in ('pending', 'retrying') and j.stalled_count > 0 and j.run_after <= now()
          and (stalls = 'once') = (j.stalled_count = 1 and j.max_stalled >= 2)
          and (j.limit_key is null or j.limit_key <> all (full_keys))),
      chosen as materialized (
        select c.id from (
          select c.id, c.rank, c.limit_key, row_number() over (partition by c.limit_key order by c.rank, c.id) as place
          from candidate c) c
        where gate.key_limit is null or c.limit_key is null
          or c.place <= gate.key_limit - (select count(*) from jobdeck.jobs j
            where j.queue = from_queue and j.status = 'running' and j.locked_by is not null and j.limit_key = c.limit_key)
        order by c.rank, c.id
        limit room),
      locked as materialized (
        select j.id from jobdeck.jobs j join chosen c on c.id = j.id
        where j.status in ('pending', 'retrying') and j.run_after <= now()
        for update of j skip locked)
      select array_agg(l.id) into taken from locked l;
    end if;
    exit when taken is null;

    return query
      with changed as (
        update jobdeck.jobs j set status = 'running',
          token = greatest(j.token, (select d.epoch::bigint << 40 from jobdeck.deployment d)) + 1,
          attempts = j.attempts + 1, starts = j.starts + 1, locked_at = now(), started_at = now(),
          locked_by = for_worker, last_worker = for_worker, lease_expires_at = now() + lease,
          stage = null, progress = null, stages_at = '{}', version = j.version + 1, updated_at = now()
        where j.id = any (taken)
        returning j.id, j.token, j.type, j.queue, j.payload, j.attempts, j.max_attempts, j.starts, j.stalled_count, j.priority,
          j.run_after)
      select c.id, c.token, c.type::text, c.queue::text, c.payload::text, c.attempts, c.max_attempts, c.starts, c.stalled_count,
        c.priority, c.run_after, not takes_turns and stalls = 'none'
      from changed c order by c.run_after - c.priority * interval '1 minute', c.id;
    room := room - cardinality(taken);
    -- Only a limit by key hides further jobs behind those just taken.
    exit when gate.key_limit is null;
  end loop;
end
$$;

-- Takes further jobs of one type and priority, due later than the last one that a claim took (by run_after, then id), from a queue
-- that is_plain. Half as dear as claim_jobs, which asks for each type and priority and walks over the index entries of all jobs
-- taken before. It sees neither other types and priorities nor jobs that came in before the last one, so a worker asks claim_jobs in
-- between, every 50 ms. In no order.
create function jobdeck.claim_jobs_behind(
  from_queue text, of_type text, of_priority smallint, last_run_after timestamptz, last_id uuid, max_jobs integer, lease interval,
  for_worker text)
returns table (id uuid, token bigint, type text, queue text, payload text, attempts integer, max_attempts integer,
  starts integer, stalled_count integer, priority smallint, run_after timestamptz, is_plain boolean)
language plpgsql
-- As claim_jobs.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
begin
  -- As in claim_jobs: what the statement below reads of the queue is read under the lock.
  perform pg_advisory_xact_lock_shared(jobdeck.queue_lock(), hashtext(from_queue));
  return query
    update jobdeck.jobs j set status = 'running',
      token = greatest(j.token, (select d.epoch::bigint << 40 from jobdeck.deployment d)) + 1,
      attempts = j.attempts + 1, starts = j.starts + 1, locked_at = now(), started_at = now(),
      locked_by = for_worker, last_worker = for_worker, lease_expires_at = now() + lease,
      stage = null, progress = null, stages_at = '{}', version = j.version + 1, updated_at = now()
    -- By their place in the table, which the lock fixes: what was checked there still holds.
    where j.ctid = any (array(
      select w.ctid from jobdeck.jobs w
      where w.queue = from_queue and w.type = of_type and w.priority = of_priority
        and w.status in ('pending', 'retrying') and w.run_after <= now() and w.stalled_count = 0
        and (w.run_after, w.id) > (last_run_after, last_id)
        and exists (
          select from jobdeck.queues q
          where q.name = from_queue and q.paused_at is null and q.concurrency_limit is null and q.key_limit is null)
        and not exists (
          select from jobdeck.job_types t join jobdeck.cool_downs c on c.provider = t.provider
          where t.type = of_type and c.until > now())
      order by w.run_after, w.id
      limit max_jobs for update of w skip locked))
    returning j.id, j.token, of_type, from_queue, j.payload::text, j.attempts, j.max_attempts, j.starts, j.stalled_count,
      j.priority, j.run_after, true;
end
$$;

-- When the next job of `from_queue` of one of `of_types` becomes due: its time comes, or its provider's cool-down ends. Jobs that were
-- due at `due_since` (default: a second ago) are left out, as something else holds those back. A paused queue has none. One probe of the
-- claim's index for each type and priority that waits.
create function jobdeck.next_due(from_queue text, of_types text[], due_since timestamptz)
returns table (now timestamptz, due_at timestamptz)
language plpgsql
-- As claim_jobs.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
begin
  return query
    with recursive known as materialized (
      select t.type, least(coalesce(due_since, now() - interval '1 second'), now()) as since,
        (select c.until from jobdeck.job_types jt join jobdeck.cool_downs c on c.provider = jt.provider
         where jt.type = t.type and c.until > least(coalesce(due_since, now() - interval '1 second'), now())) as cool_until
      from unnest(of_types) as t (type)
      where not exists (select from jobdeck.queues q where q.name = from_queue and q.paused_at is not null)),
    level as (
      select k.type, k.since, k.cool_until, (select j.priority from jobdeck.jobs j
        where j.queue = from_queue and j.type = k.type and j.status in ('pending', 'retrying')
        order by j.priority desc limit 1) as priority
      from known k
      union all
      select l.type, l.since, l.cool_until, (select j.priority from jobdeck.jobs j
        where j.queue = from_queue and j.type = l.type and j.status in ('pending', 'retrying') and j.priority < l.priority
        order by j.priority desc limit 1)
      from level l where l.priority is not null),
    -- Asked once and not for each use of the column.
    next as materialized (
      select l.cool_until, (select j.run_after from jobdeck.jobs j
        where j.queue = from_queue and j.type = l.type and j.priority = l.priority and j.status in ('pending', 'retrying')
          -- All jobs of a provider that cools down wait, also those due long ago.
          and j.run_after > case when l.cool_until is null then l.since else '-infinity' end
        order by j.run_after limit 1) as run_after
      from level l where l.priority is not null)
    select now() as now, (select min(greatest(n.run_after, n.cool_until)) from next n where n.run_after is not null) as due_at;
end
$$;
