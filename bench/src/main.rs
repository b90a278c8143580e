//! Measures Jobdeck beside the same work in plain SQL, on one durable Postgres of this machine, in the same run.
//! `cargo xtask bench` builds it, gives it a server and starts it; docs/benchmarks.md says how to read what it prints.
//!
//! Each workload runs in pairs: Jobdeck, the floor, the floor, Jobdeck, …, each on a database of its own. The median of all
//! rounds counts.

mod args;
mod child;
mod floor;
mod measure;
mod plans;
mod process;
mod report;
mod server;
mod subject;
mod workloads;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::{Args, Mode};
use crate::report::Report;
use crate::server::Server;

fn main() -> ExitCode {
    let result = Mode::parse(std::env::args().skip(1)).and_then(|mode| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            match mode {
                Mode::Help => {
                    print!("{}", args::HELP);
                    Ok(ExitCode::SUCCESS)
                }
                Mode::Worker(worker) => child::work(worker).await.map(|()| ExitCode::SUCCESS),
                Mode::Measure(args) => measure(&args).await,
            }
        })
    });
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs the chosen workloads and prints the report. Fails if a plan reads more than it may; no time fails it.
async fn measure(args: &Args) -> Result<ExitCode> {
    let server = Server::connect(&args::database_url()?).await?;
    let mut report = Report::new(args.json);
    report.header(&server.facts().await?, &process::Machine::read()?);
    let outcome = workloads::run(&server, args, &mut report).await;
    // Whatever stopped us, databases are not left behind on a server that is not thrown away, and what was measured is shown.
    let cleaned = server.clean_up().await;
    let plans_hold = report.finish();
    outcome?;
    cleaned?;
    Ok(if plans_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
