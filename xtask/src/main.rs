//! The project's build tool. `cargo xtask run` on a fresh machine builds everything and starts the deck;
//! `cargo xtask test` runs every check. A step that has nothing to do says so and is skipped; a tool that is
//! missing is installed where that is possible, or named in one line with the remedy.

mod assets;
mod bench;
mod browser;
mod chaos;
mod css;
mod e2e;
mod paths;
mod postgres;
mod release;
mod run;
mod step;
mod test;
mod tools;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::browser::Profile;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, runs and checks Jobdeck", disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build everything and start the deck; installs Postgres when there is none and DATABASE_URL is unset
    Run {
        /// Build both halves for release
        #[arg(long)]
        release: bool,
        /// Passed on to `jobdeck serve`
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Run every check and end with the line `N passed, N failed`
    Test,
    /// Build both halves for release, with compressed assets, and print the sizes
    Build,
    /// Measure the queue beside the same work in plain SQL, on a durable throw-away Postgres
    Bench(bench::Options),
    /// Kill, freeze and cut off workers and databases, and count what is lost; without a name every scenario
    Chaos {
        /// Passed on to `jobdeck-chaos`: `--full`, `--seed N`, names of scenarios
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build only the browser half and the site's assets
    Browser {
        /// Small instead of quick to build
        #[arg(long)]
        release: bool,
    },
    /// Generate style/dist/app.css from style/ and the classes named in the sources
    Css {
        /// Write nothing; fail if the file would change
        #[arg(long)]
        check: bool,
    },
    /// Run the browser tests in end2end/
    E2e {
        /// Passed on to `playwright test`
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Format all Rust sources
    Fmt,
    /// Clippy over everything, warnings are errors
    Lint,
    /// Run a command with JOBDECK_TEST_DATABASE_URL set to a throw-away Postgres, e.g. `-- cargo test -p jobdeck`
    WithDb {
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run { release, args } => match run::run(release, &args)? {},
        Command::Test => return test::test(),
        Command::Build => release::build()?,
        Command::Chaos { args } => return chaos::chaos(&args),
        Command::Bench(options) => return bench::bench(&options),
        Command::Browser { release } => {
            browser::site(Profile::new(release))?;
        }
        Command::Css { check } => return css::css(check),
        Command::E2e { args } => return e2e::e2e(&args),
        Command::Fmt => tools::run(tools::cargo().args(["fmt", "--all"]))?,
        Command::Lint => test::lint()?,
        Command::WithDb { command } => return postgres::with_db(&command),
    }
    Ok(ExitCode::SUCCESS)
}
