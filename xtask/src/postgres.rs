//! Postgres for the tests: one throw-away cluster per run, each test makes a database of its own in it.

use std::path::PathBuf;
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
            if let Err(error) = server.stop() {
                eprintln!("warning: {error}");
            }
            let _ = std::fs::remove_dir_all(dir.join("cluster"));
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
