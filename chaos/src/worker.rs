//! The process that is killed: a real worker whose handler writes what it does into the ledger, which is a database of its own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jobdeck::{Backoff, Ctx, IdempotencyKey, JobError, JobType, Policy, Store, Worker};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ledger::Ledger;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Deed {
    /// Sleeps.
    Sleep,
    /// Keeps a thread busy without awaiting.
    Spin,
    /// Kills its process.
    Abort,
    /// Ends its process by recursion without end.
    Overflow,
    /// Panics.
    Panic,
    /// Fails and may be tried again.
    Fail,
    /// Never ends, and does not heed a cancel.
    Forever,
}

/// A job whose start and effects are counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Errand {
    pub(crate) n: i64,
    pub(crate) deed: Deed,
    pub(crate) ms: u64,
}

impl Errand {
    pub(crate) fn sleeping(n: i64, ms: u64) -> Self {
        Self { n, deed: Deed::Sleep, ms }
    }
}

impl JobType for Errand {
    const TYPE: &'static str = "errand";
    fn policy() -> Policy {
        Policy {
            queue: "errands".to_owned(),
            max_attempts: 25,
            // Kills by the hundred are not the jobs' doing.
            max_stalled: 1000,
            backoff: Backoff::Fixed(Duration::from_millis(200)),
            ..Policy::default()
        }
    }
}

/// As [`Errand`], with a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeyedErrand {
    pub(crate) key: String,
}

impl JobType for KeyedErrand {
    const TYPE: &'static str = "keyed_errand";
    fn policy() -> Policy {
        // A claim whose reply is lost is a stall.
        Policy { max_stalled: 1000, ..Policy::in_queue("errands") }
    }
    fn idempotency_key(&self) -> Option<IdempotencyKey> {
        Some(IdempotencyKey::of(&[&self.key]))
    }
}

/// As [`Errand`], with the default of three stalls and a limit of two seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RiskyErrand {
    pub(crate) n: i64,
    pub(crate) deed: Deed,
    pub(crate) ms: u64,
}

impl JobType for RiskyErrand {
    const TYPE: &'static str = "risky_errand";
    fn policy() -> Policy {
        Policy {
            queue: "errands".to_owned(),
            timeout: Duration::from_secs(2),
            max_attempts: 2,
            backoff: Backoff::Fixed(Duration::from_secs(1)),
            ..Policy::default()
        }
    }
}

/// Settings of one worker process, as arguments.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) slots: usize,
    pub(crate) threads: usize,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    pub(crate) grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 8,
            threads: 2,
            lease: Duration::from_secs(5),
            poll: Duration::from_secs(2),
            grace: Duration::from_secs(10),
        }
    }
}

impl Settings {
    pub(crate) fn args(&self) -> Vec<String> {
        let millis = |duration: Duration| duration.as_millis().to_string();
        vec![
            self.slots.to_string(),
            self.threads.to_string(),
            millis(self.lease),
            millis(self.poll),
            millis(self.grace),
        ]
    }

    fn parse(args: impl Iterator<Item = String>) -> Result<Self> {
        let numbers: Vec<u64> = args.map(|arg| arg.parse().context("worker takes numbers")).collect::<Result<_>>()?;
        let [slots, threads, lease, poll, grace] = numbers[..] else { bail!("worker takes 5 numbers") };
        Ok(Self {
            slots: slots as usize,
            threads: threads as usize,
            lease: Duration::from_millis(lease),
            poll: Duration::from_millis(poll),
            grace: Duration::from_millis(grace),
        })
    }
}

/// Runs until SIGTERM. `JOBDECK_CHAOS_QUEUE` and `JOBDECK_CHAOS_LEDGER` name the two databases.
pub(crate) fn main(args: impl Iterator<Item = String>) -> Result<()> {
    let settings = Settings::parse(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(settings.threads).enable_all().build()?;
    runtime.block_on(work(settings))
}

async fn work(settings: Settings) -> Result<()> {
    let queue = std::env::var("JOBDECK_CHAOS_QUEUE").context("JOBDECK_CHAOS_QUEUE is not set")?;
    let ledger =
        Ledger::open(&std::env::var("JOBDECK_CHAOS_LEDGER").context("JOBDECK_CHAOS_LEDGER is not set")?).await?;
    let store = Store::connect_lazy(&queue, 8)?;
    let heartbeat = (settings.lease / 5).min(Duration::from_secs(3));
    let handler = move |ledger: Ledger, n: i64, deed: Deed, ms: u64| async move { perform(ledger, n, deed, ms).await };
    let (one, other, third) = (ledger.clone(), ledger.clone(), ledger);
    let worker = Worker::builder(store, &queue)
        .lease(settings.lease, heartbeat)
        .poll_every(settings.poll)
        .grace(settings.grace)
        .register(move |ctx: Ctx, job: Errand| {
            let ledger = one.clone();
            async move {
                ledger.note_start(&ctx, job.n).await?;
                handler(ledger, job.n, job.deed, job.ms).await?;
                Ok(answer(&ctx))
            }
        })
        .register(move |ctx: Ctx, job: RiskyErrand| {
            let ledger = other.clone();
            async move {
                ledger.note_start(&ctx, job.n).await?;
                handler(ledger, job.n, job.deed, job.ms).await?;
                Ok(answer(&ctx))
            }
        })
        .register(move |ctx: Ctx, _: KeyedErrand| {
            let ledger = third.clone();
            async move {
                ledger.note_start(&ctx, 0).await?;
                Ok(answer(&ctx))
            }
        })
        .queue("errands", settings.slots)
        .build()?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    worker
        .run_until(async move {
            terminate.recv().await;
        })
        .await?;
    Ok(())
}

/// The token that ran, so that a scenario sees whose result was kept.
fn answer(ctx: &Ctx) -> Value {
    json!({"token": ctx.token()})
}

async fn perform(ledger: Ledger, n: i64, deed: Deed, ms: u64) -> Result<(), JobError> {
    match deed {
        Deed::Sleep => tokio::time::sleep(Duration::from_millis(ms)).await,
        Deed::Spin => {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(ms) {
                std::hint::spin_loop();
            }
        }
        Deed::Abort => std::process::abort(),
        Deed::Overflow => {
            std::hint::black_box(recurse(std::hint::black_box(1)));
        }
        Deed::Panic => panic!("errand {n} panics: {}", "p".repeat(20_000)),
        Deed::Fail => return Err(JobError::retryable("connection", "x\0\u{1b}[31m".repeat(10_000))),
        Deed::Forever => loop {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        },
    }
    ledger.note_effect(n).await
}

#[expect(unconditional_recursion, reason = "a stack overflow is wanted")]
fn recurse(depth: u64) -> u64 {
    let frame = [depth; 64];
    std::hint::black_box(&frame);
    recurse(depth + 1) + std::hint::black_box(frame[3])
}
