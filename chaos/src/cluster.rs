//! A Postgres of a scenario's own, to be crashed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sqlx::{Connection, PgConnection};

/// A durable cluster on loopback. Stopped and removed when dropped.
pub(crate) struct Cluster {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
}

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let bin = find_bin()?;
        let folder = std::env::temp_dir().join(format!("jobdeck-chaos-{}", uuid::Uuid::now_v7().simple()));
        std::fs::create_dir_all(&folder)?;
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&folder))?;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let cluster = Self { bin, folder, port };
        run(cluster.as_postgres("initdb", &["-D", "data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"]))?;
        cluster.boot().await?;
        Ok(cluster)
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Starts the server and waits until it takes connections.
    pub(crate) async fn boot(&self) -> Result<()> {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={} -c max_connections=100",
            self.port,
            self.folder.display()
        );
        run(self.as_postgres("pg_ctl", &["-D", "data", "-l", "log", "-W", "-o", &options, "start"]))?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            if let Ok(connection) = PgConnection::connect(&self.url()).await {
                connection.close().await?;
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the cluster does not start: see {}", self.folder.join("log").display())
    }

    /// Ends the server as a crash would: no checkpoint, connections cut.
    pub(crate) fn crash(&self) -> Result<()> {
        run(self.as_postgres("pg_ctl", &["-D", "data", "-m", "immediate", "stop"]))
    }

    fn as_postgres(&self, program: &str, args: &[&str]) -> Command {
        let program = self.bin.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(args).current_dir(&self.folder).stdin(std::process::Stdio::null());
        // pg_ctl hands its output on to the server, which would keep it open.
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.crash();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

fn run(mut command: impl std::borrow::BorrowMut<Command>) -> Result<()> {
    let command = command.borrow_mut();
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

fn find_bin() -> Result<PathBuf> {
    let named = std::env::var_os("JOBDECK_POSTGRES_BIN").map(PathBuf::from);
    let debian =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let on_path =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let found = named.into_iter().chain(debian).chain(on_path).find(|folder| is_bin(folder));
    found.context("no folder with initdb and pg_ctl found: set JOBDECK_POSTGRES_BIN")
}

fn is_bin(folder: &Path) -> bool {
    folder.join("initdb").exists() && folder.join("pg_ctl").exists()
}
