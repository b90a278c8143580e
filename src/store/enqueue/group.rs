//! Group commit for callers that enqueue one job each at the same time.
//!
//! A transaction for each job costs more than the job: a round trip, a commit, a look at the rules. So at most [`MAX_FLIGHTS`]
//! statements of this kind are under way at once, and callers that come meanwhile go together with the next. Nobody waits for
//! company: with few callers each has a statement of its own, at once.
//!
//! Jobs with a key go alone, because one whose key another transaction holds would keep the others waiting.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};
use tokio::sync::oneshot;

use super::{Commit, Row};
use crate::JobId;

/// Statements under way at once: while one commits, the next collects and runs.
const MAX_FLIGHTS: usize = 2;
/// Most jobs of one statement.
const MAX_JOBS: usize = 256;
/// Most bytes of payload of one statement, unless one job alone has more.
const MAX_BYTES: usize = 1024 * 1024;

/// Shared by all clones of a store.
#[derive(Debug, Default)]
pub(in crate::store) struct EnqueueGroup {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    flights: usize,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    row: Box<Row>,
    reply: oneshot::Sender<Landed>,
}

/// What became of a job that went with others.
#[derive(Debug)]
pub(super) enum Landed {
    /// It is in the queue.
    Enqueued(JobId),
    /// The database refused the statement and nothing was written. Another job may be the cause, so this one is tried alone.
    Refused(Box<Row>),
    /// The statement failed otherwise. Whether its jobs are there is not known.
    Failed(sqlx::Error),
}

/// How a caller goes on.
pub(super) enum Entered {
    /// Alone, with a statement of its own on the flight's connection.
    Alone(Box<Row>, Flight),
    /// With the next statement, whose end it waits for.
    Together(oneshot::Receiver<Landed>),
}

impl EnqueueGroup {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter(self: &Arc<Self>, row: Box<Row>, pool: &PgPool) -> Entered {
        let mut state = self.lock();
        if state.flights < MAX_FLIGHTS {
            state.flights += 1;
            return Entered::Alone(row, Flight { group: self.clone(), pool: pool.clone(), connection: None });
        }
        let (reply, landed) = oneshot::channel();
        state.waiting.push(Waiting { row, reply });
        Entered::Together(landed)
    }
}

impl State {
    /// The callers that go next, in the order they came.
    fn next(&mut self) -> Vec<Waiting> {
        // Nobody waits for an answer any more, so nothing was promised.
        self.waiting.retain(|waiting| !waiting.reply.is_closed());
        let mut bytes = 0;
        let fitting = self.waiting.iter().take(MAX_JOBS).take_while(|waiting| {
            let is_first = bytes == 0;
            bytes += waiting.row.payload.len();
            is_first || bytes <= MAX_BYTES
        });
        let n = fitting.count();
        self.waiting.drain(..n).collect()
    }
}

/// The right to have a statement under way. When it ends, those who wait go.
pub(super) struct Flight {
    group: Arc<EnqueueGroup>,
    pool: PgPool,
    /// Handed on from statement to statement: the pool asks a connection that is given back whether it still answers, which costs as
    /// much as a small statement.
    connection: Option<PoolConnection<Postgres>>,
}

impl Flight {
    /// Runs one statement. A connection on which it failed, or was given up, goes back to the pool.
    pub(super) async fn run<T>(
        &mut self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.pool.acquire().await?,
        };
        let answer = statement(&mut connection).await?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut state = self.group.lock();
        // Without a runtime nothing can go any more: those who wait learn it from their closed channel.
        let runtime = tokio::runtime::Handle::try_current();
        let batch = if runtime.is_ok() { state.next() } else { std::mem::take(&mut state.waiting) };
        let Some(runtime) = runtime.ok().filter(|_| !batch.is_empty()) else {
            state.flights -= 1;
            return;
        };
        drop(state);
        // The next one inherits the place, so that the number of flights stays as it is.
        let flight = Self { group: self.group.clone(), pool: self.pool.clone(), connection: self.connection.take() };
        // A task of its own: the caller whose statement has just ended does not wait for others', and none of them, given up
        // meanwhile, takes the rest with it.
        runtime.spawn(async move { flight.carry(batch).await });
    }
}

impl Flight {
    async fn carry(mut self, batch: Vec<Waiting>) {
        let (rows, replies): (Vec<Box<Row>>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.row, waiting.reply)).unzip();
        match self.run(async |connection| super::insert_rows(connection, &rows, Commit::AtOnce).await).await {
            Ok(ids) => {
                for (id, reply) in ids.into_iter().zip(replies) {
                    let _ = reply.send(Landed::Enqueued(id));
                }
            }
            Err(error) if wrote_nothing(&error) => {
                for (row, reply) in rows.into_iter().zip(replies) {
                    let _ = reply.send(Landed::Refused(row));
                }
            }
            Err(error) => {
                for reply in replies {
                    let _ = reply.send(Landed::Failed(copy_of(&error)));
                }
            }
        }
    }
}

/// Whether the database refused the statement as it was, which it rolled back: the cause may lie in one row.
fn wrote_nothing(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(_)) && !crate::failure::is_transient(error)
}

/// The same error for another caller, as far as it can be had twice: what tells whether it is transient stays.
fn copy_of(error: &sqlx::Error) -> sqlx::Error {
    match error {
        sqlx::Error::PoolTimedOut => sqlx::Error::PoolTimedOut,
        sqlx::Error::PoolClosed => sqlx::Error::PoolClosed,
        sqlx::Error::WorkerCrashed => sqlx::Error::WorkerCrashed,
        sqlx::Error::Io(error) => sqlx::Error::Io(std::io::Error::new(error.kind(), error.to_string())),
        error if crate::failure::is_transient(error) => {
            sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::ConnectionAborted, error.to_string()))
        }
        error => sqlx::Error::Decode(error.to_string().into()),
    }
}
