//! The HTTP client reqwest.

use std::time::Duration;

use super::{JobError, code, io};

/// How much of an unsuccessful response is read: enough for its message, bounded whatever it sends.
const MAX_READ_BYTES: usize = 4 * 1024;

/// How long the message of an unsuccessful response is waited for.
const READ_WITHIN: Duration = Duration::from_secs(5);

impl From<reqwest::Error> for JobError {
    /// Timeouts, broken and refused connections and answers that cannot be read try again; a request that cannot be built
    /// and a redirect that leads nowhere do not. Statuses are those of [`JobError::from_status`], without the wait that the
    /// server asked for: `error_for_status` has dropped it, [`JobError::check_response`] keeps it.
    ///
    /// The detail names scheme, host and path of the address. User, password and query, where keys are, are left out.
    fn from(mut error: reqwest::Error) -> Self {
        if let Some(url) = error.url_mut() {
            url.set_query(None);
            url.set_fragment(None);
            // Addresses that cannot have them refuse.
            let _ = url.set_password(None);
            let _ = url.set_username("");
        }
        let detail = crate::handler::chain(&error);
        if let Some(status) = error.status() {
            Self::from_status(status.as_u16(), detail)
        } else if error.is_timeout() {
            Self::retryable(code::TIMEOUT, detail)
        } else if error.is_builder() {
            Self::unrecoverable(code::INVALID_PAYLOAD, detail)
        } else if error.is_redirect() {
            Self::unrecoverable(code::HTTP_UNEXPECTED, detail)
        } else if error.is_decode() && io::kind_in_chain(&error).is_none() && !is_cut_short(&error) {
            // A page of a proxy instead of the JSON that was expected, for example.
            Self::retryable(code::HTTP_UNEXPECTED, detail)
        } else {
            Self::retryable(code::CONNECTION, detail)
        }
    }
}

/// Whether reading the answer's body failed, rather than making sense of it.
fn is_cut_short(error: &reqwest::Error) -> bool {
    io::causes(error).skip(1).any(|cause| cause.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_body))
}

impl JobError {
    /// Passes a successful response on; makes any other an error that keeps the wait the server asked for, and the first
    /// 1 KiB of its message. See [`JobError::from_response`].
    ///
    /// # Errors
    /// For every status but 2xx.
    pub async fn check_response(mut response: reqwest::Response) -> Result<reqwest::Response, Self> {
        if response.status().is_success() {
            return Ok(response);
        }
        let mut body = Vec::new();
        // A message that breaks off or never ends is better than none; the status is what counts.
        let read = async {
            while body.len() < MAX_READ_BYTES
                && let Ok(Some(chunk)) = response.chunk().await
            {
                body.extend_from_slice(&chunk[..chunk.len().min(MAX_READ_BYTES - body.len())]);
            }
        };
        let _ = tokio::time::timeout(READ_WITHIN, read).await;
        let header = |name: &str| response.headers().get(name)?.to_str().ok();
        Err(Self::from_response(response.status().as_u16(), header, body))
    }
}
