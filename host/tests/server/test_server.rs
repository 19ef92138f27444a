//! A server with one workspace, one key and one person, reached over in-memory connections.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use enrich_host::pages::{Pages, Peer};
use enrich_host::workers::Workers;
use enrich_host::{Arrivals, Limits, Listener, Services, run};
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::{Arrival, ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Quota, Workspace};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::io::{DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Version, valid_request};
use crate::tls;

pub const BODY: &str = r#"{"email":"ada.marlowe@gmail.com"}"#;

pub const PAGE_REQUEST: &str = "GET / HTTP/1.1\r\nhost: api.example\r\n\r\n";

/// The service of a server, and its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Lookups,
    LookupsOverTls,
    Pages,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Lookups, Self::LookupsOverTls, Self::Pages];

    /// Starts a server with changed limits.
    pub fn start(self, change: impl FnOnce(&mut Limits)) -> TestServer {
        match self {
            Self::Lookups => TestServer::with_limits(change),
            Self::LookupsOverTls => TestServer::with(|services| {
                services.tls = Some(tls::server_config());
                change(&mut services.limits);
            }),
            Self::Pages => {
                let mut limits = Limits::default();
                change(&mut limits);
                let pages = Pages { service: service_fn(page), limits, tls: None, is_socket_shared: false };
                TestServer::start(Arc::default(), |listener, stop| {
                    tokio::spawn(enrich_host::pages::serve(listener, pages, stop.cancelled_owned()))
                })
            }
        }
    }

    /// Returns a request that the server answers with 200.
    pub fn request(self) -> String {
        if self == Self::Pages { PAGE_REQUEST.to_owned() } else { valid_request() }
    }

    /// Opens a connection.
    pub async fn connect(self, server: &TestServer, version: Version) -> Client {
        let io = server.connect_raw(64 * 1_024);
        match (self, version) {
            (Self::LookupsOverTls, Version::Http1) => Client::http1(tls::connect(io, version).await),
            (Self::LookupsOverTls, Version::Http2) => Client::http2(tls::connect(io, version).await).await,
            (_, Version::Http1) => Client::http1(io),
            (_, Version::Http2) => Client::http2(io).await,
        }
    }
}

pub struct TestServer {
    pub started: Instant,
    pub stop: CancellationToken,
    /// The task that runs the server.
    pub task: JoinHandle<()>,
    pub accounts: Arc<AccountTable>,
    connector: Connector,
}

/// Opens connections to a server.
enum Connector {
    Memory(mpsc::UnboundedSender<(DuplexStream, IpAddr)>),
    Tcp(SocketAddr),
}

impl TestServer {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with_limits(change: impl FnOnce(&mut Limits)) -> Self {
        Self::with(|services| change(&mut services.limits))
    }

    /// Starts a server whose lookups wait for the gate.
    pub fn gated(change: impl FnOnce(&mut Limits)) -> (Self, Gate) {
        let gate = Gate::default();
        let server = Self::with(|services| {
            services.service.resolver = Arc::new(gate.clone());
            change(&mut services.limits);
        });
        (server, gate)
    }

    pub fn with(change: impl FnOnce(&mut Services)) -> Self {
        let (mut services, accounts) = services();
        change(&mut services);
        Self::start(accounts, |listener, stop| tokio::spawn(run(listener, services, stop.cancelled_owned())))
    }

    fn start(
        accounts: Arc<AccountTable>,
        serve: impl FnOnce(MemoryListener, CancellationToken) -> JoinHandle<()>,
    ) -> Self {
        let (connector, connections) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let task = serve(MemoryListener(connections), stop.clone());
        let connector = Connector::Memory(connector);
        Self { started: Instant::now(), stop, task, accounts, connector }
    }

    /// Starts a server of TCP connections, on the threads of a pool unless `threads` is 0.
    pub fn on_tcp(listener: TcpListener, threads: usize, change: impl FnOnce(&mut Services)) -> Self {
        let (mut services, accounts) = services();
        change(&mut services);
        let (connector, stop) = (Connector::Tcp(listener.local_addr().unwrap()), CancellationToken::new());
        let stopped = stop.clone().cancelled_owned();
        let workers = NonZeroUsize::new(threads).map(|threads| Workers::start(threads).unwrap());
        let task = tokio::spawn(async move {
            match workers {
                Some(workers) => workers.run(listener, services, stopped).await,
                None => run(listener, services, stopped).await,
            }
        });
        Self { started: Instant::now(), stop, task, accounts, connector }
    }

    /// Opens a connection for HTTP/1.1, or any bytes.
    pub fn connect(&self) -> Client {
        match &self.connector {
            Connector::Memory(_) => self.connect_from("127.0.0.1"),
            Connector::Tcp(address) => {
                let stream = std::net::TcpStream::connect(address).unwrap();
                stream.set_nonblocking(true).unwrap();
                Client::http1(TcpStream::from_std(stream).unwrap())
            }
        }
    }

    /// Returns the address of a server of TCP connections.
    pub fn address(&self) -> SocketAddr {
        let Connector::Tcp(address) = self.connector else { panic!("a server of in-memory connections") };
        address
    }

    pub async fn connect_http2(&self) -> Client {
        Kind::Lookups.connect(self, Version::Http2).await
    }

    pub fn connect_from(&self, address: &str) -> Client {
        Client::http1(self.open(64 * 1_024, address.parse().unwrap()))
    }

    /// Opens a connection with a buffer of this size in each direction.
    pub fn connect_raw(&self, buffer_bytes: usize) -> DuplexStream {
        self.open(buffer_bytes, Ipv4Addr::LOCALHOST.into())
    }

    fn open(&self, buffer_bytes: usize, address: IpAddr) -> DuplexStream {
        let Connector::Memory(connector) = &self.connector else { panic!("a server of TCP connections") };
        let (local, remote) = duplex(buffer_bytes);
        connector.send((remote, address)).unwrap();
        local
    }

    pub fn is_listening(&self) -> bool {
        matches!(&self.connector, Connector::Memory(connector) if !connector.is_closed())
    }

    /// Waits for the end of the server.
    pub async fn stopped(&mut self) {
        (&mut self.task).await.unwrap();
    }

    pub fn spent(&self) -> u64 {
        self.accounts.balance(&workspace()).spent
    }

    pub fn held(&self) -> u64 {
        self.accounts.balance(&workspace()).held
    }

    /// Returns the seconds since the server started, rounded.
    pub fn elapsed_seconds(&self) -> u64 {
        (self.started.elapsed() + Duration::from_millis(500)).as_secs()
    }
}

/// Returns in-memory services that reply to [`BODY`] with 200.
pub fn services() -> (Services, Arc<AccountTable>) {
    let (keys, accounts, people) =
        (KeyTable::default(), Arc::new(AccountTable::default()), Directory::default());
    keys.insert(key().digest(), Workspace::new(workspace(), Quota::default()));
    accounts.grant(&workspace(), 1_000_000).unwrap();
    people.insert(&Email::parse("ada.marlowe@gmail.com").unwrap(), profile());
    let windows = Arc::new(WindowTable::default());
    let service = Service::new(Arc::new(keys), windows, accounts.clone(), Arc::new(people));
    let arrivals = Arc::new(FixedArrivals::default());
    (Services { arrivals, date_header: false, ..Services::new(service) }, accounts)
}

pub fn key() -> ApiKey {
    ApiKey::generate(|| 7)
}

pub fn profile() -> ProfileUrl {
    ProfileUrl::from_name("ada-marlowe").unwrap()
}

pub fn workspace() -> WorkspaceId {
    "demo".parse().unwrap()
}

/// Returns a resolver that calls `find`.
pub fn resolver<F>(find: F) -> Arc<dyn Resolver>
where
    F: Fn(&Query) -> Result<Answer, PortError> + Send + Sync + 'static,
{
    struct Function<F>(F);

    #[async_trait]
    impl<F: Fn(&Query) -> Result<Answer, PortError> + Send + Sync> Resolver for Function<F> {
        async fn find(&self, query: &Query) -> Result<Answer, PortError> {
            (self.0)(query)
        }
    }

    Arc::new(Function(find))
}

/// A resolver that signals each call and completes when it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Notify, Notify)>);

impl Gate {
    pub async fn called(&self) {
        self.0.0.notified().await;
    }

    pub fn open(&self) {
        self.0.1.notify_one();
    }
}

#[async_trait]
impl Resolver for Gate {
    async fn find(&self, _: &Query) -> Result<Answer, PortError> {
        self.0.0.notify_one();
        self.0.1.notified().await;
        Ok(profile().into())
    }
}

/// Answers requests with the address of their peer.
async fn page(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let peer = request.extensions().get::<Peer>().unwrap().0;
    let (head, body) = request.into_parts();
    let (status, page) = match head.uri.path() {
        // Exceeds all buffers between client and server.
        "/large" => (200, "x".repeat(1_000_000)),
        "/empty" => (303, String::new()),
        _ => (200, format!("page of {peer}")),
    };
    match head.uri.path() {
        "/slow" => sleep(Duration::from_secs(3)).await,
        _ => drop(body.collect().await),
    }
    Ok(Response::builder().status(status).body(Full::from(page)).unwrap())
}

struct MemoryListener(mpsc::UnboundedReceiver<(DuplexStream, IpAddr)>);

impl Listener for MemoryListener {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        match self.0.recv().await {
            Some((stream, address)) => Ok((stream, (address, 0).into())),
            None => std::future::pending().await,
        }
    }
}

/// Arrivals at a fixed time, each with a unique identity.
#[derive(Default)]
struct FixedArrivals(AtomicU64);

impl Arrivals for FixedArrivals {
    fn arrive(&self) -> Arrival {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), random)
    }
}
