//! `target/site`: what the server embeds. Every file's name carries its content's hash, so browsers may keep it for ever;
//! `manifest.json` maps plain names to those. The manifest is replaced last and in one move: whoever reads it finds
//! every file it names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::browser::Profile;
use crate::paths;
use crate::step::{self, Stamp, skipped, step};

/// File types that are compressed already.
const COMPRESSED: [&str; 9] = ["png", "jpg", "jpeg", "gif", "webp", "avif", "woff", "woff2", "zip"];

/// Writes the site's assets from the browser half in `glue`, the style sheet and `public/`.
pub(crate) fn write(profile: Profile, glue: &Path) -> Result<()> {
    let site = paths::site();
    let sources = sources(glue)?;
    let files: Vec<_> = sources.values().cloned().collect();
    let stamp = Stamp::new("site", &files, &[profile.name()])?;
    if stamp.is_fresh(&[&site.join("manifest.json")]) {
        skipped("site assets");
        return Ok(());
    }
    step("site assets", || {
        let manifest = write_all(profile, &site, &sources)?;
        let json = serde_json::to_vec_pretty(&manifest)?;
        let fresh = site.join("manifest.json.new");
        step::write(&fresh, &json)?;
        fs::rename(&fresh, site.join("manifest.json")).context("cannot replace manifest.json")?;
        remove_old(&site, &manifest, profile)
    })?;
    stamp.write()
}

/// Plain name to file.
fn sources(glue: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let root = paths::root();
    let mut sources = BTreeMap::from([
        ("jobdeck.js".to_owned(), glue.join("jobdeck.js")),
        ("jobdeck.wasm".to_owned(), glue.join("jobdeck_bg.wasm")),
        ("app.css".to_owned(), root.join("style/dist/app.css")),
    ]);
    for folder in [root.join("public"), glue.join("snippets")] {
        let base = if folder.ends_with("snippets") { glue } else { &folder };
        for file in paths::files(std::slice::from_ref(&folder)) {
            let name = file.strip_prefix(base)?.to_string_lossy().into_owned();
            sources.insert(name, file);
        }
    }
    Ok(sources)
}

fn write_all(profile: Profile, site: &Path, sources: &BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, String>> {
    let mut manifest = BTreeMap::new();
    for (name, file) in sources {
        manifest.insert(name.clone(), format!("assets/{}", hashed(name, file)?));
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = manifest
            .iter()
            .map(|(name, path)| scope.spawn(move || write_one(profile, &sources[name], &site.join(path))))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(manifest)
}

/// `icons/deck.svg` becomes `icons/deck.0123456789ab.svg`. wasm-bindgen's snippets are imported by name and stay.
fn hashed(name: &str, file: &Path) -> Result<String> {
    if name.starts_with("snippets/") {
        return Ok(name.to_owned());
    }
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let hash = &step::sha256(&bytes)[..12];
    Ok(match name.rsplit_once('.') {
        Some((stem, extension)) => format!("{stem}.{hash}.{extension}"),
        None => format!("{name}.{hash}"),
    })
}

fn write_one(profile: Profile, from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    step::write(to, &bytes)?;
    if to.extension().is_some_and(|extension| COMPRESSED.iter().any(|known| extension == *known)) {
        return Ok(());
    }
    let quality = if profile == Profile::Release { 11 } else { 5 };
    step::write(&with_suffix(to, "br"), &brotli(&bytes, quality)?)?;
    if profile == Profile::Release {
        step::write(&with_suffix(to, "gz"), &gzip(&bytes)?)?;
    }
    Ok(())
}

/// `app.css` to `app.css.br`.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

fn brotli(mut bytes: &[u8], quality: i32) -> Result<Vec<u8>> {
    let params = brotli::enc::BrotliEncoderParams { quality, size_hint: bytes.len(), ..Default::default() };
    let mut small = Vec::new();
    brotli::BrotliCompress(&mut bytes, &mut small, &params).context("brotli failed")?;
    Ok(small)
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish().context("gzip failed")
}

/// Removes what the manifest no longer names.
fn remove_old(site: &Path, manifest: &BTreeMap<String, String>, profile: Profile) -> Result<()> {
    let mut keep = BTreeSet::from([site.join("manifest.json")]);
    for path in manifest.values() {
        let path = site.join(path);
        keep.insert(with_suffix(&path, "br"));
        if profile == Profile::Release {
            keep.insert(with_suffix(&path, "gz"));
        }
        keep.insert(path);
    }
    for file in paths::files(&[site.to_path_buf()]) {
        if !keep.contains(&file) {
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
    }
    Ok(())
}
