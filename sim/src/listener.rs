//! The listener of a node.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_service::Service;
use turmoil::net::{TcpListener, TcpStream};

use crate::topology::HTTP_PORT;

/// How long a stopping gateway waits for its connections. Some clients are gone without a word.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Accepts the connections of a node in the simulated network.
#[derive(derive_more::Debug)]
#[debug("Listener")]
pub struct Listener(TcpListener);

impl Listener {
    pub(crate) async fn bind() -> io::Result<Self> {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, HTTP_PORT)).await.map(Self)
    }

    /// Accepts the next connection, for a gateway with a server of its own.
    pub async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }

    /// Serves a tower service, such as axum's `Router`, over HTTP/1.1 and HTTP/2. After `shutdown`, completes
    /// the requests in flight, for at most 10 s.
    pub async fn serve<S, B>(mut self, service: S, shutdown: impl Future<Output = ()>) -> io::Result<()>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<AnyError>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<AnyError>,
    {
        let mut shutdown = pin!(shutdown);
        let (stop, mut connections) = (CancellationToken::new(), JoinSet::new());
        loop {
            let (stream, _) = tokio::select! { biased;
                () = &mut shutdown => break,
                accepted = self.accept() => accepted?,
            };
            let mut builder = auto::Builder::new(TokioExecutor::new());
            // The header would contain the time of the real clock.
            builder.http1().auto_date_header(false);
            builder.http2().auto_date_header(false);
            let service = TowerToHyperService::new(service.clone());
            let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            let stop = stop.clone();
            connections.spawn(async move {
                let mut connection = pin!(connection);
                tokio::select! { biased;
                    _ = connection.as_mut() => return,
                    () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
                }
                // The client observes the end of the connection.
                let _ = connection.await;
            });
            while connections.try_join_next().is_some() {}
        }
        stop.cancel();
        let drained = async { while connections.join_next().await.is_some() {} };
        let _ = timeout(DRAIN_TIMEOUT, drained).await;
        Ok(())
    }
}

/// For the program's server.
impl enrich_host::Listener for Listener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }
}
