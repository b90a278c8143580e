//! Worker processes, started and signalled by their pid.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::worker::Settings;

/// A worker process. Killed when dropped.
pub(crate) struct WorkerProcess {
    child: Child,
}

impl WorkerProcess {
    pub(crate) fn start(queue: &str, ledger: &str, settings: &Settings) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let child = Command::new(program)
            .arg("worker")
            .args(settings.args())
            .env("JOBDECK_CHAOS_QUEUE", queue)
            .env("JOBDECK_CHAOS_LEDGER", ledger)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Hundreds of killed and panicking processes have nothing to say that a scenario does not count.
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start a worker process")?;
        Ok(Self { child })
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status()?;
        if !status.success() {
            bail!("kill -s {name} {} failed", self.child.id());
        }
        Ok(())
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        // An error means that it has ended already.
        let _ = self.child.kill();
        self.child.wait()?;
        Ok(())
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for the end and returns the exit code.
    pub(crate) async fn ended(&mut self, within: Duration) -> Result<Option<i32>> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            if begun.elapsed() > within {
                bail!("process {} did not end within {within:?}", self.child.id());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
