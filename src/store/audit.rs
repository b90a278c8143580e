//! Who did what to what. One row per action, written in the transaction of the action.

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::{Store, StoreError};

/// Most characters of a text in an entry, such as a target a stranger made up.
const MAX_CHARS: usize = 300;

/// Who acts, for the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// The signed-in user, if it is one.
    pub user_id: Option<Uuid>,
    /// What people read, such as a name or "recipient".
    pub name: String,
    /// Where the request came from.
    pub address: Option<String>,
}

/// One row of `jobdeck.audit_log`.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct AuditEntry {
    /// Grows.
    pub id: i64,
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
    /// Who.
    pub actor: String,
    /// What, as verb_noun.
    pub action: String,
    /// To what, such as a job id.
    pub target: Option<String>,
    /// `done` or `refused`.
    pub outcome: String,
    /// State before, where it changed.
    pub before: Option<Value>,
    /// State after.
    pub after: Option<Value>,
}

impl Store {
    /// Notes that `actor` was refused `action`. Whatever the texts are, the entry is written: what Postgres cannot hold is
    /// replaced, and each is cut to 300 characters.
    ///
    /// # Errors
    /// If the database does.
    pub async fn audit_refused(&self, actor: &Actor, action: &str, target: Option<&str>) -> Result<(), StoreError> {
        self.audit_refused_because(actor, action, target, None).await
    }

    /// As [`Store::audit_refused`], with words on why.
    ///
    /// # Errors
    /// If the database does.
    pub async fn audit_refused_because(
        &self,
        actor: &Actor,
        action: &str,
        target: Option<&str>,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome, reason)
             values ($1, $2, $3, $4, $5, 'refused', $6)",
        )
        .bind(actor.user_id)
        .bind(entry_text(&actor.name))
        .bind(actor.address.as_deref().map(entry_text))
        .bind(action)
        .bind(target.map(entry_text))
        .bind(reason.map(entry_text))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The newest `limit` entries about `target`, newest first.
    ///
    /// # Errors
    /// If the database does.
    pub async fn audit_list(&self, target: &str, limit: i64) -> Result<Vec<AuditEntry>, StoreError> {
        Ok(sqlx::query_as(
            "select id, at, actor, action, target, outcome, before, after from jobdeck.audit_log
             where target = $1 order by id desc limit $2",
        )
        .bind(target)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?)
    }
}

/// A text as it can be kept: without NUL, and short enough for the index on targets.
pub(super) fn entry_text(text: &str) -> String {
    text.chars()
        .take(MAX_CHARS)
        .map(|character| if character == '\0' { char::REPLACEMENT_CHARACTER } else { character })
        .collect()
}
