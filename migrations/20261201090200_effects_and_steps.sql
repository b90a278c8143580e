-- What executions did to the outside world, and the results of named parts of a job. See docs/effects.md.

-- started: begun, and how it went is not known. not_done: the provider certainly did nothing. done: happened.
create type jobdeck.effect_state as enum ('started', 'not_done', 'done');

-- The ledger of effects. A row outlives its job, whether pruned or deleted: who asks again in a year is still told "already
-- done" or gets the same provider token. Nothing removes rows; deleting one by hand means its effect may happen once more.
create table jobdeck.effects (
  -- what is done, such as charge
  name text not null constraint effect_name_valid check (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$'),
  -- to what it is done, such as an order's number; unique within the name, across jobs and types
  key text not null constraint effect_key_length check (octet_length(key) between 1 and 1024),
  -- what the provider is given as its idempotency key; never changes
  provider_token uuid not null default gen_random_uuid(),
  state jobdeck.effect_state not null default 'started',
  -- the execution that began it last. No foreign key: the row stays when the job goes
  job_id uuid not null,
  token bigint not null constraint effect_token_positive check (token > 0),
  -- the one call that began it last; also what a change compares with, so that a stale reading never wins
  call_id uuid not null,
  -- how often it was begun
  tries integer not null default 1 constraint effect_tries_positive check (tries >= 1),
  -- whether a try before the present one ended without anybody knowing whether it happened
  maybe_done boolean not null default false,
  -- what the provider answered, in the shape the handler gave it; of a done effect
  result jsonb,
  -- why there is no result although it is done: what came back could not be kept
  result_problem text,
  -- of the first try
  first_started_at timestamptz not null default now(),
  -- of the last try
  started_at timestamptz not null default now(),
  done_at timestamptz,
  -- the person who found out what had happened; null when an execution recorded it
  settled_by text,
  primary key (name, key),
  constraint effect_done_at_iff_done check ((state = 'done') = (done_at is not null)),
  constraint effect_result_iff_done check ((state = 'done') = (num_nonnulls(result, result_problem) = 1)
    and num_nonnulls(result, result_problem) <= 1),
  constraint effect_first_try_is_not_a_repeat check (tries > 1 or not maybe_done),
  constraint effect_settled_is_not_started check (settled_by is null or state <> 'started'),
  constraint effect_result_size check (octet_length(result::text) <= 262144)
);
-- Serves the job's page.
create index effect_job_idx on jobdeck.effects (job_id);

-- Results of named parts of a job, so that a later attempt resumes behind them. They go with the job's row: a person's retry
-- finds them, a rerun is a new job and begins from nothing.
create table jobdeck.steps (
  job_id uuid not null references jobdeck.jobs (id) on delete cascade,
  -- which part, unique within the job
  name text not null constraint step_name_length check (octet_length(name) between 1 and 200),
  -- the execution that did it
  token bigint not null constraint step_token_positive check (token > 0),
  -- what it returned; JSON null when it returns nothing
  result jsonb not null,
  -- how long it ran, by the worker's monotonic clock
  took_ms bigint not null constraint step_took_not_negative check (took_ms >= 0),
  done_at timestamptz not null default now(),
  primary key (job_id, name),
  constraint step_result_size check (octet_length(result::text) <= 4194304)
);

-- Ends a statement, and the transaction around it, whose execution turns out not to hold its job. Used where something was
-- written before the job's row could be locked: zero rows would leave that write behind.
create function jobdeck.lease_lost(job_id uuid, token bigint) returns text
language plpgsql as $$
begin
  raise exception 'lease of job % with token % is lost', job_id, token using errcode = 'JD001';
end
$$;
