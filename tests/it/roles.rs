//! Roles of least privilege: what each may do, and what it is refused (R43).

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool};

use crate::support::{Db, Note};

/// A connection with the rights of `role` and no others.
async fn as_role(db: &Db, role: &str) -> PgConnection {
    let mut connection = db.connection().await;
    connection.execute(AssertSqlSafe(format!("set role {role}"))).await.expect("role taken");
    connection
}

/// A pool whose connections have the rights of `role` and no others.
async fn pool_as(db: &Db, role: &str) -> PgPool {
    let take = format!("set role {role}");
    sqlx::postgres::PgPoolOptions::new()
        .after_connect(move |connection, _| {
            let take = take.clone();
            Box::pin(async move { connection.execute(AssertSqlSafe(take)).await.map(drop) })
        })
        .connect(&db.url)
        .await
        .expect("connected")
}

/// The SQLSTATE a statement ends with; `None` if it works. Nothing of it stays.
async fn code_of(connection: &mut PgConnection, statement: &'static str) -> Option<String> {
    let mut tx = connection.begin().await.expect("begun");
    let ended = sqlx::raw_sql(statement).execute(&mut *tx).await;
    tx.rollback().await.expect("rolled back");
    let error = ended.err()?;
    Some(
        error
            .as_database_error()
            .unwrap_or_else(|| panic!("{statement}: {error}"))
            .code()
            .expect("a code")
            .into_owned(),
    )
}

const FORBIDDEN: [(&str, &[&str]); 3] = [
    (
        "jobdeck_enqueue",
        &[
            "select id from jobdeck.jobs",
            "select payload from jobdeck.jobs limit 1",
            "insert into jobdeck.jobs (type, payload) values ('note', '{}')",
            "update jobdeck.jobs set priority = 1",
            "delete from jobdeck.jobs",
            "truncate jobdeck.jobs cascade",
            "copy jobdeck.jobs to stdout",
            "select key from jobdeck.idempotency_keys",
            "delete from jobdeck.idempotency_keys",
            "select type from jobdeck.job_types",
            "update jobdeck.job_types set key_fields = null",
            "update jobdeck.queues set paused_at = null, paused_by = null",
            "select n_jobs from jobdeck.job_counters",
            "select email from jobdeck.users",
            "select secret from jobdeck.link_keys",
            "select action from jobdeck.audit_log",
            "insert into jobdeck.audit_log (actor, action, outcome) values ('nobody', 'cancel_job', 'done')",
            "select jobdeck.cancel('00000000-0000-0000-0000-000000000000')",
            "select jobdeck.retry('00000000-0000-0000-0000-000000000000')",
            "select jobdeck.claim_jobs('default', '{note}', 1, interval '15 s', 'thief')",
            "select jobdeck.claim_jobs_behind('default', 'note', 0::smallint, now(), gen_random_uuid(), 1, interval '15 s', 'thief')",
            "select jobdeck.enqueue_jobs('note', '{\"{}\"}', 'payloads', null, null, null, null, 'key', null, null, null, null)",
            "select jobdeck.wake('default')",
            "select jobdeck.grant_roles()",
            "select setval('jobdeck.wake_clock', 1)",
            "create table jobdeck.mine ()",
            "create function jobdeck.mine() returns int language sql return 1",
        ],
    ),
    (
        "jobdeck_worker",
        &[
            "create table jobdeck.mine ()",
            "create function jobdeck.enqueue() returns int language sql return 1",
            "create type jobdeck.mine as enum ('a')",
            "alter table jobdeck.jobs add column mine text",
            "alter table jobdeck.jobs disable trigger all",
            "alter type jobdeck.job_state add value 'mine'",
            "drop table jobdeck.jobs cascade",
            "drop function jobdeck.retry(uuid, text)",
            "drop index jobdeck.job_claim_idx",
            "drop schema jobdeck cascade",
            "truncate jobdeck.jobs cascade",
            "create index on jobdeck.jobs (owner)",
            "create trigger mine before insert on jobdeck.jobs for each row execute function jobdeck.refuse_transition()",
            "select action from jobdeck.audit_log",
            "update jobdeck.audit_log set actor = 'nobody'",
            "delete from jobdeck.audit_log",
            "truncate jobdeck.audit_log",
            "select email from jobdeck.users",
            "update jobdeck.users set role = 'admin'",
            "select secret from jobdeck.link_keys",
            "insert into jobdeck.sign_in_sessions (id_digest, user_id, expires_at)
           values ('x', '00000000-0000-0000-0000-000000000000', now())",
            "update jobdeck.deployment set epoch = 1",
            "delete from jobdeck.migrations",
            "select jobdeck.cancel('00000000-0000-0000-0000-000000000000')",
            "select jobdeck.grant_roles()",
        ],
    ),
    (
        "jobdeck_deck",
        &[
            "update jobdeck.audit_log set actor = 'nobody'",
            "delete from jobdeck.audit_log",
            "truncate jobdeck.audit_log",
            "alter table jobdeck.audit_log add column mine text",
            "drop table jobdeck.audit_log",
            "insert into jobdeck.attempts (job_id, token, attempt, outcome, started_at)
           values ('00000000-0000-0000-0000-000000000000', 1, 1, 'failed', now())",
            "update jobdeck.job_types set redact = '{}'",
            "update jobdeck.workers set heartbeat_at = now()",
            "update jobdeck.deployment set epoch = 1",
            "delete from jobdeck.migrations",
            "select jobdeck.claim_jobs('default', '{note}', 1, interval '15 s', 'thief')",
            "select jobdeck.claim_jobs_behind('default', 'note', 0::smallint, now(), gen_random_uuid(), 1, interval '15 s', 'thief')",
            "create table jobdeck.mine ()",
            "truncate jobdeck.jobs cascade",
            "alter table jobdeck.users drop column password_hash",
            "select jobdeck.grant_roles()",
        ],
    ),
];

#[tokio::test]
async fn each_role_is_refused_what_it_has_no_right_to() {
    let db = Db::new().await;
    db.enqueue(&Note::new("here")).await;
    assert!(FORBIDDEN.iter().map(|(_, statements)| statements.len()).sum::<usize>() >= 40);
    let mut wrong = Vec::new();
    for (role, statements) in FORBIDDEN {
        let mut connection = as_role(&db, role).await;
        for statement in statements {
            let code = code_of(&mut connection, statement).await;
            if code.as_deref() != Some("42501") {
                wrong.push(format!("{role}: {statement}: {code:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "not refused with 42501:\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn each_role_may_do_what_it_is_for() {
    let db = Db::new().await;
    let allowed: [(&str, &[&str]); 3] = [
        (
            "jobdeck_enqueue",
            &[
                "select * from jobdeck.enqueue('note', '{\"text\": \"x\"}', key => 'k', queue => 'default')",
                "select * from jobdeck.enqueue_many('note', '{\"{}\", \"{}\"}', priority => 3)",
                "select * from jobdeck.job_status((select id from jobdeck.enqueue('note', '{}')))",
            ],
        ),
        (
            "jobdeck_worker",
            &[
                "insert into jobdeck.job_types (type, queue, max_attempts, max_stalled) values ('x', 'default', 1, 1)",
                "insert into jobdeck.jobs (type, payload) values ('note', '{}');
             select jobdeck.claim_jobs('default', '{note}', 1, interval '15 s', 'w');
             update jobdeck.jobs set status = 'succeeded', finished_at = now(), locked_at = null, locked_by = null,
               lease_expires_at = null where status = 'running';
             delete from jobdeck.jobs",
                "insert into jobdeck.audit_log (actor, action, outcome) values ('worker', 'prune', 'done')",
                "select jobdeck.wake('default')",
            ],
        ),
        (
            "jobdeck_deck",
            &[
                "select j.*, u.email from jobdeck.jobs j, jobdeck.users u, jobdeck.workers w, jobdeck.audit_log a",
                "select * from jobdeck.enqueue('note', '{}')",
                "insert into jobdeck.jobs (type, payload) values ('note', '{}');
             select jobdeck.cancel(id) from jobdeck.jobs; select jobdeck.retry(id) from jobdeck.jobs",
                "insert into jobdeck.audit_log (actor, action, outcome) values ('Ana', 'pause_queue', 'done')",
                "insert into jobdeck.link_keys (secret) values (sha256('x'))",
            ],
        ),
    ];
    for (role, statements) in allowed {
        let mut connection = as_role(&db, role).await;
        for statement in statements {
            assert_eq!(code_of(&mut connection, statement).await, None, "{role}: {statement}");
        }
    }
}

#[tokio::test]
async fn nobody_beside_the_roles_may_call_a_function_or_read_a_table() {
    let db = Db::new().await;
    let open = "select count(*) from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        where p.pronamespace = 'jobdeck'::regnamespace and a.grantee = 0";
    assert_eq!(db.scalar(open).await, 0);
    let open = "select count(*) from pg_class c, aclexplode(c.relacl) a
        where c.relnamespace = 'jobdeck'::regnamespace and a.grantee = 0";
    assert_eq!(db.scalar(open).await, 0);
}

#[tokio::test]
async fn functions_with_the_owners_rights_pin_their_search_path() {
    let db = Db::new().await;
    let definers: Vec<(String, Option<Vec<String>>)> = sqlx::query_as(
        "select proname::text, proconfig from pg_proc where pronamespace = 'jobdeck'::regnamespace and prosecdef order by 1",
    )
    .fetch_all(db.store.pool())
    .await
    .expect("listed");
    let names: Vec<&str> = definers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["cancel", "enqueue", "enqueue_many", "job_status", "retry"]);
    for (name, config) in &definers {
        assert_eq!(config.as_deref(), Some(&["search_path=pg_catalog, pg_temp".to_owned()][..]), "{name}");
    }
    let undocumented = "select count(*) from pg_proc
        where pronamespace = 'jobdeck'::regnamespace and prosecdef and obj_description(oid, 'pg_proc') is null";
    assert_eq!(db.scalar(undocumented).await, 0);
}

#[tokio::test]
async fn enqueue_role_cannot_borrow_the_owners_rights_by_its_own_objects() {
    let db = Db::new().await;
    let mut connection = as_role(&db, "jobdeck_enqueue").await;
    // A table and a function of its own that stand in for those the functions use.
    sqlx::raw_sql(
        "create temp table jobs (id uuid); create function pg_temp.now() returns timestamptz language sql as
           $$ select '2000-01-01Z'::timestamptz $$; set search_path = pg_temp, pg_catalog",
    )
    .execute(&mut connection)
    .await
    .expect("made");
    sqlx::query("select jobdeck.enqueue('note', '{}')").execute(&mut connection).await.expect("enqueued");
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs where run_after > '2020-01-01Z'").await, 1);
}

#[tokio::test]
async fn granting_again_changes_nothing_and_takes_back_what_was_added() {
    let db = Db::new().await;
    let rights = "select md5(string_agg(acl, ' ' order by acl)) from (
        select c.relname || '=' || c.relacl::text from pg_class c where c.relnamespace = 'jobdeck'::regnamespace
        union all
        select p.oid::regprocedure || '=' || p.proacl::text from pg_proc p where p.pronamespace = 'jobdeck'::regnamespace) a (acl)";
    let read = async || -> String { sqlx::query_scalar(rights).fetch_one(db.store.pool()).await.expect("read") };
    let before = read().await;
    sqlx::raw_sql(
        "grant select on jobdeck.users to jobdeck_enqueue; grant update on jobdeck.audit_log to jobdeck_deck",
    )
    .execute(db.store.pool())
    .await
    .expect("granted");
    assert_ne!(read().await, before);
    let granted = "select count(*) from jobdeck.grant_roles() where granted";
    assert_eq!((db.scalar(granted).await, db.scalar(granted).await), (3, 3));
    assert_eq!(read().await, before);
    let granted = "select granted_version - (select max(version) from jobdeck.migrations) from jobdeck.deployment";
    assert_eq!(db.scalar(granted).await, 0, "noted as granted for the newest migration");
}

#[tokio::test]
async fn owner_who_may_not_make_roles_is_told_and_migrates_all_the_same() {
    let db = Db::empty().await;
    let name = format!("owner_{}", uuid::Uuid::now_v7().simple());
    sqlx::raw_sql(AssertSqlSafe(format!("create role {name} nosuperuser nocreaterole")))
        .execute(db.store.pool())
        .await
        .expect("made");
    sqlx::raw_sql(AssertSqlSafe(format!(
        "do $$ begin execute format('grant create on database %I to {name}', current_database()); end $$"
    )))
    .execute(db.store.pool())
    .await
    .expect("granted");
    let pool = pool_as(&db, &name).await;
    let store = jobdeck::Store::new(pool.clone());
    store.migrate().await.expect("migrated");
    let made: bool = sqlx::query_scalar("select jobdeck.ensure_role($1)")
        .bind(format!("{name}_x"))
        .fetch_one(&pool)
        .await
        .expect("answered");
    assert!(!made, "told that it may not, without an error");
    // The roles are there from other databases; what is granted on this one is the owner's to give.
    let granted: i64 = sqlx::query_scalar("select count(*) from jobdeck.grant_roles() where granted")
        .fetch_one(&pool)
        .await
        .expect("granted");
    assert_eq!(granted, 3);
    let mut worker = as_role(&db, "jobdeck_enqueue").await;
    sqlx::query("select jobdeck.enqueue('note', '{}')").execute(&mut worker).await.expect("enqueued");
}

#[tokio::test]
async fn process_that_may_not_migrate_starts_on_a_schema_that_is_ready_and_on_no_other() {
    let db = Db::new().await;
    for role in ["jobdeck_worker", "jobdeck_deck"] {
        let store = jobdeck::Store::new(pool_as(&db, role).await);
        store.migrate().await.expect(role);
        assert!(store.is_ready().await.expect("answered"));
    }
    let empty = Db::empty().await;
    let refused = jobdeck::Store::new(pool_as(&empty, "jobdeck_worker").await).migrate().await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn role_that_two_make_at_once_is_made_once_and_neither_is_refused() {
    let db = Db::new().await;
    let name = format!("twice_{}", uuid::Uuid::now_v7().simple());
    let ensure = "select jobdeck.ensure_role($1)";
    let mut tx = db.store.pool().begin().await.expect("begun");
    let first: bool = sqlx::query_scalar(ensure).bind(&name).fetch_one(&mut *tx).await.expect("made");
    let second = tokio::spawn({
        let (pool, name) = (db.store.pool().clone(), name.clone());
        async move { sqlx::query_scalar::<_, bool>(ensure).bind(name).fetch_one(&pool).await }
    });
    let blocked =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let begun = std::time::Instant::now();
    while db.scalar(blocked).await == 0 {
        assert!(begun.elapsed().as_secs() < 10, "the second waits for the first");
        tokio::task::yield_now().await;
    }
    tx.commit().await.expect("committed");
    assert!(first && second.await.expect("ended").expect("answered"));
}
