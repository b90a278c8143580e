//! The private Postgres server for those who set no `DATABASE_URL`: started before anything that needs a database, stopped
//! after the last of it. The work is done by [`jobdeck_embedded_postgres`], whose calls block.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use jobdeck_embedded_postgres::{EmbeddedPostgres, Options, usable_dir};
use sha2::{Digest as _, Sha256};

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
    let dir = usable_dir(preferred.clone(), fallback(Path::new("/var/lib/jobdeck"), &preferred));
    if dir != preferred {
        tracing::warn!(wanted = %preferred.display(), used = %dir.display(), "the server's user cannot reach the data folder");
    }
    Ok(dir)
}

/// The folder below `base` for the database of those who wanted it in `preferred`, always the same one.
fn fallback(base: &Path, preferred: &Path) -> PathBuf {
    // Named so before by a hash that another version of Rust may compute differently. A database that is found there stays there.
    let mut hasher = DefaultHasher::new();
    preferred.hash(&mut hasher);
    let before = base.join(format!("{:016x}/postgres", hasher.finish()));
    if before.exists() {
        return before;
    }
    let digest = Sha256::digest(preferred.as_os_str().as_bytes());
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    base.join(name).join("postgres")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallback_is_the_same_for_every_build_and_a_database_found_under_the_old_name_stays() {
        let base = std::env::temp_dir().join(format!("jobdeck-fallback-{}", std::process::id()));
        let wanted = Path::new("/home/ana/product/data/postgres");
        let named = fallback(&base, wanted);
        // printf %s /home/ana/product/data/postgres | sha256sum
        assert_eq!(named, base.join("52ec951d7761cbb5/postgres"));
        assert_ne!(named, fallback(&base, Path::new("/home/ana/other/data/postgres")));

        let mut hasher = DefaultHasher::new();
        wanted.hash(&mut hasher);
        let before = base.join(format!("{:016x}/postgres", hasher.finish()));
        std::fs::create_dir_all(&before).expect("made");
        assert_eq!(fallback(&base, wanted), before);
        std::fs::remove_dir_all(base).expect("removed");
    }
}
