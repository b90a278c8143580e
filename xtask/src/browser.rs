//! The browser half: the app compiled to WebAssembly, wasm-bindgen's glue, and with them the site's assets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use wasm_bindgen_cli_support::Bindgen;

use crate::step::{self, Stamp, skipped, step};
use crate::{assets, paths, tools};

const TARGET: &str = "wasm32-unknown-unknown";
/// How long rustup may try to fetch the target; behind some proxies it hangs.
const RUSTUP_LIMIT: Duration = Duration::from_secs(60);

/// How the browser half is built.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Profile {
    /// Quick to build.
    Dev,
    /// Small.
    Release,
}

impl Profile {
    pub(crate) fn new(release: bool) -> Self {
        if release { Self::Release } else { Self::Dev }
    }

    /// Name of the profile in Cargo.toml and of the folder under the target folder.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dev => "browser-dev",
            Self::Release => "browser-release",
        }
    }
}

/// Builds the browser half and `target/site`.
pub(crate) fn site(profile: Profile) -> Result<()> {
    let _lock = step::exclusive("site")?;
    let glue = browser(profile)?;
    assets::write(profile, &glue)
}

/// Compiles the app and runs wasm-bindgen; returns the folder with `jobdeck.js` and `jobdeck_bg.wasm`.
fn browser(profile: Profile) -> Result<PathBuf> {
    let root = paths::root();
    let glue = paths::scratch().join(profile.name());
    let sources = ["Cargo.toml", "Cargo.lock", "app", "src"].map(|path| root.join(path));
    let stamp = Stamp::new(profile.name(), &paths::files(&sources), &[])?;
    let heading = format!("browser half ({})", profile.name());
    if stamp.is_fresh(&[&glue.join("jobdeck.js"), &glue.join("jobdeck_bg.wasm")]) {
        skipped(&heading);
        return Ok(glue);
    }
    check_bindgen_version(&root.join("Cargo.lock"))?;
    let toolchain = Toolchain::find()?;
    let wasm = step(&heading, || compile(profile, &toolchain))?;
    step("wasm-bindgen", || bindgen(&wasm, &glue))?;
    if profile == Profile::Release {
        optimise(&glue.join("jobdeck_bg.wasm"))?;
    }
    stamp.write()?;
    Ok(glue)
}

fn compile(profile: Profile, toolchain: &Toolchain) -> Result<PathBuf> {
    let target_dir = paths::target().join("browser");
    let mut cargo = toolchain.cargo();
    cargo.args(["build", "--package", "jobdeck-app", "--lib", "--no-default-features", "--features", "hydrate"]);
    cargo.args(["--target", TARGET, "--profile", profile.name()]).arg("--target-dir").arg(&target_dir);
    cargo.env("LEPTOS_OUTPUT_NAME", "jobdeck");
    cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", remap_paths());
    tools::run(&mut cargo)?;
    Ok(target_dir.join(TARGET).join(profile.name()).join("jobdeck_app.wasm"))
}

/// Panic messages would carry this machine's paths to every browser.
fn remap_paths() -> String {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let mut flags = vec![format!("--remap-path-prefix={}=.", paths::root().display())];
    flags.extend(home.map(|home| format!("--remap-path-prefix={}=cargo", home.display())));
    // Flags are split at spaces.
    flags.retain(|flag| !flag.contains(' '));
    flags.join(" ")
}

fn bindgen(wasm: &Path, glue: &Path) -> Result<()> {
    if glue.exists() {
        fs::remove_dir_all(glue).with_context(|| format!("cannot empty {}", glue.display()))?;
    }
    Bindgen::new()
        .input_path(wasm)
        .out_name("jobdeck")
        .web(true)?
        .typescript(false)
        .omit_default_module_path(true)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(glue)
        .context("wasm-bindgen failed")
}

/// `wasm-opt -Oz`, which takes off about a quarter after compression. Not essential, so failing is only told.
fn optimise(wasm: &Path) -> Result<()> {
    if tools::find("wasm-opt").is_none()
        && let Err(error) = tools::apt_install(&["binaryen"], "wasm-opt makes the browser half smaller")
    {
        println!("==> wasm-opt skipped: {error:#}");
        return Ok(());
    }
    let small = wasm.with_extension("small");
    let features =
        ["bulk-memory", "reference-types", "sign-ext", "mutable-globals", "nontrapping-float-to-int", "multivalue"];
    let result = step("wasm-opt -Oz", || {
        let mut command = Command::new("wasm-opt");
        command.arg("-Oz").args(features.map(|feature| format!("--enable-{feature}")));
        tools::run(command.arg(wasm).arg("-o").arg(&small))
    });
    match result {
        Ok(()) => fs::rename(&small, wasm).context("cannot put wasm-opt's output in place"),
        Err(error) => {
            println!("    going on without: {error:#}");
            let _ = fs::remove_file(&small);
            Ok(())
        }
    }
}

/// The glue and the crate must speak the same version, or the page fails in the browser.
fn check_bindgen_version(lock: &Path) -> Result<()> {
    let lock = fs::read_to_string(lock).context("cannot read Cargo.lock")?;
    let version = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        rest.split('"').next().map(str::to_owned)
    };
    let (library, tool) = (version("wasm-bindgen"), version("wasm-bindgen-cli-support"));
    if library != tool {
        bail!(
            "Cargo.lock has wasm-bindgen {} but wasm-bindgen-cli-support {}: run `cargo update -p wasm-bindgen -p wasm-bindgen-cli-support`",
            library.as_deref().unwrap_or("(none)"),
            tool.as_deref().unwrap_or("(none)")
        );
    }
    Ok(())
}

/// A Rust that can compile for the browser.
enum Toolchain {
    /// The one that runs us, with the target installed.
    Own,
    /// Debian's, which has the standard library as source and builds it along.
    Debian,
}

impl Toolchain {
    fn find() -> Result<Self> {
        if own_has_target() {
            return Ok(Self::Own);
        }
        let failed = paths::scratch().join("rustup-target.failed");
        if failed.exists() {
            println!("==> `rustup target add {TARGET}` failed before; delete {} to try again", failed.display());
        } else if tools::find("rustup").is_some() {
            let added = step(&format!("rustup target add {TARGET}"), || {
                Ok(tools::succeeds_within(tools::toolchain("rustup").args(["target", "add", TARGET]), RUSTUP_LIMIT))
            })?;
            if added && own_has_target() {
                return Ok(Self::Own);
            }
            println!("    rustup could not fetch it within {} s", RUSTUP_LIMIT.as_secs());
            step::write(&failed, b"")?;
        }
        if !debian_is_complete() {
            tools::apt_install(
                &["rustc-web", "cargo-web", "rust-web-src", "lld-22"],
                &format!("no Rust for {TARGET} (`rustup target add {TARGET}` where rustup reaches its server)"),
            )?;
            if !debian_is_complete() {
                bail!(
                    "Debian's rustc-web is installed but incomplete: expected /usr/bin/cargo, wasm-ld-22 and rust-web-src"
                );
            }
        }
        println!("    using Debian's Rust, which builds the standard library along");
        Ok(Self::Debian)
    }

    fn cargo(&self) -> Command {
        match self {
            Self::Own => tools::cargo(),
            Self::Debian => {
                let mut cargo = debian("cargo");
                cargo.args(["-Z", "build-std=std,panic_abort"]);
                cargo.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld-22");
                cargo
            }
        }
    }
}

/// Whether the standard library for the browser is beside the rustc that cargo will call.
fn own_has_target() -> bool {
    tools::capture(tools::toolchain("rustc").args(["--print", "target-libdir", "--target", TARGET]))
        .is_ok_and(|dir| Path::new(&dir).is_dir())
}

fn debian_is_complete() -> bool {
    Path::new("/usr/bin/cargo").exists()
        && tools::find("wasm-ld-22").is_some()
        && tools::capture(debian("rustc").args(["--print", "sysroot"]))
            .is_ok_and(|sysroot| Path::new(&sysroot).join("lib/rustlib/src/rust/library/std").is_dir())
}

/// A program of Debian's Rust, without what rustup and our own cargo put into the environment.
fn debian(program: &str) -> Command {
    let mut command = tools::clean(Command::new(Path::new("/usr/bin").join(program)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([PathBuf::from("/usr/bin")].into_iter().chain(std::env::split_paths(&path)));
    command.env("PATH", path.unwrap_or_default());
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH", "RUSTC_WRAPPER"] {
        command.env_remove(name);
    }
    command
}
