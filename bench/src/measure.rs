//! Rounds, medians and percentiles.

use std::time::{Duration, Instant};

use crate::process;

/// CPU time of one process and of the server, at one moment or spent between two, in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Cpu {
    process: Option<f64>,
    postgres: Option<f64>,
}

impl Cpu {
    pub(crate) fn read(process: u32, postmaster: Option<u32>) -> Self {
        Self { process: process::cpu_us(process), postgres: postmaster.and_then(process::server_cpu_us) }
    }

    fn since(self, start: Self) -> Self {
        let spent = |now: Option<f64>, then: Option<f64>| Some((now? - then?).max(0.0));
        Self { process: spent(self.process, start.process), postgres: spent(self.postgres, start.postgres) }
    }
}

/// One round of one side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) per_s: f64,
    /// CPU time per job of the process that does the work.
    pub(crate) cpu_us_worker: Option<f64>,
    /// CPU time per job of the server, all its processes.
    pub(crate) cpu_us_postgres: Option<f64>,
    pub(crate) rss_mib: Option<f64>,
}

impl Sample {
    pub(crate) fn new(jobs: u32, took: Duration, start: Cpu, end: Cpu) -> Self {
        let jobs = f64::from(jobs);
        let spent = end.since(start);
        Self {
            per_s: jobs / took.as_secs_f64(),
            cpu_us_worker: spent.process.map(|us| us / jobs),
            cpu_us_postgres: spent.postgres.map(|us| us / jobs),
            rss_mib: None,
        }
    }
}

/// Measures work that this process does itself.
pub(crate) struct Stopwatch {
    postmaster: Option<u32>,
    cpu: Cpu,
    start: Instant,
}

impl Stopwatch {
    pub(crate) fn start(postmaster: Option<u32>) -> Self {
        Self { postmaster, cpu: Cpu::read(std::process::id(), postmaster), start: Instant::now() }
    }

    pub(crate) fn stop(self, jobs: u32) -> Sample {
        let took = self.start.elapsed();
        Sample::new(jobs, took, self.cpu, Cpu::read(std::process::id(), self.postmaster))
    }
}

/// All rounds of one side.
#[derive(Default)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

impl Samples {
    /// The median of each figure by itself.
    pub(crate) fn median(&self) -> Sample {
        let of = |figure: fn(&Sample) -> Option<f64>| median(self.0.iter().filter_map(figure).collect());
        Sample {
            per_s: of(|sample| Some(sample.per_s)).unwrap_or_default(),
            cpu_us_worker: of(|sample| sample.cpu_us_worker),
            cpu_us_postgres: of(|sample| sample.cpu_us_postgres),
            rss_mib: of(|sample| sample.rss_mib),
        }
    }
}

/// The middle value; of an even number, the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// The smallest of the values that `share` of all do not exceed (nearest rank).
pub(crate) fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(vec![9.0, 1.0, 4.0, 6.0]), Some(5.0));
    }

    #[test]
    fn percentile_is_by_nearest_rank() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), Some(50.0));
        assert_eq!(percentile(&values, 0.99), Some(99.0));
        assert_eq!(percentile(&[7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn unknown_cpu_time_stays_unknown() {
        let (known, unknown) = (Cpu { process: Some(5.0), postgres: Some(2.0) }, Cpu { process: None, postgres: None });
        let sample = Sample::new(10, Duration::from_secs(2), unknown, known);
        assert_eq!((sample.per_s, sample.cpu_us_worker, sample.cpu_us_postgres), (5.0, None, None));
    }
}
