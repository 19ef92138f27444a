//! A test server with its own data directory, and its operator.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use enrich_host::{Arrivals, Services, SystemArrivals, run};
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::memory::WindowTable;
use enrich_lib::model::{ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::ports::{Resolver, Windows};
use enrich_lib::window::Quota;
use enrich_middleware::{ResolverStack, VendorPolicy};
use enrich_sqlite::{Admin, DataDir, Ledger, People, run_on_thread};
use enrich_store::Actor;
use enrich_store::records::NewKey;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::{Client, Transport};
use super::ports::Ports;
use super::workspace::{TestWorkspace, new_key};
use super::{KNOWN, TIMEOUT};

/// A test server on SQLite.
pub struct TestServer {
    /// Records port calls.
    pub ports: Arc<Ports>,
    address: SocketAddr,
    ledger: Arc<Ledger>,
    operator: Mutex<Admin>,
    workspaces: AtomicU32,
    _files: TempDir,
    _stop: DropGuard,
}

/// Overrides for tests.
pub struct Settings {
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
    pub async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let (windows, arrivals) = (Arc::new(WindowTable::default()), Arc::new(SystemArrivals));
        let mut settings = Settings { vendor: None, windows, arrivals };
        change(&mut settings);
        let Settings { vendor, windows, arrivals } = settings;

        let files = TempDir::new().unwrap();
        let dir = DataDir::create(files.path()).unwrap();
        let ledger = Arc::new(Ledger::open(&dir, now(), run_on_thread).unwrap());
        let people = People::open(&dir, People::CONFIDENCE_MIN, [7; 16]).unwrap();
        add_person(&people);
        let people = Arc::new(people);
        let operator = Mutex::new(Admin::open(&dir).unwrap());
        let resolver: Arc<dyn Resolver> = match vendor {
            None => people,
            Some((vendor, policy)) => ResolverStack::new(TIMEOUT, people.clone())
                .local("people", people)
                .vendor("acme", vendor, policy)
                .build([7; 32]),
        };
        let (policy, keys, credits) = (Arc::default(), ledger.clone(), ledger.clone());
        let ports = Arc::new(Ports::new(Service { policy, keys, windows, credits, resolver }));
        let stop = CancellationToken::new();
        let address = serve(Services { arrivals, ..Services::new(ports.service()) }, &stop).await;
        let (workspaces, _stop) = (AtomicU32::new(0), stop.drop_guard());
        Self { ports, address, ledger, operator, workspaces, _files: files, _stop }
    }

    /// Creates a client of a workspace.
    pub fn connect(&self, workspace: TestWorkspace) -> Client {
        Client::new(format!("http://{}", self.address), Transport::Http1, workspace)
    }

    /// Creates a client with its own workspace and a burst limit that tests do not reach.
    pub async fn client(&self, credits: u64) -> Client {
        self.connect(self.create_workspace(1_000_000, credits).await)
    }

    pub async fn create_workspace(&self, limit: u32, credits: u64) -> TestWorkspace {
        self.create_workspace_with(Quota::new(limit, WINDOW_SECONDS).unwrap(), credits).await
    }

    pub async fn create_workspace_with(&self, quota: Quota, credits: u64) -> TestWorkspace {
        let n = self.workspaces.fetch_add(1, Ordering::Relaxed);
        let id: WorkspaceId = format!("workspace-{n}").parse().unwrap();
        self.operator.lock().unwrap().create_workspace(&id, quota, credits, now()).unwrap();
        let key = new_key();
        let new = NewKey::new(&id, "test", &key);
        self.operator.lock().unwrap().create_key(&new, &Actor::operator(now())).unwrap();
        self.ledger.tick(now()).await.unwrap();
        TestWorkspace { id, key: key.reveal().to_owned() }
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
}

/// Adds the person of [`KNOWN`].
fn add_person(people: &People) {
    let mut import = people.import().unwrap();
    import.add(&Email::parse(KNOWN).unwrap(), &ProfileUrl::from_name("ada-marlowe").unwrap(), 1.0).unwrap();
    import.finish().unwrap();
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
        f.debug_struct("TestServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("vendor", &self.vendor.is_some()).finish_non_exhaustive()
    }
}
