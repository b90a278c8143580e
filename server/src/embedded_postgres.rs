//! The private Postgres server for those who set no `DATABASE_URL`: started before anything that needs a database, stopped
//! after the last of it. The work is done by [`jobdeck_embedded_postgres`], whose calls block.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use jobdeck_embedded_postgres::{EmbeddedPostgres, Options, usable_dir};

/// Name of the database.
const DATABASE: &str = "jobdeck";
/// Connections beside those of this process: `psql`, a dump, another worker.
const SPARE_CONNECTIONS: u16 = 50;

/// A running private server. Dropping it stops the server and blocks meanwhile; [`PrivatePostgres::stop`] does not.
#[derive(Debug)]
pub(crate) struct PrivatePostgres(EmbeddedPostgres);

impl PrivatePostgres {
    /// Starts the server in `data_dir/postgres`, or adopts the one that a killed Jobdeck left there. Room for `connections`
    /// of our own and some others.
    ///
    /// # Errors
    /// No Postgres installed, the folder in use by another Jobdeck, and whatever else keeps the server from starting.
    pub(crate) async fn start(data_dir: &Path, connections: u32) -> anyhow::Result<Self> {
        let dir = dir(data_dir)?;
        let connections = u16::try_from(connections).unwrap_or(u16::MAX).saturating_add(SPARE_CONNECTIONS);
        let options = Options { max_connections: connections, ..Options::new(&dir, DATABASE) };
        let server = tokio::task::spawn_blocking(move || EmbeddedPostgres::start(&options)).await??;
        tracing::info!(folder = %dir.display(), pid = server.pid(), adopted = server.was_adopted(), "private Postgres is up");
        Ok(Self(server))
    }

    /// Connection string, password included: not for the log.
    pub(crate) fn url(&self) -> String {
        self.0.default_url()
    }

    /// Ends all sessions and stops the server.
    ///
    /// # Errors
    /// The server is still there after 60 s.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        tokio::task::spawn_blocking(move || self.0.stop()).await??;
        tracing::info!("private Postgres has stopped");
        Ok(())
    }
}

/// `data_dir/postgres`. Root's server runs as another user; where that one cannot reach the folder, as in a checkout in
/// `/root`, a folder of its own under `/var/lib/jobdeck`.
fn dir(data_dir: &Path) -> anyhow::Result<PathBuf> {
    let preferred = std::path::absolute(data_dir)
        .with_context(|| format!("no such folder: {}", data_dir.display()))?
        .join("postgres");
    let mut hasher = DefaultHasher::new();
    preferred.hash(&mut hasher);
    let fallback = PathBuf::from(format!("/var/lib/jobdeck/{:016x}/postgres", hasher.finish()));
    let dir = usable_dir(preferred.clone(), fallback);
    if dir != preferred {
        tracing::warn!(wanted = %preferred.display(), used = %dir.display(), "the server's user cannot reach the data folder");
    }
    Ok(dir)
}
