//! Connections: HTTP/1.1 and HTTP/2, with or without TLS.
//!
//! The web application has its own listener, so that its limits and its load are separate from those of lookups.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::console::Config;
use crate::router::router;
use crate::session::Peer;

/// The maximum number of connections. Further ones wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 512;

/// The time for a TLS handshake, for the head of a request, and until the next request of a connection.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// How long requests may take after `shutdown`.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// The pause after the system refused to accept a connection, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the web application until `shutdown` resolves. Requests in flight are completed.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    tls: Option<Arc<ServerConfig>>,
    shutdown: impl Future<Output = ()>,
) {
    let connections =
        Arc::new(Connections { router: router(config), tls: tls.map(TlsAcceptor::from), http: http() });
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = async {
            let permit = permits.clone().acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        tokio::select! { biased;
            () = &mut shutdown => break,
            (accepted, permit) = accepted => match accepted {
                Ok((stream, peer)) => {
                    let (connections, watcher) = (connections.clone(), graceful.watcher());
                    tokio::spawn(async move {
                        connections.serve(stream, Peer(peer.ip()), watcher).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::debug!(target: "enrich::console", %error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    let _ = timeout(SHUTDOWN_MAX, graceful.shutdown()).await;
}

struct Connections {
    router: Router,
    tls: Option<TlsAcceptor>,
    http: auto::Builder<TokioExecutor>,
}

fn http() -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(WAIT_MAX).max_headers(64);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(32)
        .max_header_list_size(16 * 1_024)
        .keep_alive_interval(WAIT_MAX)
        .keep_alive_timeout(WAIT_MAX);
    http
}

impl Connections {
    async fn serve(&self, stream: TcpStream, peer: Peer, watcher: Watcher) {
        match &self.tls {
            None => self.serve_http(stream, peer, watcher).await,
            Some(tls) => {
                if let Ok(Ok(stream)) = timeout(WAIT_MAX, tls.accept(stream)).await {
                    self.serve_http(stream, peer, watcher).await;
                }
            }
        }
    }

    async fn serve_http<Io>(&self, io: Io, peer: Peer, watcher: Watcher)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service =
            self.router.clone().map_request(move |mut request: http::Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(peer);
                request.map(Body::new)
            });
        let connection = self.http.serve_connection(TokioIo::new(io), TowerToHyperService::new(service));
        // Errors are those of the client's connection.
        let _ = watcher.watch(connection.into_owned()).await;
    }
}
