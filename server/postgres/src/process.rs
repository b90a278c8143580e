//! Postgres' own programs: make a cluster, serve it, stop it, and read who serves it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
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

/// "No such process".
const ESRCH: i32 = 3;

/// Whether these arguments, each ended by a zero byte, are those [`serve`] starts a server on `cluster` with. A zombie has none.
fn serves(arguments: &[u8], cluster: &Path) -> bool {
    let mut arguments = arguments.split(|byte| *byte == 0);
    let program = arguments.next().unwrap_or_default();
    let is_postgres = program.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"postgres"));
    is_postgres && arguments.any(|argument| argument == cluster.as_os_str().as_bytes())
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
        if Path::new("/proc/self").exists() {
            return match fs::read(Path::new("/proc").join(self.pid.to_string()).join("cmdline")) {
                Ok(arguments) => serves(&arguments, cluster),
                Err(source) if source.kind() == std::io::ErrorKind::NotFound => false,
                // The process ended between the opening and the reading.
                Err(source) if source.raw_os_error() == Some(ESRCH) => false,
                // It is there, but we may not look at it: to take a server that runs for dead would cost its data.
                Err(_) => true,
            };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_told_from_a_later_process_with_its_number() {
        let cluster = Path::new("/data/postgres/cluster");
        let serving = b"/usr/lib/postgresql/15/bin/postgres\0-D\0/data/postgres/cluster\0-c\0port=1\0";
        assert!(serves(serving, cluster));
        assert!(!serves(serving, Path::new("/data/postgres")), "another folder");
        assert!(!serves(b"/usr/bin/less\0/data/postgres/cluster\0", cluster), "another program");
        assert!(!serves(b"", cluster), "a zombie");
    }

    #[test]
    fn process_that_is_not_there_or_another_is_no_server() {
        let cluster = Path::new("/data/postgres/cluster");
        assert!(!Postmaster { pid: 0, port: 1 }.is_alive(cluster), "no number was read");
        assert!(!Postmaster { pid: std::process::id(), port: 1 }.is_alive(cluster), "this very process");
        let mut child = Command::new("true").spawn().expect("started");
        let pid = child.id();
        child.wait().expect("ended");
        assert!(!Postmaster { pid, port: 1 }.is_alive(cluster), "gone");
    }
}
