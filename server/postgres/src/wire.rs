//! As much of Postgres' protocol as it takes to see that a server is ready: open a session and look at the first answer.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The server is still starting or already stopping (SQLSTATE class 57P).
const NOT_NOW: &[u8] = b"57P";
/// Time between two questions.
pub(crate) const POLL: Duration = Duration::from_millis(25);

/// Asks until the server takes sessions; gives up when `alive` says no or the time is over.
pub(crate) fn wait_until_ready(port: u16, limit: Duration, mut alive: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if is_ready(port) {
            return true;
        }
        if !alive() {
            return false;
        }
        std::thread::sleep(POLL);
    }
    false
}

/// Whether a server on that port takes sessions now.
pub(crate) fn is_ready(port: u16) -> bool {
    first_answer(port).is_some_and(|answer| match answer.first() {
        // Asks for a password: it would let us in.
        Some(b'R') => true,
        // Any other error, such as too many sessions, comes from a server that is up.
        Some(b'E') => !answer.windows(NOT_NOW.len() + 1).any(|part| part[0] == b'C' && &part[1..] == NOT_NOW),
        _ => false,
    })
}

/// Sends a start-up message for the role and database `postgres` and reads what comes back.
fn first_answer(port: u16) -> Option<Vec<u8>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(8 + parameters.len()).ok()?;
    let mut message = length.to_be_bytes().to_vec();
    // Protocol 3.0.
    message.extend(196_608_u32.to_be_bytes());
    message.extend(parameters);
    stream.write_all(&message).ok()?;
    let mut answer = vec![0; 512];
    let length = stream.read(&mut answer).ok()?;
    answer.truncate(length);
    Some(answer)
}
