//! Finding, installing and running programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::paths;
use crate::step::step;

/// What cargo builds and tests of the product. Always the same selection: another one unifies other features, and compiles
/// most dependencies a second time.
pub(crate) const PRODUCT: &[&str] = &["--workspace", "--exclude", "xtask"];

/// The cargo that started us, in the workspace's root, without what `cargo run` put into our environment.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    clean(Command::new(program))
}

/// A program of the toolchain by name, found on PATH.
pub(crate) fn toolchain(program: &str) -> Command {
    clean(Command::new(program))
}

/// Runs in the root and without the variables that describe xtask itself; they would reach build scripts.
pub(crate) fn clean(mut command: Command) -> Command {
    command.current_dir(paths::root());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(&*name);
        }
    }
    command.env_remove("CARGO_PRIMARY_PACKAGE");
    command
}

/// Runs a command with our own standard streams; an exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", display(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", display(command));
    }
    Ok(())
}

/// What a command prints, trimmed.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", display(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", display(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether a command could be started and succeeded, quietly.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Like [`succeeds`], but gives up and kills the command after `limit`.
pub(crate) fn succeeds_within(command: &mut Command, limit: Duration) -> bool {
    let Ok(mut child) = command.stdin(Stdio::null()).spawn() else {
        return false;
    };
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(100)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// The first file of that name on PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Installs Debian packages, as root or with a sudo that asks no password.
///
/// # Errors
/// Where neither is possible, names the command to run by hand.
pub(crate) fn apt_install(packages: &[&str], why: &str) -> Result<()> {
    static UPDATE: Once = Once::new();
    let by_hand = format!("{why}: install it with `sudo apt-get install {}`", packages.join(" "));
    if find("apt-get").is_none() {
        bail!("{why}: install the equivalent of Debian's {}", packages.join(" "));
    }
    let root = capture(Command::new("id").arg("-u")).is_ok_and(|uid| uid == "0");
    if !root && !succeeds(Command::new("sudo").args(["-n", "true"])) {
        bail!(by_hand);
    }
    let apt = |args: &[&str]| {
        let mut command = if root {
            Command::new("env")
        } else {
            let mut sudo = Command::new("sudo");
            sudo.args(["-n", "env"]);
            sudo
        };
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]).args(args);
        command.stdin(Stdio::null());
        run(&mut command)
    };
    step(&format!("installing {} ({why})", packages.join(" ")), || {
        UPDATE.call_once(|| {
            if let Err(error) = apt(&["update"]) {
                println!("    {error:#}; going on with the package lists at hand");
            }
        });
        let mut args = vec!["install", "--yes", "--no-install-recommends"];
        args.extend(packages);
        apt(&args)
    })
    .context(by_hand)
}

/// Warns, without failing, when Chinese would show as boxes.
pub(crate) fn ensure_cjk_font() {
    let listed = capture(Command::new("fc-list").args([":lang=zh", "family"]));
    let present = match listed {
        Ok(list) => !list.is_empty(),
        Err(_) => ["/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc", "/System/Library/Fonts/PingFang.ttc"]
            .iter()
            .any(|file| Path::new(file).exists()),
    };
    if present || cfg!(target_os = "macos") {
        return;
    }
    if let Err(error) = apt_install(&["fonts-noto-cjk"], "no font for Chinese found") {
        println!("    warning: {error:#}; Chinese text in files and pages will show as boxes");
    }
}

/// What the tests read files with: a font for Chinese, and pdftotext.
pub(crate) fn ensure_document_tools() -> Result<()> {
    ensure_cjk_font();
    if find("pdftotext").is_none() {
        apt_install(&["poppler-utils"], "the tests read PDF files with pdftotext")?;
    }
    Ok(())
}

fn display(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    let line = words.join(" ");
    format!("`{line}`")
}
