//! Connections of the admin listener. Each one has one request and a short life, so that clients that hang cannot exclude others for
//! long.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tracing::debug;

/// The maximum number of connections. Further ones wait in the listener's backlog.
pub const CONNECTIONS_MAX: usize = 64;

/// The time for the head of a request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);

/// The time for a whole connection.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(15);

/// The maximum size of a head, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1_024;

/// The pause after the system refused to accept a connection, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections. Never returns.
pub async fn serve(listener: TcpListener, router: Router) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = permits.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = serve_one(stream, router.clone());
                tokio::spawn(async move {
                    let _ = timeout(CONNECTION_TIME_MAX, connection).await;
                    drop(permit);
                });
            }
            Err(error) => {
                debug!(target: "enrich::admin", %error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_one(stream: TcpStream, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false);
    // Errors are those of the client's connection.
    let _ = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}
