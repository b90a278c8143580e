//! Steps: each says what it does and how long it took, and a stamp lets it be skipped when its inputs are the same.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::paths;

/// Runs `work` under a heading and prints its duration.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("==> {name}");
    let start = Instant::now();
    let result = work();
    let outcome = if result.is_ok() { "done" } else { "failed" };
    println!("    {outcome} in {}", seconds(start.elapsed()));
    result
}

/// Says that a step had nothing to do.
pub(crate) fn skipped(name: &str) {
    println!("==> {name}: nothing changed");
}

/// `1.2 s`
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Lower-case hexadecimal SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of a step's inputs, kept in `target/xtask/NAME.stamp` once the step has succeeded.
pub(crate) struct Stamp {
    file: PathBuf,
    hash: String,
}

impl Stamp {
    /// Hashes names and contents of `files` and the strings in `extra`.
    pub(crate) fn new(name: &str, files: &[PathBuf], extra: &[&str]) -> Result<Self> {
        let mut hasher = Sha256::new();
        for text in extra {
            hasher.update(text.as_bytes());
            hasher.update([0]);
        }
        for file in files {
            let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            hasher.update(file.as_os_str().as_encoded_bytes());
            hasher.update([0]);
            hasher.update(bytes.len().to_le_bytes());
            hasher.update(&bytes);
        }
        Ok(Self { file: paths::scratch().join(format!("{name}.stamp")), hash: hex(&hasher.finalize()) })
    }

    /// Whether the step succeeded with these inputs and what it made is still there.
    pub(crate) fn is_fresh(&self, outputs: &[&Path]) -> bool {
        outputs.iter().all(|output| output.exists())
            && fs::read_to_string(&self.file).is_ok_and(|kept| kept == self.hash)
    }

    /// Records success.
    pub(crate) fn write(&self) -> Result<()> {
        write(&self.file, self.hash.as_bytes())
    }
}

/// Keeps other runs of xtask in this checkout from doing `what` too while the result lives.
pub(crate) fn exclusive(what: &str) -> Result<File> {
    let path = paths::scratch().join(format!("{what}.lock"));
    write(&path, b"")?;
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    if file.try_lock().is_err() {
        println!("==> waiting for another xtask in this checkout ({what})");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

/// Writes a file and makes its folder.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
