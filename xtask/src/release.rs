//! `cargo xtask build`: everything as shipped.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use crate::browser::{self, Profile};
use crate::{assets, paths, run};

/// Builds both halves for release and prints what a browser downloads.
pub(crate) fn build() -> Result<()> {
    browser::site(Profile::Release)?;
    run::server(true)?;
    sizes()?;
    println!("built {}", run::binary(true).display());
    Ok(())
}

fn sizes() -> Result<()> {
    let site = paths::site();
    let manifest = fs::read(site.join("manifest.json")).context("cannot read manifest.json")?;
    let manifest: BTreeMap<String, String> = serde_json::from_slice(&manifest)?;
    println!("{:<16} {:>12} {:>12} {:>12}", "bytes", "raw", "gzip", "brotli");
    for name in ["jobdeck.wasm", "jobdeck.js", "app.css"] {
        let Some(path) = manifest.get(name) else {
            continue;
        };
        let path = site.join(path);
        let size = |path| fs::metadata(path).map(|file| file.len().to_string()).unwrap_or_else(|_| "-".into());
        let (gzip, brotli) = (assets::with_suffix(&path, "gz"), assets::with_suffix(&path, "br"));
        println!("{name:<16} {:>12} {:>12} {:>12}", size(&path), size(&gzip), size(&brotli));
    }
    Ok(())
}
