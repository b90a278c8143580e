//! Providers that asked for a pause. A rate-limited outcome starts one in its own statement; claims and handlers heed it.

use chrono::{DateTime, Utc};

use super::{Actor, Store, StoreError};

/// A pause a provider asked for. Until its end no worker claims a type that names the provider.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct CoolDown {
    /// The provider's key, as types and errors name it.
    pub provider: String,
    /// When calls may go on.
    pub until: DateTime<Utc>,
    /// The text of the answer that started it.
    pub reason: Option<String>,
    /// When it was last started or made longer.
    pub set_at: DateTime<Utc>,
}

impl Store {
    /// The cool-downs that have not ended, soonest end first.
    ///
    /// # Errors
    /// If the database does.
    pub async fn cool_down_list(&self) -> Result<Vec<CoolDown>, StoreError> {
        Ok(sqlx::query_as(
            "select provider, until, reason, set_at from jobdeck.cool_downs where until > now() order by until, provider",
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// How much longer `provider` must not be called, by the database's clock; `None` when it may be.
    ///
    /// # Errors
    /// If the database does.
    pub async fn cool_down_left(&self, provider: &str) -> Result<Option<std::time::Duration>, StoreError> {
        let secs: Option<f64> = sqlx::query_scalar(
            "select extract(epoch from until - now())::float8 from jobdeck.cool_downs where provider = $1 and until > now()",
        )
        .bind(provider)
        .fetch_optional(&self.pool)
        .await?;
        Ok(secs.map(|secs| std::time::Duration::from_secs_f64(secs.max(0.0))))
    }

    /// Ends a cool-down early. Returns whether there was one. Leaves one audit row if so.
    ///
    /// # Errors
    /// If the database does.
    pub async fn cool_down_end(&self, provider: &str, actor: &Actor) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "with ended as (
               delete from jobdeck.cool_downs where provider = $1 and until > now() returning provider, until)
             insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, before)
             select $2, $3, $4, 'end_cool_down', provider, 'done', jsonb_build_object('until', until) from ended",
        )
        .bind(provider)
        .bind(actor.user_id)
        .bind(&actor.name)
        .bind(&actor.address)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() > 0)
    }
}
