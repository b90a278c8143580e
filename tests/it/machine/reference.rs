//! The reference: what the queue is to do, written for reading and with no database in mind.

use std::collections::{BTreeMap, BTreeSet};

use jobdeck::JobState;
use proptest::prelude::*;
use proptest::sample::select;
use proptest_state_machine::ReferenceStateMachine;

/// An hour, in the model's ticks. A step takes one tick; a point of priority is worth a minute.
const HOUR: i64 = 3_600_000;
const MINUTE: i64 = HOUR / 60;

/// What is enqueued. Jobs of the first two have no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Five attempts, three stalls.
    Note,
    /// Two attempts, one stall.
    Brittle,
    /// As a note, with one of a few keys.
    Keyed(u8),
}

impl Kind {
    const fn limits(self) -> (i32, i32) {
        match self {
            Self::Brittle => (2, 1),
            Self::Note | Self::Keyed(_) => (5, 3),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Brittle => "brittle",
            Self::Keyed(_) => "keyed",
        }
    }
}

/// Which jobs a claim is after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspects {
    None,
    Once,
    Often,
}

/// How an execution ends without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Fails,
    FailsForGood,
    Snoozes,
    MustWait,
    Releases,
    Stops,
}

impl End {
    /// What the history calls it.
    const fn noted(self) -> &'static str {
        match self {
            Self::Fails | Self::FailsForGood => "failed",
            Self::Snoozes => "snoozed",
            Self::MustWait => "rate_limited",
            Self::Releases => "released",
            Self::Stops => "canceled",
        }
    }
}

/// A step. Jobs and executions are named by their place: the first enqueued, the first started.
#[derive(Clone, Debug)]
pub(super) enum Transition {
    Enqueue { kind: Kind, priority: i16, delayed: bool },
    Claim { worker: u8, at_most: u8, suspects: Suspects, knows_brittle: bool },
    Heartbeat(usize),
    Progress(usize),
    Complete(usize),
    End { execution: usize, end: End, delayed: bool },
    ReaperReads,
    ReaperWrites,
    Cancel(usize),
    Retry(usize),
    Delete(usize),
    Pause(bool),
    Limit(Option<u8>),
    AnHourPasses,
    FoldCounters,
}

/// What a step is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Nothing,
    Enqueued {
        job: usize,
        is_new: bool,
    },
    /// Job and token, most urgent first.
    Claimed(Vec<(usize, i64)>),
    /// Whether a cancel was asked for; none if the lease is lost.
    Held(Option<bool>),
    /// State and whether it had been taken before; none if the lease is lost.
    Ended(Option<(JobState, bool)>),
    Read(BTreeSet<usize>),
    Reaped(BTreeMap<usize, JobState>),
    Canceled,
    Requested,
    Refused(JobState),
    Queued,
    KeyHeld(usize),
    Deleted,
    NotFound,
}

/// What can be seen of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobView {
    pub(super) state: JobState,
    pub(super) attempts: i32,
    pub(super) starts: i32,
    pub(super) token: i64,
    pub(super) stalled: i32,
    pub(super) due: bool,
    pub(super) leased: bool,
    pub(super) cancel_requested: bool,
    pub(super) holds_key: bool,
    /// The token whose success it shows.
    pub(super) result: Option<i64>,
    /// The history: each token that ended without success, and how.
    pub(super) ended: BTreeMap<i64, String>,
}

/// What can be seen of the queue. Deleted jobs are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) jobs: Vec<Option<JobView>>,
    /// By type and state, those above 0.
    pub(super) counters: BTreeMap<(String, String), i64>,
    pub(super) n_audited: i64,
}

#[derive(Clone, Debug)]
struct Job {
    kind: Kind,
    priority: i16,
    state: JobState,
    attempts: i32,
    starts: i32,
    token: i64,
    stalled: i32,
    run_after: i64,
    lease_expired: bool,
    /// Grows whenever the lease is another: claimed, renewed, run out.
    lease_version: u64,
    cancel_requested: bool,
    result: Option<i64>,
    ended: BTreeMap<i64, (&'static str, JobState)>,
}

impl Job {
    fn is_waiting(&self) -> bool {
        matches!(self.state, JobState::Pending | JobState::Retrying)
    }

    fn rank(&self) -> i64 {
        self.run_after - i64::from(self.priority) * MINUTE
    }

    fn suspects(&self) -> Suspects {
        match (self.stalled, self.kind.limits().1) {
            (0, _) => Suspects::None,
            (1, 2..) => Suspects::Once,
            _ => Suspects::Often,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Execution {
    job: usize,
    token: i64,
}

/// The queue as it should be.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    now: i64,
    jobs: Vec<Option<Job>>,
    executions: Vec<Execution>,
    /// What the reaper read and has not written: job, token, version of the lease.
    reading: Vec<(usize, i64, u64)>,
    /// Who holds a key.
    keys: BTreeMap<u8, usize>,
    paused: bool,
    limit: Option<u8>,
    n_audited: i64,
}

impl Model {
    pub(super) fn view(&self) -> View {
        let mut counters = BTreeMap::new();
        for job in self.jobs.iter().flatten() {
            *counters.entry((job.kind.name().to_owned(), job.state.as_str().to_owned())).or_insert(0) += 1;
        }
        let view = |(place, job): (usize, &Option<Job>)| {
            let job = job.as_ref()?;
            Some(JobView {
                state: job.state,
                attempts: job.attempts,
                starts: job.starts,
                token: job.token,
                stalled: job.stalled,
                due: job.is_waiting() && job.run_after <= self.now,
                leased: job.state == JobState::Running,
                cancel_requested: job.cancel_requested,
                holds_key: matches!(job.kind, Kind::Keyed(key) if self.keys.get(&key) == Some(&place)),
                result: job.result,
                ended: job.ended.iter().map(|(token, (how, _))| (*token, (*how).to_owned())).collect(),
            })
        };
        View { jobs: self.jobs.iter().enumerate().map(view).collect(), counters, n_audited: self.n_audited }
    }

    /// The execution's job, if it still holds it.
    fn held(&mut self, execution: usize) -> Option<&mut Job> {
        let Execution { job, token } = self.executions[execution];
        self.jobs[job].as_mut().filter(|job| job.state == JobState::Running && job.token == token)
    }

    fn holds(&self, execution: usize) -> bool {
        self.clone().held(execution).is_some()
    }

    /// A job that failed or was canceled gives its key back.
    fn give_key_back(&mut self, place: usize) {
        if let Some(Job { kind: Kind::Keyed(key), state: JobState::Failed | JobState::Canceled, .. }) = self.jobs[place]
            && self.keys.get(&key) == Some(&place)
        {
            self.keys.remove(&key);
        }
    }

    /// Takes a step.
    pub(super) fn take(&mut self, transition: &Transition) -> Answer {
        self.now += 1;
        match *transition {
            Transition::Enqueue { kind, priority, delayed } => self.enqueue(kind, priority, delayed),
            Transition::Claim { at_most, suspects, knows_brittle, .. } => self.claim(at_most, suspects, knows_brittle),
            Transition::Heartbeat(execution) => Answer::Held(self.held(execution).map(|job| {
                job.lease_expired = false;
                job.lease_version += 1;
                job.cancel_requested
            })),
            Transition::Progress(execution) => Answer::Held(self.held(execution).map(|_| false)),
            Transition::Complete(execution) => self.complete(execution),
            Transition::End { execution, end, delayed } => self.end(execution, end, delayed),
            Transition::ReaperReads => {
                self.reading = self
                    .jobs
                    .iter()
                    .enumerate()
                    .filter_map(|(place, job)| Some((place, job.as_ref()?)))
                    .filter(|(_, job)| job.state == JobState::Running && job.lease_expired)
                    .map(|(place, job)| (place, job.token, job.lease_version))
                    .collect();
                Answer::Read(self.reading.iter().map(|(place, ..)| *place).collect())
            }
            Transition::ReaperWrites => self.reap(),
            Transition::Cancel(place) => self.cancel(place),
            Transition::Retry(place) => self.retry(place),
            Transition::Delete(place) => match &self.jobs[place] {
                None => Answer::NotFound,
                Some(job) if !job.state.is_final() => Answer::Refused(job.state),
                Some(job) => {
                    if let Kind::Keyed(key) = job.kind
                        && self.keys.get(&key) == Some(&place)
                    {
                        self.keys.remove(&key);
                    }
                    self.jobs[place] = None;
                    self.n_audited += 1;
                    Answer::Deleted
                }
            },
            Transition::Pause(paused) => {
                self.n_audited += i64::from(self.paused != paused);
                self.paused = paused;
                Answer::Nothing
            }
            Transition::Limit(limit) => {
                self.n_audited += i64::from(self.limit != limit);
                self.limit = limit;
                Answer::Nothing
            }
            Transition::AnHourPasses => {
                for job in self.jobs.iter_mut().flatten() {
                    if job.is_waiting() {
                        job.run_after -= HOUR;
                    } else if job.state == JobState::Running {
                        job.lease_expired = true;
                        job.lease_version += 1;
                    }
                }
                Answer::Nothing
            }
            Transition::FoldCounters => Answer::Nothing,
        }
    }

    fn enqueue(&mut self, kind: Kind, priority: i16, delayed: bool) -> Answer {
        let place = self.jobs.len();
        if let Kind::Keyed(key) = kind {
            let holder = *self.keys.entry(key).or_insert(place);
            if holder != place {
                return Answer::Enqueued { job: holder, is_new: false };
            }
        }
        self.jobs.push(Some(Job {
            kind,
            priority,
            state: JobState::Pending,
            attempts: 0,
            starts: 0,
            token: 0,
            stalled: 0,
            run_after: self.now + if delayed { HOUR } else { 0 },
            lease_expired: false,
            lease_version: 0,
            cancel_requested: false,
            result: None,
            ended: BTreeMap::new(),
        }));
        Answer::Enqueued { job: place, is_new: true }
    }

    fn claim(&mut self, at_most: u8, suspects: Suspects, knows_brittle: bool) -> Answer {
        let n_running = self.jobs.iter().flatten().filter(|job| job.state == JobState::Running).count();
        let room = self.limit.map_or(usize::MAX, |limit| usize::from(limit).saturating_sub(n_running));
        let mut due: Vec<(i64, usize)> = self
            .jobs
            .iter()
            .enumerate()
            .filter_map(|(place, job)| Some((place, job.as_ref()?)))
            .filter(|(_, job)| job.is_waiting() && job.run_after <= self.now && job.suspects() == suspects)
            .filter(|(_, job)| knows_brittle || job.kind != Kind::Brittle)
            .map(|(place, job)| (job.rank(), place))
            .collect();
        due.sort_unstable();
        due.truncate(if self.paused { 0 } else { room.min(usize::from(at_most)) });
        let mut claimed = Vec::new();
        for (_, place) in due {
            let job = self.jobs[place].as_mut().expect("it waits");
            job.state = JobState::Running;
            job.token += 1;
            job.attempts += 1;
            job.starts += 1;
            job.lease_expired = false;
            job.lease_version += 1;
            claimed.push((place, job.token));
            self.executions.push(Execution { job: place, token: job.token });
        }
        Answer::Claimed(claimed)
    }

    fn complete(&mut self, execution: usize) -> Answer {
        let Execution { job: place, token } = self.executions[execution];
        if let Some(job) = self.held(execution) {
            job.state = JobState::Succeeded;
            job.result = Some(token);
            return Answer::Ended(Some((JobState::Succeeded, false)));
        }
        let repeated = self.jobs[place].as_ref().is_some_and(|job| job.result == Some(token));
        Answer::Ended(repeated.then_some((JobState::Succeeded, true)))
    }

    fn end(&mut self, execution: usize, end: End, delayed: bool) -> Answer {
        let Execution { job: place, token } = self.executions[execution];
        let now = self.now;
        let Some(job) = self.held(execution) else {
            // The same outcome again is answered as the first time.
            let Some(job) = &self.jobs[place] else { return Answer::Ended(None) };
            let noted = job.ended.get(&token).filter(|(how, _)| *how == end.noted() || *how == "canceled");
            return Answer::Ended(noted.map(|(_, became)| (*became, true)));
        };
        let out_of_attempts = job.attempts >= job.kind.limits().0;
        let (became, delay) = match end {
            _ if job.cancel_requested => (JobState::Canceled, 0),
            End::Stops => (JobState::Canceled, 0),
            End::FailsForGood => (JobState::Failed, 0),
            End::Fails if out_of_attempts => (JobState::Failed, 0),
            End::Releases => (JobState::Pending, 0),
            End::Fails | End::Snoozes | End::MustWait => (JobState::Retrying, if delayed { HOUR } else { 0 }),
        };
        if matches!(end, End::Snoozes | End::MustWait | End::Releases) {
            job.attempts -= 1;
        }
        job.state = became;
        job.run_after = now + delay;
        job.ended.insert(token, (if became == JobState::Canceled { "canceled" } else { end.noted() }, became));
        self.give_key_back(place);
        Answer::Ended(Some((became, false)))
    }

    fn reap(&mut self) -> Answer {
        let mut reaped = BTreeMap::new();
        for (place, token, lease_version) in std::mem::take(&mut self.reading) {
            let now = self.now;
            let Some(job) = self.jobs[place].as_mut().filter(|job| {
                job.state == JobState::Running
                    && job.token == token
                    && job.lease_version == lease_version
                    && job.lease_expired
            }) else {
                continue;
            };
            job.state = if job.cancel_requested {
                JobState::Canceled
            } else if job.stalled < job.kind.limits().1 {
                JobState::Retrying
            } else {
                JobState::Failed
            };
            job.attempts -= 1;
            job.stalled += 1;
            job.run_after = now;
            job.ended.insert(token, ("stalled", job.state));
            reaped.insert(place, job.state);
            self.give_key_back(place);
        }
        Answer::Reaped(reaped)
    }

    fn cancel(&mut self, place: usize) -> Answer {
        let Some(job) = self.jobs[place].as_mut() else { return Answer::NotFound };
        if job.state.is_final() {
            return Answer::Refused(job.state);
        }
        let is_running = job.state == JobState::Running;
        self.n_audited += i64::from(!is_running || !job.cancel_requested);
        job.cancel_requested = true;
        if is_running {
            return Answer::Requested;
        }
        job.state = JobState::Canceled;
        self.give_key_back(place);
        Answer::Canceled
    }

    fn retry(&mut self, place: usize) -> Answer {
        let now = self.now;
        let Some(job) = self.jobs[place].as_mut() else { return Answer::NotFound };
        if !matches!(job.state, JobState::Failed | JobState::Canceled) {
            return Answer::Refused(job.state);
        }
        if let Kind::Keyed(key) = job.kind {
            let holder = *self.keys.entry(key).or_insert(place);
            if holder != place {
                return Answer::KeyHeld(holder);
            }
        }
        job.state = JobState::Pending;
        (job.attempts, job.stalled, job.cancel_requested) = (0, 0, false);
        job.run_after = now;
        self.n_audited += 1;
        Answer::Queued
    }
}

/// Chooses the steps.
pub(super) struct Machine;

impl ReferenceStateMachine for Machine {
    type State = Model;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<Model> {
        Just(Model::default()).boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Transition> {
        let kind = prop_oneof![4 => Just(Kind::Note), 2 => Just(Kind::Brittle), 3 => (0..3_u8).prop_map(Kind::Keyed)];
        let enqueue = (kind, 0..3_i16, prop::bool::weighted(0.2));
        let enqueue = enqueue.prop_map(|(kind, priority, delayed)| Transition::Enqueue { kind, priority, delayed });
        let suspects = prop_oneof![
            5 => Just(Suspects::None), 2 => Just(Suspects::Once), 2 => Just(Suspects::Often),
        ];
        let claim = (0..3_u8, 1..4_u8, suspects, prop::bool::weighted(0.8));
        let claim = claim.prop_map(|(worker, at_most, suspects, knows_brittle)| Transition::Claim {
            worker,
            at_most,
            suspects,
            knows_brittle,
        });
        let always = prop_oneof![
            5 => enqueue,
            9 => claim,
            1 => Just(Transition::ReaperReads),
            1 => Just(Transition::ReaperWrites),
            1 => any::<bool>().prop_map(Transition::Pause),
            2 => Just(Transition::Pause(false)),
            1 => prop::option::of(1..4_u8).prop_map(Transition::Limit),
            1 => Just(Transition::Limit(None)),
            3 => Just(Transition::AnHourPasses),
            1 => Just(Transition::FoldCounters),
        ];
        let mut choices = vec![(10, always.boxed())];
        let (n_jobs, n_executions) = (model.jobs.len(), model.executions.len());
        if n_jobs > 0 {
            let job = 0..n_jobs;
            let people = prop_oneof![
                2 => job.clone().prop_map(Transition::Cancel),
                3 => job.clone().prop_map(Transition::Retry),
                1 => job.prop_map(Transition::Delete),
            ];
            choices.push((3, people.boxed()));
        }
        let mut running = model.jobs.iter().flatten().filter(|job| job.state == JobState::Running);
        if model.reading.is_empty() && running.any(|job| job.lease_expired) {
            choices.push((8, Just(Transition::ReaperReads).boxed()));
        }
        // Between the reaper's reading and its writing anything may happen to what it read: that is where it must compare.
        let read: Vec<usize> = (0..n_executions)
            .filter(|place| {
                model.reading.iter().any(|(job, token, _)| {
                    model.executions[*place].job == *job && model.executions[*place].token == *token
                })
            })
            .collect();
        if !read.is_empty() {
            let between = prop_oneof![
                4 => select(read.clone()).prop_map(Transition::Heartbeat),
                3 => Just(Transition::AnHourPasses),
                4 => Just(Transition::ReaperWrites),
                2 => of_execution(select(read).boxed()),
            ];
            choices.push((30, between.boxed()));
        }
        // Those that hold their jobs, and beside them all that ever started: late and repeated outcomes.
        let holders: Vec<usize> = (0..n_executions).filter(|execution| model.holds(*execution)).collect();
        if !holders.is_empty() {
            choices.push((7, of_execution(select(holders).boxed())));
        }
        if n_executions > 0 {
            choices.push((3, of_execution((0..n_executions).boxed())));
        }
        proptest::strategy::Union::new_weighted(choices).boxed()
    }

    fn apply(mut model: Model, transition: &Transition) -> Model {
        model.take(transition);
        model
    }

    /// When steps are left out to find a shorter walk, some name what is no longer there.
    fn preconditions(model: &Model, transition: &Transition) -> bool {
        match *transition {
            Transition::Heartbeat(execution)
            | Transition::Progress(execution)
            | Transition::Complete(execution)
            | Transition::End { execution, .. } => execution < model.executions.len(),
            Transition::Cancel(job) | Transition::Retry(job) | Transition::Delete(job) => job < model.jobs.len(),
            _ => true,
        }
    }
}

fn of_execution(execution: BoxedStrategy<usize>) -> BoxedStrategy<Transition> {
    let end = prop_oneof![
        4 => Just(End::Fails),
        1 => Just(End::FailsForGood),
        2 => Just(End::Snoozes),
        1 => Just(End::MustWait),
        1 => Just(End::Releases),
        1 => Just(End::Stops),
    ];
    prop_oneof![
        2 => execution.clone().prop_map(Transition::Heartbeat),
        1 => execution.clone().prop_map(Transition::Progress),
        2 => execution.clone().prop_map(Transition::Complete),
        6 => (execution, end, prop::bool::weighted(0.3))
            .prop_map(|(execution, end, delayed)| Transition::End { execution, end, delayed }),
    ]
    .boxed()
}
