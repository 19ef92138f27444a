//! A server with one workspace, one key and one person, reached over in-memory connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use enrich_host::pages::Pages;
use enrich_host::{Arrivals, Limits, Listener, Services, run};
use enrich_lib::credit::Balance;
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::{Arrival, ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::ports::Resolver;
use enrich_lib::window::{Quota, Workspace};
use hyper::service::service_fn;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::pages;

pub const BODY: &str = r#"{"email":"ada.marlowe@gmail.com"}"#;

pub struct TestServer {
    pub started: Instant,
    pub stop: CancellationToken,
    /// The task that runs the server.
    pub task: JoinHandle<()>,
    connector: mpsc::UnboundedSender<(DuplexStream, IpAddr)>,
    pub accounts: Arc<AccountTable>,
}

impl TestServer {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with_limits(change: impl FnOnce(&mut Limits)) -> Self {
        Self::with(|services| change(&mut services.limits))
    }

    pub fn with_resolver(resolver: impl Resolver + 'static) -> Self {
        Self::with(|services| services.service.resolver = Arc::new(resolver))
    }

    pub fn with(change: impl FnOnce(&mut Services)) -> Self {
        let (mut services, accounts) = services();
        change(&mut services);
        let (connector, connections) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(MemoryListener(connections), services, stop.clone().cancelled_owned()));
        Self { started: Instant::now(), stop, task, connector, accounts }
    }

    /// Starts a server of pages.
    pub fn of_pages(change: impl FnOnce(&mut Limits)) -> Self {
        let (connector, connections) = mpsc::unbounded_channel();
        let (stop, mut limits) = (CancellationToken::new(), Limits::default());
        change(&mut limits);
        let service = service_fn(pages::page);
        let served = Pages { service, limits, tls: None, is_socket_shared: false };
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(enrich_host::pages::serve(MemoryListener(connections), served, stopped));
        Self { started: Instant::now(), stop, task, connector, accounts: Arc::default() }
    }

    pub fn connect(&self) -> Client<DuplexStream> {
        Client::new(self.connect_raw(64 * 1_024))
    }

    /// Opens a connection with a buffer of this size in each direction.
    pub fn connect_raw(&self, buffer_bytes: usize) -> DuplexStream {
        let (local, remote) = duplex(buffer_bytes);
        self.connector.send((remote, Ipv4Addr::LOCALHOST.into())).unwrap();
        local
    }

    pub fn connect_from(&self, address: &str) -> Client<DuplexStream> {
        let (local, remote) = duplex(64 * 1_024);
        self.connector.send((remote, address.parse().unwrap())).unwrap();
        Client::new(local)
    }

    pub fn is_listening(&self) -> bool {
        !self.connector.is_closed()
    }

    pub fn balance(&self) -> Balance {
        self.accounts.balance(&workspace())
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
    accounts.grant(&workspace(), 10).unwrap();
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
struct FixedArrivals(AtomicU8);

impl Arrivals for FixedArrivals {
    fn arrive(&self) -> Arrival {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), [number; 10])
    }
}
