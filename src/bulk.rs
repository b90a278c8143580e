//! What a person does to many jobs at once: which action, to which states it applies, how far it is. Pure.

use serde::{Deserialize, Serialize};

use crate::JobState;

/// What is done to each job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkAction {
    /// Sends failed and canceled jobs back to the queue, as a person's retry does.
    Retry,
    /// Cancels waiting jobs and asks running ones to stop.
    Cancel,
    /// Deletes ended jobs for good and frees their idempotency keys.
    Delete,
}

impl BulkAction {
    /// Every action.
    pub const ALL: [BulkAction; 3] = [Self::Retry, Self::Cancel, Self::Delete];

    /// The word used in SQL and URLs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
        }
    }

    /// The states whose jobs it changes; jobs in others are left alone.
    pub const fn states(self) -> &'static [JobState] {
        match self {
            Self::Retry => &[JobState::Failed, JobState::Canceled],
            Self::Cancel => &[JobState::Pending, JobState::Running, JobState::Retrying],
            Self::Delete => &[JobState::Failed, JobState::Succeeded, JobState::Canceled],
        }
    }

    /// Whether it changes jobs in `state`.
    pub fn applies_to(self, state: JobState) -> bool {
        self.states().contains(&state)
    }
}

impl std::fmt::Display for BulkAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for BulkAction {
    type Error = String;
    fn try_from(word: String) -> Result<Self, Self::Error> {
        Self::ALL
            .into_iter()
            .find(|action| action.as_str() == word)
            .ok_or_else(|| format!("unknown bulk action {word:?}"))
    }
}

/// Where a bulk operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkState {
    /// Some process takes it a batch further from time to time.
    Running,
    /// Every job that matched at the press was looked at.
    Done,
    /// A person stopped it. What was done stays done.
    Aborted,
    /// Several batches in a row were refused by the database. What was done stays done.
    Failed,
}

impl BulkState {
    /// Every state.
    pub const ALL: [BulkState; 4] = [Self::Running, Self::Done, Self::Aborted, Self::Failed];

    /// The word used in SQL and URLs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }
}

impl TryFrom<String> for BulkState {
    type Error = String;
    fn try_from(word: String) -> Result<Self, Self::Error> {
        Self::ALL.into_iter().find(|state| state.as_str() == word).ok_or_else(|| format!("unknown bulk state {word:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transition;

    #[test]
    fn each_action_applies_to_the_states_its_transition_leads_on_from() {
        for state in JobState::ALL {
            let retry = state.allows(Transition::RetryByPerson, JobState::Pending);
            assert_eq!(BulkAction::Retry.applies_to(state), retry, "{state}");
            let cancel = state.allows(Transition::Cancel, JobState::Canceled);
            assert_eq!(BulkAction::Cancel.applies_to(state), cancel, "{state}");
            assert_eq!(BulkAction::Delete.applies_to(state), state.is_final(), "{state}");
        }
    }
}
