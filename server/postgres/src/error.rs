//! What can go wrong, with what, where, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why the server could not be started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another program holds the lock.
    #[error(
        "another Jobdeck ({}) is using {}: stop it or choose another data folder",
        pid.map_or_else(|| "pid unknown".to_owned(), |pid| format!("pid {pid}")),
        dir.display()
    )]
    InUse {
        /// What the lock file says.
        pid: Option<u32>,
        /// The folder.
        dir: PathBuf,
    },
    /// No `initdb` and `postgres` anywhere.
    #[error(
        "no Postgres server found: install it with `apt-get install postgresql` or set DATABASE_URL or JOBDECK_POSTGRES_BIN"
    )]
    NotInstalled,
    /// The cluster was made by a version that is not installed any more.
    #[error(
        "{} was made by Postgres {needed}, but installed is {}: install postgresql-{needed}, or dump and restore into a new folder",
        cluster.display(),
        found.join(", ")
    )]
    WrongVersion {
        /// The cluster.
        cluster: PathBuf,
        /// Its major version.
        needed: String,
        /// Major versions found.
        found: Vec<String>,
    },
    /// The user that runs the server cannot pass through the folder.
    #[error("the user {user} cannot reach {}: choose a data folder outside root's home, or do not run as root", dir.display())]
    Unreachable {
        /// Who would run the server.
        user: String,
        /// The folder.
        dir: PathBuf,
    },
    /// Root, but no user to run the server as.
    #[error(
        "Postgres does not run as root and there is neither a user postgres nor nobody: create one or set DATABASE_URL"
    )]
    NoUser,
    /// The cluster exists, its password file does not.
    #[error("{} is missing: put it back, or move the cluster beside it away to start with an empty one", path.display())]
    PasswordLost {
        /// Where it should be.
        path: PathBuf,
    },
    /// The server ended or did not answer in time.
    #[error("Postgres did not become ready within {seconds} s, see {}: {messages}", log.display())]
    NotReady {
        /// The server's log.
        log: PathBuf,
        /// How long we waited.
        seconds: u64,
        /// The log's last lines.
        messages: String,
    },
    /// No port on 127.0.0.1.
    #[error("no free port on 127.0.0.1")]
    NoPort {
        /// The system's word.
        source: io::Error,
    },
    /// One of Postgres' programs failed.
    #[error("{} failed: {messages}", program.display())]
    Program {
        /// Which one.
        program: PathBuf,
        /// What it printed.
        messages: String,
    },
    /// A file or folder.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// A verb.
        what: &'static str,
        /// Of what.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_path_buf(), source }
    }
}
