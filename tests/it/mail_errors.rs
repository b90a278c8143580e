//! Real SMTP exchanges with a server on the loopback that answers from a script.

use std::time::Duration;

use jobdeck::FailureClass::{self, Retryable, Unrecoverable};
use jobdeck::{JobError, code};
use lettre::address::Envelope;
use lettre::transport::smtp::authentication::Credentials;
use lettre::{AsyncSmtpTransport, AsyncTransport, SmtpTransport, Tokio1Executor, Transport};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How long a reply is waited for.
const PATIENCE: Duration = Duration::from_millis(400);

/// What the server says to a command, instead of the usual.
type Script = &'static [(&'static str, &'static str)];

async fn converse(stream: TcpStream, script: Script) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = "CONNECT".to_owned();
    let mut is_message = false;
    loop {
        let verb = match line.split_ascii_whitespace().next() {
            _ if is_message && line.trim_end() != "." => "",
            Some(verb) => verb,
            None => "",
        };
        let usual = match verb {
            "CONNECT" => "220 ready",
            "EHLO" => "250-test\r\n250 AUTH PLAIN",
            "AUTH" => "235 welcome",
            "DATA" => "354 go on",
            "QUIT" => "221 bye",
            "" => "",
            _ => "250 ok",
        };
        is_message = verb == "DATA" || (is_message && verb != ".");
        let said = script.iter().find(|(to, _)| *to == verb && !verb.is_empty()).map_or(usual, |(_, said)| said);
        match said {
            "" => {}
            "HANG" => std::future::pending().await,
            "DROP" => return Ok(()),
            said => stream.write_all(format!("{said}\r\n").as_bytes()).await?,
        }
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
    }
}

/// A server for one connection.
async fn server(script: Script) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        converse(stream, script).await
    });
    port
}

const MESSAGE: &[u8] = b"Subject: x\r\n\r\nhello";

fn envelope() -> Result<Envelope, JobError> {
    Ok(Envelope::new(Some("a@example.com".parse()?), vec!["b@example.com".parse()?])?)
}

async fn send(script: Script) -> Result<(), JobError> {
    let port = server(script).await;
    let transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous("127.0.0.1")
        .port(port)
        .credentials(Credentials::new("ana".to_owned(), "pw".to_owned()))
        .build();
    tokio::time::timeout(PATIENCE, transport.send_raw(&envelope()?, MESSAGE)).await??;
    Ok(())
}

/// The same from a thread, which waits for each reply by itself.
async fn send_blocking(script: Script) -> Result<(), JobError> {
    let port = server(script).await;
    let sending = tokio::task::spawn_blocking(move || {
        let transport = SmtpTransport::builder_dangerous("127.0.0.1").port(port).timeout(Some(PATIENCE)).build();
        transport.send_raw(&envelope()?, MESSAGE)?;
        Ok(())
    });
    sending.await?
}

async fn refusal(script: Script) -> JobError {
    send(script).await.expect_err("refused")
}

fn sorted(error: &JobError) -> (FailureClass, &str) {
    (error.class, error.code.as_str())
}

#[tokio::test]
async fn mail_that_is_taken_is_no_error() {
    send(&[]).await.expect("sent");
}

#[tokio::test]
async fn temporary_smtp_replies_are_retryable() {
    let table: [(Script, &str); 6] = [
        (&[("CONNECT", "421 4.3.2 too many connections")], code::CONNECTION),
        (&[("RCPT", "450 4.2.0 greylisted, come back later")], code::MAIL_DEFERRED),
        (&[("RCPT", "451 4.3.0 local error")], code::MAIL_DEFERRED),
        (&[("MAIL", "452 4.3.1 disk full")], code::MAIL_DEFERRED),
        (&[(".", "451 4.7.1 try again")], code::MAIL_DEFERRED),
        (&[("AUTH", "454 4.7.0 directory away")], code::MAIL_DEFERRED),
    ];
    for (script, expected) in table {
        let error = refusal(script).await;
        assert_eq!(sorted(&error), (Retryable, expected), "{script:?}: {error}");
    }
}

#[tokio::test]
async fn final_smtp_replies_are_unrecoverable_and_say_what_was_wrong() {
    let table: [(Script, &str); 12] = [
        (&[("AUTH", "535 5.7.8 bad password")], code::INVALID_CREDENTIALS),
        (&[("MAIL", "530 5.7.0 sign in first")], code::INVALID_CREDENTIALS),
        (&[("RCPT", "550 5.1.1 no such user")], code::INVALID_RECIPIENT),
        (&[("RCPT", "550 no such user")], code::INVALID_RECIPIENT),
        (&[("RCPT", "551 user not local")], code::INVALID_RECIPIENT),
        (&[("RCPT", "553 mailbox name not allowed")], code::INVALID_RECIPIENT),
        (&[("RCPT", "550 5.7.1 relaying denied")], code::MAIL_REFUSED),
        (&[("MAIL", "550 5.1.8 sender's domain does not exist")], code::MAIL_REFUSED),
        (&[("RCPT", "552 mailbox full")], code::QUOTA),
        (&[("RCPT", "550 5.2.2 mailbox full")], code::QUOTA),
        (&[(".", "552 5.3.4 message too big")], code::INVALID_CONTENT),
        (&[(".", "554 5.7.1 looks like spam")], code::MAIL_REFUSED),
    ];
    for (script, expected) in table {
        let error = refusal(script).await;
        assert_eq!(sorted(&error), (Unrecoverable, expected), "{script:?}: {error}");
        let (_, words) = script[0].1.split_once(' ').expect("words");
        assert!(error.detail.contains(words), "{} keeps the server's words", error.detail);
    }
}

#[tokio::test]
async fn mail_server_that_hangs_breaks_off_or_is_away_is_retryable() {
    for step in ["CONNECT", "EHLO", "RCPT", "."] {
        let hang: Script = Box::leak(Box::new([(step, "HANG")]));
        assert_eq!(sorted(&refusal(hang).await), (Retryable, code::TIMEOUT), "hangs at {step}");
        let blocking = send_blocking(hang).await.expect_err("given up");
        assert_eq!(sorted(&blocking), (Retryable, code::TIMEOUT), "hangs at {step}: {blocking}");
        let broken: Script = Box::leak(Box::new([(step, "DROP")]));
        assert_eq!(sorted(&refusal(broken).await), (Retryable, code::CONNECTION), "breaks off at {step}");
    }
    let nonsense = refusal(&[("CONNECT", "HTTP/1.1 200 OK")]).await;
    assert_eq!(sorted(&nonsense), (Retryable, code::CONNECTION), "{nonsense}");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let transport: AsyncSmtpTransport<Tokio1Executor> =
        AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous("127.0.0.1").port(port).build();
    let away = transport.test_connection().await.expect_err("refused");
    assert_eq!(sorted(&away.into()), (Retryable, code::CONNECTION));
}

#[tokio::test]
async fn server_without_a_way_to_sign_in_is_unrecoverable() {
    let error = refusal(&[("EHLO", "250 test")]).await;
    assert_eq!(sorted(&error), (Unrecoverable, code::MAIL_REFUSED), "{error}");
}

#[test]
fn addresses_that_are_none_are_unrecoverable() {
    for address in ["", "ana", "@example.com", "ana@", "a b@example.com"] {
        let error = JobError::from(address.parse::<lettre::Address>().expect_err("refused"));
        assert_eq!(sorted(&error), (Unrecoverable, code::INVALID_RECIPIENT), "{address}");
    }
    let nobody = Envelope::new(None, Vec::new()).expect_err("no recipient");
    assert_eq!(sorted(&nobody.into()), (Unrecoverable, code::INVALID_RECIPIENT));
}
