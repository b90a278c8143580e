use std::ops::RangeInclusive;
use std::time::Duration;

/// How jobs are run.
#[derive(clap::Args, Clone, Debug)]
pub struct WorkerArgs {
    /// Jobs run at once, 1 to 256.
    #[arg(long, env = "JOBDECK_CONCURRENCY", default_value = "4", value_name = "N", value_parser = concurrency)]
    pub concurrency: usize,
    /// Seconds that running jobs get to end when the process stops, 0 to 3600; then they are handed back.
    #[arg(long, env = "JOBDECK_GRACE_SECS", default_value = "10", value_name = "SECONDS", value_parser = grace)]
    pub grace_secs: u64,
    /// Seconds a claim stays valid without a heartbeat, 2 to 3600.
    #[arg(long, env = "JOBDECK_LEASE_SECS", default_value = "15", value_name = "SECONDS", value_parser = lease)]
    pub lease_secs: u64,
    /// Seconds between heartbeats, 1 to 1200; at most a third of the lease.
    #[arg(long, env = "JOBDECK_HEARTBEAT_SECS", default_value = "3", value_name = "SECONDS", value_parser = heartbeat)]
    pub heartbeat_secs: u64,
}

/// Settings of the worker.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Jobs run at once.
    pub concurrency: usize,
    /// How long running jobs get to end when the process stops.
    pub grace: Duration,
    /// How long a claim stays valid without a heartbeat.
    pub lease: Duration,
    /// Time between heartbeats, at most a third of the lease.
    pub heartbeat_every: Duration,
}

impl TryFrom<WorkerArgs> for WorkerConfig {
    type Error = anyhow::Error;
    fn try_from(args: WorkerArgs) -> Result<Self, Self::Error> {
        anyhow::ensure!(
            args.heartbeat_secs * 3 <= args.lease_secs,
            "JOBDECK_HEARTBEAT_SECS is {}, but must be at most a third of JOBDECK_LEASE_SECS, which is {}",
            args.heartbeat_secs,
            args.lease_secs
        );
        Ok(Self {
            concurrency: args.concurrency,
            grace: Duration::from_secs(args.grace_secs),
            lease: Duration::from_secs(args.lease_secs),
            heartbeat_every: Duration::from_secs(args.heartbeat_secs),
        })
    }
}

fn concurrency(text: &str) -> Result<usize, String> {
    number("JOBDECK_CONCURRENCY", text, 1..=256)
}

fn grace(text: &str) -> Result<u64, String> {
    number("JOBDECK_GRACE_SECS", text, 0..=3600)
}

fn lease(text: &str) -> Result<u64, String> {
    number("JOBDECK_LEASE_SECS", text, 2..=3600)
}

fn heartbeat(text: &str) -> Result<u64, String> {
    number("JOBDECK_HEARTBEAT_SECS", text, 1..=1200)
}

/// Parses a number in a range, with an error that names the variable.
pub(super) fn number<T>(variable: &str, text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    text.parse()
        .ok()
        .filter(|value| range.contains(value))
        .ok_or_else(|| format!("{variable} must be a whole number from {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_variable_and_the_range() {
        let error = concurrency("0").unwrap_err();
        assert_eq!(error, "JOBDECK_CONCURRENCY must be a whole number from 1 to 256");
    }

    #[test]
    fn a_heartbeat_must_fit_three_times_into_the_lease() {
        let args =
            |lease_secs, heartbeat_secs| WorkerArgs { concurrency: 1, grace_secs: 0, lease_secs, heartbeat_secs };
        assert!(WorkerConfig::try_from(args(9, 3)).is_ok());
        assert!(WorkerConfig::try_from(args(8, 3)).unwrap_err().to_string().contains("JOBDECK_LEASE_SECS"));
    }
}
