//! Which user runs the server.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// Postgres refuses to run as root; then it is one of these.
const USERS: [&str; 2] = ["postgres", "nobody"];

#[derive(Clone, Debug)]
pub(crate) enum Account {
    /// Whoever runs us.
    Own,
    /// Another, because we are root.
    Other { name: &'static str, uid: u32, gid: u32 },
}

impl Account {
    pub(crate) fn find() -> Result<Self, Error> {
        if id(&["-u"]) != Some(0) {
            return Ok(Self::Own);
        }
        USERS
            .iter()
            .find_map(|name| Some(Self::Other { name, uid: id(&["-u", name])?, gid: id(&["-g", name])? }))
            .ok_or(Error::NoUser)
    }

    pub(crate) fn is_other(&self) -> bool {
        matches!(self, Self::Other { .. })
    }

    /// A command that runs as this user, with nothing on its standard input.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Self::Other { uid, gid, .. } = self {
            command.uid(*uid).gid(*gid);
        }
        // Postgres takes settings from these, and ours must not depend on who starts us.
        for name in
            ["PGDATA", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSWORD", "PGSERVICE", "PGOPTIONS", "LC_ALL"]
        {
            command.env_remove(name);
        }
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Hands over a file or folder.
    pub(crate) fn give(&self, path: &Path) -> Result<(), Error> {
        match self {
            Self::Own => Ok(()),
            Self::Other { uid, gid, .. } => {
                chown(path, Some(*uid), Some(*gid)).map_err(|source| Error::io("hand over", path, source))
            }
        }
    }

    /// Whether the user can pass through the folder.
    pub(crate) fn check_reach(&self, dir: &Path) -> Result<(), Error> {
        match self {
            Self::Other { name, .. } if !self.reaches(dir) => {
                Err(Error::Unreachable { user: (*name).to_owned(), dir: dir.to_path_buf() })
            }
            _ => Ok(()),
        }
    }

    fn reaches(&self, dir: &Path) -> bool {
        let mut test = self.command(Path::new("test"));
        test.arg("-x").arg(dir).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

/// `preferred`, or `fallback` when we are root and the server's user cannot reach the former. A checkout in root's home is
/// such a case.
#[must_use]
pub fn usable_dir(preferred: PathBuf, fallback: PathBuf) -> PathBuf {
    let Ok(account) = Account::find() else {
        return preferred;
    };
    // The folder itself is made by us and open; what counts is what already stands above it.
    let existing = preferred.parent().into_iter().flat_map(Path::ancestors).find(|dir| dir.exists());
    if account.is_other() && existing.is_some_and(|dir| !account.reaches(dir)) { fallback } else { preferred }
}

/// A number from the program `id`. The standard library does not tell who we are; `/proc` does, where there is one.
fn id(args: &[&str]) -> Option<u32> {
    if args == ["-u"]
        && let Ok(process) = std::fs::metadata("/proc/self")
    {
        return Some(process.uid());
    }
    let output = Command::new("id").args(args).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().parse().ok())?
}
