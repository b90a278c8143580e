//! Object stores: folders and clouds.

use std::error::Error as StdError;

use object_store::Error;

use super::{JobError, code, io};

impl From<Error> for JobError {
    /// Missing objects, rights and credentials fail at once, as does what cannot work: a path no store can have, an
    /// operation this store lacks, a new object that is there already. Everything else tries again, sorted by the status or
    /// the input-output error that caused it; an object that changed under a condition is read anew by the next attempt.
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match &error {
            Error::NotFound { .. } => Self::unrecoverable(code::NOT_FOUND, detail),
            Error::PermissionDenied { .. } => Self::unrecoverable(code::PERMISSION, detail),
            Error::Unauthenticated { .. } => Self::unrecoverable(code::INVALID_CREDENTIALS, detail),
            Error::InvalidPath { .. } => Self::unrecoverable(code::INVALID_PAYLOAD, detail),
            Error::AlreadyExists { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::UnknownConfigurationKey { .. } => Self::unrecoverable(code::IO, detail),
            Error::Generic { source, .. } => generic(source.as_ref(), detail),
            _ => Self::retryable(code::IO, detail),
        }
    }
}

fn generic(source: &(dyn StdError + 'static), detail: String) -> JobError {
    if let Some(status) = io::causes(source).find_map(status_of) {
        return JobError::from_status(status, detail);
    }
    match io::kind_in_chain(source) {
        Some(kind) => io::from_kind(kind, detail),
        None => JobError::retryable(code::CONNECTION, detail),
    }
}

/// The status of a cloud's answer. The type that holds it cannot be named from outside (`client::retry::RequestError`),
/// its text begins with it.
fn status_of(cause: &(dyn StdError + 'static)) -> Option<u16> {
    let text = cause.to_string();
    let rest = text.strip_prefix("Server returned non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}
