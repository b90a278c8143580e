//! Where things are in the checkout.

use std::path::{Path, PathBuf};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or(manifest.clone(), Path::to_path_buf)
}

/// Cargo's target folder: `CARGO_TARGET_DIR`, else `target` in the root.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// What the server embeds: `manifest.json` and `assets/`. Always in the root's `target`, where the server looks.
pub(crate) fn site() -> PathBuf {
    root().join("target/site")
}

/// Our own scratch files: stamps, wasm-bindgen's output, reports.
pub(crate) fn scratch() -> PathBuf {
    target().join("xtask")
}

/// All files under the given files and folders, sorted; what does not exist is left out.
pub(crate) fn files(roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = roots.to_vec();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            if let Ok(entries) = std::fs::read_dir(&path) {
                open.extend(entries.flatten().map(|entry| entry.path()));
            }
        } else if path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    found
}
