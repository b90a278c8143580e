//! Databases by sqlx. The tables are Postgres's (manual, appendix A: error codes); the first two characters are the class.

use super::{JobError, code};

impl From<sqlx::Error> for JobError {
    /// | error | class | code |
    /// |---|---|---|
    /// | connection lost or refused, pool exhausted, server starting, stopping or full (08, 53, 57P) | retryable | `connection` |
    /// | statement timeout (57014), lock not available (55) | retryable | `timeout` |
    /// | serialisation and deadlock (40), read-only server (25006) | retryable | `database` |
    /// | constraint broken (23), data out of range or malformed (22), a value that cannot be sent | unrecoverable | `invalid_content` |
    /// | no row where one is needed | unrecoverable | `not_found` |
    /// | privilege missing (42501) | unrecoverable | `permission` |
    /// | sign-in refused (28) | unrecoverable | `invalid_credentials` |
    /// | everything else | retryable | `database` |
    ///
    /// A missing table or column is among the rest: a worker that starts before its migration heals by itself.
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error;
        let detail = crate::handler::chain(&error);
        match &error {
            Error::Database(database) => from_sqlstate(database.code().as_deref().unwrap_or_default(), detail),
            Error::Io(io) if io.kind() == std::io::ErrorKind::TimedOut => Self::retryable(code::TIMEOUT, detail),
            Error::PoolClosed => Self::retryable(code::CONNECTION, detail),
            error if is_transient(error) => Self::retryable(code::CONNECTION, detail),
            Error::RowNotFound => Self::unrecoverable(code::NOT_FOUND, detail),
            Error::Encode(_) | Error::InvalidArgument(_) => Self::unrecoverable(code::INVALID_CONTENT, detail),
            _ => Self::retryable(code::DATABASE, detail),
        }
    }
}

/// Whether the same statement may work later without a change: the connection broke, or the server is starting,
/// stopping, full or read-only, or another transaction was in the way.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    use sqlx::Error;
    match error {
        Error::Io(_) | Error::PoolTimedOut | Error::Tls(_) | Error::Protocol(_) | Error::WorkerCrashed => true,
        Error::Database(error) => error.code().is_some_and(|state| {
            // 08 connection, 53 resources, 57 shutdown, start and timeout, 55 lock not available, 25006 read-only,
            // 40 serialisation and deadlock
            ["08", "53", "57", "55", "25006", "40"].iter().any(|prefix| state.starts_with(prefix))
        }),
        _ => false,
    }
}

fn from_sqlstate(state: &str, detail: String) -> JobError {
    let class = state.get(..2).unwrap_or_default();
    match (class, state) {
        (_, "57014") | ("55", _) => JobError::retryable(code::TIMEOUT, detail),
        ("08" | "53" | "57", _) => JobError::retryable(code::CONNECTION, detail),
        ("22" | "23", _) => JobError::unrecoverable(code::INVALID_CONTENT, detail),
        ("28", _) => JobError::unrecoverable(code::INVALID_CREDENTIALS, detail),
        (_, "42501") => JobError::unrecoverable(code::PERMISSION, detail),
        _ => JobError::retryable(code::DATABASE, detail),
    }
}
