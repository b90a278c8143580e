-- The deck: who may sign in, what they did, and the keys that sign links for people without an account.
create type jobdeck.user_role as enum ('viewer', 'operator', 'admin');

create table jobdeck.users (
  id uuid primary key default jobdeck.uuid_v7(),
  email text not null constraint user_email_plausible check (email ~ '^[^@\s]+@[^@\s]+$' and length(email) <= 254),
  name text not null constraint user_name_length check (length(name) between 1 and 100),
  role jobdeck.user_role not null,
  -- argon2id in PHC string form
  password_hash text not null,
  created_at timestamptz not null default now(),
  disabled_at timestamptz
);
create unique index user_email_idx on jobdeck.users (lower(email));

-- Someone signed in on one device. Only the SHA-256 of the cookie's value is kept.
create table jobdeck.sign_in_sessions (
  id_digest bytea primary key,
  user_id uuid not null references jobdeck.users (id) on delete cascade,
  created_at timestamptz not null default now(),
  last_seen_at timestamptz not null default now(),
  expires_at timestamptz not null,
  user_agent text,
  address text
);
create index sign_in_session_user_idx on jobdeck.sign_in_sessions (user_id);

-- One-time links for the first admin. Only the SHA-256 is kept.
create table jobdeck.setup_tokens (
  digest bytea primary key,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  used_at timestamptz
);

-- Secrets that sign links, shared by all web processes on this database.
create table jobdeck.link_keys (
  id integer generated always as identity primary key,
  secret bytea not null constraint link_key_length check (octet_length(secret) = 32),
  created_at timestamptz not null default now(),
  retired_at timestamptz
);

create table jobdeck.audit_log (
  id bigint generated always as identity primary key,
  at timestamptz not null default now(),
  -- null when it was not a signed-in user
  user_id uuid,
  actor text not null,
  address text,
  -- verb_noun, such as cancel_job
  action text not null,
  target text,
  outcome text not null constraint audit_outcome_known check (outcome in ('done', 'refused')),
  before jsonb,
  after jsonb,
  reason text
);
create index audit_target_idx on jobdeck.audit_log (target, id desc);
