-- How long ended jobs are kept, who does a maintenance duty, and operations on many jobs at once.

alter table jobdeck.job_types
  -- {"succeeded": {"age_secs": integer or null, "count": integer or null}, "failed": {...}, "canceled": {...}};
  -- null is the default (docs of `Retention`). Read by the pruner.
  add column if not exists retention jsonb;

-- Serves the pruner: the ended jobs of a type in one state, oldest end first. Neither enqueue nor claim writes to it.
create index job_finished_idx on jobdeck.jobs (type, status, finished_at)
  where status in ('succeeded', 'failed', 'canceled');

-- Serves the pruning of keys that have run out.
create index if not exists idempotency_key_expiry_idx on jobdeck.idempotency_keys (expires_at) where expires_at is not null;

-- How many rows are gone for good, so that what was enqueued can be accounted for.
create table jobdeck.job_removals (
  type text not null,
  -- the state they were in
  status jobdeck.job_state not null,
  -- a person deleted them, or else the retention rule did
  by_person boolean not null,
  n_jobs bigint not null,
  last_at timestamptz not null default now(),
  primary key (type, status, by_person)
);

-- Who does a maintenance duty, until when by the database's clock. A lease by row: it works behind any pooler, and a holder that
-- dies is replaced once `until` has passed.
create table jobdeck.duties (
  name text primary key,
  holder text not null,
  until timestamptz not null
);

create type jobdeck.bulk_action as enum ('retry', 'cancel', 'delete');
create type jobdeck.bulk_state as enum ('running', 'done', 'aborted', 'failed');

-- A person's action on many jobs. Any process takes it a batch further, in one statement that also writes this row; whoever is
-- killed leaves it as the last batch did.
create table jobdeck.bulk_operations (
  id uuid primary key default jobdeck.uuid_v7(),
  action jobdeck.bulk_action not null,
  -- {"filter": {"state": text, "type": text, "queue": text, "text": text, "class": text, "code": text}}, each of them optional,
  -- or {"ids": [uuid]}
  target jsonb not null constraint bulk_target_is_object check (jsonb_typeof(target) = 'object'),
  -- SHA-256 of the target's canonical text
  target_digest bytea not null,
  state jobdeck.bulk_state not null default 'running',
  user_id uuid,
  requested_by text not null,
  -- the moment of the press: what came later is not touched
  cutoff timestamptz not null default now(),
  -- matching jobs at the press; null if counting them took too long
  total bigint,
  done bigint not null default 0,
  refused bigint not null default 0,
  -- the first 10 refused: [{"id": uuid, "by": uuid}], where `by` holds the idempotency key
  refusals jsonb not null default '[]',
  -- the last job looked at; they are passed in the order of their ids
  cursor uuid not null default '00000000-0000-0000-0000-000000000000',
  -- the last job that was in one of the action's states at the press
  last_id uuid not null,
  -- jobs whose rows something else had locked when their turn came; looked at again in the next batch
  deferred uuid[] not null default '{}',
  -- rows that the next batch looks at: more when few of them match, so that a batch is short all the same
  looks integer not null default 1000 constraint bulk_looks_in_range check (looks between 1000 and 20000),
  aborted_by text,
  -- failures in a row, and the last one
  n_errors integer not null default 0,
  last_error text,
  started_at timestamptz not null default now(),
  -- end of the last batch
  stepped_at timestamptz,
  finished_at timestamptz,
  constraint bulk_counts_not_negative check (done >= 0 and refused >= 0 and total >= 0 and n_errors >= 0),
  constraint bulk_finished_at_iff_ended check ((state <> 'running') = (finished_at is not null))
);
-- Promises that the same action pressed twice at once is one operation; serves whoever looks for work.
create unique index bulk_running_idx on jobdeck.bulk_operations (action, target_digest) where state = 'running';
