//! One job, what is known about it, what is on the way, and every step that may come next.

use jobdeck::JobState;

pub(crate) const MAX_ATTEMPTS: i8 = 2;
pub(crate) const MAX_STALLED: i8 = 1;
/// Snoozes and releases together, and retries by a person, that one life may see: bounds of the search, not of the protocol.
const MAX_GIVEN_BACK: u8 = 1;
const MAX_RETRIES: u8 = 1;
/// Executions whose messages may still arrive.
const MAX_EXECUTIONS: usize = 2;
/// What must hold of the row for a write to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// The right one: the execution's token, and the row is running.
    TokenAndStatus,
    Id,
    Status,
    Worker,
    Attempts,
    Token,
}

/// What must hold for the reaper's write to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaperGuard {
    /// The right one: token and expiry as read, and still past.
    TokenAndExpiry,
    Id,
    Status,
    Token,
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) outcome: Guard,
    pub(crate) heartbeat: Guard,
    pub(crate) reaper: ReaperGuard,
    pub(crate) reaps: bool,
    pub(crate) stalls_are_capped: bool,
    pub(crate) retry_keeps_token: bool,
    pub(crate) attempt_counts_at_claim: bool,
    pub(crate) cancel_waits_for_the_holder: bool,
    /// How many different outcomes one execution may send, a bound of the search.
    pub(crate) n_outcomes: u8,
}

impl Rules {
    pub(crate) const RIGHT: Self = Self {
        outcome: Guard::TokenAndStatus,
        heartbeat: Guard::TokenAndStatus,
        reaper: ReaperGuard::TokenAndExpiry,
        reaps: true,
        stalls_are_capped: true,
        retry_keeps_token: true,
        attempt_counts_at_claim: true,
        cancel_waits_for_the_holder: true,
        n_outcomes: 1,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Complete,
    Fail,
    FailForGood,
    Snooze,
    Release,
    Heartbeat,
}

impl Message {
    const ALL: [Self; 6] =
        [Self::Complete, Self::Fail, Self::FailForGood, Self::Snooze, Self::Release, Self::Heartbeat];
}

/// One start of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Execution {
    worker: u8,
    token: u8,
    attempts: i8,
    /// What it sent and has not arrived.
    on_the_way: Option<Message>,
    n_outcomes: u8,
    /// Which outcome of it was taken.
    taken: Option<Message>,
    /// Whether it is the rightful holder, whatever the row says.
    holds: bool,
}

/// What the reaper read and has not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reading {
    token: u8,
    /// Whether the lease is still the one that was read: neither renewed nor another since.
    is_current: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) status: JobState,
    token: u8,
    attempts: i8,
    stalled: i8,
    locked_by: u8,
    expired: bool,
    cancel_requested: bool,
    /// A person was told "canceled".
    canceled_answered: bool,
    /// Starts since the first or a person's retry, but for those that ended in a stall, a snooze or a release.
    counted_starts: i8,
    n_given_back: u8,
    n_retries: u8,
    executions: Vec<Execution>,
    reading: Option<Reading>,
}

/// A step that may come next: what it is, whether it happens by itself, and what it leads to.
pub(crate) struct Step {
    pub(crate) what: String,
    /// False for what a person does: no state may need it to come to an end.
    pub(crate) by_itself: bool,
    pub(crate) next: Result<State, &'static str>,
}

impl State {
    pub(crate) fn start() -> Self {
        Self {
            status: JobState::Pending,
            token: 0,
            attempts: 0,
            stalled: 0,
            locked_by: 0,
            expired: false,
            cancel_requested: false,
            canceled_answered: false,
            counted_starts: 0,
            n_given_back: 0,
            n_retries: 0,
            executions: Vec::new(),
            reading: None,
        }
    }

    fn allows(&self, guard: Guard, execution: &Execution) -> bool {
        let running = self.status == JobState::Running;
        match guard {
            Guard::TokenAndStatus => running && self.token == execution.token,
            Guard::Id => true,
            Guard::Status => running,
            Guard::Worker => running && self.locked_by == execution.worker,
            Guard::Attempts => running && self.attempts == execution.attempts,
            Guard::Token => self.token == execution.token,
        }
    }

    /// The lease is another one from here on.
    fn lease_changes(&mut self) {
        self.expired = false;
        if let Some(reading) = &mut self.reading {
            reading.is_current = false;
        }
    }

    /// The job ends or waits again: nobody holds it.
    fn let_go(&mut self, to: JobState) {
        self.status = to;
        self.lease_changes();
        if to != JobState::Canceled && !to.is_final() {
            self.cancel_requested = false;
        }
        for execution in &mut self.executions {
            execution.holds = false;
        }
    }

    /// Forgets executions that have nothing more to say, and refuses states that break a promise.
    fn check(mut self, rules: Rules) -> Result<Self, &'static str> {
        self.executions.retain(|execution| {
            execution.on_the_way.is_some() || execution.holds || execution.n_outcomes < rules.n_outcomes
        });
        if self.counted_starts > MAX_ATTEMPTS {
            return Err("a job starts no more often than its attempts allow");
        }
        if self.attempts < 0 || self.attempts > MAX_ATTEMPTS {
            return Err("attempts stay within their limit");
        }
        if self.stalled > MAX_STALLED + 1 {
            return Err("stalls stay within their limit");
        }
        if self.canceled_answered && self.status == JobState::Succeeded {
            return Err("after canceled nothing succeeds");
        }
        Ok(self)
    }

    /// Everything that may happen next.
    pub(crate) fn steps(&self, rules: Rules) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut add = |what: String, by_itself: bool, next: Result<Self, &'static str>| {
            steps.push(Step { what, by_itself, next: next.and_then(|next| next.check(rules)) });
        };
        let can_start = self.attempts < MAX_ATTEMPTS || !rules.attempt_counts_at_claim;
        if self.status.is_waiting() && can_start && self.executions.len() < MAX_EXECUTIONS {
            // Who holds it matters only to rules that ask.
            let n_workers = if [rules.outcome, rules.heartbeat].contains(&Guard::Worker) { 2 } else { 1 };
            for worker in 0..n_workers {
                add(format!("worker {worker} claims"), true, self.claimed(worker, rules));
            }
        }
        for index in 0..self.executions.len() {
            let execution = self.executions[index];
            let name = format!("execution {} of worker {}", execution.token, execution.worker);
            if execution.on_the_way.is_none() {
                for message in Message::ALL {
                    let counts = u8::from(message != Message::Heartbeat);
                    let gives_back = matches!(message, Message::Snooze | Message::Release);
                    if execution.n_outcomes + counts > rules.n_outcomes
                        || (counts == 0 && execution.n_outcomes > 0)
                        || (gives_back && self.n_given_back >= MAX_GIVEN_BACK)
                    {
                        continue;
                    }
                    let mut next = self.clone();
                    next.executions[index].on_the_way = Some(message);
                    next.executions[index].n_outcomes += counts;
                    add(format!("{name} sends {message:?}"), true, Ok(next));
                }
            }
            if let Some(message) = execution.on_the_way {
                add(format!("{message:?} of {name} arrives"), true, self.arrived(index, message, rules));
                if message != Message::Heartbeat {
                    // The reply is lost: the same is sent again.
                    let arrived = self.arrived(index, message, rules).map(|mut next| {
                        if let Some(execution) = next.executions.get_mut(index)
                            && execution.token == self.executions[index].token
                        {
                            execution.on_the_way = Some(message);
                        }
                        next
                    });
                    add(format!("{message:?} of {name} arrives, its reply is lost"), true, arrived);
                }
            }
            let mut next = self.clone();
            next.executions.remove(index);
            add(format!("the process of {name} dies"), true, Ok(next));
        }
        if self.status == JobState::Running && !self.expired {
            let mut next = self.clone();
            next.expired = true;
            add("the lease runs out".to_owned(), true, Ok(next));
        }
        if rules.reaps {
            if self.status == JobState::Running && self.expired && self.reading.is_none() {
                let mut next = self.clone();
                next.reading = Some(Reading { token: self.token, is_current: true });
                add("the reaper reads".to_owned(), true, Ok(next));
            }
            if let Some(reading) = self.reading {
                add("the reaper writes".to_owned(), true, self.reaped(reading, rules));
            }
        }
        if matches!(self.status, JobState::Pending | JobState::Retrying) {
            let mut next = self.clone();
            next.let_go(JobState::Canceled);
            next.canceled_answered = true;
            add("a person cancels".to_owned(), false, Ok(next));
        }
        if self.status == JobState::Running && !self.cancel_requested {
            let mut next = self.clone();
            next.cancel_requested = true;
            // A system that answers "canceled" and leaves the row to its holder.
            next.canceled_answered = !rules.cancel_waits_for_the_holder;
            add("a person cancels the running job".to_owned(), false, Ok(next));
        }
        if matches!(self.status, JobState::Failed | JobState::Canceled) && self.n_retries < MAX_RETRIES {
            let mut next = self.clone();
            next.let_go(JobState::Pending);
            (next.attempts, next.stalled, next.n_retries) = (0, 0, self.n_retries + 1);
            next.counted_starts = 0;
            (next.cancel_requested, next.canceled_answered) = (false, false);
            if !rules.retry_keeps_token {
                next.token = 0;
            }
            add("a person retries".to_owned(), false, Ok(next));
        }
        steps
    }

    fn claimed(&self, worker: u8, rules: Rules) -> Result<Self, &'static str> {
        let mut next = self.clone();
        next.token += 1;
        if next.executions.iter().any(|execution| execution.token == next.token) {
            return Err("two executions never share a token");
        }
        next.attempts += i8::from(rules.attempt_counts_at_claim);
        next.counted_starts += 1;
        next.status = JobState::Running;
        next.locked_by = worker;
        next.lease_changes();
        next.executions.push(Execution {
            worker,
            token: next.token,
            attempts: if rules.outcome == Guard::Attempts { next.attempts } else { 0 },
            on_the_way: None,
            n_outcomes: 0,
            taken: None,
            holds: true,
        });
        Ok(next)
    }

    fn arrived(&self, index: usize, message: Message, rules: Rules) -> Result<Self, &'static str> {
        let mut next = self.clone();
        let execution = self.executions[index];
        next.executions[index].on_the_way = None;
        if message == Message::Heartbeat {
            if self.allows(rules.heartbeat, &execution) {
                if !execution.holds {
                    return Err("only the holder's lease is renewed");
                }
                next.lease_changes();
            }
            return Ok(next);
        }
        if execution.taken == Some(message) {
            // The same outcome again: answered with yes, changes nothing.
            return Ok(next);
        }
        if !self.allows(rules.outcome, &execution) {
            return Ok(next);
        }
        if !execution.holds && self.executions.iter().any(|other| other.holds) {
            return Err("a late outcome is refused while another runs");
        }
        if execution.taken.is_some() || !execution.holds {
            return match rules.outcome {
                Guard::TokenAndStatus | Guard::Token => Err("one outcome a token"),
                // These rules are to be caught where a check of the state alone would not catch them.
                _ => Ok(next),
            };
        }
        if matches!(message, Message::Snooze | Message::Release) && self.n_given_back >= MAX_GIVEN_BACK {
            // Beyond the bounds of the search.
            return Ok(next);
        }
        next.executions[index].taken = Some(message);
        let out_of_attempts = self.attempts + i8::from(!rules.attempt_counts_at_claim) >= MAX_ATTEMPTS;
        let to = match message {
            Message::Complete => JobState::Succeeded,
            _ if self.cancel_requested => JobState::Canceled,
            Message::Fail if out_of_attempts => JobState::Failed,
            Message::FailForGood => JobState::Failed,
            Message::Release => JobState::Pending,
            _ => JobState::Retrying,
        };
        match message {
            Message::Fail => next.attempts += i8::from(!rules.attempt_counts_at_claim),
            Message::Snooze | Message::Release => {
                // A system that counts failures keeps the number above 0, and takes away what another start was counted for.
                let floor = if rules.attempt_counts_at_claim { i8::MIN } else { 0 };
                (next.attempts, next.n_given_back) = ((self.attempts - 1).max(floor), self.n_given_back + 1);
                next.counted_starts -= 1;
            }
            Message::Complete | Message::FailForGood | Message::Heartbeat => {}
        }
        next.let_go(to);
        Ok(next)
    }

    fn reaped(&self, reading: Reading, rules: Rules) -> Result<Self, &'static str> {
        let mut next = self.clone();
        next.reading = None;
        let running = self.status == JobState::Running;
        let as_read = self.token == reading.token && reading.is_current;
        let writes = match rules.reaper {
            ReaperGuard::TokenAndExpiry => running && as_read && self.expired,
            ReaperGuard::Id => true,
            ReaperGuard::Status => running,
            ReaperGuard::Token => running && self.token == reading.token,
        };
        if !writes {
            return Ok(next);
        }
        if !(running && as_read && self.expired) {
            return Err("a lease that was renewed or ended is not reaped");
        }
        next.stalled += 1;
        next.counted_starts -= 1;
        next.attempts -= i8::from(rules.attempt_counts_at_claim);
        let to = if self.cancel_requested {
            JobState::Canceled
        } else if self.stalled < MAX_STALLED || !rules.stalls_are_capped {
            JobState::Retrying
        } else {
            JobState::Failed
        };
        next.let_go(to);
        Ok(next)
    }
}
