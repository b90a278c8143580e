//! Input and output: files, sockets, pipes.

use std::io::ErrorKind;

use super::{JobError, code};

impl From<std::io::Error> for JobError {
    /// Timeouts and broken connections try again, a missing file, a missing right and a used-up quota do not. A full disk
    /// and everything else tries again too: there may be room again before the attempts are used up.
    fn from(error: std::io::Error) -> Self {
        from_kind(error.kind(), error.to_string())
    }
}

pub(super) fn from_kind(kind: ErrorKind, detail: String) -> JobError {
    use ErrorKind as Kind;
    match kind {
        Kind::TimedOut => JobError::retryable(code::TIMEOUT, detail),
        Kind::ConnectionRefused
        | Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::NotConnected
        | Kind::BrokenPipe
        | Kind::UnexpectedEof
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::NetworkDown => JobError::retryable(code::CONNECTION, detail),
        Kind::NotFound => JobError::unrecoverable(code::NOT_FOUND, detail),
        Kind::PermissionDenied => JobError::unrecoverable(code::PERMISSION, detail),
        Kind::QuotaExceeded => JobError::unrecoverable(code::QUOTA, detail),
        _ => JobError::retryable(code::IO, detail),
    }
}

/// The kind of the first input or output error among `error` and its causes.
#[cfg(any(feature = "reqwest", feature = "lettre", feature = "object_store"))]
pub(super) fn kind_in_chain(error: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    causes(error).find_map(|cause| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind)
}

/// `error`, what caused it, what caused that, and so on.
#[cfg(any(feature = "reqwest", feature = "lettre", feature = "object_store"))]
pub(super) fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |cause| cause.source())
}
