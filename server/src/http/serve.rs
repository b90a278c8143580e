//! Connections: accepted until the stop, with a bound on their number and on slow ones.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections served at once; more wait in the system's queue.
const MAX_CONNECTIONS: usize = 4096;
/// How long a connection may take to send a request's head, also the first and the next one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves `app` until `stop` completes, then gives open requests `grace` to end.
pub(crate) async fn serve(listener: TcpListener, app: Router, stop: impl Future<Output = ()>, grace: Duration) {
    let connections = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
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
        let connection = connections.watch(connection(stream, peer, app.clone()));
        tokio::spawn(async move {
            let _place = place;
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

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    app: Router,
) -> http1::Connection<
    TokioIo<TcpStream>,
    TowerToHyperService<axum::middleware::AddExtension<Router, ConnectInfo<SocketAddr>>>,
> {
    // Small replies and events go out at once.
    let _ = stream.set_nodelay(true);
    let app = tower::Layer::layer(&axum::Extension(ConnectInfo(peer)), app);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app))
}
