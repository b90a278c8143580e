//! `cargo xtask test`: every check. A part that fails does not keep the others from running.

use std::io::{BufRead, BufReader, Write};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::browser::{self, Profile};
use crate::postgres::{self, TestServer};
use crate::{chaos, css, e2e, step, tools};

/// How many tests or checks went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

struct Part {
    name: &'static str,
    counts: Counts,
    took: Duration,
}

/// Runs all parts, prints a table, and as the last line `N passed, N failed`.
pub(crate) fn test() -> Result<ExitCode> {
    let mut parts = Vec::new();
    check(&mut parts, "format", || tools::run(tools::cargo().args(["fmt", "--all", "--check"])));
    check(&mut parts, "style sheet", || match css::css(true)? {
        ExitCode::SUCCESS => Ok(()),
        _ => bail!("style/dist/app.css is out of date"),
    });
    // Before anything that compiles the server, which embeds the assets.
    check(&mut parts, "browser half", || browser::site(Profile::Dev));
    check(&mut parts, "lint", lint);
    check(&mut parts, "docs", docs);
    check(&mut parts, "document tools", tools::ensure_document_tools);
    match TestServer::start() {
        Ok(server) => {
            // Also builds the binary that the browser tests start.
            part(&mut parts, "cargo test", || cargo_test(tools::PRODUCT, server.url()));
            part(&mut parts, "chaos", || chaos::run(server.url(), &[]));
            part(&mut parts, "browser tests", || e2e::playwright(server.url(), &[]));
            part(&mut parts, "cargo test xtask", || cargo_test(&["--package", "xtask"], server.url()));
        }
        Err(error) => check(&mut parts, "Postgres for the tests", || Err(error)),
    }
    Ok(summary(&parts))
}

/// Everything there is. The same for both users, so that dependencies are checked once.
const EVERYTHING: &[&str] = &["--workspace", "--features", "xtask/css"];

/// Clippy over everything; warnings are errors.
pub(crate) fn lint() -> Result<()> {
    tools::run(tools::cargo().arg("clippy").args(EVERYTHING).args(["--all-targets", "--", "-D", "warnings"]))
}

fn docs() -> Result<()> {
    tools::run(tools::cargo().arg("doc").args(EVERYTHING).arg("--no-deps").env("RUSTDOCFLAGS", "-D warnings"))
}

/// A part that is one check.
fn check(parts: &mut Vec<Part>, name: &'static str, work: impl FnOnce() -> Result<()>) {
    part(parts, name, || work().map(|()| Counts { passed: 1, failed: 0 }));
}

fn part(parts: &mut Vec<Part>, name: &'static str, work: impl FnOnce() -> Result<Counts>) {
    println!("\n=== {name}");
    let start = Instant::now();
    let counts = work().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        Counts { passed: 0, failed: 1 }
    });
    parts.push(Part { name, counts, took: start.elapsed() });
}

/// Runs the tests of some packages, shows their output as it comes and counts the results.
fn cargo_test(packages: &[&str], database_url: &str) -> Result<Counts> {
    let mut cargo = tools::cargo();
    cargo.arg("test").args(packages).arg("--no-fail-fast").env(postgres::URL, database_url);
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let counts = count(BufReader::new(output), &mut std::io::stdout())?;
    let status = child.wait().context("cannot wait for cargo")?;
    Ok(judge(counts, status.success()))
}

/// Passes on what cargo prints and adds up the results of all test programs.
fn count(output: impl BufRead, shown: &mut impl Write) -> Result<Counts> {
    let mut counts = Counts::default();
    for line in output.split(b'\n') {
        let mut line = line.context("cannot read cargo's output")?;
        if let Some(result) = test_result(&String::from_utf8_lossy(&line)) {
            counts.passed += result.passed;
            counts.failed += result.failed;
        }
        line.push(b'\n');
        shown.write_all(&line).context("cannot write")?;
    }
    Ok(counts)
}

/// A failure that names no test, such as a compile error, counts; so does a run without any test.
fn judge(mut counts: Counts, success: bool) -> Counts {
    if counts.failed == 0 && (!success || counts.passed == 0) {
        eprintln!("error: cargo test ran no test, or failed without naming one");
        counts.failed = 1;
    }
    counts
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; …`
fn test_result(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number =
        |name: &str| numbers.split(';').find_map(|part| part.trim().strip_suffix(name)?.trim().parse::<u64>().ok());
    Some(Counts { passed: number("passed")?, failed: number("failed")? })
}

fn summary(parts: &[Part]) -> ExitCode {
    let mut sum = Counts::default();
    println!("\n{:<24} {:>9} {:>8} {:>8}", "part", "time", "passed", "failed");
    for Part { name, counts, took } in parts {
        println!("{name:<24} {:>9} {:>8} {:>8}", step::seconds(*took), counts.passed, counts.failed);
        sum.passed += counts.passed;
        sum.failed += counts.failed;
    }
    println!("\n{} passed, {} failed", sum.passed, sum.failed);
    if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        assert_eq!(
            test_result(
                "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s"
            ),
            Some(Counts { passed: 12, failed: 3 })
        );
        assert_eq!(test_result("test result::is_read ... ok"), None);
    }

    #[test]
    fn results_of_all_programs_are_added_and_shown() -> Result<()> {
        let output = "test a ... ok\ntest result: ok. 2 passed; 0 failed\n\ntest result: FAILED. 1 passed; 1 failed\n";
        let mut shown = Vec::new();
        assert_eq!(count(output.as_bytes(), &mut shown)?, Counts { passed: 3, failed: 1 });
        assert_eq!(shown, output.as_bytes());
        Ok(())
    }

    #[test]
    fn runs_without_a_result_have_failed() {
        let counts = |passed, failed| Counts { passed, failed };
        assert_eq!(judge(counts(0, 0), true), counts(0, 1));
        assert_eq!(judge(counts(5, 0), false), counts(5, 1));
        assert_eq!(judge(counts(5, 2), false), counts(5, 2));
        assert_eq!(judge(counts(5, 0), true), counts(5, 0));
    }
}
