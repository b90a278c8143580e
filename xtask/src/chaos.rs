//! `cargo xtask chaos`: processes and databases that die, freeze and cut off, and what is lost then. The scenarios are in
//! `chaos/`.

use std::io::BufReader;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::postgres::{self, TestServer};
use crate::test::Counts;
use crate::{paths, tools};

/// Builds the program and runs it with a throw-away Postgres.
pub(crate) fn chaos(args: &[String]) -> Result<ExitCode> {
    tools::run(tools::cargo().args(["build", "--package", "jobdeck-chaos"]))?;
    let server = TestServer::start()?;
    let counts = run(server.url(), args)?;
    Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the built program, shows what it prints and reads its last line.
pub(crate) fn run(database_url: &str, args: &[String]) -> Result<Counts> {
    let program = paths::target().join("debug/jobdeck-chaos");
    let mut child = Command::new(&program)
        .args(args)
        .current_dir(paths::root())
        .env(postgres::URL, database_url)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let output = child.stdout.take().context("chaos has no output")?;
    let mut counts = None;
    for line in std::io::BufRead::lines(BufReader::new(output)) {
        let line = line.context("cannot read what chaos prints")?;
        println!("{line}");
        counts = parse(&line).or(counts);
    }
    let status = child.wait().context("cannot wait for chaos")?;
    let mut counts = counts.context("chaos ended without a result")?;
    if counts.failed == 0 && (!status.success() || counts.passed == 0) {
        counts.failed = 1;
    }
    Ok(counts)
}

/// `chaos: 19 passed, 0 failed`
fn parse(line: &str) -> Option<Counts> {
    let (passed, failed) = line.strip_prefix("chaos: ")?.strip_suffix(" failed")?.split_once(" passed, ")?;
    Some(Counts { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_read() {
        assert_eq!(parse("chaos: 19 passed, 2 failed"), Some(Counts { passed: 19, failed: 2 }));
        assert_eq!(parse("--- poison (a job…)"), None);
    }
}
