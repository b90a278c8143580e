//! Writes successes in groups: all that end while one statement is under way go into the next. Under load that is one
//! transaction for dozens of jobs, and for a single job there is no wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::kept_connection::KeptConnection;
use crate::store::{Accepted, Completion, LeaseRef};
use crate::{LeaseLost, Store, StoreError};

/// Successes in one statement.
const MAX_GROUP: usize = 500;

/// Bytes of results from which on no further success joins a statement: what Postgres takes at once has a bound, and a try its time.
const FULL_GROUP_BYTES: usize = 4 << 20;

/// How long one try may take.
const WRITE_WITHIN: Duration = Duration::from_secs(10);

/// One success to be recorded, and who waits for the answer.
struct Request {
    completion: Completion,
    answer: oneshot::Sender<Result<Accepted, StoreError>>,
    /// An earlier try may still be committing, so that "not held" is not yet believed.
    unsure: bool,
}

/// Hands successes to the task that writes them. Cheap to clone; the task ends when the last one is dropped.
#[derive(Clone)]
pub(super) struct Completer {
    requests: mpsc::UnboundedSender<Request>,
}

impl Completer {
    /// Starts the task in `tasks`. `record_for` is how long a lost database is tried again.
    pub(super) fn start(tasks: &mut tokio::task::JoinSet<()>, store: Store, record_for: Duration) -> Self {
        let (requests, inbox) = mpsc::unbounded_channel();
        tasks.spawn(write(store, inbox, record_for));
        Self { requests }
    }

    /// Records a success, however often the database has to be asked.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if the execution no longer holds the job; what the database says if it refuses the
    /// result; a transient error if it stayed away.
    pub(super) async fn complete(
        &self,
        lease: LeaseRef,
        result: &Value,
        last_stage: Option<&str>,
    ) -> Result<Accepted, StoreError> {
        let completion = Completion::new(lease, result, last_stage)?;
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::from(sqlx::Error::WorkerCrashed);
        // Bounded by the executions that wait for an answer here.
        self.requests.send(Request { completion, answer, unsure: false }).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

async fn write(store: Store, mut inbox: mpsc::UnboundedReceiver<Request>, record_for: Duration) {
    let mut group: Vec<Request> = Vec::new();
    let mut pause = Duration::from_millis(50);
    let mut away_since: Option<Instant> = None;
    let mut connection = KeptConnection::default();
    loop {
        if group.is_empty() {
            match connection.release_unless_soon(inbox.recv()).await {
                Some(request) => group.push(request),
                None => return,
            }
        }
        let mut n_bytes: usize = group.iter().map(|request| request.completion.size()).sum();
        while group.len() < MAX_GROUP
            && n_bytes < FULL_GROUP_BYTES
            && let Ok(request) = inbox.try_recv()
        {
            n_bytes += request.completion.size();
            group.push(request);
        }
        match attempt(&store, &mut connection, &group).await {
            Ok(accepted) => {
                pause = Duration::from_millis(50);
                if let Some(since) = away_since.take() {
                    tracing::info!(away = ?since.elapsed(), "outcomes are recorded again");
                }
                group = settle(group, &accepted);
            }
            Err(error) if error.refuses_value() => {
                // One of them cannot be stored; the others must not wait for it.
                for mut request in std::mem::take(&mut group) {
                    match attempt(&store, &mut connection, std::slice::from_ref(&request)).await {
                        Ok(accepted) => group.extend(settle(vec![request], &accepted)),
                        Err(error) if error.refuses_value() => drop(request.answer.send(Err(error))),
                        Err(_) => {
                            request.unsure = true;
                            group.push(request);
                        }
                    }
                }
            }
            Err(error) => {
                let since = *away_since.get_or_insert_with(|| {
                    tracing::warn!(error = %crate::handler::chain(&error), "outcomes not recorded yet, trying again");
                    Instant::now()
                });
                if since.elapsed() > record_for {
                    // Their leases run out and they are reaped.
                    for request in group.drain(..) {
                        let _ = request.answer.send(Err(sqlx::Error::PoolTimedOut.into()));
                    }
                    away_since = None;
                }
                group.iter_mut().for_each(|request| request.unsure = true);
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
        }
    }
}

/// Answers all that are decided and returns those to be asked about once more.
fn settle(group: Vec<Request>, accepted: &HashMap<LeaseRef, Accepted>) -> Vec<Request> {
    let mut again = Vec::new();
    for mut request in group {
        let lease = request.completion.lease();
        match accepted.get(&lease) {
            Some(accepted) => drop(request.answer.send(Ok(*accepted))),
            None if request.unsure => {
                request.unsure = false;
                again.push(request);
            }
            None => drop(request.answer.send(Err(lost(lease)))),
        }
    }
    again
}

fn lost(lease: LeaseRef) -> StoreError {
    LeaseLost { job_id: lease.job_id, token: lease.token }.into()
}

async fn attempt(
    store: &Store,
    connection: &mut KeptConnection,
    group: &[Request],
) -> Result<HashMap<LeaseRef, Accepted>, StoreError> {
    let completions: Vec<&Completion> = group.iter().map(|request| &request.completion).collect();
    connection
        .run(store.pool(), WRITE_WITHIN, async |connection| Store::job_complete_many_on(connection, &completions).await)
        .await
}
