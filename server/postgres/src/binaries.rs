//! Finds an installed server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

/// A folder with `initdb`, `postgres` and `pg_ctl`.
#[derive(Clone, Debug)]
pub struct Binaries {
    dir: PathBuf,
    /// Major version, such as `15`.
    major: String,
}

impl Binaries {
    /// The newest in reach: `JOBDECK_POSTGRES_BIN` (a folder; nothing else is looked at when set), then PATH, Debian's
    /// `/usr/lib/postgresql/*/bin`, and the folders of Red Hat, Homebrew and Postgres.app.
    ///
    /// # Errors
    /// [`Error::NotInstalled`]
    pub fn find() -> Result<Self, Error> {
        Self::all().into_iter().next().ok_or(Error::NotInstalled)
    }

    /// What fits an existing cluster, else the newest.
    pub(crate) fn for_cluster(cluster: &Path) -> Result<Self, Error> {
        let Ok(needed) = fs::read_to_string(cluster.join("PG_VERSION")) else {
            return Self::find();
        };
        let needed = needed.trim().to_owned();
        let all = Self::all();
        if all.is_empty() {
            return Err(Error::NotInstalled);
        }
        let found = all.iter().map(|binaries| binaries.major.clone()).collect();
        all.into_iter().find(|binaries| binaries.major == needed).ok_or(Error::WrongVersion {
            cluster: cluster.to_path_buf(),
            needed,
            found,
        })
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn all() -> Vec<Self> {
        let mut found: Vec<Self> = dirs().into_iter().filter_map(|dir| Self::at(&dir)).collect();
        found.sort_by_key(|binaries| std::cmp::Reverse(binaries.major.parse::<u32>().unwrap_or(0)));
        found
    }

    fn at(dir: &Path) -> Option<Self> {
        // PATH may hold a link to pg_ctl only; the others are beside what it points to.
        let dir = fs::canonicalize(dir.join("pg_ctl")).ok()?.parent()?.to_path_buf();
        let complete = ["initdb", "postgres"].iter().all(|program| dir.join(program).is_file());
        let version = complete.then(|| Command::new(dir.join("postgres")).arg("--version").output().ok())??;
        // "postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)", "18beta1"
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let number = version.split_once(") ")?.1;
        let major = number.split(|c: char| !c.is_ascii_digit()).next().filter(|major| !major.is_empty())?;
        Some(Self { major: major.to_owned(), dir })
    }
}

fn dirs() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("JOBDECK_POSTGRES_BIN") {
        return vec![dir.into()];
    }
    let mut dirs: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    dirs.extend(["/usr/local/pgsql/bin", "/opt/homebrew/bin", "/usr/local/bin"].map(PathBuf::from));
    for (parent, prefix, suffix) in [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/opt/homebrew/opt", "postgresql@", "bin"),
        ("/usr/local/opt", "postgresql@", "bin"),
        ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
    ] {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        dirs.extend(
            entries
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
                .map(|entry| entry.path().join(suffix)),
        );
    }
    dirs
}
