//! Whether a query reads a bounded part of the table, whatever its text: the server counts scans, index entries and blocks
//! per table (pg_stat, pg_statio), so the calls are made on connections of their own and counted from outside.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::{Connection as _, PgConnection};

use crate::report::thousands;

/// Most rows and index entries one call may read: a page has 51, a claim 10, and some dead entries come on top.
const MAX_ENTRIES: f64 = 1_000.0;
/// Below this many rows a scan of the whole table can be the right plan.
const SMALL: u64 = 100_000;

/// What the schema `jobdeck` has been read, since the database was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, sqlx::FromRow)]
pub(crate) struct Reads {
    /// Scans of the whole job table.
    seq_scans: i64,
    /// Rows read by scans of whole tables, and entries read from indexes.
    entries: i64,
    /// Blocks of tables and indexes.
    blocks: i64,
}

impl Reads {
    /// What is on record. A session's own reads are on record for sure once it has ended, so this waits for the others of the
    /// database to end.
    pub(crate) async fn of(url: &str) -> Result<Self> {
        let mut connection = PgConnection::connect(url).await?;
        let asked = Instant::now();
        loop {
            let others: i64 = sqlx::query_scalar(
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
                   and backend_type in ('client backend', 'parallel worker')",
            )
            .fetch_one(&mut connection)
            .await?;
            if others == 0 {
                break;
            }
            ensure!(asked.elapsed() < Duration::from_secs(10), "{others} sessions do not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let reads = sqlx::query_as(
            "select coalesce((select sum(seq_scan) from pg_stat_user_tables
                 where schemaname = 'jobdeck' and relname like 'jobs%'), 0)::bigint as seq_scans,
               (coalesce((select sum(seq_tup_read) from pg_stat_user_tables where schemaname = 'jobdeck'), 0)
                 + coalesce((select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = 'jobdeck'), 0))::bigint
                 as entries,
               coalesce((select sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))
                 from pg_statio_user_tables where schemaname = 'jobdeck'), 0)::bigint as blocks",
        )
        .fetch_one(&mut connection)
        .await?;
        connection.close().await?;
        Ok(reads)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            seq_scans: self.seq_scans + other.seq_scans,
            entries: self.entries + other.entries,
            blocks: self.blocks + other.blocks,
        }
    }

    pub(crate) fn since(self, start: Self) -> Self {
        Self {
            seq_scans: self.seq_scans - start.seq_scans,
            entries: self.entries - start.entries,
            blocks: self.blocks - start.blocks,
        }
    }
}

/// What one query read.
pub(crate) struct PlanCheck {
    pub(crate) workload: String,
    /// Finished jobs that were there.
    pub(crate) rows: u64,
    pub(crate) calls: u32,
    pub(crate) reads: Reads,
    /// Why it could not be measured.
    pub(crate) error: Option<String>,
}

impl PlanCheck {
    pub(crate) const HEADINGS: &[&str] = &["plans", "rows", "scans of jobs", "entries/call", "blocks/call", "verdict"];

    fn per_call(&self, number: i64) -> f64 {
        number as f64 / f64::from(self.calls.max(1))
    }

    /// Why this is no plan for a large table.
    pub(crate) fn problem(&self) -> Option<String> {
        if let Some(error) = &self.error {
            return Some(format!("FAILED: {error}"));
        }
        if self.rows < SMALL {
            return None;
        }
        if self.reads.seq_scans > 0 {
            return Some("SCANS the job table".to_owned());
        }
        (self.per_call(self.reads.entries) > MAX_ENTRIES).then(|| format!("UNBOUNDED: more than {MAX_ENTRIES} entries"))
    }

    pub(crate) fn cells(&self) -> Vec<String> {
        vec![
            self.workload.clone(),
            thousands(self.rows),
            self.reads.seq_scans.to_string(),
            format!("{:.1}", self.per_call(self.reads.entries)),
            format!("{:.1}", self.per_call(self.reads.blocks)),
            self.problem().unwrap_or_else(|| "bounded".to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: u64, seq_scans: i64, entries: i64, error: Option<&str>) -> Option<String> {
        let reads = Reads { seq_scans, entries, blocks: 0 };
        PlanCheck { workload: "x".to_owned(), rows, calls: 10, reads, error: error.map(str::to_owned) }.problem()
    }

    #[test]
    fn scans_and_unbounded_reads_are_problems_of_large_tables_only() {
        assert_eq!(check(1_000_000, 0, 510, None), None);
        assert_eq!(check(0, 10, 90_000, None), None);
        assert!(check(1_000_000, 1, 510, None).is_some_and(|problem| problem.starts_with("SCANS")));
        assert!(check(1_000_000, 0, 10_001, None).is_some_and(|problem| problem.starts_with("UNBOUNDED")));
        assert!(check(0, 0, 0, Some("timed out")).is_some_and(|problem| problem.ends_with("timed out")));
    }
}
