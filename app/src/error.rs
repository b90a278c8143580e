//! The one error that crosses the wire: a code that pages turn into a fixed sentence. Internals stay in the log.

use leptos::prelude::{FromServerFnError, ServerFnErrorErr};
use leptos::server_fn::codec::JsonEncoding;
use serde::{Deserialize, Serialize};

use crate::model::Refusal;

/// Why a server function did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AppError {
    /// Nobody is signed in, or no longer.
    #[error("not signed in")]
    SignedOut,
    /// The role does not allow it.
    #[error("not allowed")]
    Forbidden,
    /// There is no such thing.
    #[error("not found")]
    NotFound,
    /// The search was given up.
    #[error("took too long")]
    TooSlow,
    /// The action does not fit what the job is now.
    #[error("refused")]
    Refused(Refusal),
    /// The server answered something that could not be read, or refused the request.
    #[error("bad request")]
    BadRequest,
    /// The server could not be reached.
    #[error("not reachable")]
    Unreachable,
    /// The database is away, for now as far as one can tell.
    #[error("the database does not answer")]
    NoDatabase,
    /// Something went wrong; the log has more under this reference.
    #[error("internal error, ref {reference}")]
    Internal {
        /// Stands in the log too.
        reference: String,
    },
}

impl FromServerFnError for AppError {
    type Encoder = JsonEncoding;

    fn from_server_fn_error(error: ServerFnErrorErr) -> Self {
        match error {
            ServerFnErrorErr::Request(_) => Self::Unreachable,
            _ => Self::BadRequest,
        }
    }
}

#[cfg(feature = "ssr")]
mod to_http {
    use http::StatusCode;
    use jobdeck::StoreError;

    use super::*;

    impl AppError {
        /// The HTTP status of the answer.
        pub fn status(&self) -> StatusCode {
            match self {
                Self::SignedOut => StatusCode::UNAUTHORIZED,
                Self::Forbidden => StatusCode::FORBIDDEN,
                Self::NotFound => StatusCode::NOT_FOUND,
                Self::TooSlow | Self::Unreachable | Self::NoDatabase => StatusCode::SERVICE_UNAVAILABLE,
                Self::Refused(_) => StatusCode::CONFLICT,
                Self::BadRequest => StatusCode::BAD_REQUEST,
                Self::Internal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            }
        }
    }

    impl From<StoreError> for AppError {
        fn from(error: StoreError) -> Self {
            if let StoreError::Database(source) = &error
                && source.as_database_error().and_then(|error| error.code()).as_deref() == Some("57014")
            {
                return Self::TooSlow;
            }
            if error.is_transient() {
                tracing::warn!(error = &error as &dyn std::error::Error, "the database did not answer a request");
                return Self::NoDatabase;
            }
            let reference = reference();
            tracing::error!(reference, error = &error as &dyn std::error::Error, "a request failed");
            Self::Internal { reference }
        }
    }

    /// Seven letters and digits that are easy to read out, such as `Q2M-9KD4`.
    fn reference() -> String {
        const LETTERS: &[u8; 32] = b"23456789ABCDEFGHJKMNPQRSTUVWXYZ0";
        // The last seven bytes of a version 7 UUID are random.
        let bytes = uuid::Uuid::now_v7().into_bytes();
        let mut text: String = bytes[9..].iter().map(|byte| LETTERS[usize::from(byte & 31)] as char).collect();
        text.insert(3, '-');
        text
    }
}
