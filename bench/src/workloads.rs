//! What is measured. Each workload has a file; all take a server, say how much in [`Args`] and add lines to the report.

mod drain;
mod enqueue;
mod history;
mod pickup;
mod recovery;

use std::future::Future;

use anyhow::{Context, Result};

use crate::args::Args;
use crate::measure::{Sample, Samples};
use crate::report::{Line, Report};
use crate::server::Server;

/// Runs what was chosen, in the order of [`crate::args::WORKLOADS`].
pub(crate) async fn run(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    if args.wants("enqueue-one") {
        enqueue::one_by_one(server, args, report).await.context("enqueue-one")?;
    }
    if args.wants("enqueue-bulk") {
        enqueue::in_bulk(server, args, report).await.context("enqueue-bulk")?;
    }
    for concurrency in [50, 10] {
        let name = format!("drain-{concurrency}");
        if args.wants(&name) {
            drain::beside_floor(server, args, concurrency, &name, report).await.context(name)?;
        }
    }
    if args.wants("pickup") {
        pickup::pickup(server, args, report).await.context("pickup")?;
    }
    if args.wants("memory-50") {
        drain::memory(server, args, report).await.context("memory-50")?;
    }
    if args.wants("recovery") {
        recovery::recovery(server, args, report).await.context("recovery")?;
    }
    if args.wants("history") {
        history::history(server, args, report).await.context("history")?;
    }
    Ok(())
}

/// Measures both sides in pairs. Which goes first alternates, so that neither always finds the machine as the other left it.
async fn pairs<J, F>(
    workload: &str,
    rounds: usize,
    mut jobdeck: impl FnMut(usize) -> J,
    mut floor: impl FnMut(usize) -> F,
) -> Result<(Sample, Sample)>
where
    J: Future<Output = Result<Sample>>,
    F: Future<Output = Result<Sample>>,
{
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for round in 0..rounds {
        if round % 2 == 0 {
            ours.0.push(jobdeck(round).await?);
            theirs.0.push(floor(round).await?);
        } else {
            theirs.0.push(floor(round).await?);
            ours.0.push(jobdeck(round).await?);
        }
        let rate = |samples: &Samples| samples.0.last().map_or(0.0, |sample| sample.per_s);
        eprintln!("{workload} {}/{rounds}: {:.0}/s beside {:.0}/s", round + 1, rate(&ours), rate(&theirs));
    }
    Ok((ours.median(), theirs.median()))
}

/// The line of a pair.
fn line(workload: &str, rows: u64, jobdeck: &Sample, floor: &Sample) -> Line {
    Line {
        workload: workload.to_owned(),
        jobdeck_per_s: Some(jobdeck.per_s),
        floor_per_s: Some(floor.per_s),
        ratio: Some(jobdeck.per_s / floor.per_s),
        cpu_us_worker: jobdeck.cpu_us_worker,
        cpu_us_postgres: jobdeck.cpu_us_postgres,
        floor_cpu_us: floor.cpu_us_worker.zip(floor.cpu_us_postgres).map(|(client, server)| client + server),
        rss_mib: jobdeck.rss_mib,
        rows,
        ..Line::default()
    }
}
