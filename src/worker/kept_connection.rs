//! A connection that a busy loop keeps from one statement to the next.
//!
//! The pool asks each connection that is given back whether it still answers: a round trip or two, which for a small statement is as
//! much as the statement. A loop that has the next one ready keeps its connection instead.

use std::future::Future;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

use crate::StoreError;

/// How long a connection is kept without a statement. Others of this worker may need it.
pub(super) const KEEP_FOR: Duration = Duration::from_millis(3);

/// None is kept after a statement that failed or was given up: the pool looks at those.
#[derive(Default)]
pub(super) struct KeptConnection(Option<PoolConnection<Postgres>>);

impl KeptConnection {
    /// Runs one statement within `limit`, which counts the wait for a connection.
    pub(super) async fn run<T>(
        &mut self,
        pool: &PgPool,
        limit: Duration,
        statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let kept = self.0.take();
        let work = async {
            let mut connection = match kept {
                Some(connection) => connection,
                None => pool.acquire().await?,
            };
            let answer = statement(&mut connection).await?;
            Ok((connection, answer))
        };
        let done: Result<_, StoreError> =
            tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()));
        let (connection, answer) = done?;
        self.0 = Some(connection);
        Ok(answer)
    }

    /// Gives the connection back.
    pub(super) fn release(&mut self) {
        self.0 = None;
    }

    /// Waits for what brings the next statement, and gives the connection back if that takes longer than [`KEEP_FOR`].
    pub(super) async fn release_unless_soon<T>(&mut self, next: impl Future<Output = T>) -> T {
        tokio::pin!(next);
        if self.0.is_some() {
            match tokio::time::timeout(KEEP_FOR, &mut next).await {
                Ok(next) => return next,
                Err(_) => self.release(),
            }
        }
        next.await
    }
}
