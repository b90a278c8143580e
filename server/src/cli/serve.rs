//! `serve`, `web` and `work`: runs until told to stop, then stops in order.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use jobdeck::{Store, Worker};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use super::users::new_setup_link;
use crate::config::{BaseUrl, DatabaseConfig, HttpArgs, HttpConfig, WorkerConfig};
use crate::database::Database;
use crate::http::serve;
use crate::job_types;
use crate::shutdown::{Shutdown, ShutdownTrigger};
use crate::state::AppState;
use crate::storage::FileStore;

/// How long open requests may take once the process stops. Event streams end at once.
const REQUEST_GRACE: Duration = Duration::from_secs(5);

/// Runs the halves that are asked for.
pub(super) async fn run(
    config: DatabaseConfig,
    http: Option<HttpArgs>,
    worker: Option<WorkerConfig>,
) -> anyhow::Result<()> {
    let (trigger, shutdown) = Shutdown::channel();
    // Before anything starts: a signal during the start must not leave a database server behind.
    listen_for_signals(trigger)?;
    // A wrong address should not cost the wait for a database.
    let listener = match &http {
        Some(args) => {
            let listener = TcpListener::bind(args.listen)
                .await
                .with_context(|| format!("cannot listen on {} (JOBDECK_LISTEN)", args.listen))?;
            Some((listener, args))
        }
        None => None,
    };
    let database = Database::open(&config).await?;
    let outcome = run_halves(&database, &config, listener, worker, &shutdown).await;
    let closed = database.close().await;
    outcome.and(closed)
}

async fn run_halves(
    database: &Database,
    config: &DatabaseConfig,
    http: Option<(TcpListener, &HttpArgs)>,
    worker: Option<WorkerConfig>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let mut halves: JoinSet<anyhow::Result<()>> = JoinSet::new();
    // Stops the other half when one fails.
    let (failed, one_failed) = Shutdown::channel();
    let stop = {
        let shutdown = shutdown.clone();
        move || {
            let (shutdown, one_failed) = (shutdown.clone(), one_failed.clone());
            async move {
                tokio::select! {
                    () = shutdown.requested() => {}
                    () = one_failed.requested() => {}
                }
            }
        }
    };
    // Dropped with this function, when both halves have ended.
    let mut background = JoinSet::new();
    if worker.is_none() {
        let (store, holder) = (database.store.clone(), format!("web-{}", uuid::Uuid::now_v7().simple()));
        // Workers do this by themselves; without one here, bulk operations must still go on.
        background.spawn(async move { jobdeck::maintain(store, &holder, false).await });
    }
    if let Some(worker_config) = worker {
        let worker = build_worker(database, config, &worker_config)?;
        let stop = stop();
        halves.spawn(async move { worker.run_until(stop).await.context("the worker could not start") });
    }
    if let Some((listener, args)) = http {
        let config_http = HttpConfig::new(args, listener.local_addr()?);
        let state = AppState::load(database.store.clone(), config_http, &config.data_dir, shutdown.clone()).await?;
        let base_url = state.config.base_url.clone();
        if !base_url.is_https() && !args.listen.ip().is_loopback() {
            tracing::warn!("people reach the deck without TLS: passwords and cookies can be read on the way");
        }
        let config_http = state.config.clone();
        let app = crate::router(state);
        let stop = stop();
        halves.spawn(async move {
            serve(listener, app, config_http, stop, REQUEST_GRACE).await;
            Ok(())
        });
        announce(&database.store, &base_url).await?;
    }
    let mut outcome = Ok(());
    while let Some(half) = halves.join_next().await {
        let half = half.context("a part of the process panicked").and_then(|half| half);
        if half.is_err() {
            failed.stop();
        }
        outcome = outcome.and(half);
    }
    outcome
}

fn build_worker(database: &Database, config: &DatabaseConfig, worker: &WorkerConfig) -> anyhow::Result<Worker> {
    let storage = FileStore::in_folder(&config.data_dir.join("files"))?;
    let builder = Worker::builder(database.store.clone(), &database.url)
        .queue("exports", worker.concurrency)
        .lease(worker.lease, worker.heartbeat_every)
        .grace(worker.grace);
    Ok(job_types::register(builder, storage).build()?)
}

/// Tells the address and, while nobody can sign in, the link for the first admin. On standard output only: whoever has the
/// link becomes admin, so it must not reach a log.
async fn announce(store: &Store, base_url: &BaseUrl) -> anyhow::Result<()> {
    let mut text = format!("Jobdeck is at {base_url}\n");
    if let Some(link) = new_setup_link(store, base_url).await? {
        text.push_str(&format!("First sign-in, works once within 15 minutes: {link}\n"));
        text.push_str("(`jobdeck users setup-link` prints a fresh one.)\n");
    }
    // A deck goes on without anyone who reads its output.
    if let Err(error) = std::io::stdout().write_all(text.as_bytes()) {
        tracing::warn!(%error, "cannot print the address");
    }
    Ok(())
}

/// The first SIGINT or SIGTERM starts the stop, the second ends the process as it is.
fn listen_for_signals(trigger: ShutdownTrigger) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        for is_first in [true, false] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if is_first {
                tracing::info!("stopping; a second signal stops at once");
                trigger.stop();
            } else {
                eprintln!("stopped at once");
                std::process::exit(130);
            }
        }
    });
    Ok(())
}
