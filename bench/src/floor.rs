//! The floor: what plain SQL does with the seed's table, column by column: random ids as text, one index for the claim, history
//! kept. No tokens, leases, constraints, counters or keys.

use anyhow::Result;
use sqlx::{Connection as _, PgConnection};

use crate::subject::payload_text;

/// One claim and one completion take this many; fewer cost more round trips, many more make claimers walk over each other's
/// locked rows.
const BATCH: i64 = 100;
const CONNECTIONS: usize = 2;

pub(crate) async fn create(url: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql(
        "create table jobs (
           id text primary key,
           type text not null,
           payload jsonb not null,
           status text not null,
           attempts integer not null default 0,
           run_after timestamptz not null default now(),
           locked_at timestamptz,
           last_error text,
           created_at timestamptz not null default now(),
           updated_at timestamptz not null default now());
         create index jobs_claim_idx on jobs (run_after, id) where status = 'pending';",
    )
    .execute(&mut connection)
    .await?;
    Ok(connection.close().await?)
}

/// As most programs make one.
fn random_id() -> String {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid().to_string()
}

/// Inserts rows one by one, each in a transaction of its own.
pub(crate) async fn insert_singly(connection: &mut PgConnection, numbers: std::ops::Range<u32>) -> Result<()> {
    for number in numbers {
        sqlx::query(
            "insert into jobs (id, type, payload, status) values ($1, 'bench_noop', $2::text::jsonb, 'pending')",
        )
        .bind(random_id())
        .bind(payload_text(number))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Inserts rows in one statement.
pub(crate) async fn insert_many(connection: &mut PgConnection, numbers: std::ops::Range<u32>) -> Result<()> {
    let ids: Vec<String> = numbers.clone().map(|_| random_id()).collect();
    let payloads: Vec<String> = numbers.map(payload_text).collect();
    sqlx::query(
        "insert into jobs (id, type, payload, status)
         select id, 'bench_noop', payload::jsonb, 'pending' from unnest($1::text[], $2::text[]) as new (id, payload)",
    )
    .bind(ids)
    .bind(payloads)
    .execute(connection)
    .await?;
    Ok(())
}

/// Connections that drain, opened before the clock starts.
pub(crate) async fn connect(url: &str) -> Result<Vec<PgConnection>> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(PgConnection::connect(url).await?);
    }
    Ok(connections)
}

/// Claims and completes everything that waits; returns how many.
pub(crate) async fn drain(connections: Vec<PgConnection>) -> Result<u64> {
    let mut claimers = tokio::task::JoinSet::new();
    for connection in connections {
        claimers.spawn(claim_and_complete(connection));
    }
    let mut done = 0;
    while let Some(claimer) = claimers.join_next().await {
        done += claimer??;
    }
    Ok(done)
}

async fn claim_and_complete(mut connection: PgConnection) -> Result<u64> {
    let mut done = 0;
    loop {
        let claimed: Vec<(String, String, String)> = sqlx::query_as(
            "with due as materialized (
               select id from jobs where status = 'pending' and run_after <= now()
               order by run_after, id limit $1 for update skip locked)
             update jobs j set status = 'running', attempts = attempts + 1, locked_at = now(), updated_at = now()
             from due where j.id = due.id
             returning j.id, j.type, j.payload::text",
        )
        .bind(BATCH)
        .fetch_all(&mut connection)
        .await?;
        if claimed.is_empty() {
            return Ok(done);
        }
        let ids: Vec<String> = claimed.into_iter().map(|(id, ..)| id).collect();
        let completed = sqlx::query(
            "update jobs j set status = 'succeeded', locked_at = null, updated_at = now()
             from unnest($1::text[]) as mine (id) where j.id = mine.id and j.status = 'running'",
        )
        .bind(ids)
        .execute(&mut connection)
        .await?;
        done += completed.rows_affected();
    }
}
