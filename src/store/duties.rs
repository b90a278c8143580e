//! Who does a maintenance duty: one process at a time, by a lease in a row.
//!
//! No advisory lock, since one held by a session is lost or left behind by a pooler in transaction mode. What a duty does must be
//! harmless when two processes do it for a moment: a holder that was stopped longer than its lease does not notice at once.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::claims::micros;
use super::{Store, StoreError};

/// A duty and who has it.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Duty {
    /// Such as `prune`.
    pub name: String,
    /// Who has or last had it.
    pub holder: String,
    /// Until when, by the database's clock. Another may take it from then on.
    pub until: DateTime<Utc>,
}

impl Store {
    /// Takes or keeps the duty `name` for `hold_for` from now. False if another holder has it.
    ///
    /// # Errors
    /// If the database does.
    pub async fn duty_hold(&self, name: &str, holder: &str, hold_for: Duration) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "insert into jobdeck.duties as d (name, holder, until) values ($1, $2, now() + $3 * interval '1 microsecond')
             on conflict (name) do update set holder = excluded.holder, until = excluded.until
             where d.holder = excluded.holder or d.until <= now()",
        )
        .bind(name)
        .bind(holder)
        .bind(micros(hold_for))
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Gives the duty up, so that another need not wait. Nothing happens if `holder` no longer has it.
    ///
    /// # Errors
    /// If the database does; the duty then ends by itself.
    pub async fn duty_release(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        sqlx::query("update jobdeck.duties set until = now() where name = $1 and holder = $2 and until > now()")
            .bind(name)
            .bind(holder)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Every duty that was ever taken, by name.
    ///
    /// # Errors
    /// If the database does.
    pub async fn duty_list(&self) -> Result<Vec<Duty>, StoreError> {
        Ok(sqlx::query_as("select name, holder, until from jobdeck.duties order by name").fetch_all(&self.pool).await?)
    }
}
