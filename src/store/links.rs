//! The secrets that sign links for people without an account.

use super::{Store, StoreError};

/// A signing secret.
#[derive(Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LinkKey {
    /// Stands in each link, so that keys can be changed while older links still work.
    pub id: i32,
    /// 32 random bytes.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Store {
    /// The keys that still verify links, newest first. `fresh` becomes the first key of a database that has none.
    ///
    /// # Errors
    /// If the database does.
    pub async fn link_keys(&self, fresh: [u8; 32]) -> Result<Vec<LinkKey>, StoreError> {
        sqlx::query(
            "insert into jobdeck.link_keys (secret)
             select $1 where not exists (select 1 from jobdeck.link_keys where retired_at is null)",
        )
        .bind(fresh.as_slice())
        .execute(&self.pool)
        .await?;
        Ok(sqlx::query_as("select id, secret from jobdeck.link_keys where retired_at is null order by id desc")
            .fetch_all(&self.pool)
            .await?)
    }
}
