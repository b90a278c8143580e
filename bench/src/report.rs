//! What is printed: one object a line, or a table with each figure beside what it must and should be.

use serde::Serialize;

use crate::plans::PlanCheck;
use crate::process::Machine;
use crate::server::Facts;

/// One figure of one workload. Null where it does not apply.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Line {
    pub(crate) workload: String,
    pub(crate) jobdeck_per_s: Option<f64>,
    /// Plain SQL; of `history-drain`, Jobdeck's own rate on an empty table.
    pub(crate) floor_per_s: Option<f64>,
    /// Rates: Jobdeck / floor, higher is better. Queries of `history`: time / time on an empty table, lower is better.
    pub(crate) ratio: Option<f64>,
    /// Per job: of the worker's process, or of the one that enqueues.
    pub(crate) cpu_us_worker: Option<f64>,
    /// Per job: of the server with all its processes.
    pub(crate) cpu_us_postgres: Option<f64>,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) rss_mib: Option<f64>,
    /// Finished jobs that were there before.
    pub(crate) rows: u64,
    /// CPU time per job of the floor, both processes; for the table.
    #[serde(skip)]
    pub(crate) floor_cpu_us: Option<f64>,
}

impl Line {
    fn cpu_us(&self) -> Option<f64> {
        Some(self.cpu_us_worker? + self.cpu_us_postgres?)
    }
}

/// A figure that has a target.
#[derive(Clone, Copy)]
enum Figure {
    Ratio,
    TimeRatio,
    CpuUs,
    P50Ms,
    P99Ms,
    RssMib,
}

impl Figure {
    fn of(self, line: &Line) -> Option<f64> {
        match self {
            Self::Ratio | Self::TimeRatio => line.ratio,
            Self::CpuUs => line.cpu_us(),
            Self::P50Ms => line.p50_ms,
            Self::P99Ms => line.p99_ms,
            Self::RssMib => line.rss_mib,
        }
    }

    fn is_met(self, value: f64, bound: f64) -> bool {
        if matches!(self, Self::Ratio) { value >= bound } else { value <= bound }
    }

    fn text(self, bound: f64) -> String {
        match self {
            Self::Ratio => format!("≥ {bound}"),
            Self::TimeRatio => format!("≤ {bound} ×"),
            Self::CpuUs => format!("≤ {bound} µs"),
            Self::P50Ms => format!("p50 ≤ {bound} ms"),
            Self::P99Ms => format!("p99 ≤ {bound} ms"),
            Self::RssMib => format!("≤ {bound} MiB"),
        }
    }
}

/// What a figure must and should be.
struct Target(Figure, f64, Option<f64>);

fn targets(line: &Line) -> Vec<Target> {
    use Figure::{CpuUs, P50Ms, P99Ms, Ratio, RssMib, TimeRatio};
    match line.workload.as_str() {
        "enqueue-one" => vec![Target(Ratio, 0.85, Some(0.95))],
        "enqueue-bulk" => vec![Target(Ratio, 0.4, Some(0.7))],
        "drain-50" => vec![Target(Ratio, 0.5, Some(0.75)), Target(CpuUs, 75.0, Some(55.0))],
        "drain-10" => vec![Target(Ratio, 0.35, Some(0.6))],
        "pickup" => vec![Target(P50Ms, 3.0, None), Target(P99Ms, 10.0, Some(5.0))],
        "memory-50" => vec![Target(RssMib, 40.0, Some(20.0))],
        "recovery" => vec![Target(P99Ms, 17_000.0, Some(16_000.0))],
        "history-drain" if line.rows <= 1_000_000 => vec![Target(Ratio, 0.8, Some(0.95))],
        "history-drain" => vec![Target(Ratio, 0.7, Some(0.95))],
        name if name.starts_with("history-") && line.rows > 0 => vec![Target(TimeRatio, 2.0, None)],
        _ => vec![],
    }
}

/// `aim`, `must` or `MISSED`; nothing where there is no target or no figure.
fn reached(line: &Line) -> &'static str {
    let mut word = "";
    for Target(figure, must, aim) in targets(line) {
        let Some(value) = figure.of(line) else { return "MISSED" };
        if !figure.is_met(value, must) {
            return "MISSED";
        }
        let aims = aim.is_none_or(|aim| figure.is_met(value, aim));
        word = if aims && word != "must" { "aim" } else { "must" };
    }
    word
}

/// Collects lines and prints them.
pub(crate) struct Report {
    json: bool,
    lines: Vec<Line>,
    plans: Vec<PlanCheck>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, lines: Vec::new(), plans: Vec::new() }
    }

    /// The machine and the server, always before anything is measured.
    pub(crate) fn header(&self, facts: &Facts, machine: &Machine) {
        let Machine { processor, n_cores, memory_gib, load, fsync: (median, slowest) } = machine;
        let settings: Vec<String> = facts.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.say(&format!("machine   {processor}, {n_cores} cores, {memory_gib:.1} GiB, load {load} at start"));
        self.say(&format!(
            "disk      8 kB write + fdatasync: median {} µs, p99 {} µs",
            median.as_micros(),
            slowest.as_micros()
        ));
        self.say(&format!("postgres  {}, {}", facts.version, settings.join(" ")));
        let mode = if cfg!(debug_assertions) { ", DEBUG BUILD: figures mean nothing" } else { "" };
        self.say(&format!("jobdeck   {}{mode}\n", env!("CARGO_PKG_VERSION")));
    }

    /// With `--json` an object is printed as soon as it is known.
    pub(crate) fn add(&mut self, line: Line) {
        if self.json {
            // A struct of texts and numbers cannot fail to serialise.
            println!("{}", serde_json::to_string(&rounded(&line)).unwrap_or_default());
        }
        self.lines.push(line);
    }

    pub(crate) fn add_plan(&mut self, plan: PlanCheck) {
        self.plans.push(plan);
    }

    /// Prints the tables and says whether every plan was as it should be.
    pub(crate) fn finish(&self) -> bool {
        let rows: Vec<Vec<String>> = self.lines.iter().map(cells).collect();
        self.say(&format!("\n{}", table(HEADINGS, TEXT_COLUMNS, &rows)));
        if !self.plans.is_empty() {
            let rows: Vec<Vec<String>> = self.plans.iter().map(PlanCheck::cells).collect();
            self.say(&format!("\n{}", table(PlanCheck::HEADINGS, &[0, 5], &rows)));
        }
        self.plans.iter().all(|plan| plan.problem().is_none())
    }

    fn say(&self, text: &str) {
        if self.json { eprintln!("{text}") } else { println!("{text}") }
    }
}

const HEADINGS: &[&str] = &[
    "workload",
    "rows",
    "jobdeck/s",
    "floor/s",
    "ratio",
    "must",
    "aim",
    "reached",
    "worker µs",
    "postgres µs",
    "floor µs",
    "p50 ms",
    "p99 ms",
    "MiB",
];
/// Left-aligned; numbers stand right.
const TEXT_COLUMNS: &[usize] = &[0, 5, 6, 7];

fn cells(line: &Line) -> Vec<String> {
    let number = |value: Option<f64>, digits: usize| value.map_or(String::new(), |value| format!("{value:.digits$}"));
    let bounds = |bound: fn(&Target) -> Option<f64>| {
        let texts = targets(line).into_iter().filter_map(|target| Some(target.0.text(bound(&target)?)));
        texts.collect::<Vec<_>>().join(", ")
    };
    vec![
        line.workload.clone(),
        thousands(line.rows),
        number(line.jobdeck_per_s, 0),
        number(line.floor_per_s, 0),
        number(line.ratio, 2),
        bounds(|target| Some(target.1)),
        bounds(|target| target.2),
        reached(line).to_owned(),
        number(line.cpu_us_worker, 1),
        number(line.cpu_us_postgres, 1),
        number(line.floor_cpu_us, 1),
        number(line.p50_ms, 2),
        number(line.p99_ms, 2),
        number(line.rss_mib, 1),
    ]
}

/// Columns as wide as their widest cell, two blanks apart.
fn table(headings: &[&str], text_columns: &[usize], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let draw = |cells: Vec<&str>| {
        let cells = cells.into_iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if text_columns.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![draw(headings.to_vec())];
    lines.extend(rows.iter().map(|row| draw(row.iter().map(String::as_str).collect())));
    lines.join("\n")
}

/// `12,345,678`
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// Three decimals: more would be noise.
fn rounded(line: &Line) -> Line {
    let round = |value: Option<f64>| value.map(|value| (value * 1000.0).round() / 1000.0);
    Line {
        jobdeck_per_s: round(line.jobdeck_per_s),
        floor_per_s: round(line.floor_per_s),
        ratio: round(line.ratio),
        cpu_us_worker: round(line.cpu_us_worker),
        cpu_us_postgres: round(line.cpu_us_postgres),
        p50_ms: round(line.p50_ms),
        p99_ms: round(line.p99_ms),
        rss_mib: round(line.rss_mib),
        ..line.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(workload: &str) -> Line {
        Line { workload: workload.to_owned(), ..Line::default() }
    }

    #[test]
    fn json_has_exactly_the_promised_fields() {
        let json = serde_json::to_string(&Line { ratio: Some(0.123_456), ..line("drain-50") }).unwrap();
        assert_eq!(
            json,
            r#"{"workload":"drain-50","jobdeck_per_s":null,"floor_per_s":null,"ratio":0.123456,"cpu_us_worker":null,"cpu_us_postgres":null,"p50_ms":null,"p99_ms":null,"rss_mib":null,"rows":0}"#
        );
    }

    #[test]
    fn the_worst_figure_decides_what_is_reached() {
        let drain = |ratio, cpu| Line {
            ratio: Some(ratio),
            cpu_us_worker: Some(20.0),
            cpu_us_postgres: Some(cpu - 20.0),
            ..line("drain-50")
        };
        assert_eq!(reached(&drain(0.8, 50.0)), "aim");
        assert_eq!(reached(&drain(0.8, 70.0)), "must");
        assert_eq!(reached(&drain(0.6, 50.0)), "must");
        assert_eq!(reached(&drain(0.8, 76.0)), "MISSED");
        assert_eq!(reached(&drain(0.4, 50.0)), "MISSED");
        assert_eq!(reached(&line("drain-50")), "MISSED");
        assert_eq!(reached(&line("pickup-commit")), "");
    }

    #[test]
    fn more_rows_have_a_lower_bar_and_queries_are_compared_by_time() {
        let history = |workload: &str, rows, ratio| Line { rows, ratio: Some(ratio), ..line(workload) };
        assert_eq!(reached(&history("history-drain", 1_000_000, 0.75)), "MISSED");
        assert_eq!(reached(&history("history-drain", 10_000_000, 0.75)), "must");
        assert_eq!(reached(&history("history-claim", 10_000_000, 1.9)), "aim");
        assert_eq!(reached(&history("history-claim", 10_000_000, 2.1)), "MISSED");
    }

    #[test]
    fn columns_are_aligned_whatever_letters_they_hold() {
        let rows =
            [vec!["a".to_owned(), "≤ 5 µs".to_owned(), "12".to_owned()], vec!["bcd".into(), "".into(), "1".into()]];
        assert_eq!(table(&["n", "must", "ms"], &[0, 1], &rows), "n    must    ms\na    ≤ 5 µs  12\nbcd           1");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(12), "12");
    }
}
