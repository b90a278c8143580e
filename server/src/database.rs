//! The database a command works on: the one that `DATABASE_URL` names, or the private server.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use jobdeck::Store;
use jobdeck_embedded_postgres::Error as ServerError;

use crate::config::DatabaseConfig;
use crate::embedded_postgres::PrivatePostgres;

/// An open database. [`Database::close`] it last.
pub(crate) struct Database {
    pub(crate) store: Store,
    /// Connection string. May hold a password: not for the log.
    pub(crate) url: String,
    server: Option<PrivatePostgres>,
}

impl Database {
    /// Connects and brings the schema up to date. Without a URL the private server is started first.
    ///
    /// # Errors
    /// With the reason and the remedy, if there is no server, no connection or no schema.
    pub(crate) async fn open(config: &DatabaseConfig) -> anyhow::Result<Self> {
        let (url, server) = match &config.url {
            Some(url) => (url.clone(), None),
            None => {
                let server = PrivatePostgres::start(&config.data_dir, config.connections)
                    .await
                    .context("cannot start the private Postgres server (set DATABASE_URL to use another)")?;
                (server.url(), Some(server))
            }
        };
        match connect(&url, config.connections).await {
            Ok(store) => Ok(Self { store, url, server }),
            Err(error) => {
                if let Some(server) = server {
                    server.stop().await?;
                }
                Err(error)
            }
        }
    }

    /// As [`Database::open`], for a command that runs beside the deck: a private server that another Jobdeck already runs
    /// is used as well.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub(crate) async fn join(config: &DatabaseConfig) -> anyhow::Result<Self> {
        let error = match Self::open(config).await {
            Ok(database) => return Ok(database),
            Err(error) => error,
        };
        let in_use = error.chain().find_map(|cause| match cause.downcast_ref() {
            Some(ServerError::InUse { dir, .. }) => Some(dir.clone()),
            _ => None,
        });
        let Some(url) = in_use.and_then(|dir| running_server(&dir)) else { return Err(error) };
        let store = connect(&url, config.connections).await?;
        Ok(Self { store, url, server: None })
    }

    /// Ends all connections and stops the private server, if it is one.
    ///
    /// # Errors
    /// If the server does not stop.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.store.pool().close().await;
        match self.server {
            Some(server) => server.stop().await.context("cannot stop the private Postgres server"),
            None => Ok(()),
        }
    }
}

async fn connect(url: &str, connections: u32) -> anyhow::Result<Store> {
    let store = Store::connect(url, connections)
        .await
        .with_context(|| format!("cannot connect to the database at {}", without_secrets(url)))?;
    store.migrate().await.with_context(|| format!("cannot prepare the database at {}", without_secrets(url)))?;
    Ok(store)
}

/// Host, port and database of a connection string.
fn without_secrets(url: &str) -> String {
    match url.parse::<sqlx::postgres::PgConnectOptions>() {
        Ok(options) => {
            let database = options.get_database().unwrap_or("(default database)");
            format!("{}:{}/{database}", options.get_host(), options.get_port())
        }
        Err(_) => "(unreadable address)".to_owned(),
    }
}

/// Address of the private server in `dir` that another process runs. Only its owner can read the password.
fn running_server(dir: &Path) -> Option<String> {
    let password = fs::read_to_string(dir.join("password")).ok()?;
    // Fourth line: the port. See "postmaster.pid" in Postgres' manual, chapter "Database File Layout".
    let port: u16 = fs::read_to_string(dir.join("cluster/postmaster.pid")).ok()?.lines().nth(3)?.trim().parse().ok()?;
    Some(format!("postgres://postgres:{}@127.0.0.1:{port}/jobdeck", password.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_password() {
        assert_eq!(without_secrets("postgres://ana:secret@db:5433/deck"), "db:5433/deck");
    }
}
