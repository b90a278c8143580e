-- The queue: one table worked by FOR UPDATE SKIP LOCKED, and what stands beside it.
-- The migrator has made the schema.

-- Time-ordered random id (RFC 9562, version 7): 48 bits of milliseconds, then random bits.
create function jobdeck.uuid_v7() returns uuid
language sql volatile parallel safe as $$
  with part as (
    select lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') as millis,
           replace(gen_random_uuid()::text, '-', '') as random
  )
  -- Only the version digit differs from the random (version 4) id, whose variant bits are already right.
  select (millis || '7' || substr(random, 14))::uuid from part
$$;

create type jobdeck.job_state as enum ('pending', 'running', 'retrying', 'succeeded', 'failed', 'canceled');
create type jobdeck.failure_class as enum ('retryable', 'rate_limited', 'stalled', 'unrecoverable');
-- How an attempt ended that did not end in success.
create type jobdeck.attempt_outcome as enum ('failed', 'rate_limited', 'snoozed', 'stalled', 'released', 'canceled');

-- One row. `epoch` is raised after a restore from backup, so that tokens handed out again are new ones.
create table jobdeck.deployment (
  only_row boolean primary key default true check (only_row),
  epoch integer not null default 0 check (epoch between 0 and 4194303)
);
insert into jobdeck.deployment default values;

-- Names and keys compare by their bytes: cheaper, and no index depends on the version of the system's locales.
create table jobdeck.queues (
  name text collate "C" primary key constraint queue_name_valid check (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$'),
  paused_at timestamptz,
  paused_by text,
  created_at timestamptz not null default now(),
  constraint queue_paused_by_iff_paused check ((paused_at is null) = (paused_by is null))
);

-- Policy and stage labels of each type, as the workers that run it registered them.
create table jobdeck.job_types (
  type text collate "C" primary key constraint job_type_name_valid check (type ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$'),
  queue text not null,
  max_attempts integer not null,
  max_stalled integer not null,
  -- [{"name": text, "label": {"en": text, "zh-CN": text}}], in the order a job passes them
  stages jsonb not null default '[]' check (jsonb_typeof(stages) = 'array'),
  registered_at timestamptz not null default now()
);

create table jobdeck.workers (
  name text primary key,
  version text not null,
  types text[] not null,
  queues text[] not null,
  slots integer not null check (slots > 0),
  started_at timestamptz not null default now(),
  heartbeat_at timestamptz not null default now(),
  stopping_at timestamptz
);

create table jobdeck.jobs (
  id uuid primary key default jobdeck.uuid_v7(),
  type text collate "C" not null constraint job_type_valid check (type ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$'),
  queue text collate "C" not null default 'default' constraint job_queue_valid check (queue ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$'),
  payload jsonb not null constraint job_payload_is_object check (jsonb_typeof(payload) = 'object'),
  -- the payload's short scalars as text, written at enqueue so that lists need not open a large payload
  payload_preview text not null default '' constraint job_payload_preview_length check (length(payload_preview) <= 200),
  status jobdeck.job_state not null default 'pending',
  -- higher runs first
  priority smallint not null default 0,
  attempts integer not null default 0,
  max_attempts integer not null default 5,
  -- every start ever, also those whose attempt was given back; never falls
  starts integer not null default 0,
  run_after timestamptz not null default now(),
  -- the fencing number: grows with each claim for the whole life of the id
  token bigint not null default 0,
  locked_at timestamptz,
  locked_by text,
  lease_expires_at timestamptz,
  stalled_count integer not null default 0,
  max_stalled integer not null default 3,
  -- of the present or last attempt
  started_at timestamptz,
  last_worker text,
  stage text,
  progress smallint,
  -- {stage name: time it was entered}, of the present or last attempt
  stages_at jsonb not null default '{}',
  last_error text,
  error_class jobdeck.failure_class,
  error_code text,
  -- facts for the sentence the end user reads, by name
  error_params jsonb,
  -- SHA-256 of the payload's canonical text; set when there is a key
  payload_digest bytea,
  idempotency_key text collate "C" constraint job_key_length check (octet_length(idempotency_key) between 1 and 1024),
  result jsonb,
  created_by text,
  owner text,
  cancel_requested_at timestamptz,
  finished_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  -- grows with every change a viewer can see
  version bigint not null default 0,

  constraint job_attempts_in_range check (attempts between 0 and max_attempts),
  constraint job_max_attempts_positive check (max_attempts >= 1),
  constraint job_waiting_has_attempts_left check (status not in ('pending', 'retrying') or attempts < max_attempts),
  constraint job_running_iff_leased check (
    (status = 'running') = (lease_expires_at is not null)
    and (status = 'running') = (locked_by is not null)
    and (status = 'running') = (locked_at is not null)),
  constraint job_running_has_started check (
    status <> 'running' or (token > 0 and attempts >= 1 and started_at is not null)),
  -- Infinity and years beyond the range of programs' date types would break every reader of the row.
  constraint job_times_plausible check (
    run_after between '1970-01-01Z' and '9999-12-31Z' and created_at between '1970-01-01Z' and '9999-12-31Z'
    and updated_at between '1970-01-01Z' and '9999-12-31Z'
    and lease_expires_at between '1970-01-01Z' and '9999-12-31Z'
    and finished_at between '1970-01-01Z' and '9999-12-31Z'),
  constraint job_finished_at_iff_final check ((status in ('succeeded', 'failed', 'canceled')) = (finished_at is not null)),
  constraint job_result_only_if_succeeded check (result is null or status = 'succeeded'),
  constraint job_progress_is_percent check (progress between 0 and 100),
  constraint job_stalls_in_range check (max_stalled >= 0 and stalled_count between 0 and max_stalled + 1),
  constraint job_key_has_digest check (idempotency_key is null or payload_digest is not null),
  constraint job_starts_not_negative check (starts >= 0 and token >= 0)
) with (fillfactor = 85);

-- Serves the claim: what waits in a queue, most urgent and longest due first.
create index job_claim_idx on jobdeck.jobs (queue, priority desc, run_after, id) where status in ('pending', 'retrying');
-- Serves heartbeat and reaper. The lease is not in it, so that renewing one stays a heap-only update.
create index job_running_idx on jobdeck.jobs (id) where status = 'running';
-- Serve the deck's lists, newest first.
create index job_status_idx on jobdeck.jobs (status, id desc);
create index job_type_idx on jobdeck.jobs (type, id desc);
-- Promises at most one live job per key.
create unique index job_live_key_idx on jobdeck.jobs (type, idempotency_key)
  where idempotency_key is not null and status in ('pending', 'running', 'retrying');

-- Refuses every transition that the table in docs/state-machine.md does not allow. The condition is evaluated without a
-- function call, so the guard costs nothing until it fires.
create function jobdeck.refuse_transition() returns trigger
language plpgsql as $$
begin
  raise exception 'job % cannot go from % (token %) to % (token %)', old.id, old.status, old.token, new.status, new.token
    using errcode = 'check_violation', constraint = 'job_transition_allowed';
end
$$;

create trigger job_transition_allowed before update on jobdeck.jobs for each row
when (
  new.token < old.token
  or (new.token <> old.token and new.status <> 'running')
  or (old.status <> new.status and not (
    (old.status = 'pending' and new.status in ('running', 'canceled'))
    or (old.status = 'running' and new.status in ('succeeded', 'retrying', 'failed', 'canceled', 'pending'))
    or (old.status = 'retrying' and new.status in ('running', 'canceled'))
    or (old.status in ('failed', 'canceled') and new.status = 'pending')))
  or (new.status = 'running' and old.status <> 'running' and new.token <= old.token)
  or (new.status = 'running' and old.status = 'running' and new.token <> old.token)
)
execute function jobdeck.refuse_transition();

-- Attempts that did not succeed; the successful one stands in the job's own row. One outcome per token.
create table jobdeck.attempts (
  job_id uuid not null references jobdeck.jobs (id) on delete cascade,
  token bigint not null,
  attempt integer not null,
  outcome jobdeck.attempt_outcome not null,
  worker text,
  stage text,
  started_at timestamptz not null,
  ended_at timestamptz not null default now(),
  error_class jobdeck.failure_class,
  error_code text,
  error text,
  error_params jsonb,
  -- when the next start was planned, null when there was none
  next_run_at timestamptz,
  primary key (job_id, token)
);

-- Who holds an idempotency key. It outlives the pruned row of its job; a failed or canceled job gives it back.
create table jobdeck.idempotency_keys (
  type text collate "C" not null,
  key text collate "C" not null constraint idempotency_key_length check (octet_length(key) between 1 and 1024),
  job_id uuid not null,
  -- SHA-256 of the payload's canonical text, to tell a duplicate from a clash
  payload_digest bytea not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  -- how often a duplicate landed on the holder, and when last
  duplicates integer not null default 0,
  last_duplicate_at timestamptz,
  primary key (type, key)
);
