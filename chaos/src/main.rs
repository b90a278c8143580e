//! `jobdeck-chaos [--full] [--seed N] [NAME…]`: runs each named scenario, or all of them, against real worker processes and a
//! real Postgres, and checks what was lost, done twice or left behind. Started by `cargo xtask chaos` and `cargo xtask test`.
//!
//! `JOBDECK_TEST_DATABASE_URL` names a server on which databases may be made; `JOBDECK_POSTGRES_BIN` the folder of `initdb`
//! for the scenarios that crash a server of their own. Only processes that a scenario started are signalled.

mod child;
mod cluster;
mod ledger;
mod proxy;
mod scenarios;
mod stage;
mod worker;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// How much of each scenario is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Seconds each, for every test run.
    Short,
    /// The figures of docs/chaos.md.
    Full,
}

impl Extent {
    fn pick<T>(self, short: T, full: T) -> T {
        match self {
            Self::Short => short,
            Self::Full => full,
        }
    }
}

fn main() -> Result<ExitCode> {
    let mut args = std::env::args().skip(1).peekable();
    if args.peek().is_some_and(|first| first == "worker") {
        args.next();
        return worker::main(args).map(|()| ExitCode::SUCCESS);
    }
    let (mut extent, mut seed, mut names) = (Extent::Short, fastrand::u64(..), Vec::new());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--full" => extent = Extent::Full,
            "--seed" => {
                seed = args.next().context("--seed needs a number")?.parse().context("--seed needs a number")?
            }
            name if !name.starts_with('-') => names.push(arg),
            other => bail!("unknown option {other}: jobdeck-chaos [--full] [--seed N] [NAME…]"),
        }
    }
    fastrand::seed(seed);
    println!("seed {seed}");
    let known = scenarios::all();
    if let Some(unknown) = names.iter().find(|name| !known.iter().any(|scenario| scenario.name == **name)) {
        let known: Vec<_> = known.iter().map(|scenario| scenario.name).collect();
        bail!("there is no scenario {unknown:?}: one of {}", known.join(", "));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (mut passed, mut failed) = (0, 0);
    for scenario in known.iter().filter(|scenario| names.is_empty() || names.iter().any(|name| name == scenario.name)) {
        println!("\n--- {} ({})", scenario.name, scenario.promise);
        let begun = Instant::now();
        match runtime.block_on((scenario.run)(extent)) {
            Ok(()) => {
                passed += 1;
                println!("ok in {:.1} s", begun.elapsed().as_secs_f64());
            }
            Err(error) => {
                failed += 1;
                println!("FAILED in {:.1} s: {error:#}", begun.elapsed().as_secs_f64());
            }
        }
    }
    println!("\nchaos: {passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
