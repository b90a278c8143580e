//! What handlers really did, in a database apart from the queue, so that no rollback of the queue's undoes it.

use anyhow::{Context as _, Result};
use jobdeck::{Ctx, JobError};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// The ledger's tables. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ledger {
    pool: PgPool,
}

impl Ledger {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(4).connect(url).await.context("the ledger does not answer")?;
        Ok(Self { pool })
    }

    pub(crate) async fn create(&self) -> Result<()> {
        sqlx::raw_sql(
            "create table starts (n bigint, job_id uuid, token bigint, attempt int, pid int, at timestamptz default clock_timestamp());
             create table effects_raw (n bigint, at timestamptz default clock_timestamp());
             create table effects_keyed (n bigint primary key, tries int not null default 1);",
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Written before the handler does anything.
    pub(crate) async fn note_start(&self, ctx: &Ctx, n: i64) -> Result<(), JobError> {
        sqlx::query("insert into starts (n, job_id, token, attempt, pid) values ($1, $2, $3, $4, $5)")
            .bind(n)
            .bind(ctx.job_id())
            .bind(ctx.token())
            .bind(ctx.attempt())
            .bind(std::process::id().cast_signed())
            .execute(&self.pool)
            .await
            .map_err(|error| JobError::retryable("connection", error.to_string()))?;
        Ok(())
    }

    /// An effect on the outside world: raw, and once more behind a key as a provider with idempotency keys keeps it.
    pub(crate) async fn note_effect(&self, n: i64) -> Result<(), JobError> {
        sqlx::query(
            "with raw as (insert into effects_raw (n) values ($1))
             insert into effects_keyed as k (n) values ($1) on conflict (n) do update set tries = k.tries + 1",
        )
        .bind(n)
        .execute(&self.pool)
        .await
        .map_err(|error| JobError::retryable("connection", error.to_string()))?;
        Ok(())
    }

    pub(crate) async fn number(&self, query: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(query).fetch_one(&self.pool).await?)
    }

    pub(crate) async fn pool(&self) -> &PgPool {
        &self.pool
    }
}
