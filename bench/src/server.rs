//! The server measured on: databases made and dropped, and what it is.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use jobdeck::Store;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::process;

/// A Postgres server on which databases may be made.
pub(crate) struct Server {
    url: String,
    /// Process id, when the server runs on this machine.
    pub(crate) postmaster: Option<u32>,
    made: AtomicU32,
}

/// A database made for one workload.
pub(crate) struct Database {
    pub(crate) url: String,
    name: String,
}

/// What the figures depend on.
pub(crate) struct Facts {
    pub(crate) version: String,
    /// Name and value.
    pub(crate) settings: Vec<(String, String)>,
}

impl Server {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let mut connection = PgConnection::connect(url).await.context("the server does not answer")?;
        let backend: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await?;
        let postmaster = u32::try_from(backend).ok().and_then(process::postmaster_of);
        if postmaster.is_none() {
            eprintln!("warning: the server's processes are not on this machine; its CPU time is not measured");
        }
        let server = Self { url: url.to_owned(), postmaster, made: AtomicU32::new(0) };
        server.make_template().await?;
        Ok(server)
    }

    pub(crate) async fn facts(&self) -> Result<Facts> {
        let mut connection = PgConnection::connect(&self.url).await?;
        let settings = sqlx::query_as(
            "select name, current_setting(name) from pg_settings
             where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'wal_level')
             order by name",
        )
        .fetch_all(&mut connection)
        .await?;
        let version = sqlx::query_scalar("show server_version").fetch_one(&mut connection).await?;
        Ok(Facts { version, settings })
    }

    /// An empty database.
    pub(crate) async fn empty(&self) -> Result<Database> {
        self.make("template1").await
    }

    /// A database with Jobdeck's schema and nothing in it.
    pub(crate) async fn migrated(&self) -> Result<Database> {
        self.make(&template()).await
    }

    /// Writes out everything, so that each round begins with nothing to write for an earlier one.
    pub(crate) async fn checkpoint(&self) -> Result<()> {
        self.execute("checkpoint").await
    }

    pub(crate) async fn drop(&self, database: Database) -> Result<()> {
        self.execute(&format!("drop database if exists {} with (force)", database.name)).await
    }

    /// Drops what this process made, also what an error left behind.
    pub(crate) async fn clean_up(&self) -> Result<()> {
        for number in 1..=self.made.load(Ordering::Relaxed) {
            self.execute(&format!("drop database if exists {} with (force)", name(number))).await?;
        }
        self.execute(&format!("drop database if exists {} with (force)", template())).await
    }

    async fn make(&self, template: &str) -> Result<Database> {
        let name = name(self.made.fetch_add(1, Ordering::Relaxed) + 1);
        self.execute(&format!("create database {name} template {template}")).await?;
        Ok(Database { url: self.url_of(&name)?, name })
    }

    async fn make_template(&self) -> Result<()> {
        let name = template();
        self.execute(&format!("create database {name}")).await?;
        let store = Store::connect(&self.url_of(&name)?, 2).await?;
        store.migrate().await?;
        // A database that someone is connected to cannot be copied.
        store.pool().close().await;
        Ok(())
    }

    fn url_of(&self, database: &str) -> Result<String> {
        let options: PgConnectOptions = self.url.parse()?;
        let (base, query) =
            self.url.split_once('?').map_or((self.url.as_str(), None), |(base, query)| (base, Some(query)));
        let base = match options.get_database() {
            Some(named) => base.strip_suffix(named).unwrap_or(base).trim_end_matches('/'),
            None => base.trim_end_matches('/'),
        };
        Ok(format!("{base}/{database}{}", query.map(|query| format!("?{query}")).unwrap_or_default()))
    }

    async fn execute(&self, statement: &str) -> Result<()> {
        let mut connection = PgConnection::connect(&self.url).await?;
        // Names come from this file and hold nothing that would need quoting.
        sqlx::query(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await
            .with_context(|| format!("`{statement}` failed"))?;
        connection.close().await?;
        Ok(())
    }
}

fn name(number: u32) -> String {
    format!("jobdeck_bench_{}_{number}", std::process::id())
}

fn template() -> String {
    format!("jobdeck_bench_{}_template", std::process::id())
}
