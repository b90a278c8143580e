//! Live changes of the jobs that someone looks at.
//!
//! One reader per process asks for the versions of all watched jobs, twice a second, and reads the rows whose version
//! grew; every stream then picks what it has not sent. A slow reader costs nothing: it finds the newest rows when it comes
//! back. While nobody watches, nothing is asked. The reader polls, so it works behind any pooler and with NOTIFY dead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use jobdeck::store::{JobFilter, StateCounts};
use jobdeck::{JobId, JobSummary, Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::shutdown::Shutdown;

/// How often watched jobs are looked at.
const TICK: Duration = Duration::from_millis(500);
/// How long to wait after the database failed.
const PAUSE: Duration = Duration::from_secs(2);

/// Watches jobs for any number of viewers. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
    shutdown: Shutdown,
}

/// What changed since the last update of the same stream; the first one holds every watched job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowsUpdate {
    /// Present rows of changed jobs, in the order they were asked for.
    pub rows: Vec<JobSummary>,
    /// Jobs that are no longer there.
    pub gone: Vec<JobId>,
}

#[derive(Default)]
struct Shared {
    rows: Mutex<HashMap<JobId, Row>>,
    counts: Mutex<HashMap<CountsKey, Counts>>,
    rows_changed: watch::Sender<u64>,
    counts_changed: watch::Sender<u64>,
    /// Woken when someone begins to watch.
    rows_wanted: Notify,
    counts_wanted: Notify,
}

struct Row {
    watchers: usize,
    seen: Seen,
}

enum Seen {
    NotYet,
    Gone,
    At(Arc<JobSummary>),
}

/// What of a filter narrows the counts.
type CountsKey = (Option<String>, Option<String>);

struct Counts {
    watchers: usize,
    value: Option<StateCounts>,
    due: Instant,
    is_being_read: bool,
}

impl Hub {
    /// Starts the readers. They end with `shutdown`.
    pub fn new(store: Store, shutdown: Shutdown) -> Self {
        let shared = Arc::new(Shared::default());
        let (rows, counts) = (shared.clone(), shared.clone());
        let (row_store, until) = (store.clone(), shutdown.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = until.requested() => {}
                () = read_rows_forever(&row_store, &rows) => {}
            }
        });
        let until = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = until.requested() => {}
                () = read_counts_forever(&store, &counts) => {}
            }
        });
        Self { shared, shutdown }
    }

    /// Changes of these jobs, beginning with their present rows. Ends when the process stops. Versions never go back.
    pub fn watch(&self, ids: Vec<JobId>) -> impl Stream<Item = RowsUpdate> + Send + use<> {
        struct State {
            guard: RowsGuard,
            changed: watch::Receiver<u64>,
            shutdown: Shutdown,
            sent: HashMap<JobId, Option<i64>>,
            first: bool,
        }
        let changed = self.shared.rows_changed.subscribe();
        let guard = RowsGuard::new(self.shared.clone(), ids);
        let state = State { guard, changed, shutdown: self.shutdown.clone(), sent: HashMap::new(), first: true };
        futures_util::stream::unfold(state, |mut state| async move {
            loop {
                state.changed.mark_unchanged();
                if let Some(update) = state.guard.update(&mut state.sent, state.first) {
                    state.first = false;
                    return Some((update, state));
                }
                tokio::select! {
                    () = state.shutdown.requested() => return None,
                    changed = state.changed.changed() => changed.ok()?,
                }
            }
        })
    }

    /// How many jobs are in each state, whenever that changes, beginning with the present numbers. The filter's own state
    /// does not narrow them. Ends when the process stops.
    pub fn watch_counts(&self, filter: &JobFilter) -> impl Stream<Item = StateCounts> + Send + use<> {
        struct State {
            guard: CountsGuard,
            changed: watch::Receiver<u64>,
            shutdown: Shutdown,
            sent: Option<StateCounts>,
        }
        let changed = self.shared.counts_changed.subscribe();
        let guard = CountsGuard::new(self.shared.clone(), (filter.job_type.clone(), filter.text.clone()));
        let state = State { guard, changed, shutdown: self.shutdown.clone(), sent: None };
        futures_util::stream::unfold(state, |mut state| async move {
            loop {
                state.changed.mark_unchanged();
                let present = lock(&state.guard.shared.counts).get(&state.guard.key).and_then(|counts| counts.value);
                if let Some(counts) = present
                    && state.sent != present
                {
                    state.sent = present;
                    return Some((counts, state));
                }
                tokio::select! {
                    () = state.shutdown.requested() => return None,
                    changed = state.changed.changed() => changed.ok()?,
                }
            }
        })
    }
}

/// Keeps jobs watched while it lives.
struct RowsGuard {
    shared: Arc<Shared>,
    ids: Vec<JobId>,
}

impl RowsGuard {
    fn new(shared: Arc<Shared>, mut ids: Vec<JobId>) -> Self {
        let mut seen = std::collections::HashSet::new();
        ids.retain(|id| seen.insert(*id));
        let mut rows = lock(&shared.rows);
        for id in &ids {
            rows.entry(*id).or_insert(Row { watchers: 0, seen: Seen::NotYet }).watchers += 1;
        }
        drop(rows);
        shared.rows_wanted.notify_one();
        Self { shared, ids }
    }

    /// What `sent` lacks. The first update waits until every job has been looked up.
    fn update(&self, sent: &mut HashMap<JobId, Option<i64>>, first: bool) -> Option<RowsUpdate> {
        let rows = lock(&self.shared.rows);
        let mut update = RowsUpdate::default();
        for id in &self.ids {
            match rows.get(id).map(|row| &row.seen) {
                Some(Seen::At(row)) if sent.get(id).is_none_or(|version| version.is_none_or(|v| v < row.version)) => {
                    update.rows.push(JobSummary::clone(row));
                }
                Some(Seen::Gone) if sent.get(id) != Some(&None) => update.gone.push(*id),
                Some(Seen::NotYet) if first => return None,
                _ => {}
            }
        }
        drop(rows);
        sent.extend(update.rows.iter().map(|row| (row.id, Some(row.version))));
        sent.extend(update.gone.iter().map(|id| (*id, None)));
        (first || !update.rows.is_empty() || !update.gone.is_empty()).then_some(update)
    }
}

impl Drop for RowsGuard {
    fn drop(&mut self) {
        let mut rows = lock(&self.shared.rows);
        for id in &self.ids {
            if let Some(row) = rows.get_mut(id) {
                row.watchers -= 1;
                if row.watchers == 0 {
                    rows.remove(id);
                }
            }
        }
    }
}

/// Keeps counts up to date while it lives.
struct CountsGuard {
    shared: Arc<Shared>,
    key: CountsKey,
}

impl CountsGuard {
    fn new(shared: Arc<Shared>, key: CountsKey) -> Self {
        let mut counts = lock(&shared.counts);
        let fresh = || Counts { watchers: 0, value: None, due: Instant::now(), is_being_read: false };
        counts.entry(key.clone()).or_insert_with(fresh).watchers += 1;
        drop(counts);
        shared.counts_wanted.notify_one();
        Self { shared, key }
    }
}

impl Drop for CountsGuard {
    fn drop(&mut self) {
        let mut counts = lock(&self.shared.counts);
        if let Some(entry) = counts.get_mut(&self.key) {
            entry.watchers -= 1;
            // Whoever comes back meanwhile shares the count that is under way.
            if entry.watchers == 0 && !entry.is_being_read {
                counts.remove(&self.key);
            }
        }
    }
}

async fn read_rows_forever(store: &Store, shared: &Shared) {
    let mut failing = false;
    loop {
        if lock(&shared.rows).is_empty() {
            shared.rows_wanted.notified().await;
            continue;
        }
        if let Err(error) = read_rows(store, shared).await {
            // Once per outage is enough.
            if !failing {
                tracing::warn!(error = &error as &dyn std::error::Error, "live view cannot read the database");
            }
            failing = true;
            sleep(PAUSE).await;
            continue;
        }
        failing = false;
        // A new viewer is served at once, but a crowd of them by one query.
        tokio::select! {
            () = sleep(TICK) => {}
            () = shared.rows_wanted.notified() => sleep(TICK / 20).await,
        }
    }
}

async fn read_rows(store: &Store, shared: &Shared) -> Result<(), StoreError> {
    let ids: Vec<JobId> = lock(&shared.rows).keys().copied().collect();
    if ids.is_empty() {
        return Ok(());
    }
    let versions: HashMap<JobId, i64> = store.job_versions(&ids).await?.into_iter().collect();
    let mut stale = Vec::new();
    let mut changed = false;
    {
        let mut rows = lock(&shared.rows);
        for id in &ids {
            let Some(row) = rows.get_mut(id) else { continue };
            match (versions.get(id), &row.seen) {
                (Some(version), Seen::At(seen)) if seen.version >= *version => {}
                (Some(_), _) => stale.push(*id),
                (None, Seen::Gone) => {}
                (None, _) => {
                    row.seen = Seen::Gone;
                    changed = true;
                }
            }
        }
    }
    if !stale.is_empty() {
        let summaries = store.job_summaries(&stale).await?;
        let mut rows = lock(&shared.rows);
        for summary in summaries {
            if let Some(row) = rows.get_mut(&summary.id) {
                row.seen = Seen::At(Arc::new(summary));
                changed = true;
            }
        }
    }
    if changed {
        shared.rows_changed.send_modify(|n| *n += 1);
    }
    Ok(())
}

/// Each filter is counted by itself: one that takes long, or that the database refuses, keeps no other waiting.
async fn read_counts_forever(store: &Store, shared: &Shared) {
    let mut reading = FuturesUnordered::new();
    let mut failing = false;
    loop {
        for key in due_counts(shared) {
            reading.push(read_counts(store, shared, key));
        }
        let is_idle = lock(&shared.counts).is_empty();
        tokio::select! {
            Some(read) = reading.next() => match read {
                Ok(()) => failing = false,
                Err(error) => {
                    if !failing {
                        tracing::warn!(error = &error as &dyn std::error::Error, "live view cannot count jobs");
                    }
                    failing = true;
                }
            },
            () = sleep(TICK), if !is_idle => {}
            () = shared.counts_wanted.notified() => sleep(TICK / 20).await,
        }
    }
}

/// Filters whose time has come and that are not being counted.
fn due_counts(shared: &Shared) -> Vec<CountsKey> {
    let now = Instant::now();
    let mut counts = lock(&shared.counts);
    let due = counts.iter_mut().filter(|(_, counts)| !counts.is_being_read && counts.due <= now);
    due.map(|(key, counts)| {
        counts.is_being_read = true;
        key.clone()
    })
    .collect()
}

async fn read_counts(store: &Store, shared: &Shared, key: CountsKey) -> Result<(), StoreError> {
    let filter = JobFilter { job_type: key.0.clone(), text: key.1.clone(), ..JobFilter::default() };
    let begun = Instant::now();
    let is_watched = || lock(&shared.counts).get(&key).is_some_and(|entry| entry.watchers > 0);
    let read = store.job_counts_if(&filter, is_watched).await;
    let mut counts = lock(&shared.counts);
    let Some(entry) = counts.get_mut(&key) else { return Ok(()) };
    entry.is_being_read = false;
    if entry.watchers == 0 {
        counts.remove(&key);
        return read.map(|_| ());
    }
    // Counting takes at most a tenth of the time, however large the table.
    entry.due = Instant::now() + (begun.elapsed() * 9).max(TICK);
    match read {
        Ok(None) => {
            // Someone came in between.
            entry.due = begun;
            Ok(())
        }
        Ok(value) => {
            if entry.value != value {
                entry.value = value;
                shared.counts_changed.send_modify(|n| *n += 1);
            }
            Ok(())
        }
        // A count that takes too long is not an outage.
        Err(error) if error.is_given_up() => Ok(()),
        Err(error) => {
            entry.due = Instant::now() + PAUSE;
            Err(error)
        }
    }
}

/// Nothing panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
