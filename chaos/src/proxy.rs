//! A TCP proxy on loopback between a worker and its database, which can swallow what passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Accepts connections until dropped.
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct State {
    /// Connections made before this number keep open, but nothing passes any more.
    swallow_before: AtomicUsize,
    accepted: AtomicUsize,
    /// Cuts each connection right after its next COMMIT-like request was passed on, before the reply.
    cut_replies: AtomicBool,
    cuts: AtomicUsize,
}

impl Proxy {
    /// Forwards to the server of `url`.
    pub(crate) async fn to(url: &str) -> Result<(Self, String)> {
        let parsed: String = url.split("://").nth(1).context("not a URL")?.to_owned();
        let (authority, rest) = parsed.split_once('/').context("the URL names no database")?;
        let (user, address) =
            authority.rsplit_once('@').map_or((None, authority), |(user, address)| (Some(user), address));
        let target = if address.contains(':') { address.to_owned() } else { format!("{address}:5432") };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target, state.clone()));
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        Ok((Self { port, state, _tasks: tasks }, format!("postgres://{user}127.0.0.1:{port}/{rest}")))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing passes on the present connections, which stay open; new ones work.
    pub(crate) fn swallow_present(&self) {
        self.state.swallow_before.store(self.state.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Whether replies are lost after requests were passed on.
    pub(crate) fn cut_replies(&self, on: bool) {
        self.state.cut_replies.store(on, Ordering::SeqCst);
    }

    /// How many connections were cut that way.
    pub(crate) fn cuts(&self) -> usize {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, target: String, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let number = state.accepted.fetch_add(1, Ordering::SeqCst);
        let (target, state) = (target.clone(), state.clone());
        connections.spawn(async move {
            if let Ok(server) = TcpStream::connect(target).await {
                pass(client, server, number, &state).await;
            }
        });
    }
}

async fn pass(client: TcpStream, server: TcpStream, number: usize, state: &State) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let swallows = || number < state.swallow_before.load(Ordering::SeqCst);
    let requests = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let Ok(n @ 1..) = from_client.read(&mut buffer).await else { return };
            if swallows() {
                // Half open: neither passed on nor closed.
                std::future::pending::<()>().await;
            }
            if to_server.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    };
    let replies = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let Ok(n @ 1..) = from_server.read(&mut buffer).await else { return };
            if swallows() {
                std::future::pending::<()>().await;
            }
            // A reply that carries "command complete" of an UPDATE, INSERT or SELECT: what it reports is committed.
            let is_outcome = buffer[..n].windows(7).any(|window| window == b"UPDATE " || window == b"SELECT ");
            if is_outcome && state.cut_replies.load(Ordering::SeqCst) && fastrand::u8(..) < 64 {
                state.cuts.fetch_add(1, Ordering::SeqCst);
                return;
            }
            if to_client.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = replies => {}
    }
}
