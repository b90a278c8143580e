//! Postgres for the tests and for measuring: one throw-away cluster per run, each test or round makes a database of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use jobdeck_embedded_postgres::{Binaries, EmbeddedPostgres, Error, Options, usable_dir};

use crate::step::step;
use crate::{paths, tools};

/// Name of the variable that tests read.
pub(crate) const URL: &str = "JOBDECK_TEST_DATABASE_URL";

/// Tests run in parallel, each with pools of its own.
const MAX_CONNECTIONS: u16 = 300;
/// Runs that can go on at the same time in one checkout.
const CLUSTERS: u32 = 8;

/// Installs Postgres when there is none.
pub(crate) fn ensure_installed() -> Result<()> {
    if Binaries::find().is_err() {
        tools::apt_install(&["postgresql"], "no Postgres server found (DATABASE_URL can name one elsewhere)")?;
        Binaries::find()?;
    }
    Ok(())
}

/// Settings of the server that is measured on: those of a small production server. Checkpoints come by size, not by time, so
/// that none falls into one round and not into another.
const BENCH_SETTINGS: [(&str, &str); 4] = [
    ("shared_buffers", "1GB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "1h"),
    ("maintenance_work_mem", "512MB"),
];

/// A server to measure on: durable, on the disk that holds the target folder, thrown away when this is dropped.
pub(crate) struct BenchServer {
    server: Option<EmbeddedPostgres>,
    dir: PathBuf,
}

impl BenchServer {
    /// Prints nothing, since the caller's standard output may be for figures alone.
    pub(crate) fn start() -> Result<Self> {
        ensure_installed()?;
        // Not in the system's temporary folder, which may be memory.
        let dir = usable_dir(paths::target().join("bench-postgres"), PathBuf::from("/var/tmp/jobdeck-bench-postgres"));
        let settings = BENCH_SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let options = Options { fresh: true, settings, ..Options::new(&dir, "jobdeck") };
        Ok(Self { server: Some(EmbeddedPostgres::start(&options)?), dir })
    }

    /// Of the database `postgres`, with the right to create others.
    pub(crate) fn url(&self) -> String {
        self.server.as_ref().map(|server| server.url("postgres")).unwrap_or_default()
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        throw_away(self.server.take(), &self.dir);
    }
}

fn throw_away(server: Option<EmbeddedPostgres>, dir: &Path) {
    if let Some(server) = server {
        if let Err(error) = server.stop() {
            eprintln!("warning: {error}");
        }
        let _ = std::fs::remove_dir_all(dir.join("cluster"));
    }
}

/// The tests' server: the one in the environment, or one of our own that is stopped when this is dropped.
pub(crate) struct TestServer {
    url: String,
    own: Option<(EmbeddedPostgres, PathBuf)>,
}

impl TestServer {
    pub(crate) fn start() -> Result<Self> {
        if let Ok(url) = std::env::var(URL) {
            return Ok(Self { url, own: None });
        }
        ensure_installed()?;
        step("throw-away Postgres", || {
            for number in 1..=CLUSTERS {
                let name = format!("test-postgres-{number}");
                let fallback = std::env::temp_dir().join(format!("jobdeck-{name}"));
                let dir = usable_dir(paths::target().join(&name), fallback);
                let options = Options {
                    durable: false,
                    fresh: true,
                    max_connections: MAX_CONNECTIONS,
                    ..Options::new(&dir, "jobdeck")
                };
                match EmbeddedPostgres::start(&options) {
                    Ok(server) => {
                        return Ok(Self { url: server.url("postgres"), own: Some((server, dir)) });
                    }
                    Err(Error::InUse { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            bail!("{CLUSTERS} test runs are going on in this checkout already")
        })
    }

    /// Of the database `postgres`, with the right to create others.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some((server, dir)) = self.own.take() {
            throw_away(Some(server), &dir);
        }
    }
}

/// Runs a command with the tests' server in its environment.
pub(crate) fn with_db(command: &[String]) -> Result<ExitCode> {
    let (program, args) = command.split_first().context("no command given")?;
    let server = TestServer::start()?;
    let status = Command::new(program)
        .args(args)
        .env(URL, server.url())
        .status()
        .with_context(|| format!("cannot start {program}"))?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}
