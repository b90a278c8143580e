//! The command line, read by hand: this program measures memory, and what it does not link it does not have to subtract.

use anyhow::{Context, Result, bail};

/// Names the server to measure on: a database of a role that may create others, on this machine.
pub(crate) const URL: &str = "JOBDECK_BENCH_DATABASE_URL";

pub(crate) const HELP: &str = "\
Measures Jobdeck beside the same work in plain SQL. JOBDECK_BENCH_DATABASE_URL names the server.

  --quick       fewer rounds and jobs, no history of 10 million; about two minutes
  --json        one object a line on standard output; all else goes to standard error
  --only NAME   only this workload; may be given several times:
                enqueue-one enqueue-bulk drain-50 drain-10 pickup memory-50 recovery history
  --rows N      finished rows of `history`; may be given several times, in growing order
                [default: 1000000 and 10000000; with --quick 1000000]
  --jobs N      jobs a round of the drains; the others follow [default: 20000; with --quick 10000]
  --rounds N    pairs of each workload [default: 5; with --quick 3]
";

/// All workloads, in the order they run.
pub(crate) const WORKLOADS: [&str; 8] =
    ["enqueue-one", "enqueue-bulk", "drain-50", "drain-10", "pickup", "memory-50", "recovery", "history"];

/// What this process is to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Mode {
    Help,
    Measure(Args),
    /// Work jobs, as a child of the process that measures.
    Worker(WorkerArgs),
}

/// How much to measure.
#[derive(Debug, PartialEq)]
pub(crate) struct Args {
    pub(crate) json: bool,
    /// Chosen workloads; empty means all.
    pub(crate) only: Vec<String>,
    /// Pairs of each workload.
    pub(crate) rounds: usize,
    /// Jobs a round of `drain-*`.
    pub(crate) drain_jobs: u32,
    /// Jobs a round of `enqueue-bulk`.
    pub(crate) bulk_jobs: u32,
    /// Jobs a round of `enqueue-one`.
    pub(crate) single_jobs: u32,
    /// Jobs of `pickup`, 100 a second.
    pub(crate) pickup_jobs: u32,
    /// Calls a round of each query of `history`.
    pub(crate) calls: u32,
    /// Finished rows that are there before `history` measures, growing.
    pub(crate) history: Vec<u64>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct WorkerArgs {
    pub(crate) name: String,
    pub(crate) concurrency: usize,
    /// Reports once this many jobs have succeeded; 0 means never.
    pub(crate) jobs: u64,
}

impl Args {
    pub(crate) fn wants(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == workload)
    }
}

/// The server's address, from the environment: it holds a password, which others could read on a command line.
pub(crate) fn database_url() -> Result<String> {
    std::env::var(URL).with_context(|| format!("{URL} is not set: `cargo xtask bench` starts a server and sets it"))
}

impl Mode {
    /// # Errors
    /// Names the argument that makes no sense.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut given = Given::default();
        let mut worker = None;
        while let Some(name) = args.next() {
            let mut value = || args.next().with_context(|| format!("{name} needs a value"));
            match name.as_str() {
                "--help" | "-h" => return Ok(Self::Help),
                "--quick" => given.quick = true,
                "--json" => given.json = true,
                "--only" => given.only.push(value()?),
                "--rows" => given.rows.push(number(&name, &value()?)?),
                "--jobs" => given.jobs = Some(number(&name, &value()?)?),
                "--rounds" => given.rounds = Some(number(&name, &value()?)?),
                // name, concurrency, jobs
                "worker" => {
                    let name = value()?;
                    let concurrency = number("concurrency", &value()?)?;
                    worker = Some(WorkerArgs { name, concurrency, jobs: number("jobs", &value()?)? });
                }
                _ => bail!("unknown argument {name:?}; --help lists them"),
            }
        }
        Ok(match worker {
            Some(worker) => Self::Worker(worker),
            None => Self::Measure(given.resolve()?),
        })
    }
}

#[derive(Default)]
struct Given {
    quick: bool,
    json: bool,
    only: Vec<String>,
    rows: Vec<u64>,
    jobs: Option<u32>,
    rounds: Option<usize>,
}

impl Given {
    fn resolve(self) -> Result<Args> {
        if let Some(name) = self.only.iter().find(|name| !WORKLOADS.contains(&name.as_str())) {
            bail!("no workload {name:?}; there are {}", WORKLOADS.join(", "));
        }
        if !self.rows.is_sorted() {
            bail!("--rows must be given in growing order: the table only grows");
        }
        if self.jobs == Some(0) || self.rounds == Some(0) {
            bail!("--jobs and --rounds must be at least 1");
        }
        let (rounds, jobs, bulk, single, pickup, calls) =
            if self.quick { (3, 10_000, 30_000, 2_400, 400, 20) } else { (5, 20_000, 100_000, 8_000, 2_000, 60) };
        let history = match (self.rows.is_empty(), self.quick) {
            (false, _) => self.rows,
            (true, true) => vec![1_000_000],
            (true, false) => vec![1_000_000, 10_000_000],
        };
        Ok(Args {
            json: self.json,
            only: self.only,
            rounds: self.rounds.unwrap_or(rounds),
            drain_jobs: self.jobs.unwrap_or(jobs),
            bulk_jobs: self.jobs.unwrap_or(bulk),
            single_jobs: self.jobs.map_or(single, |jobs| jobs.div_ceil(5)),
            pickup_jobs: self.jobs.map_or(pickup, |jobs| jobs.min(pickup)),
            calls,
            history,
        })
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T> {
    text.replace('_', "").parse().ok().with_context(|| format!("{name} needs a number, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Mode> {
        Mode::parse(line.split_whitespace().map(str::to_owned))
    }

    fn args(line: &str) -> Args {
        match parse(line) {
            Ok(Mode::Measure(args)) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn quick_leaves_ten_million_out_unless_asked() {
        assert_eq!(args("").history, [1_000_000, 10_000_000]);
        assert_eq!(args("--quick").history, [1_000_000]);
        assert_eq!(args("--quick --rows 5 --rows 10_000_000").history, [5, 10_000_000]);
    }

    #[test]
    fn only_names_workloads_that_are_there() {
        let args = args("--only pickup --only drain-10");
        assert!(args.wants("pickup") && args.wants("drain-10") && !args.wants("history"));
        assert!(parse("--only drain").unwrap_err().to_string().contains("drain-50"));
    }

    #[test]
    fn senseless_numbers_are_refused() {
        for line in ["--rows many", "--rows", "--jobs 0", "--rounds 0", "--rows 9 --rows 3", "--fast", "worker a 1"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
