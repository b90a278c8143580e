//! What a handler starts and waits for: tasks, and anything for a limited time.

use super::{JobError, code};

impl From<tokio::task::JoinError> for JobError {
    /// A panic in a task that the handler waits for is the handler's: code `panic`, with message and place. So
    /// `tokio::spawn(work).await?` needs no other care.
    fn from(error: tokio::task::JoinError) -> Self {
        crate::worker::panic_error(error)
    }
}

impl From<tokio::time::error::Elapsed> for JobError {
    /// What `tokio::time::timeout` gave up on may be faster next time.
    fn from(_: tokio::time::error::Elapsed) -> Self {
        Self::retryable(code::TIMEOUT, "the handler stopped waiting for something that took too long")
    }
}
