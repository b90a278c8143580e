//! Connections: accepted until the stop, with a bound on their number, on that of each peer, and on slow ones.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};

use super::places::Places;
use crate::config::HttpConfig;

/// Connections served at once; more wait in the system's queue.
const MAX_CONNECTIONS: usize = 4096;
/// How long a connection may take to send a request's head, also the first and the next one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How much of a reply the system keeps unsent. What it has taken looks like progress, so with more of it a peer that
/// reads nothing could not be told from one that reads.
#[cfg(target_os = "linux")]
const MAX_UNSENT: u32 = 128 * 1024;
/// Peers over their bound are named in the log at most this often.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Serves `app` until `stop` completes, then gives open requests `grace` to end. A peer that takes nothing of its replies
/// for [`ConnectionLimits::write_timeout`](crate::config::ConnectionLimits) loses its connection; one with too many
/// connections gets no further one, unless it is a listed proxy.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    config: Arc<HttpConfig>,
    stop: impl Future<Output = ()>,
    grace: Duration,
) {
    let connections = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let peers = Places::new(config.connections.per_address);
    let mut warned_at: Option<Instant> = None;
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: others are closed meanwhile.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let own_place = match peers.take(peer.ip()) {
            None if !config.trusted_proxies.contains(peer.ip()) => {
                if warned_at.is_none_or(|at| at.elapsed() > WARN_EVERY) {
                    warned_at = Some(Instant::now());
                    tracing::warn!(peer = %peer.ip(), "refused a connection: this address has too many (if it is a proxy, see JOBDECK_TRUSTED_PROXIES)");
                }
                continue;
            }
            own_place => own_place,
        };
        let connection = connections.watch(connection(stream, peer, app.clone(), config.connections.write_timeout));
        tokio::spawn(async move {
            let _places = (place, own_place);
            if let Err(error) = connection.await {
                tracing::trace!(%error, "connection ended early");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(grace, connections.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time and were cut off");
    }
}

/// The routes, told who the peer is.
type App = TowerToHyperService<axum::middleware::AddExtension<Router, ConnectInfo<SocketAddr>>>;

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    app: Router,
    write_timeout: Duration,
) -> http1::Connection<TokioIo<Impatient<TcpStream>>, App> {
    // Small replies and events go out at once.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        let socket = socket2::SockRef::from(&stream);
        // What was sent and is never taken, such as the events of a browser that sleeps, ends in the system's own time.
        for kept in [socket.set_tcp_user_timeout(Some(write_timeout)), socket.set_tcp_notsent_lowat(MAX_UNSENT)] {
            if let Err(error) = kept {
                tracing::debug!(%error, "a connection keeps the system's own bounds");
            }
        }
    }
    let app = tower::Layer::layer(&axum::Extension(ConnectInfo(peer)), app);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(Impatient::new(stream, write_timeout)), TowerToHyperService::new(app))
}

/// A stream whose writes fail once the peer has taken nothing for a while. Reads, and streams with nothing to write, may
/// take any time.
struct Impatient<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits for the peer.
    out_of_patience: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> Impatient<S> {
    fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, out_of_patience: Box::pin(tokio::time::sleep(patience)), is_waiting: false }
    }

    fn judge<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.is_waiting = false;
            return outcome;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.out_of_patience.as_mut().reset(Instant::now() + self.patience);
        }
        self.out_of_patience.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.judge(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judge(cx, outcome)
    }
}
