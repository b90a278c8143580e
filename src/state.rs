//! The six states of a job and the one table of transitions between them. Pure; drawn in `docs/state-machine.md`.

use serde::{Deserialize, Serialize};

/// Where a job stands. Column `status`, shown as "State".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Not started. It may be due later or wait for a slot.
    Pending,
    /// A worker holds a lease on it and sends heartbeats.
    Running,
    /// An attempt ended without success; the next one is planned.
    Retrying,
    /// Finished. Final: not even a person can change it.
    Succeeded,
    /// Ended without success. Final, but for a person's retry.
    Failed,
    /// Stopped by a person before it ended. Final, but for a person's retry.
    Canceled,
}

/// What moves a job from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// A worker takes a due job.
    Claim,
    /// The handler returned a result.
    Complete,
    /// The attempt ended badly and another may follow.
    Retry,
    /// The attempt ended badly and no other follows.
    Fail,
    /// The handler asked for a pause, or a provider did. The attempt is given back.
    Snooze,
    /// A stopping worker hands the job back. The attempt is given back.
    Release,
    /// The lease ran out. The attempt is given back, the stall is counted.
    Reap,
    /// A person stopped it.
    Cancel,
    /// A person sends an ended job back to the start.
    RetryByPerson,
}

impl JobState {
    /// Every state, in the order the deck lists them.
    pub const ALL: [JobState; 6] =
        [Self::Pending, Self::Running, Self::Retrying, Self::Failed, Self::Succeeded, Self::Canceled];

    /// Whether nothing more happens by itself.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }

    /// Whether a worker may claim it once it is due.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Pending | Self::Retrying)
    }

    /// The word used in SQL, URLs and CSS.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    /// Whether `transition` may lead from this state to `to`. Everything not listed is impossible, in SQL as well
    /// (`jobdeck.transition_is_forbidden`).
    pub const fn allows(self, transition: Transition, to: JobState) -> bool {
        use JobState::*;
        matches!(
            (transition, self, to),
            (Transition::Claim, Pending | Retrying, Running)
                | (Transition::Complete, Running, Succeeded)
                | (Transition::Retry, Running, Retrying)
                | (Transition::Fail, Running, Failed)
                | (Transition::Snooze, Running, Retrying)
                | (Transition::Release, Running, Pending)
                | (Transition::Reap, Running, Retrying | Failed | Canceled)
                | (Transition::Cancel, Pending | Retrying | Running, Canceled)
                | (Transition::RetryByPerson, Failed | Canceled, Pending)
        )
    }

    /// Whether any transition leads from this state to `to`.
    pub fn reaches(self, to: JobState) -> bool {
        Transition::ALL.iter().any(|transition| self.allows(*transition, to))
    }
}

impl Transition {
    /// Every transition.
    pub const ALL: [Transition; 9] = [
        Self::Claim,
        Self::Complete,
        Self::Retry,
        Self::Fail,
        Self::Snooze,
        Self::Release,
        Self::Reap,
        Self::Cancel,
        Self::RetryByPerson,
    ];
}

impl std::fmt::Display for JobState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown state {0:?}: one of pending, running, retrying, succeeded, failed, canceled")]
pub struct UnknownState(pub String);

impl std::str::FromStr for JobState {
    type Err = UnknownState;
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.as_str() == word).ok_or_else(|| UnknownState(word.to_owned()))
    }
}

impl TryFrom<String> for JobState {
    type Error = UnknownState;
    fn try_from(word: String) -> Result<Self, Self::Error> {
        word.parse()
    }
}
