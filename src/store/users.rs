//! Who may sign in, and where they are signed in.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::audit::entry_text;
use super::claims::micros;
use super::{Actor, Store, StoreError};

/// What a user may do. Column `role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserRole {
    /// Reads.
    Viewer,
    /// Also retries and enqueues.
    Operator,
    /// Also cancels, deletes, pauses and manages users.
    Admin,
}

impl UserRole {
    /// The word used in SQL and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl TryFrom<String> for UserRole {
    type Error = String;
    fn try_from(word: String) -> Result<Self, Self::Error> {
        word.parse()
    }
}

impl std::str::FromStr for UserRole {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        [Self::Viewer, Self::Operator, Self::Admin]
            .into_iter()
            .find(|role| role.as_str() == word)
            .ok_or_else(|| format!("unknown role {word:?}: one of viewer, operator, admin"))
    }
}

/// A user to create.
#[derive(Clone)]
pub struct NewUser {
    /// Signs in with it; case does not matter.
    pub email: String,
    /// What people read.
    pub name: String,
    /// What they may do.
    pub role: UserRole,
    /// argon2id in PHC string form.
    pub password_hash: String,
}

/// A sign-in to keep.
#[derive(Clone, Copy, Debug)]
pub struct NewSignIn<'a> {
    /// Of the cookie.
    pub digest: &'a [u8],
    /// Who.
    pub user_id: Uuid,
    /// How long at most.
    pub life: Duration,
    /// What the browser says it is; cut to 300 characters.
    pub user_agent: Option<&'a str>,
    /// Digest of the cookie this browser had before.
    pub replaces: Option<&'a [u8]>,
}

/// A user.
#[derive(Clone, PartialEq, sqlx::FromRow)]
pub struct User {
    /// Never used twice.
    pub id: Uuid,
    /// As entered.
    pub email: String,
    /// What people read.
    pub name: String,
    /// What they may do.
    #[sqlx(try_from = "String")]
    pub role: UserRole,
    /// argon2id in PHC string form.
    pub password_hash: String,
    /// Set once they may no longer sign in.
    pub disabled_at: Option<DateTime<Utc>>,
}

/// Someone signed in, as found by their cookie.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct SignInSession {
    /// Who.
    pub user_id: Uuid,
    /// As entered.
    pub email: String,
    /// What people read.
    pub name: String,
    /// What they may do now.
    #[sqlx(try_from = "String")]
    pub role: UserRole,
}

impl Store {
    /// Creates a user, and notes in the audit log that `by` did.
    ///
    /// # Errors
    /// [`StoreError::EmailTaken`], or if the database refuses.
    pub async fn user_create(&self, user: &NewUser, by: &Actor) -> Result<Uuid, StoreError> {
        sqlx::query_scalar(
            "with created as (
               insert into jobdeck.users (email, name, role, password_hash)
               values ($1, $2, $3::jobdeck.user_role, $4) returning id),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome)
               select $5, $6, $7, 'create_user', id::text, 'done' from created)
             select id from created",
        )
        .bind(&user.email)
        .bind(&user.name)
        .bind(user.role.as_str())
        .bind(&user.password_hash)
        .bind(by.user_id)
        .bind(entry_text(&by.name))
        .bind(by.address.as_deref().map(entry_text))
        .fetch_one(&self.pool)
        .await
        .map_err(email_taken)
    }

    /// The user with this address, disabled ones included.
    ///
    /// # Errors
    /// If the database does.
    pub async fn user_by_email(&self, email: &str) -> Result<Option<User>, StoreError> {
        Ok(sqlx::query_as(
            "select id, email, name, role::text as role, password_hash, disabled_at
             from jobdeck.users where lower(email) = lower($1)",
        )
        .bind(email)
        .fetch_optional(&self.pool)
        .await?)
    }

    /// The name of this user, disabled or not.
    ///
    /// # Errors
    /// If the database does.
    pub async fn user_name(&self, id: Uuid) -> Result<Option<String>, StoreError> {
        Ok(sqlx::query_scalar("select name from jobdeck.users where id = $1")
            .bind(id)
            .fetch_optional(&self.pool)
            .await?)
    }

    /// All users, disabled ones included, by address.
    ///
    /// # Errors
    /// If the database does.
    pub async fn user_list(&self) -> Result<Vec<User>, StoreError> {
        Ok(sqlx::query_as(
            "select id, email, name, role::text as role, password_hash, disabled_at
             from jobdeck.users order by lower(email)",
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Whether anybody can sign in yet.
    ///
    /// # Errors
    /// If the database does.
    pub async fn user_exists(&self) -> Result<bool, StoreError> {
        Ok(sqlx::query_scalar("select exists (select 1 from jobdeck.users)").fetch_one(&self.pool).await?)
    }

    /// Keeps the digest of a one-time set-up token for `life`. Earlier tokens stop working.
    ///
    /// # Errors
    /// If the database does.
    pub async fn setup_token_create(&self, digest: &[u8], life: Duration) -> Result<(), StoreError> {
        sqlx::query(
            "with old as (delete from jobdeck.setup_tokens where used_at is null)
             insert into jobdeck.setup_tokens (digest, expires_at) values ($1, now() + $2 * interval '1 microsecond')",
        )
        .bind(digest)
        .bind(micros(life))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Whether a set-up token would still work.
    ///
    /// # Errors
    /// If the database does.
    pub async fn setup_token_is_valid(&self, digest: &[u8]) -> Result<bool, StoreError> {
        Ok(sqlx::query_scalar(
            "select exists (select 1 from jobdeck.setup_tokens
               where digest = $1 and used_at is null and expires_at > now())
             and not exists (select 1 from jobdeck.users)",
        )
        .bind(digest)
        .fetch_one(&self.pool)
        .await?)
    }

    /// Creates the first admin, notes it in the audit log and uses the token up, all or nothing. `None` if the token does
    /// not work (unknown, used, expired) or a user is there already. `address` is where the request came from.
    ///
    /// # Errors
    /// If the database does.
    pub async fn setup_complete(
        &self,
        digest: &[u8],
        admin: &NewUser,
        address: Option<&str>,
    ) -> Result<Option<Uuid>, StoreError> {
        // Two set-ups at once meet at the token's row: the second waits, then finds it used.
        sqlx::query_scalar(
            "with used as (
               update jobdeck.setup_tokens set used_at = now()
               where digest = $1 and used_at is null and expires_at > now()
                 and not exists (select 1 from jobdeck.users)
               returning digest),
             created as (
               insert into jobdeck.users (email, name, role, password_hash)
               select $2, $3, 'admin', $4 from used returning id, name),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome)
               select id, name, $5, 'create_first_admin', id::text, 'done' from created)
             select id from created",
        )
        .bind(digest)
        .bind(&admin.email)
        .bind(&admin.name)
        .bind(&admin.password_hash)
        .bind(address.map(entry_text))
        .fetch_optional(&self.pool)
        .await
        .map_err(email_taken)
    }

    /// Signs a user in: keeps the digest of the cookie for at most `life`, ends the sign-in this browser had before, if
    /// any, and notes it in the audit log, all or nothing. The sign-in's address is the actor's.
    ///
    /// # Errors
    /// If the database does.
    pub async fn sign_in_create(&self, sign_in: &NewSignIn<'_>, actor: &Actor) -> Result<(), StoreError> {
        sqlx::query(
            "with old as (delete from jobdeck.sign_in_sessions where expires_at < now() or id_digest = $6),
             noted as (
               insert into jobdeck.audit_log (user_id, actor, address, action, outcome)
               values ($2, $7, $5, 'sign_in', 'done'))
             insert into jobdeck.sign_in_sessions (id_digest, user_id, expires_at, user_agent, address)
             values ($1, $2, now() + $3 * interval '1 microsecond', $4, $5)",
        )
        .bind(sign_in.digest)
        .bind(sign_in.user_id)
        .bind(micros(sign_in.life))
        .bind(sign_in.user_agent.map(entry_text))
        .bind(actor.address.as_deref().map(entry_text))
        .bind(sign_in.replaces)
        .bind(entry_text(&actor.name))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Who the cookie with this digest belongs to, if it still signs in: not expired, not idle for longer than `idle`,
    /// its user not disabled. `touch` counts this look as activity.
    ///
    /// # Errors
    /// If the database does.
    pub async fn sign_in_find(
        &self,
        digest: &[u8],
        idle: Duration,
        touch: bool,
    ) -> Result<Option<SignInSession>, StoreError> {
        Ok(sqlx::query_as(
            "with found as (
               select s.id_digest, s.last_seen_at, u.id as user_id, u.email, u.name, u.role::text as role
               from jobdeck.sign_in_sessions s join jobdeck.users u on u.id = s.user_id
               where s.id_digest = $1 and s.expires_at > now() and u.disabled_at is null
                 and s.last_seen_at > now() - $2 * interval '1 microsecond'),
             touched as (
               update jobdeck.sign_in_sessions s set last_seen_at = now() from found f
               -- Once a minute is enough to measure idleness, and spares a write per request.
               where $3 and s.id_digest = f.id_digest and f.last_seen_at < now() - interval '1 minute')
             select user_id, email, name, role from found",
        )
        .bind(digest)
        .bind(micros(idle))
        .bind(touch)
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Ends a sign-in and notes in the audit log that `actor` signed out, both or neither. Repeating it changes nothing.
    ///
    /// # Errors
    /// If the database does.
    pub async fn sign_in_end(&self, digest: &[u8], actor: &Actor) -> Result<(), StoreError> {
        sqlx::query(
            "with ended as (
               delete from jobdeck.sign_in_sessions where id_digest = $1 returning user_id)
             insert into jobdeck.audit_log (user_id, actor, address, action, target, outcome)
             select e.user_id, $2, $3, 'sign_out', u.email, 'done'
             from ended e join jobdeck.users u on u.id = e.user_id",
        )
        .bind(digest)
        .bind(entry_text(&actor.name))
        .bind(actor.address.as_deref().map(entry_text))
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

fn email_taken(error: sqlx::Error) -> StoreError {
    match error.as_database_error().and_then(|error| error.constraint()) {
        Some("user_email_idx") => StoreError::EmailTaken,
        _ => error.into(),
    }
}
