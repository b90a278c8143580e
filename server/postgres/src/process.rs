//! Postgres' own programs: make a cluster, serve it, stop it, and read who serves it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::account::Account;
use crate::binaries::Binaries;
use crate::error::Error;
use crate::{Options, ROLE};

/// Makes a cluster with one database beside `postgres`.
pub(crate) fn init(
    binaries: &Binaries,
    account: &Account,
    cluster: &Path,
    password_file: &Path,
    database: &str,
) -> Result<(), Error> {
    let with_locale = |locale: &str| {
        let program = binaries.program("initdb");
        let mut command = account.command(&program);
        command.arg("--pgdata").arg(cluster).arg("--pwfile").arg(password_file);
        command.args(["--username", ROLE, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", locale]);
        check(&program, &mut command, "")
    };
    // Sorting by code point does not change when the system's libraries are updated. macOS before 26 has no C.UTF-8.
    with_locale("C.UTF-8").or_else(|_| {
        empty(cluster)?;
        with_locale("C")
    })?;
    let program = binaries.program("postgres");
    let mut single = account.command(&program);
    single.arg("--single").arg("-D").arg(cluster).arg("postgres");
    check(&program, &mut single, &format!("CREATE DATABASE \"{database}\"\n"))
}

fn empty(dir: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(|source| Error::io("list", dir, source))?.flatten() {
        let path = entry.path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|source| Error::io("remove", &path, source))?;
    }
    Ok(())
}

/// Starts the server in a process group of its own, its messages in `log`.
pub(crate) fn serve(
    binaries: &Binaries,
    account: &Account,
    cluster: &Path,
    log: &Path,
    port: u16,
    options: &Options,
) -> Result<Child, Error> {
    let messages = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(log)
        .map_err(|source| Error::io("open", log, source))?;
    let errors = messages.try_clone().map_err(|source| Error::io("open", log, source))?;
    let durable = if options.durable { "on" } else { "off" };
    let program = binaries.program("postgres");
    let mut command = account.command(&program);
    command.arg("-D").arg(cluster);
    for (name, value) in [
        ("listen_addresses", "127.0.0.1"),
        ("port", &port.to_string()),
        // The password guards the port; a socket's path would have to be short.
        ("unix_socket_directories", ""),
        ("max_connections", &options.max_connections.to_string()),
        ("fsync", durable),
        ("synchronous_commit", durable),
        ("full_page_writes", durable),
        ("logging_collector", "off"),
        ("log_timezone", "UTC"),
        ("TimeZone", "UTC"),
        ("lc_messages", "C"),
    ] {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    for (name, value) in &options.settings {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    command.stdout(messages).stderr(errors).process_group(0);
    command.spawn().map_err(|source| Error::io("start", &program, source))
}

/// Fast shutdown: sessions are ended, everything is written.
pub(crate) fn stop(binaries: &Binaries, account: &Account, cluster: &Path) -> Result<(), Error> {
    let program = binaries.program("pg_ctl");
    let mut command = account.command(&program);
    command.arg("stop").arg("-D").arg(cluster).args(["-m", "fast", "-w", "-t", "60", "-s"]);
    check(&program, &mut command, "")
}

/// Runs a program to its end with `input` on its standard input.
fn check(program: &Path, command: &mut Command, input: &str) -> Result<(), Error> {
    let failed = |source| Error::io("run", program, source);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has already failed does not read; its exit code tells.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let messages = [output.stdout, output.stderr].concat();
    let messages = String::from_utf8_lossy(&messages).trim().to_owned();
    Err(Error::Program { program: program.to_path_buf(), messages })
}

/// What `postmaster.pid` says of the server on a cluster.
#[derive(Debug)]
pub(crate) struct Postmaster {
    pub(crate) pid: u32,
    /// 0 while the server has not got as far.
    pub(crate) port: u16,
}

impl Postmaster {
    pub(crate) fn read(cluster: &Path) -> Result<Option<Self>, Error> {
        let path = cluster.join("postmaster.pid");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::io("read", &path, source)),
        };
        let mut lines = text.lines().map(str::trim);
        let pid = lines.next().and_then(|pid| pid.parse().ok()).unwrap_or(0);
        // Data folder, start time, port.
        let port = lines.nth(2).and_then(|port| port.parse().ok()).unwrap_or(0);
        Ok(Some(Self { pid, port }))
    }

    /// Whether that process exists and is a Postgres on this cluster, not a later process with the same number.
    pub(crate) fn is_alive(&self, cluster: &Path) -> bool {
        if self.pid == 0 {
            return false;
        }
        let process = Path::new("/proc").join(self.pid.to_string());
        if Path::new("/proc/self").exists() {
            // The postmaster changes to its data folder. A zombie has no working directory.
            return fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == cluster);
        }
        let output = Command::new("ps").args(["-o", "command=", "-p", &self.pid.to_string()]).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(&*cluster.to_string_lossy()))
    }

    /// Removes the file of a server that is gone.
    pub(crate) fn forget(&self, cluster: &Path) -> Result<(), Error> {
        let path = cluster.join("postmaster.pid");
        match fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &path, source)),
            _ => Ok(()),
        }
    }
}
