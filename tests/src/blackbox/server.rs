//! A test server with its own data directory, and its operator.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use enrich_host::{Arrivals, Limits, Services, SystemArrivals, run};
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::Policy;
use enrich_lib::memory::WindowTable;
use enrich_lib::model::{ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::ports::{Resolver, Windows};
use enrich_lib::window::Quota;
use enrich_middleware::timeouts::{CreditsWithTimeout, KeysWithTimeout, WindowsWithTimeout};
use enrich_middleware::{Deadline, ResolverStack, VendorPolicy};
use enrich_sqlite::{Admin, DataDir, Ledger, People, run_on_thread};
use enrich_store::Actor;
use enrich_store::records::NewKey;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::{Client, Transport};
use super::ports::Ports;
use super::raw::{RawConnection, RawRequest};
use super::workspace::{TestWorkspace, new_key};
use super::{KNOWN, SHORT_TIMEOUT, TIMEOUT, tls};

/// A test server that listens on plain TCP and on TLS, with the same stores.
pub struct TestServer {
    /// Records port calls and injects faults.
    pub ports: Arc<Ports>,
    pub plain: SocketAddr,
    pub tls: SocketAddr,
    ledger: Arc<Ledger>,
    people: Arc<People>,
    operator: Mutex<Admin>,
    workspaces: AtomicU32,
    files: TempDir,
    _stop: DropGuard,
}

/// Overrides for tests.
pub struct Settings {
    pub policy: Policy,
    pub limits: Limits,
    /// The timeout of each port call.
    pub deadline: Duration,
    /// A vendor that is queried after the people directory.
    pub vendor: Option<(Arc<dyn Resolver>, VendorPolicy)>,
    /// The rate-limit store. In memory by default.
    pub windows: Arc<dyn Windows>,
    /// The clock of requests.
    pub arrivals: Arc<dyn Arrivals>,
}

/// The longest window that a quota allows, so that no window ends during a test.
const WINDOW_SECONDS: u32 = Quota::WINDOW_SECONDS_MAX;

impl TestServer {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a server with a short timeout for ports that hang and settlements that fail.
    ///
    /// Not suitable for tests whose lookups wait for a disk write.
    pub async fn start_with_short_timeouts() -> Self {
        Self::start_with(|settings| settings.deadline = SHORT_TIMEOUT).await
    }

    pub async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let (policy, limits) = (Policy::default(), Limits::default());
        let windows = Arc::new(WindowTable::default());
        let arrivals = Arc::new(SystemArrivals);
        let mut settings = Settings { policy, limits, deadline: TIMEOUT, vendor: None, windows, arrivals };
        change(&mut settings);

        let files = TempDir::new().unwrap();
        let dir = DataDir::create(files.path()).unwrap();
        let ledger = Arc::new(Ledger::open(&dir, now(), run_on_thread).unwrap());
        let people =
            Arc::new(People::open(&dir, People::CONFIDENCE_MIN, [7; 16]).unwrap().in_memory().unwrap());
        let operator = Mutex::new(Admin::open(&dir).unwrap());
        let resolver: Arc<dyn Resolver> = match settings.vendor.take() {
            None => people.clone(),
            Some((vendor, policy)) => ResolverStack::new(settings.deadline, people.clone())
                .local("people", people.clone())
                .vendor("acme", vendor, policy)
                .build([7; 32]),
        };
        let ports = Arc::new(Ports::new(Service {
            policy: Arc::default(),
            keys: ledger.clone(),
            windows: settings.windows.clone(),
            credits: ledger.clone(),
            resolver,
        }));
        let services = services(&ports, settings);
        let stop = CancellationToken::new();
        let plain = serve(services.clone(), &stop).await;
        let tls = serve(Services { tls: Some(tls::server()), ..services }, &stop).await;
        let (workspaces, _stop) = (AtomicU32::new(0), stop.drop_guard());
        let server = Self { ports, plain, tls, ledger, people, operator, workspaces, files, _stop };
        server.add_person(KNOWN, "ada-marlowe", 1.0);
        server
    }

    /// Creates a client of a workspace that uses this transport.
    pub fn connect(&self, transport: Transport, workspace: TestWorkspace) -> Client {
        let (scheme, address) = if transport.is_tls() { ("https", self.tls) } else { ("http", self.plain) };
        Client::new(format!("{scheme}://{address}"), transport, workspace)
    }

    /// Creates one client per transport. Each has its own workspace with a burst limit that tests do not reach.
    pub async fn clients(&self, credits: u64) -> Vec<Client> {
        self.limited_clients(1_000_000, credits).await
    }

    /// Creates one client per transport. Each has its own workspace with this burst limit.
    pub async fn limited_clients(&self, limit: u32, credits: u64) -> Vec<Client> {
        let mut clients = Vec::new();
        for transport in Transport::ALL {
            clients.push(self.connect(transport, self.create_workspace(limit, credits).await));
        }
        clients
    }

    /// Creates an HTTP/1.1 client, for tests that do not depend on the transport.
    pub async fn client(&self, credits: u64) -> Client {
        self.connect(Transport::Http1, self.create_workspace(1_000_000, credits).await)
    }

    pub async fn connect_raw(&self) -> RawConnection {
        RawConnection::open(self.plain).await
    }

    /// Creates a workspace and a well-formed lookup request for it.
    pub async fn raw_request(&self, email: &str, credits: u64) -> RawRequest {
        let key = self.create_workspace(1_000_000, credits).await.key;
        RawRequest { key, body: format!(r#"{{"email":"{email}"}}"#) }
    }

    pub async fn create_workspace(&self, limit: u32, credits: u64) -> TestWorkspace {
        self.create_workspace_with(Quota::new(limit, WINDOW_SECONDS).unwrap(), credits).await
    }

    pub async fn create_workspace_with(&self, quota: Quota, credits: u64) -> TestWorkspace {
        let n = self.workspaces.fetch_add(1, Ordering::Relaxed);
        let id: WorkspaceId = format!("workspace-{n}").parse().unwrap();
        self.operator.lock().unwrap().create_workspace(&id, quota, credits, now()).unwrap();
        let key = self.create_key(&id).await;
        TestWorkspace { id, key }
    }

    /// Creates another key for a workspace.
    pub async fn create_key(&self, workspace: &WorkspaceId) -> String {
        let key = new_key();
        let new = NewKey::new(workspace, "test", &key);
        self.operator.lock().unwrap().create_key(&new, &Actor::operator(now())).unwrap();
        self.tick().await;
        key.reveal().to_owned()
    }

    pub async fn revoke_key(&self, key: &str) {
        let digest = ApiKey::parse(key).unwrap().digest();
        self.operator.lock().unwrap().revoke_key(digest.key_id(), &Actor::operator(now())).unwrap();
        self.tick().await;
    }

    pub fn add_person(&self, email: &str, name: &str, confidence: f64) {
        let mut import = self.people.import().unwrap();
        let profile = ProfileUrl::from_name(name).unwrap();
        import.add(&Email::parse(email).unwrap(), &profile, confidence).unwrap();
        import.finish().unwrap();
        self.people.refresh().unwrap();
    }

    pub fn suppress(&self, email: &str) {
        self.people.suppress(&[Email::parse(email).unwrap()], now()).unwrap();
        self.people.refresh().unwrap();
    }

    /// Returns a workspace's available, held and spent credits.
    ///
    /// Panics if the balance in memory and the balance in the database disagree.
    pub fn balance(&self, workspace: &TestWorkspace) -> (u64, u64, u64) {
        let balance = self.ledger.balance(&workspace.id).unwrap();
        let on_disk = self.operator.lock().unwrap().balance(&workspace.id).unwrap();
        // A pending spend may have become durable between the two reads.
        let is_on_disk = if balance.held == 0 { u64::eq } else { u64::ge };
        assert!(is_on_disk(&on_disk.spent, &balance.spent), "{} of {} spent", on_disk.spent, balance.spent);
        assert_eq!(balance.granted, balance.available + balance.held + balance.spent);
        (balance.available, balance.held, balance.spent)
    }

    /// Returns the data directory.
    pub fn data_dir(&self) -> &std::path::Path {
        self.files.path()
    }

    /// Makes the operator's changes visible to the server.
    async fn tick(&self) {
        self.ledger.tick(now()).await.unwrap();
    }
}

/// Assembles the services with a timeout for each port, also for windows in memory.
fn services(ports: &Arc<Ports>, Settings { policy, limits, deadline, arrivals, .. }: Settings) -> Services {
    let service = Service {
        policy: Arc::new(policy),
        keys: Arc::new(KeysWithTimeout { keys: ports.clone(), timeout: deadline }),
        windows: Arc::new(WindowsWithTimeout { windows: ports.clone(), timeout: deadline }),
        credits: Arc::new(CreditsWithTimeout { credits: ports.clone(), timeout: deadline }),
        resolver: Arc::new(Deadline::new(ports.clone(), deadline)),
    };
    Services { limits, arrivals, ..Services::new(service) }
}

async fn serve(services: Services, stop: &CancellationToken) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(run(listener, services, stop.clone().cancelled_owned()));
    address
}

fn now() -> Timestamp {
    SystemArrivals.arrive().now
}

impl std::fmt::Debug for TestServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestServer")
            .field("plain", &self.plain)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("policy", &self.policy).finish_non_exhaustive()
    }
}
