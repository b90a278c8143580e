//! What became of an action, as it is told on the page the reader returns to. Crosses a redirect as `notice=`.

use jobdeck::{JobId, JobState};
use serde::{Deserialize, Serialize};

/// Why an action changed nothing, though the reader may do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The job is in this state now, which the action does not fit.
    State(JobState),
    /// Another job holds the idempotency key.
    KeyHeld(JobId),
    /// There is no such job any more.
    Gone,
}

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// The job waits to run again.
    Retried,
    /// The job is canceled.
    Canceled,
    /// The running job was asked to stop.
    CancelRequested,
    /// Nothing changed.
    Refused(Refusal),
    /// The reader may not do this.
    Forbidden,
    /// The server could not do it.
    Failed,
}

impl Notice {
    /// Whether the action did what was asked.
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Retried | Self::Canceled | Self::CancelRequested)
    }

    /// The word in the address.
    pub fn print(self) -> String {
        match self {
            Self::Retried => "retried".to_owned(),
            Self::Canceled => "canceled".to_owned(),
            Self::CancelRequested => "cancel-requested".to_owned(),
            Self::Refused(Refusal::State(state)) => format!("is-{state}"),
            Self::Refused(Refusal::KeyHeld(by)) => format!("key-held.{by}"),
            Self::Refused(Refusal::Gone) => "gone".to_owned(),
            Self::Forbidden => "forbidden".to_owned(),
            Self::Failed => "failed".to_owned(),
        }
    }

    /// Reads such a word.
    pub fn read(word: &str) -> Option<Self> {
        Some(match word {
            "retried" => Self::Retried,
            "canceled" => Self::Canceled,
            "cancel-requested" => Self::CancelRequested,
            "gone" => Self::Refused(Refusal::Gone),
            "forbidden" => Self::Forbidden,
            "failed" => Self::Failed,
            other => match (other.strip_prefix("is-"), other.strip_prefix("key-held.")) {
                (Some(state), _) => Self::Refused(Refusal::State(state.parse().ok()?)),
                (_, Some(id)) => Self::Refused(Refusal::KeyHeld(id.parse().ok()?)),
                _ => return None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back_as_it_was() {
        let id = "01a22b0e-9268-773c-b768-db5b8f4d3e27".parse().unwrap();
        let refusals = JobState::ALL.map(Refusal::State).into_iter().chain([Refusal::KeyHeld(id), Refusal::Gone]);
        let plain = [Notice::Retried, Notice::Canceled, Notice::CancelRequested, Notice::Forbidden, Notice::Failed];
        for notice in plain.into_iter().chain(refusals.map(Notice::Refused)) {
            assert_eq!(Notice::read(&notice.print()), Some(notice));
        }
        assert_eq!(Notice::read("<script>"), None);
    }
}
