//! Mail by lettre.

use lettre::address::AddressError;
use lettre::transport::smtp;

use super::{JobError, code, io};

impl From<smtp::Error> for JobError {
    /// Temporary refusals (4xx), timeouts and broken connections try again; final refusals (5xx) do not, nor does what
    /// this client and that server cannot agree on, such as encryption or a way to sign in.
    ///
    /// | reply | class | code |
    /// |---|---|---|
    /// | 421 | retryable | `connection` |
    /// | other 4xx (450, 451, 452, …) | retryable | `mail_deferred` |
    /// | 530, 534, 535, 538 | unrecoverable | `invalid_credentials` |
    /// | 552 | unrecoverable | `quota`, or `invalid_content` if the message is too large |
    /// | 521, 550, 551, 553, 556 | unrecoverable | `invalid_recipient`, or `mail_refused` if it is a policy or the sender |
    /// | other 5xx (554, …) | unrecoverable | `mail_refused` |
    ///
    /// lettre's asynchronous transport limits only the time to connect; a server that falls silent later is waited for until
    /// the job's own timeout. `tokio::time::timeout(limit, transport.send(mail)).await??` ends it earlier.
    ///
    /// The enhanced status code (RFC 3463, `5.1.1`), where the server sends one, is more exact than the reply and wins.
    fn from(error: smtp::Error) -> Self {
        let detail = error.to_string();
        if let Some(reply) = error.status().and_then(|status| status.to_string().parse().ok()) {
            return from_reply(reply, detail);
        }
        let is_late = error.is_timeout() || io::kind_in_chain(&error) == Some(std::io::ErrorKind::WouldBlock);
        if is_late {
            Self::retryable(code::TIMEOUT, detail)
        } else if error.is_client() {
            Self::unrecoverable(code::MAIL_REFUSED, detail)
        } else {
            Self::retryable(code::CONNECTION, detail)
        }
    }
}

impl From<lettre::error::Error> for JobError {
    /// A message that cannot be put together or addressed stays so.
    fn from(error: lettre::error::Error) -> Self {
        use lettre::error::Error;
        let detail = error.to_string();
        match error {
            Error::Io(error) => error.into(),
            Error::MissingTo | Error::EmailMissingAt | Error::EmailMissingLocalPart | Error::EmailMissingDomain => {
                Self::unrecoverable(code::INVALID_RECIPIENT, detail)
            }
            _ => Self::unrecoverable(code::INVALID_PAYLOAD, detail),
        }
    }
}

impl From<AddressError> for JobError {
    /// What is no address stays none.
    fn from(error: AddressError) -> Self {
        Self::unrecoverable(code::INVALID_RECIPIENT, format!("mail address: {error}"))
    }
}

fn from_reply(reply: u16, detail: String) -> JobError {
    let code = match (reply, enhanced_status(&detail)) {
        (421, _) => return JobError::retryable(code::CONNECTION, detail),
        (..500, _) => return JobError::retryable(code::MAIL_DEFERRED, detail),
        (530 | 534 | 535 | 538, _) => code::INVALID_CREDENTIALS,
        // Message too large: for the mailbox, for the system.
        (_, Some((5, 2, 3) | (5, 3, 4))) => code::INVALID_CONTENT,
        // Mailbox full, system full.
        (_, Some((5, 2, 2) | (5, 3, 1))) => code::QUOTA,
        // The sender's address.
        (_, Some((5, 1, 7 | 8))) => code::MAIL_REFUSED,
        (_, Some((5, 1, _) | (5, 2, 1))) => code::INVALID_RECIPIENT,
        // Security and policy, authentication of the message included.
        (_, Some((5, 7, _))) => code::MAIL_REFUSED,
        (552, _) => code::QUOTA,
        (521 | 550 | 551 | 553 | 556, _) => code::INVALID_RECIPIENT,
        _ => code::MAIL_REFUSED,
    };
    JobError::unrecoverable(code, detail)
}

/// `5.1.1` at the start of the server's words, which follow the reply code.
fn enhanced_status(detail: &str) -> Option<(u16, u16, u16)> {
    let (_, words) = detail.split_once("): ")?;
    let mut numbers = words.split_ascii_whitespace().next()?.split('.').map(str::parse::<u16>);
    let mut number = || numbers.next().and_then(Result::ok);
    let status = (number()?, number()?, number()?);
    numbers.next().is_none().then_some(status)
}
