//! The secrets that sign links for people without an account.

use super::{Store, StoreError};

/// A signing secret.
#[derive(Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LinkKey {
    /// Stands in each link, so that keys can be changed while older links still work.
    pub id: i32,
    /// 32 random bytes.
    pub secret: Vec<u8>,
    /// Whether every process has had 10 s to read it, by the database's clock.
    pub is_settled: bool,
}

impl std::fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Store {
    /// The keys that still verify links, newest first. `fresh` becomes the first key of a database that has none, also
    /// after the last one was retired.
    ///
    /// # Errors
    /// If the database does.
    pub async fn link_keys(&self, fresh: [u8; 32]) -> Result<Vec<LinkKey>, StoreError> {
        const KEYS: &str = "select id, secret, created_at <= now() - interval '10 seconds' as is_settled
             from jobdeck.link_keys where retired_at is null order by id desc";
        let keys: Vec<LinkKey> = sqlx::query_as(KEYS).fetch_all(&self.pool).await?;
        if !keys.is_empty() {
            return Ok(keys);
        }
        sqlx::query(
            "insert into jobdeck.link_keys (secret)
             select $1 where not exists (select 1 from jobdeck.link_keys where retired_at is null)",
        )
        .bind(fresh.as_slice())
        .execute(&self.pool)
        .await?;
        Ok(sqlx::query_as(KEYS).fetch_all(&self.pool).await?)
    }
}
