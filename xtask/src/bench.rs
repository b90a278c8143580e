//! `cargo xtask bench`: the queue measured beside plain SQL. What is measured and how is in `bench/` and docs/benchmarks.md.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::postgres::BenchServer;
use crate::{paths, tools};

/// Names the server measured on. Set by us, unless someone wants to measure on a server of theirs.
const URL: &str = "JOBDECK_BENCH_DATABASE_URL";

/// What to measure; passed on as it is.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Fewer rounds and jobs, no history of 10 million: about two minutes
    #[arg(long)]
    quick: bool,
    /// One object a line on standard output; all else goes to standard error
    #[arg(long)]
    json: bool,
    /// Only this workload: enqueue-one, enqueue-bulk, drain-50, drain-10, pickup, memory-50, recovery, history
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Finished rows of `history`, in growing order [default: 1000000 10000000; with --quick 1000000]
    #[arg(long, value_name = "N", num_args = 1..)]
    rows: Vec<u64>,
    /// Jobs a round of the drains; the others follow [default: 20000; with --quick 10000]
    #[arg(long, value_name = "N")]
    jobs: Option<u32>,
    /// Pairs of each workload [default: 5; with --quick 3]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
}

impl Options {
    fn words(&self) -> Vec<String> {
        let flags = [("--quick", self.quick), ("--json", self.json)];
        let mut words: Vec<String> = flags.iter().filter(|(_, set)| *set).map(|(name, _)| (*name).to_owned()).collect();
        let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
        self.only.iter().for_each(|name| add("--only", name.clone()));
        self.rows.iter().for_each(|rows| add("--rows", rows.to_string()));
        self.jobs.iter().for_each(|jobs| add("--jobs", jobs.to_string()));
        self.rounds.iter().for_each(|rounds| add("--rounds", rounds.to_string()));
        words
    }
}

/// Builds the program for release, starts a durable server for it and runs it; its exit code is ours. Standard output is the
/// program's alone.
pub(crate) fn bench(options: &Options) -> Result<ExitCode> {
    tools::run(tools::cargo().args(["build", "--release", "--package", "jobdeck-bench"]))?;
    let server = match std::env::var_os(URL) {
        Some(_) => None,
        None => Some(BenchServer::start()?),
    };
    let program = paths::target().join("release/jobdeck-bench");
    let mut command = Command::new(&program);
    command.args(options.words()).current_dir(paths::root());
    if let Some(server) = &server {
        command.env(URL, server.url());
    }
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn options_are_passed_on() {
        let words = |line: &str| Cli::parse_from(line.split(' ')).options.words().join(" ");
        assert_eq!(words("bench"), "");
        assert_eq!(
            words("bench --json --quick --rows 10 20 --only pickup --only history --jobs 7 --rounds 1"),
            "--quick --json --only pickup --only history --rows 10 --rows 20 --jobs 7 --rounds 1"
        );
    }
}
