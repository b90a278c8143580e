//! The same with a past: drains and queries on a table that holds a million and ten million finished jobs, beside an empty one.

use std::time::Instant;

use anyhow::{Context, Result};
use jobdeck::Store;
use sqlx::postgres::PgPoolOptions;

use super::{drain, line, pairs};
use crate::args::Args;
use crate::measure::percentile;
use crate::plans::{PlanCheck, Reads};
use crate::report::{Line, Report, thousands};
use crate::server::{Database, Server};
use crate::subject;

/// What a worker and a person ask for.
#[derive(Clone, Copy, PartialEq)]
enum Query {
    Claim,
    Enqueue,
    Counters,
    List,
    ListFailed,
    ListType,
}

impl Query {
    const ALL: [Self; 6] = [Self::Claim, Self::Enqueue, Self::Counters, Self::List, Self::ListFailed, Self::ListType];

    fn name(self) -> &'static str {
        match self {
            Self::Claim => "history-claim",
            Self::Enqueue => "history-enqueue",
            Self::Counters => "history-counters",
            Self::List => "history-list",
            Self::ListFailed => "history-list-failed",
            Self::ListType => "history-list-type",
        }
    }

    async fn call(self, store: &Store, number: u32) -> Result<()> {
        match self {
            Self::Claim => subject::claim(store).await,
            Self::Enqueue => subject::enqueue_keyed(store, number).await,
            Self::Counters => subject::counters(store).await,
            Self::List => subject::list(store).await,
            Self::ListFailed => subject::list_failed(store).await,
            Self::ListType => subject::list_type(store).await,
        }
    }
}

/// A failed job or two, so that no list of the "empty" table is empty.
const FEW: u64 = 200;

pub(super) async fn history(server: &Server, args: &Args, report: &mut Report) -> Result<()> {
    let old = server.migrated().await?;
    let mut filled = 0;
    for &rows in &args.history {
        let start = Instant::now();
        subject::fill_finished(&old.url, filled..rows).await.context("filling")?;
        filled = rows;
        eprintln!("history: {} finished jobs after {:.0} s", thousands(rows), start.elapsed().as_secs_f64());
        queries(server, args, &old, rows, report).await?;

        let name = format!("history-drain at {}", thousands(rows));
        let (now, empty) = pairs(
            &name,
            args.rounds,
            |_| drain::drain(server, &old, args.drain_jobs, 50),
            |_| drain::on_empty_table(server, args.drain_jobs, 50),
        )
        .await?;
        report.add(Line { floor_cpu_us: None, ..line("history-drain", rows, &now, &empty) });
    }
    server.drop(old).await
}

/// One query on one table.
#[derive(Default)]
struct Calls {
    times_ms: Vec<f64>,
    /// Those that do not count for the time included.
    n_calls: u32,
    reads: Reads,
    error: Option<String>,
}

/// Times the queries on both tables, in turns.
async fn queries(server: &Server, args: &Args, old: &Database, rows: u64, report: &mut Report) -> Result<()> {
    let new = server.migrated().await?;
    subject::fill_finished(&new.url, 0..FEW).await?;
    let n_claims = (args.calls + 1) * u32::try_from(args.rounds)?;
    for database in [&new, old] {
        subject::fill_waiting(&database.url, n_claims * subject::CLAIM).await?;
    }
    server.checkpoint().await?;
    for query in Query::ALL {
        let (mut on_new, mut on_old) = (Calls::default(), Calls::default());
        for round in 0..args.rounds {
            // Keys of each round and of each size of the table differ.
            let first = u32::try_from(rows / 1000)?.wrapping_mul(10_000) + u32::try_from(round)? * (args.calls + 1);
            on_new.add(query, &new.url, first, args.calls).await?;
            on_old.add(query, &old.url, first, args.calls).await?;
        }
        let (p50_new, p50_old) = (percentile(&on_new.times_ms, 0.5), percentile(&on_old.times_ms, 0.5));
        eprintln!(
            "{} at {}: {:.2} ms beside {:.2} ms",
            query.name(),
            thousands(rows),
            p50_old.unwrap_or_default(),
            p50_new.unwrap_or_default()
        );
        if Some(&rows) == args.history.first() {
            report.add(on_new.line(query));
            report.add_plan(on_new.plan(query, 0));
        }
        report.add(Line { rows, ratio: p50_old.zip(p50_new).map(|(old, new)| old / new), ..on_old.line(query) });
        report.add_plan(on_old.plan(query, rows));
    }
    subject::remove_unfinished(&old.url).await?;
    server.drop(new).await
}

impl Calls {
    /// Some calls on connections of their own, the first of which plans the statement and does not count. What fails is
    /// reported and not tried again.
    async fn add(&mut self, query: Query, url: &str, first: u32, calls: u32) -> Result<()> {
        if self.error.is_some() {
            return Ok(());
        }
        let before = Reads::of(url).await?;
        // One pool for all, so that closing it ends every session.
        let pool = PgPoolOptions::new().max_connections(3).connect(url).await?;
        let store = Store::new(pool.clone());
        for number in 0..=calls {
            let start = Instant::now();
            self.n_calls += 1;
            if let Err(error) = query.call(&store, first + number).await {
                self.error = Some(format!("{error:#}"));
                break;
            }
            if number > 0 {
                self.times_ms.push(start.elapsed().as_secs_f64() * 1000.0);
            }
        }
        pool.close().await;
        self.reads = self.reads.plus(Reads::of(url).await?.since(before));
        Ok(())
    }

    fn line(&self, query: Query) -> Line {
        Line {
            workload: query.name().to_owned(),
            p50_ms: percentile(&self.times_ms, 0.5),
            p99_ms: percentile(&self.times_ms, 0.99),
            ..Line::default()
        }
    }

    fn plan(&self, query: Query, rows: u64) -> PlanCheck {
        let Self { n_calls: calls, reads, .. } = *self;
        PlanCheck { workload: query.name().to_owned(), rows, calls, reads, error: self.error.clone() }
    }
}
