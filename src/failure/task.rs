//! Tasks that a handler starts and waits for.

use super::JobError;

impl From<tokio::task::JoinError> for JobError {
    /// A panic in a task that the handler waits for is the handler's: code `panic`, with message and place. So
    /// `tokio::spawn(work).await?` needs no other care.
    fn from(error: tokio::task::JoinError) -> Self {
        crate::worker::panic_error(error)
    }
}
