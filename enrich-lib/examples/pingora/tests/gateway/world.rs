//! A gateway on a real socket. Its upstream echoes requests, and tests can block its stores.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::Policy;
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::{ProfileUrl, WorkspaceId};
use enrich_lib::ports::{Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Quota, Window, Workspace};
use enrich_pingora::gateway::Gateway;
use pingora::proxy::http_proxy_service;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};
use tokio::sync::{Notify, Semaphore};

use crate::client::{Client, Reply};

/// The email of a person who is found.
pub const KNOWN: &str = "ada.marlowe@gmail.com";
pub const KNOWN_URL: &str = "https://www.linkedin.com/in/ada-marlowe";
/// An email that is not found.
pub const UNKNOWN: &str = "unknown.person@gmail.com";
/// An email that makes the resolver panic.
pub const POISON: &str = "poison@gmail.com";

/// A timeout for the slowest machine. Only failing tests reach it.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Overrides for tests.
pub struct Settings {
    pub credits: u64,
    pub limit: u32,
    pub body_timeout: Duration,
    pub windows: Option<Arc<dyn Windows>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { credits: 10, limit: 1_000, body_timeout: 2 * TIMEOUT, windows: None }
    }
}

pub struct World {
    pub key: String,
    pub people: Arc<People>,
    credits: Arc<AccountTable>,
    workspace: WorkspaceId,
    server: Running,
}

impl World {
    pub fn open() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        let workspace: WorkspaceId = "acme".parse().unwrap();
        let quota = Quota::new(settings.limit, 3_600).unwrap();
        let key = ApiKey::generate(rand::random);
        let keys = KeyTable::default();
        keys.insert(key.digest(), Workspace { id: workspace.clone(), quota });
        let credits = Arc::new(AccountTable::default());
        credits.grant(&workspace, settings.credits).unwrap();
        let people = Arc::new(People::default());
        let service = Service {
            policy: Arc::new(Policy::default()),
            keys: Arc::new(keys),
            windows: settings.windows.unwrap_or_else(|| Arc::new(WindowTable::default())),
            credits: credits.clone(),
            resolver: people.clone(),
        };
        let gateway = Gateway { service, upstream: upstream(), body_timeout: settings.body_timeout };
        let server = Running::start(gateway);
        Self { key: key.reveal().to_string(), people, credits, workspace, server }
    }

    pub fn balance(&self) -> Balance {
        self.credits.balance(&self.workspace)
    }

    /// Opens a new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.server.address)
    }

    /// Returns the head of a lookup without the headers of its body and without the empty line.
    pub fn head(&self) -> String {
        format!(
            "POST /api/v1/person/enrich HTTP/1.1\r\nhost: api.example\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\n",
            self.key
        )
    }

    pub fn lookup(&self, email: &str) -> String {
        with_body(&self.head(), &format!(r#"{{"email":"{email}"}}"#))
    }

    /// Sends a lookup on a new connection and returns the reply.
    pub fn look_up(&self, email: &str) -> Reply {
        self.connect().ask(self.lookup(email))
    }
}

/// A running gateway, which stops on drop.
pub struct Running {
    pub address: SocketAddr,
    stop: Arc<Notify>,
    server: Option<thread::JoinHandle<()>>,
}

impl Running {
    pub fn start(gateway: Gateway) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let stop = Arc::new(Notify::new());
        let server = thread::spawn({
            let stop = Stop(stop.clone());
            move || {
                let mut server = Server::new_with_opt_and_conf(None, ServerConf::default());
                server.bootstrap();
                let mut proxy = http_proxy_service(&server.configuration, gateway);
                proxy.add_tcp(&address.to_string());
                server.add_service(proxy);
                server.run(RunArgs { shutdown_signal: Box::new(stop) });
            }
        });
        eventually("the gateway listens", || TcpStream::connect(address).is_ok());
        Self { address, stop, server: Some(server) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.notify_one();
        let ended = self.server.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the server panicked");
    }
}

struct Stop(Arc<Notify>);

#[async_trait]
impl ShutdownSignalWatch for Stop {
    async fn recv(&self) -> ShutdownSignal {
        self.0.notified().await;
        ShutdownSignal::FastShutdown
    }
}

/// Returns `head` with a content length and the empty line, followed by `body`.
pub fn with_body(head: &str, body: &str) -> String {
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

/// Waits until `probe` returns `true`, for events that cannot be awaited.
pub fn eventually(what: &str, mut probe: impl FnMut() -> bool) {
    let started = Instant::now();
    while !probe() {
        assert!(started.elapsed() < TIMEOUT, "not in {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A resolver that a test can block.
pub struct People {
    directory: Directory,
    requests: AtomicUsize,
    /// One permit per call. Unlimited while the gate is open.
    gate: Semaphore,
}

impl Default for People {
    fn default() -> Self {
        let directory = Directory::default();
        directory.insert(&Email::parse(KNOWN).unwrap(), ProfileUrl::from_name("ada-marlowe").unwrap());
        Self { directory, requests: AtomicUsize::new(0), gate: Semaphore::new(Semaphore::MAX_PERMITS) }
    }
}

impl People {
    pub fn lookups(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Blocks all calls until the gate is opened.
    pub fn close_gate(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub fn open_gate(&self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS);
    }
}

#[async_trait]
impl Resolver for People {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let _permit = self.gate.acquire().await.map_err(PortError::new)?;
        assert!(query.email != Email::parse(POISON).unwrap(), "poisoned");
        self.directory.find(query).await
    }
}

/// A rate-limit store that never answers.
pub struct HungWindows;

#[async_trait]
impl Windows for HungWindows {
    async fn count(&self, _: &Window) -> Result<u64, PortError> {
        std::future::pending().await
    }
}

/// Starts an upstream that replies 203 with the received request line and body, then closes the connection.
pub fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut client = Client::of(tcp.unwrap());
            let request = client.reply(); // a request has the same structure
            let line = request.head.lines().next().unwrap();
            let echo = format!("{line}\n{}", request.body);
            client.send(with_body("HTTP/1.1 203 OK\r\nconnection: close\r\n", &echo));
        }
    });
    address
}
