//! `cargo xtask run`: everything built, then the deck in our place.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Result};

use crate::browser::{self, Profile};
use crate::step::step;
use crate::{paths, postgres, tools};

/// Builds what is out of date and becomes `jobdeck serve`, so that signals reach it directly.
pub(crate) fn run(release: bool, args: &[String]) -> Result<Infallible> {
    browser::site(Profile::new(release))?;
    server(release)?;
    if std::env::var_os("DATABASE_URL").is_none() {
        postgres::ensure_installed()?;
    }
    tools::ensure_cjk_font();
    let binary = binary(release);
    println!("==> {} serve {}", binary.display(), args.join(" "));
    let error = Command::new(&binary).arg("serve").args(args).current_dir(paths::root()).exec();
    Err(error).with_context(|| format!("cannot start {}", binary.display()))
}

/// Builds the server; cargo knows best whether there is anything to do.
pub(crate) fn server(release: bool) -> Result<()> {
    step("server", || {
        let mut cargo = tools::cargo();
        cargo.arg("build").args(tools::PRODUCT).args(["--bin", "jobdeck"]);
        if release {
            cargo.arg("--release");
        }
        tools::run(&mut cargo)
    })
}

/// Where cargo puts the server.
pub(crate) fn binary(release: bool) -> std::path::PathBuf {
    paths::target().join(if release { "release/jobdeck" } else { "debug/jobdeck" })
}
