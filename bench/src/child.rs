//! A worker in a process of its own, as it runs in life: so that its CPU time and memory are its own, and it can be killed.

use std::io::Read as _;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jobdeck::{Ctx, JobError, JobId, Store, Worker};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::args::{self, WorkerArgs};
use crate::subject::{Noop, QUEUE, WORKER_CONNECTIONS, nap};

/// What the child prints, as one line of JSON, when its jobs have succeeded.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    /// The job that was started first.
    pub(crate) first_job: JobId,
    /// Executions that ended in any other way, or lost their lease.
    pub(crate) unsuccessful: u64,
}

/// The child's side: works until its standard input ends, that is, until the parent lets go or is gone.
pub(crate) async fn work(args: WorkerArgs) -> Result<()> {
    let url = args::database_url()?;
    let store = Store::connect(&url, WORKER_CONNECTIONS).await?;
    let first = Arc::new(OnceLock::new());
    let seen = first.clone();
    let worker = Worker::builder(store, &url)
        .name(&args.name)
        .register(move |ctx: Ctx, _: Noop| {
            seen.get_or_init(|| ctx.job_id());
            async { Ok::<(), JobError>(()) }
        })
        .register(nap)
        .queue(QUEUE, args.concurrency)
        // The finished rows it is measured with stay.
        .prunes(false)
        .build()?;

    if args.jobs > 0 {
        let metrics = worker.metrics();
        tokio::spawn(async move {
            while metrics.succeeded() < args.jobs {
                // Short against any drain, and next to nothing for the processor.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            if let Some(first_job) = first.get() {
                let done = Done { first_job: *first_job, unsuccessful: metrics.unsuccessful() + metrics.lease_lost() };
                println!("{}", serde_json::to_string(&done).unwrap_or_default());
            }
        });
    }
    let (stop, stopped) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = stop.send(());
    });
    Ok(worker.run_until(async { stopped.await.unwrap_or_default() }).await?)
}

/// The parent's side.
pub(crate) struct WorkerProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl WorkerProcess {
    /// Starts a worker and waits until it has registered.
    pub(crate) async fn start(url: &str, store: &Store, args: &WorkerArgs) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", &args.name, &args.concurrency.to_string(), &args.jobs.to_string()])
            .env(args::URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker")?;
        let lines = BufReader::new(child.stdout.take().context("the worker has no output")?).lines();
        let mut worker = Self { child, lines };
        while !store.worker_list().await?.iter().any(|info| info.name == args.name) {
            if let Some(status) = worker.child.try_wait()? {
                bail!("worker {} ended at once ({status})", args.name);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(worker)
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        self.child.id().context("the worker has ended")
    }

    /// Waits until its jobs have succeeded; gives up after `limit`.
    pub(crate) async fn done(&mut self, limit: Duration) -> Result<Done> {
        let line = tokio::time::timeout(limit, self.lines.next_line())
            .await
            .with_context(|| format!("the jobs were not done within {limit:?}"))??
            .context("the worker ended before its jobs were done")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Stops it in order.
    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = tokio::time::timeout(Duration::from_secs(20), self.child.wait())
            .await
            .context("the worker did not stop within 20 s")??;
        if !status.success() {
            bail!("the worker failed ({status})");
        }
        Ok(())
    }

    /// `kill -9`
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}
