-- The whole policy of a type as data, the functions that programs in any language call, and roles of least privilege.
-- docs/sql.md shows how they are used.

alter table jobdeck.job_types
  add column priority smallint not null default 0,
  -- wait between attempts: {"kind": "fixed", "delay_ms": integer}, {"kind": "exponential", "first_ms": integer,
  -- "factor": number, "cap_ms": integer} or {"kind": "custom", "name": text, "cap_ms": integer}
  add column backoff jsonb not null default '{"kind": "exponential", "first_ms": 10000, "factor": 2.0, "cap_ms": 600000}',
  add column jitter double precision not null default 0.2 constraint job_type_jitter_in_range check (jitter between 0 and 1),
  add column timeout interval not null default '1 hour' constraint job_type_timeout_positive check (timeout > interval '0'),
  -- dotted payload paths that make the idempotency key; null is no declared key
  add column key_fields text[] constraint job_type_key_has_fields check (cardinality(key_fields) between 1 and 16),
  add column on_duplicate text not null default 'return_existing'
    constraint job_type_on_duplicate_known check (on_duplicate in ('return_existing', 'ignore')),
  -- how long a key blocks after its job succeeded; null is for ever
  add column key_keep interval constraint job_type_key_keep_not_negative check (key_keep >= interval '0'),
  -- payload paths that need a right of their own to be seen
  add column redact text[] not null default '{}',
  -- {"succeeded": {"age_secs": integer or null, "count": integer or null}, "failed": {...}, "canceled": {...}}; null is the
  -- default (docs of `Retention`)
  add column if not exists retention jsonb,
  -- whose cool-down stops this type
  add column if not exists provider text,
  -- limits declared for its queue; in force are those in jobdeck.queues
  add column concurrency integer constraint job_type_concurrency_positive check (concurrency > 0),
  add column key_concurrency integer constraint job_type_key_concurrency_positive check (key_concurrency > 0),
  -- dotted payload path that gives a job's limit key
  add column limit_key text;

-- The one rule for when a key may change hands: its job failed or was canceled, or its time has run out. Looks at the holder as it
-- is now, not as the calling statement saw it at its start.
create function jobdeck.key_is_free(expires_at timestamptz, holder uuid) returns boolean
language plpgsql as $$
declare
  job record;
begin
  select j.status, j.finished_at + t.key_keep as runs_out_at into job
  from jobdeck.jobs j left join jobdeck.job_types t on t.type = j.type where j.id = holder;
  if not found then
    return coalesce(expires_at <= now(), false);
  end if;
  return case job.status
    when 'failed' then true
    when 'canceled' then true
    -- A success that found the key locked did not wait to write its end.
    when 'succeeded' then coalesce(coalesce(expires_at, job.runs_out_at) <= now(), false)
    else false end;
end
$$;

-- Serves the pruning of keys that have run out.
create index if not exists idempotency_key_expiry_idx on jobdeck.idempotency_keys (expires_at) where expires_at is not null;

comment on column jobdeck.idempotency_keys.expires_at is
  'set when the job succeeded, if its type keeps keys for a time only; from then on the key is free for the next job. Null also
   when the key was locked at that moment: jobdeck.key_is_free works it out then';
comment on column jobdeck.idempotency_keys.payload_digest is 'jobdeck.payload_digest of the holder''s payload';

-- Keys and digests ---------------------------------------------------------------------------------------------------------------

create function jobdeck.payload_digest(payload jsonb) returns bytea
language sql immutable strict parallel safe as $$
  select sha256(convert_to(payload::text, 'UTF8'))
$$;
comment on function jobdeck.payload_digest is
  'SHA-256 of the payload as Postgres writes jsonb (UTF-8), to tell a duplicate from a clash. Rust computes the same.';

-- Digests made before were of another text.
update jobdeck.idempotency_keys k set payload_digest = jobdeck.payload_digest(j.payload)
from jobdeck.jobs j where j.id = k.job_id;
update jobdeck.jobs set payload_digest = jobdeck.payload_digest(payload) where payload_digest is not null;

create function jobdeck.payload_at(payload jsonb, path text) returns jsonb
language plpgsql immutable strict parallel safe as $$
declare
  found jsonb := payload;
  name text;
begin
  foreach name in array string_to_array(path, '.') loop
    -- Asked for by name, a list answers null, whatever the name.
    found := found -> name;
  end loop;
  return found;
end
$$;
comment on function jobdeck.payload_at is
  'What stands at a dotted path through objects, such as author.email. Null if a level is not there; items of lists cannot be reached.';

create function jobdeck.scalar_at(payload jsonb, path text, label text, purpose text) returns text
language plpgsql immutable parallel safe as $$
declare
  found constant jsonb := jobdeck.payload_at(payload, path);
begin
  case coalesce(jsonb_typeof(found), 'null')
    when 'null' then return null;
    when 'string', 'boolean' then return found #>> '{}';
    -- Plain decimal without trailing zeros.
    when 'number' then return trim_scale(found::numeric)::text;
    else
      raise exception '%.%: is a list or an object; % is made of texts, numbers, true and false', label, path, purpose
        using errcode = 'invalid_parameter_value';
  end case;
end
$$;
comment on function jobdeck.scalar_at is
  'The text of the text, number or truth value at a payload path; null if it is missing or null. Used by key_of_payload.';

create function jobdeck.key_of(variadic fields text[]) returns text
language plpgsql immutable parallel safe as $$
declare
  joined text;
begin
  if array_position(fields, null) is not null or coalesce(cardinality(fields), 0) = 0 then
    raise exception 'fields: an idempotency key is made of one text or more, none of them null'
      using errcode = 'invalid_parameter_value';
  end if;
  select string_agg(replace(replace(f.field, '\', '\\'), ':', '\:'), ':' order by f.place) into joined
  from unnest(fields) with ordinality as f (field, place);
  if octet_length(convert_to(joined, 'UTF8')) between 1 and 1024 then
    return joined;
  end if;
  return 'sha256\-' || encode(sha256(convert_to(joined, 'UTF8')), 'hex');
end
$$;
comment on function jobdeck.key_of is
  'The idempotency key of these texts, as IdempotencyKey::of in Rust: joined by ":", with "\" before each "\" and ":" in them; what is empty or longer than 1,024 bytes becomes "sha256\-" and its SHA-256.';

create function jobdeck.key_of_payload(payload jsonb, fields text[], label text default 'payload') returns text
language plpgsql immutable parallel safe as $$
declare
  texts text[] := '{}';
  field text;
  value text;
begin
  foreach field in array fields loop
    value := jobdeck.scalar_at(payload, field, label, 'an idempotency key');
    if value is null then
      raise exception '%.%: is missing or null, but belongs to the idempotency key', label, field
        using errcode = 'invalid_parameter_value';
    end if;
    texts := texts || value;
  end loop;
  return jobdeck.key_of(variadic texts);
end
$$;
comment on function jobdeck.key_of_payload is
  'The idempotency key that dotted payload paths give for a payload, as IdempotencyKey::of_payload in Rust. A field that is missing, null, a list or an object is refused with 22023.';

create function jobdeck.limit_key_of_payload(payload jsonb, path text, label text default 'payload') returns text
language plpgsql immutable parallel safe as $$
declare
  value constant text := jobdeck.scalar_at(payload, path, label, 'a limit key');
begin
  if octet_length(convert_to(value, 'UTF8')) not between 1 and 200 then
    return 'sha256-' || encode(sha256(convert_to(value, 'UTF8')), 'hex');
  end if;
  return value;
end
$$;
comment on function jobdeck.limit_key_of_payload is
  'The limit key that a dotted payload path gives: null if it is missing or null; what is empty or longer than 200 bytes becomes "sha256-" and its SHA-256.';

create function jobdeck.payload_preview(payload jsonb) returns text
language sql immutable strict parallel safe as $$
  select coalesce(string_agg(s.part, ' ' order by s.name), '') from (
    select p.name, p.part, sum(length(p.part) + 1) over (order by p.name) - 1 as length from (
      select e.key collate "C" as name, e.key || '=' || regexp_replace(e.value #>> '{}', '[\u0001-\u001f\u007f-\u009f]', ' ', 'g') as part
      from jsonb_each(payload) as e (key, value)
      where jsonb_typeof(e.value) in ('number', 'boolean')
        or (jsonb_typeof(e.value) = 'string' and length(e.value #>> '{}') <= 40)) p) s
  where s.length <= 120
$$;
comment on function jobdeck.payload_preview is 'The payload''s short scalars as text for lists, at most 120 characters.';

-- Enqueue ------------------------------------------------------------------------------------------------------------------------

create function jobdeck.refuse_parameter(name text, problem text) returns void
language plpgsql immutable as $$
begin
  raise exception '%: %', name, problem using errcode = 'invalid_parameter_value';
end
$$;
comment on function jobdeck.refuse_parameter is 'Ends a call with SQLSTATE 22023 and the name of what was wrong.';

-- What enqueue and enqueue_many share. `payload_name` is what the caller named its parameter.
create function jobdeck.enqueue_jobs(
  of_type text, payloads jsonb[], payload_name text, to_queue text, with_priority integer, due_at timestamptz, given_keys text[],
  key_name text, for_owner text, by_whom text, given_limit_key text, with_tags text[])
returns table (ordinal integer, id uuid, is_new boolean, payload_differs boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  name_rule constant text := 'must be 1 to 100 of A-Z a-z 0-9 _ . : - and not start with . : or -';
  name_pattern constant text := '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$';
  n constant integer := cardinality(payloads);
  at_once constant boolean := due_at is null or due_at <= now();
  policy record;
  bad record;
begin
  if of_type is null or of_type !~ name_pattern then
    perform jobdeck.refuse_parameter('type', coalesce(quote_literal(of_type), 'null') || ' ' || name_rule);
  end if;
  -- A type no worker has registered yet has the defaults of `Policy` in Rust.
  select t.queue, t.priority, t.max_attempts, t.max_stalled, t.key_fields, t.limit_key into policy
  from jobdeck.job_types t where t.type = of_type;

  to_queue := coalesce(to_queue, policy.queue, 'default');
  if to_queue !~ name_pattern then
    perform jobdeck.refuse_parameter('queue', quote_literal(to_queue) || ' ' || name_rule);
  end if;
  with_priority := coalesce(with_priority, policy.priority, 0);
  if with_priority not between -32768 and 32767 then
    perform jobdeck.refuse_parameter('priority', with_priority || ' is out of range, must be -32768 to 32767');
  end if;
  if due_at is not null and not due_at between '1970-01-01Z' and '9999-12-30Z' then
    perform jobdeck.refuse_parameter('run_after', due_at || ' must be from the year 1970 to 9999');
  end if;
  if given_limit_key is not null and octet_length(given_limit_key) not between 1 and 200 then
    perform jobdeck.refuse_parameter('limit_key', 'must be 1 to 200 bytes, is ' || octet_length(given_limit_key));
  end if;
  select t.tag into bad from unnest(with_tags) as t (tag) where t.tag is null or octet_length(t.tag) not between 1 and 200 limit 1;
  if found then
    perform jobdeck.refuse_parameter('tags', 'each must be 1 to 200 bytes');
  end if;
  if given_keys is not null then
    if policy.key_fields is not null and exists (select from unnest(given_keys) as k (key) where k.key is not null) then
      perform jobdeck.refuse_parameter(key_name, 'type ' || of_type || ' makes its own key of '
        || array_to_string(policy.key_fields, ', ') || '; leave this out');
    end if;
    if cardinality(given_keys) <> n then
      perform jobdeck.refuse_parameter(key_name, 'are ' || cardinality(given_keys) || ' for ' || n || ' payloads');
    end if;
    select octet_length(k.key) as bytes into bad from unnest(given_keys) as k (key) where octet_length(k.key) not between 1 and 1024 limit 1;
    if found then
      perform jobdeck.refuse_parameter(key_name, 'must be 1 to 1024 bytes, is ' || bad.bytes);
    end if;
  end if;
  if payloads is null then
    perform jobdeck.refuse_parameter(payload_name, 'is null');
  end if;
  select c.label, c.problem into bad from (
    select p.place, case payload_name when 'payload' then payload_name else payload_name || '[' || p.place || ']' end as label,
      case when p.payload is null then 'is null, must be a JSON object'
        when jsonb_typeof(p.payload) <> 'object' then 'is a JSON ' || jsonb_typeof(p.payload) || ', must be an object'
        -- Text is at most six times as long as jsonb.
        when pg_column_size(p.payload) > 1000000 and octet_length(p.payload::text) > 8388608
          then 'is ' || octet_length(p.payload::text) || ' bytes, the limit is 8388608'
        when jsonb_path_exists(p.payload, '$.**{101}') then 'is nested more than 100 levels deep'
      end as problem
    from unnest(payloads) with ordinality as p (payload, place)) c
  where c.problem is not null order by c.place limit 1;
  if found then
    perform jobdeck.refuse_parameter(bad.label, bad.problem);
  end if;

  return query
    with input as materialized (
      select i.place, i.id, i.payload, i.key, case when i.key is not null then jobdeck.payload_digest(i.payload) end as digest,
        -- Jobs of one call become due a microsecond apart, in their order: those due at once up to now, others from then on.
        greatest(due_at, now()) + (i.place - case when at_once then n else 1 end) * interval '1 microsecond' as run_after,
        coalesce(given_limit_key, case when policy.limit_key is not null
          then jobdeck.limit_key_of_payload(i.payload, policy.limit_key, i.label) end) as limit_key
      from (
        select p.place, p.payload, p.label, jobdeck.uuid_v7() as id,
          case when policy.key_fields is not null then jobdeck.key_of_payload(p.payload, policy.key_fields, p.label)
            else given_keys[p.place] end as key
        from (select u.place, u.payload, case payload_name when 'payload' then payload_name
            else payload_name || '[' || u.place || ']' end as label
          from unnest(payloads) with ordinality as u (payload, place)) p) i),
    holder as (
      insert into jobdeck.idempotency_keys as k (type, key, job_id, payload_digest)
      -- In one order, so that calls with overlapping keys wait for each other without a deadlock.
      select distinct on (i.key) of_type, i.key, i.id, i.digest from input i where i.key is not null
      order by i.key, i.place
      -- Waits for a rival transaction and returns the row that won; counts the duplicate there. A key that has run out
      -- changes hands, unless its job has not ended.
      on conflict (type, key) do update
        set (job_id, payload_digest, created_at, duplicates, last_duplicate_at, expires_at) = (
          select case when f.free then excluded.job_id else k.job_id end,
            case when f.free then excluded.payload_digest else k.payload_digest end,
            case when f.free then now() else k.created_at end, case when f.free then 0 else k.duplicates + 1 end,
            case when f.free then null else now() end, case when f.free then null else k.expires_at end
          from (select jobdeck.key_is_free(k.expires_at, k.job_id) as free) f)
      returning k.key, k.job_id, k.payload_digest),
    created as (
      insert into jobdeck.jobs (id, type, queue, payload, payload_preview, priority, max_attempts, max_stalled, run_after,
        created_by, owner, limit_key, tags, idempotency_key, payload_digest)
      select i.id, of_type, to_queue, i.payload, jobdeck.payload_preview(i.payload), with_priority::smallint,
        coalesce(policy.max_attempts, 5), coalesce(policy.max_stalled, 3), i.run_after, left(by_whom, 200),
        left(for_owner, 200), i.limit_key, coalesce(with_tags, '{}'), i.key, i.digest
      from input i where i.key is null or i.id in (select h.job_id from holder h)
      order by i.place
      returning 1),
    woken as (
      select count(*) filter (where jobdeck.wake(to_queue) is null) as n_hints
      from (select from created limit 1) c where at_once or due_at < now() + interval '2 seconds')
    select i.place::integer, coalesce(h.job_id, i.id), h.job_id is null or h.job_id = i.id,
      coalesce(h.payload_digest <> i.digest, false)
    from input i cross join woken left join holder h on h.key = i.key
    order by i.place;
end
$$;
comment on function jobdeck.enqueue_jobs is 'What jobdeck.enqueue and jobdeck.enqueue_many do. Call those.';

create function jobdeck.enqueue(
  type text, payload jsonb, queue text default null, priority integer default null, run_after timestamptz default null,
  key text default null, owner text default null, created_by text default null, limit_key text default null,
  tags text[] default null)
returns table (id uuid, is_new boolean, payload_differs boolean)
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select e.id, e.is_new, e.payload_differs
  from jobdeck.enqueue_jobs(type, array[payload], 'payload', queue, priority, run_after,
    case when key is not null then array[key] end, 'key', owner, created_by, limit_key, tags) e
$$;
comment on function jobdeck.enqueue is
'Enqueues one job with the caller''s transaction: workers see it if and only if that commits.

type: what to do. One that no worker has registered waits, with the defaults: queue default, 5 attempts, 3 stalls, no key.
payload: a JSON object, at most 8 MiB as text and 100 levels deep.
queue, priority: default the type''s. Higher priority runs first.
run_after: not claimed before; null or a past time is now.
key: idempotency key as stored, 1 to 1,024 bytes; see jobdeck.key_of. Only for types that do not make their own.
owner, created_by: whose job it is and who enqueues it, as people read it; cut after 200 characters.
limit_key: jobs with the same one share the queue''s limit by key; default what the type''s path gives.
tags: words to find it by.

Returns one row: the new job, or with is_new false the one that holds the key; payload_differs if that one''s payload is another.
What is not acceptable is refused with SQLSTATE 22023 and the parameter''s name, and nothing is written.';

create function jobdeck.enqueue_many(
  type text, payloads jsonb[], queue text default null, priority integer default null, run_after timestamptz default null,
  keys text[] default null, owner text default null, created_by text default null, limit_key text default null,
  tags text[] default null)
returns table (ordinal integer, id uuid, is_new boolean, payload_differs boolean)
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select e.ordinal, e.id, e.is_new, e.payload_differs
  from jobdeck.enqueue_jobs(type, payloads, 'payloads', queue, priority, run_after, keys, 'keys', owner, created_by, limit_key,
    tags) e
$$;
comment on function jobdeck.enqueue_many is
'Enqueues jobs of one type in one statement: all of them or, on an error, none. They are claimed in the order of payloads.

Parameters as those of jobdeck.enqueue; keys has one element for each payload, null for none. Returns a row for each payload in
their order, ordinal counting from 1. Of equal keys the first is enqueued, the others are duplicates of it. Calls with overlapping
keys wait for each other without a deadlock. A payload that is refused is named by its place: payloads[57].';

-- Cancel, retry, status ------------------------------------------------------------------------------------------------------------

create function jobdeck.cancel(id uuid, reason text default null)
returns table (outcome text, status text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  job record;
begin
  -- The locked row is judged; what follows sees nothing older.
  select j.id, j.type, j.status, j.idempotency_key, j.cancel_requested_at into job
  from jobdeck.jobs j where j.id = cancel.id for update;
  if not found then
    return query select 'not_found', null::text;
    return;
  end if;
  if job.status in ('succeeded', 'failed', 'canceled') then
    return query select 'already_final', job.status::text;
    return;
  end if;
  if job.status = 'running' and job.cancel_requested_at is not null then
    return query select 'requested', 'running';
    return;
  end if;
  update jobdeck.jobs j set
    status = case when j.status = 'running' then j.status else 'canceled' end,
    finished_at = case when j.status = 'running' then null else now() end,
    cancel_requested_at = now(), version = j.version + 1, updated_at = now()
  where j.id = job.id;
  if job.status <> 'running' then
    delete from jobdeck.idempotency_keys k where k.type = job.type and k.key = job.idempotency_key and k.job_id = job.id;
  end if;
  insert into jobdeck.audit_log (actor, address, action, target, outcome, before, after, reason)
  values (session_user, host(inet_client_addr()), 'cancel_job', job.id::text, 'done', jsonb_build_object('state', job.status),
    jsonb_build_object('state', case when job.status = 'running' then 'running' else 'canceled' end,
      'cancel_requested', job.status = 'running'),
    left(reason, 1000));
  return query select case when job.status = 'running' then 'requested' else 'canceled' end,
    case when job.status = 'running' then 'running' else 'canceled' end;
end
$$;
comment on function jobdeck.cancel is
'Cancels a waiting job at once, or asks a running one to stop. Repeating it changes nothing.

Returns one row. outcome: canceled (it never becomes succeeded), requested (the handler is told within 2 s), already_final or
not_found; status: the state it is in now. What changed something leaves one row in the audit log, its actor the session user.';

create function jobdeck.retry(id uuid, reason text default null)
returns table (outcome text, status text, held_by uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  job record;
  holder uuid;
begin
  select j.id, j.type, j.queue, j.status, j.idempotency_key, j.payload_digest into job
  from jobdeck.jobs j where j.id = retry.id for update;
  if not found then
    return query select 'not_found', null::text, null::uuid;
    return;
  end if;
  if job.status not in ('failed', 'canceled') then
    return query select 'not_retryable', job.status::text, null::uuid;
    return;
  end if;
  if job.idempotency_key is not null then
    insert into jobdeck.idempotency_keys as k (type, key, job_id, payload_digest)
    values (job.type, job.idempotency_key, job.id, job.payload_digest)
    on conflict (type, key) do update set (job_id, payload_digest, expires_at) = (
      select case when f.free then excluded.job_id else k.job_id end,
        case when f.free then excluded.payload_digest else k.payload_digest end,
        case when f.free then null else k.expires_at end
      from (select jobdeck.key_is_free(k.expires_at, k.job_id) as free) f)
    returning k.job_id into holder;
    if holder <> job.id then
      return query select 'key_held', job.status::text, holder;
      return;
    end if;
  end if;
  update jobdeck.jobs j set status = 'pending', attempts = 0, stalled_count = 0, run_after = now(), finished_at = null,
    cancel_requested_at = null, stage = null, progress = null, stages_at = '{}', version = j.version + 1, updated_at = now()
  where j.id = job.id;
  insert into jobdeck.audit_log (actor, address, action, target, outcome, before, after, reason)
  values (session_user, host(inet_client_addr()), 'retry_job', job.id::text, 'done', jsonb_build_object('state', job.status),
    jsonb_build_object('state', 'pending'), left(reason, 1000));
  perform jobdeck.wake(job.queue);
  return query select 'queued', 'pending', null::uuid;
end
$$;
comment on function jobdeck.retry is
'Sends a failed or canceled job back to the start: attempts and stalls at 0, history kept, due at once.

Returns one row. outcome: queued, not_retryable (it is in another state), key_held (held_by names the job that has its idempotency
key) or not_found; status: the state it is in now. What changed something leaves one row in the audit log, its actor the session
user.';

create function jobdeck.job_status(id uuid)
returns table (status text, stage text, progress smallint, attempts integer, max_attempts integer, run_after timestamptz,
  cancel_requested boolean, error_class text, error_code text, result jsonb, created_at timestamptz, started_at timestamptz,
  finished_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select j.status::text, j.stage, j.progress, j.attempts, j.max_attempts, j.run_after, j.cancel_requested_at is not null,
    j.error_class::text, j.error_code, j.result, j.created_at, j.started_at, j.finished_at
  from jobdeck.jobs j where j.id = job_status.id
$$;
comment on function jobdeck.job_status is
'Where a job is, without its payload and its error texts: one row, or none if there is no such job.

status: pending, running, retrying, succeeded, failed or canceled. progress: percent of the present stage. result: only once
succeeded. error_class and error_code: of the last attempt that went wrong, also while it waits to be tried again.';

-- Roles ----------------------------------------------------------------------------------------------------------------------------

alter table jobdeck.deployment
  -- the newest migration whose objects the roles have their privileges on; null until that worked
  add column granted_version bigint;

create function jobdeck.ensure_role(role_name text) returns boolean
language plpgsql as $$
begin
  if exists (select from pg_catalog.pg_roles r where r.rolname = role_name) then
    return true;
  end if;
  execute format('create role %I nologin', role_name);
  return true;
exception
  -- Roles belong to the whole cluster: another database made it meanwhile.
  when duplicate_object or unique_violation then return true;
  when insufficient_privilege then return false;
end
$$;
comment on function jobdeck.ensure_role is 'Makes a role that may not sign in, unless it is there. False if this user may not make roles.';

create function jobdeck.grant_roles() returns table (role text, granted boolean, note text)
language plpgsql as $$
#variable_conflict use_column
declare
  role_name text;
  item record;
  rights text;
  complete boolean := true;
  -- Who may sign in, and secrets: nothing for workers.
  deck_only constant text[] := '{users,sign_in_sessions,setup_tokens,link_keys,api_tokens,saved_views}';
  -- Read by all, written by the owner.
  fixed constant text[] := '{migrations,deployment}';
  -- Written by those who run jobs, read by the deck.
  runtime constant text[] := '{attempts,workers,job_types}';
begin
  -- Two at once would change the same rows of the catalogue.
  perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('jobdeck.grant_roles', 0));
  revoke all on schema jobdeck from public;
  revoke all on all tables in schema jobdeck from public;
  -- Functions can be called by everyone until this is taken back, which matters for those that run with the owner's rights.
  revoke all on all functions in schema jobdeck from public;

  foreach role_name in array '{jobdeck_enqueue,jobdeck_worker,jobdeck_deck}'::text[] loop
    if not jobdeck.ensure_role(role_name) then
      complete := false;
      return query select role_name, false,
        format('%s may not make roles: create role %s nologin, then select jobdeck.grant_roles()', current_user, role_name);
      continue;
    end if;
    execute format('revoke all on all tables in schema jobdeck from %I', role_name);
    execute format('revoke all on all sequences in schema jobdeck from %I', role_name);
    execute format('revoke all on all functions in schema jobdeck from %I', role_name);
    execute format('grant usage on schema jobdeck to %I', role_name);

    for item in
      select p.oid::pg_catalog.regprocedure as signature from pg_catalog.pg_proc p
      where p.pronamespace = 'jobdeck'::pg_catalog.regnamespace and case role_name
        when 'jobdeck_enqueue' then p.proname in ('enqueue', 'enqueue_many', 'job_status')
        when 'jobdeck_worker' then p.proname not in ('grant_roles', 'ensure_role', 'cancel', 'retry')
        else p.proname not in ('grant_roles', 'ensure_role', 'claim_jobs', 'claim_jobs_behind') end
    loop
      execute format('grant execute on function %s to %I', item.signature, role_name);
    end loop;
    for item in
      select c.relname::text as name, c.relkind = 'S' as is_sequence from pg_catalog.pg_class c
      where c.relnamespace = 'jobdeck'::pg_catalog.regnamespace and c.relkind in ('r', 'p', 'v', 'S')
        -- The sequence of an identity column needs no right of its own.
        and not exists (select from pg_catalog.pg_depend d
          where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = c.oid and d.deptype = 'i')
        and role_name <> 'jobdeck_enqueue'
    loop
      rights := case
        when item.is_sequence then 'usage, select, update'
        when item.name = any (deck_only) and role_name = 'jobdeck_worker' then null
        when item.name = any (fixed) then 'select'
        when item.name = 'audit_log' and role_name = 'jobdeck_worker' then 'insert'
        when item.name = 'audit_log' then 'select, insert'
        when item.name = any (runtime) and role_name = 'jobdeck_deck' then 'select'
        else 'select, insert, update, delete'
      end;
      if rights is not null then
        execute format('grant %s on %s jobdeck.%I to %I', rights, case when item.is_sequence then 'sequence' else 'table' end,
          item.name, role_name);
      end if;
    end loop;
    return query select role_name, true, null::text;
  end loop;
  if complete then
    update jobdeck.deployment set granted_version = (select max(m.version) from jobdeck.migrations m where m.success);
  end if;
end
$$;
comment on function jobdeck.grant_roles is
'Makes the roles jobdeck_enqueue, jobdeck_worker and jobdeck_deck if they are not there, and sets their privileges on all objects of
the schema exactly as docs/sql.md says: what was granted to them beside that is taken back. For the schema''s owner or a superuser;
repeating it changes nothing. Called after each migration; where the owner may not make roles, a row says what is left to do.';

select jobdeck.grant_roles();
