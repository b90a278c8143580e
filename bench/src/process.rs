//! What the kernel knows of processes and of this machine, read from /proc.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Unit of the times in `/proc/PID/stat`: 1/100 s on every Linux, whatever the kernel's own tick (`man 5 proc_pid_stat`).
const TICK_US: f64 = 10_000.0;

/// The numbers of `/proc/PID/stat` that matter here.
#[derive(Debug, PartialEq)]
struct Stat {
    command: String,
    parent: u32,
    /// User and system time, in ticks.
    own: u64,
    /// The same of children that have ended and were waited for.
    ended_children: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The command stands in brackets and may hold blanks and brackets itself.
        let (head, tail) = text.rsplit_once(')')?;
        let fields: Vec<&str> = tail.split_whitespace().collect();
        // Field 3 of the manual page is the first here.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            command: head.split_once('(')?.1.to_owned(),
            parent: u32::try_from(number(4)?).ok()?,
            own: number(14)? + number(15)?,
            ended_children: number(16)? + number(17)?,
        })
    }
}

/// CPU time of one process so far, in microseconds.
pub(crate) fn cpu_us(pid: u32) -> Option<f64> {
    Some(Stat::read(pid)?.own as f64 * TICK_US)
}

/// CPU time so far of a server with all its processes, those that have ended included, in microseconds. Everything it does
/// meanwhile counts, autovacuum and checkpoints too.
pub(crate) fn server_cpu_us(postmaster: u32) -> Option<f64> {
    let server = Stat::read(postmaster)?;
    let children = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let child = Stat::read(entry.file_name().to_str()?.parse().ok()?)?;
        (child.parent == postmaster).then_some(child.own)
    });
    let ticks = server.own + server.ended_children + children.sum::<u64>();
    Some(ticks as f64 * TICK_US)
}

/// The process that started the session with this process id, if both are Postgres on this machine.
pub(crate) fn postmaster_of(backend: u32) -> Option<u32> {
    let is_postgres = |stat: &Stat| stat.command.starts_with("postgres");
    let parent = Stat::read(backend).filter(is_postgres)?.parent;
    Stat::read(parent).filter(is_postgres).map(|_| parent)
}

/// Most memory a process has had resident so far, in MiB.
pub(crate) fn peak_rss_mib(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(kib(&status, "VmHWM:")? / 1024.0)
}

fn kib(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// What the figures depend on.
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) n_cores: usize,
    pub(crate) memory_gib: f64,
    /// One-minute load average at the start: what else was running.
    pub(crate) load: String,
    /// Median and 99th percentile of writing 8 kB and waiting until the disk has them.
    pub(crate) fsync: (Duration, Duration),
}

impl Machine {
    pub(crate) fn read() -> Result<Self> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (cpuinfo, meminfo, load) = (read("/proc/cpuinfo"), read("/proc/meminfo"), read("/proc/loadavg"));
        let processor = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Ok(Self {
            processor: processor.map_or("unknown processor", |(_, name)| name).trim().to_owned(),
            n_cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: kib(&meminfo, "MemTotal:").unwrap_or_default() / (1024.0 * 1024.0),
            load: load.split_whitespace().next().unwrap_or("?").to_owned(),
            fsync: fsync_cost()?,
        })
    }
}

/// Overwrites 8 kB blocks of a file beside this program, each followed by fdatasync, as Postgres does with its log: what a
/// commit costs at least. At most 400 writes or 2 s.
fn fsync_cost() -> Result<(Duration, Duration)> {
    const BLOCK: usize = 8192;
    const BLOCKS: u64 = 400;
    let dir = std::env::current_exe()?.parent().map(Path::to_path_buf).unwrap_or_default();
    let path = dir.join(format!("fsync-{}", std::process::id()));
    let failed = || format!("cannot write {}", path.display());
    let file: File = OpenOptions::new().write(true).create(true).truncate(true).open(&path).with_context(failed)?;
    let measured = (|| {
        // Log files are made at full length before they are used: no write may have to grow the file.
        file.write_all_at(&vec![0; BLOCK * BLOCKS as usize], 0)?;
        file.sync_all()?;
        let (start, mut times) = (Instant::now(), Vec::new());
        for number in 0..BLOCKS {
            let write = Instant::now();
            file.write_all_at(&[1; BLOCK], number * BLOCK as u64)?;
            file.sync_data()?;
            times.push(write.elapsed());
            if start.elapsed() > Duration::from_secs(2) {
                break;
            }
        }
        times.sort();
        Ok::<_, std::io::Error>((times[times.len() / 2], times[times.len() * 99 / 100]))
    })();
    let _ = fs::remove_file(&path);
    measured.with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_whatever_the_command_holds() {
        let line = "42 (post) gres: x (y) S 7 42 42 0 -1 4194560 100 200 0 0 31 4 15 6 20 0 1 0 9999 1 2";
        let expected = Stat { command: "post) gres: x (y".to_owned(), parent: 7, own: 35, ended_children: 21 };
        assert_eq!(Stat::parse(line), Some(expected));
        assert_eq!(Stat::parse("42 (gone"), None);
    }

    #[test]
    fn own_process_has_time_and_memory() {
        assert!(cpu_us(std::process::id()).is_some());
        assert!(peak_rss_mib(std::process::id()).is_some_and(|mib| mib > 0.5));
        assert_eq!(postmaster_of(std::process::id()), None);
    }
}
