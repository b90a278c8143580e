//! An installed Postgres as a private part of one program: made on first use, started with the program, adopted when an
//! earlier run was killed, stopped with the program.
//!
//! Everything lives in one folder:
//!
//! | name | what |
//! |---|---|
//! | `lock` | held while a program uses the folder; holds its process id |
//! | `password` | of the role `postgres`, readable for the owner alone |
//! | `cluster/` | Postgres' own data folder |
//! | `postgres.log`, `postgres.log.1` | the server's messages; set aside at start when over [`LOG_BYTES`] |
//!
//! The server listens on a free port of 127.0.0.1 and asks for the password. Postgres refuses to run as root, so a program
//! run by root starts it as the user `postgres`, else as `nobody`. It runs in a process group of its own: Ctrl-C in the
//! terminal reaches the program, which then stops the server in order.
//!
//! Calls block, [`EmbeddedPostgres::start`] for some seconds the first time. Unix only.

mod account;
mod binaries;
mod error;
mod process;
mod wire;

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

pub use crate::account::usable_dir;
pub use crate::binaries::Binaries;
pub use crate::error::Error;

use crate::account::Account;
use crate::process::Postmaster;

/// A log larger than this is set aside at the next start. 8 MiB: weeks of messages of a healthy server.
pub const LOG_BYTES: u64 = 8 * 1024 * 1024;

/// The role that owns everything in the cluster.
const ROLE: &str = "postgres";
/// Postgres may have to replay its log after a crash.
const START_LIMIT: Duration = Duration::from_secs(120);
/// A port can be taken between our look and the server's.
const PORT_ATTEMPTS: u32 = 5;

/// How to run the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder for everything; made when missing.
    pub dir: PathBuf,
    /// Database that is made together with the cluster. Letters, digits and underscores only.
    pub database: String,
    /// Whether a commit survives a power cut (`fsync`, `synchronous_commit`, `full_page_writes`). Default true;
    /// false is for tests.
    pub durable: bool,
    /// Remove what is in the folder first. Default false; true is for tests.
    pub fresh: bool,
    /// Largest number of connections. Default 100.
    pub max_connections: u16,
    /// Further settings, name and value; they win over the others. An adopted server keeps its own. Default none.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// A durable server in `dir` with one database.
    pub fn new(dir: impl Into<PathBuf>, database: impl Into<String>) -> Self {
        Self {
            dir: dir.into(),
            database: database.into(),
            durable: true,
            fresh: false,
            max_connections: 100,
            settings: Vec::new(),
        }
    }
}

/// A running server. Dropping it stops the server; [`EmbeddedPostgres::stop`] does the same and reports errors.
pub struct EmbeddedPostgres {
    binaries: Binaries,
    account: Account,
    cluster: PathBuf,
    password: String,
    database: String,
    port: u16,
    pid: u32,
    /// None when the server was adopted, and after it was stopped.
    child: Option<Child>,
    adopted: bool,
    stopped: bool,
    /// Unlocked when dropped, and by the kernel when the program dies.
    _lock: File,
}

impl EmbeddedPostgres {
    /// Makes the cluster if there is none and starts the server, or adopts the one that a killed program left behind.
    /// Returns once the server takes connections.
    ///
    /// # Errors
    /// [`Error::InUse`] when another program holds the folder, [`Error::NotInstalled`] and [`Error::WrongVersion`] when no
    /// binaries fit, [`Error::Unreachable`] when root's folder is closed to the server's user, and others that name the
    /// file or program.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let account = Account::find()?;
        make_dir(&options.dir, account.is_other())?;
        let dir = options.dir.canonicalize().map_err(|source| Error::io("find", &options.dir, source))?;
        let lock = lock(&dir)?;
        account.check_reach(&dir)?;
        let cluster = dir.join("cluster");
        if options.fresh {
            remove(&cluster, &account)?;
        }
        let binaries = Binaries::for_cluster(&cluster)?;
        let password = password(&dir, cluster.exists())?;
        let mut server = Self {
            binaries,
            account,
            cluster,
            password,
            database: options.database.clone(),
            port: 0,
            pid: 0,
            child: None,
            adopted: false,
            stopped: true,
            _lock: lock,
        };
        if !server.cluster.join("PG_VERSION").exists() {
            server.init(&dir)?;
        }
        if !server.adopt()? {
            server.launch(&dir, options)?;
        }
        Ok(server)
    }

    /// `postgres://…` of a database on this server, password included.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{ROLE}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// [`EmbeddedPostgres::url`] of [`Options::database`].
    #[must_use]
    pub fn default_url(&self) -> String {
        self.url(&self.database)
    }

    /// Whether the server was already running, left behind by a program that was killed.
    #[must_use]
    pub fn was_adopted(&self) -> bool {
        self.adopted
    }

    /// Process id of the server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends all sessions, writes everything to disk and stops the server.
    ///
    /// # Errors
    /// [`Error::Program`] when the server is still there after 60 s; its log says why.
    pub fn stop(mut self) -> Result<(), Error> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        let runs = match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => matches!(Postmaster::read(&self.cluster), Ok(Some(server)) if server.is_alive(&self.cluster)),
        };
        // Otherwise it has ended by itself.
        let result = if runs { process::stop(&self.binaries, &self.account, &self.cluster) } else { Ok(()) };
        if let Some(mut child) = self.child.take() {
            if result.is_err() {
                // As Postgres' own "immediate": the next start replays the log.
                let _ = child.kill();
            }
            let _ = child.wait();
        }
        result
    }

    /// `initdb` beside the final name, so that a cluster is there completely or not at all.
    fn init(&self, dir: &Path) -> Result<(), Error> {
        let fresh = dir.join("cluster.new");
        remove(&fresh, &self.account)?;
        DirBuilderPrivate::create(&fresh)?;
        self.account.give(&fresh)?;
        let secret = fresh.with_file_name("initdb.password");
        write_private(&secret, &self.password)?;
        self.account.give(&secret)?;
        let made = process::init(&self.binaries, &self.account, &fresh, &secret, &self.database);
        let _ = fs::remove_file(&secret);
        made?;
        fs::rename(&fresh, &self.cluster).map_err(|source| Error::io("put in place", &self.cluster, source))
    }

    /// Takes over a server that runs on our cluster and answers; removes the pid file of one that is gone.
    fn adopt(&mut self) -> Result<bool, Error> {
        let start = Instant::now();
        while let Some(postmaster) = Postmaster::read(&self.cluster)? {
            if !postmaster.is_alive(&self.cluster) {
                postmaster.forget(&self.cluster)?;
                return Ok(false);
            }
            if wire::is_ready(postmaster.port) {
                self.port = postmaster.port;
                self.pid = postmaster.pid;
                self.adopted = true;
                self.stopped = false;
                return Ok(true);
            }
            if start.elapsed() > START_LIMIT {
                // It hangs; the cluster must be free before we start our own.
                process::stop(&self.binaries, &self.account, &self.cluster)?;
                return Ok(false);
            }
            std::thread::sleep(wire::POLL);
        }
        Ok(false)
    }

    fn launch(&mut self, dir: &Path, options: &Options) -> Result<(), Error> {
        let log = dir.join("postgres.log");
        set_aside(&log)?;
        for attempt in 1..=PORT_ATTEMPTS {
            let port = free_port()?;
            let before = fs::metadata(&log).map_or(0, |file| file.len());
            let mut child = process::serve(&self.binaries, &self.account, &self.cluster, &log, port, options)?;
            let start = Instant::now();
            let ready = wire::wait_until_ready(port, START_LIMIT, || matches!(child.try_wait(), Ok(None)));
            if ready && matches!(child.try_wait(), Ok(None)) {
                self.port = port;
                self.pid = child.id();
                self.child = Some(child);
                self.stopped = false;
                return Ok(());
            }
            let messages = tail(&log, before);
            let _ = child.kill();
            let _ = child.wait();
            if attempt < PORT_ATTEMPTS && messages.contains("could not bind") {
                continue;
            }
            return Err(Error::NotReady { log, seconds: start.elapsed().as_secs(), messages });
        }
        unreachable!("the last attempt returns")
    }
}

/// Leaves out the password.
impl fmt::Debug for EmbeddedPostgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedPostgres")
            .field("cluster", &self.cluster)
            .field("port", &self.port)
            .field("pid", &self.pid)
            .field("adopted", &self.adopted)
            .finish_non_exhaustive()
    }
}

impl Drop for EmbeddedPostgres {
    fn drop(&mut self) {
        let _ = self.shut_down();
    }
}

/// Folders that only their owner can enter.
struct DirBuilderPrivate;

impl DirBuilderPrivate {
    fn create(dir: &Path) -> Result<(), Error> {
        fs::DirBuilder::new().mode(0o700).create(dir).map_err(|source| Error::io("create", dir, source))
    }
}

/// Makes the folder. The server's user, when it is another, must be able to pass through it.
fn make_dir(dir: &Path, other_user: bool) -> Result<(), Error> {
    let mode = if other_user { 0o711 } else { 0o700 };
    fs::create_dir_all(dir)
        .and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(mode)))
        .map_err(|source| Error::io("create", dir, source))
}

fn lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join("lock");
    let failed = |source| Error::io("lock", &path, source);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0).map_err(failed)?;
            write!(file, "{}", std::process::id()).map_err(failed)?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            Err(Error::InUse { pid: pid.trim().parse().ok(), dir: dir.to_path_buf() })
        }
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Reads the kept password, or makes one for a new cluster.
fn password(dir: &Path, cluster_exists: bool) -> Result<String, Error> {
    let path = dir.join("password");
    match fs::read_to_string(&path) {
        Ok(kept) if !kept.trim().is_empty() => return Ok(kept.trim().to_owned()),
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("read", &path, source));
        }
        _ if cluster_exists => return Err(Error::PasswordLost { path }),
        _ => {}
    }
    let mut bytes = [0_u8; 24];
    let random = Path::new("/dev/urandom");
    File::open(random)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|source| Error::io("read", random, source))?;
    let password: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    write_private(&path, &password)?;
    Ok(password)
}

fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |source| Error::io("write", path, source);
    match fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => return Err(failed(source)),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

/// Removes a cluster and first stops a server that still runs on it.
fn remove(cluster: &Path, account: &Account) -> Result<(), Error> {
    if !cluster.exists() {
        return Ok(());
    }
    if let Some(postmaster) = Postmaster::read(cluster)?
        && postmaster.is_alive(cluster)
    {
        process::stop(&Binaries::for_cluster(cluster)?, account, cluster)?;
    }
    fs::remove_dir_all(cluster).map_err(|source| Error::io("remove", cluster, source))
}

fn free_port() -> Result<u16, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|source| Error::NoPort { source })
}

fn set_aside(log: &Path) -> Result<(), Error> {
    if fs::metadata(log).is_ok_and(|file| file.len() > LOG_BYTES) {
        fs::rename(log, log.with_extension("log.1")).map_err(|source| Error::io("set aside", log, source))?;
    }
    Ok(())
}

/// The last lines that the server wrote since `from`.
fn tail(log: &Path, from: u64) -> String {
    let text = fs::read(log).unwrap_or_default();
    let new = text.get(usize::try_from(from).unwrap_or(0)..).unwrap_or_default();
    let new = String::from_utf8_lossy(new);
    let lines: Vec<_> = new.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
