//! A host with its stores in a directory of its own, and its operator.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use enrich_compose::Deadline;
use enrich_host::patience::{PersistentCredits, TimelyKeys, TimelyWindows};
use enrich_host::vendors::{Asked, Vendors};
use enrich_host::{Arrivals, Limits, Services, SystemArrivals, run};
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::Policy;
use enrich_lib::memory::WindowTable;
use enrich_lib::model::{ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::ports::Windows;
use enrich_lib::window::Quota;
use enrich_sqlite::{Admin, DataDir, Durability, Ledger, People};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::{Client, Transport};
use super::raw::{Lookup, Raw};
use super::tap::Tap;
use super::{HURRY, KNOWN, PATIENCE, tls};

/// The host, over plain TCP and over TLS, on the same stores.
pub struct World {
    /// Between the host and the stores.
    pub tap: Arc<Tap>,
    pub plain: SocketAddr,
    pub tls: SocketAddr,
    ledger: Arc<Ledger>,
    people: Arc<People>,
    operator: Mutex<Admin>,
    tenants: AtomicU32,
    files: TempDir,
    _stop: DropGuard,
}

/// What a test may want otherwise.
pub struct Settings {
    pub policy: Policy,
    pub limits: Limits,
    /// How long each port may take.
    pub deadline: Duration,
    /// Whom a lookup asks. Nobody here is the people directory alone.
    pub asked: Vec<Asked>,
    /// Where requests are counted. In memory unless a test says otherwise.
    pub windows: Arc<dyn Windows>,
}

/// A workspace and one key of it.
#[derive(Clone, Debug)]
pub struct Tenant {
    pub id: WorkspaceId,
    pub key: String,
}

/// A quota's longest window: no test comes across its end.
const WINDOW_SECONDS: u32 = Quota::WINDOW_SECONDS_MAX;

impl World {
    pub async fn open() -> Self {
        Self::with(|_| {}).await
    }

    /// Gives up soon on ports that hang, and on settlements that fail: not for lookups that wait for the disk.
    pub async fn hurried() -> Self {
        Self::with(|settings| settings.deadline = HURRY).await
    }

    pub async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let (policy, limits) = (Policy::default(), Limits::default());
        let windows = Arc::new(WindowTable::default());
        let mut settings = Settings { policy, limits, deadline: PATIENCE, asked: Vec::new(), windows };
        change(&mut settings);

        let files = TempDir::new().unwrap();
        let dir = DataDir::create(files.path()).unwrap();
        let ledger =
            Arc::new(Ledger::open(&dir, now(), |work| Durability::Strict.on_a_thread(work)).unwrap());
        let people =
            Arc::new(People::open(&dir, People::CONFIDENCE_MIN, [7; 16]).unwrap().in_memory().unwrap());
        let operator = Mutex::new(Admin::open(&dir).unwrap());
        let asked = std::mem::take(&mut settings.asked);
        let vendors = Vendors { asked, ..Vendors::people(settings.deadline) };
        let tap = Arc::new(Tap::new(Service {
            policy: Arc::default(),
            keys: ledger.clone(),
            windows: settings.windows.clone(),
            credits: ledger.clone(),
            resolver: vendors.resolver(&people),
        }));
        let services = services(&tap, settings);
        let stop = CancellationToken::new();
        let plain = serve(services.clone(), &stop).await;
        let tls = serve(Services { tls: Some(tls::server()), ..services }, &stop).await;
        let (tenants, _stop) = (AtomicU32::new(0), stop.drop_guard());
        let world = Self { tap, plain, tls, ledger, people, operator, tenants, files, _stop };
        world.add_person(KNOWN, "ada-marlowe", 1.0);
        world
    }

    /// A client over each transport, each of a workspace of its own, which no burst limit stops.
    pub async fn clients(&self, credits: u64) -> Vec<Client> {
        self.limited_clients(1_000_000, credits).await
    }

    /// The same with a burst limit.
    pub async fn limited_clients(&self, limit: u32, credits: u64) -> Vec<Client> {
        let mut clients = Vec::new();
        for transport in Transport::ALL {
            clients.push(Client::new(self, transport, self.tenant(limit, credits).await));
        }
        clients
    }

    /// A client over HTTP/1.1, for what doesn't depend on the transport.
    pub async fn client(&self, credits: u64) -> Client {
        Client::new(self, Transport::Http1, self.tenant(1_000_000, credits).await)
    }

    pub async fn raw(&self) -> Raw {
        Raw::connect(self.plain).await
    }

    /// A lookup of a workspace of its own, to be sent as it is or spoilt.
    pub async fn lookup(&self, email: &str, credits: u64) -> Lookup {
        let key = self.tenant(1_000_000, credits).await.key;
        Lookup { key, body: format!(r#"{{"email":"{email}"}}"#) }
    }

    pub async fn tenant(&self, limit: u32, credits: u64) -> Tenant {
        self.tenant_with(Quota::new(limit, WINDOW_SECONDS).unwrap(), credits).await
    }

    pub async fn tenant_with(&self, quota: Quota, credits: u64) -> Tenant {
        let n = self.tenants.fetch_add(1, Ordering::Relaxed);
        let id: WorkspaceId = format!("workspace-{n}").parse().unwrap();
        self.operator.lock().unwrap().create_workspace(&id, quota, credits, now()).unwrap();
        let key = self.create_key(&id).await;
        Tenant { id, key }
    }

    /// One more key of a workspace.
    pub async fn create_key(&self, workspace: &WorkspaceId) -> String {
        let key = new_key();
        self.operator.lock().unwrap().create_key(workspace, "test", &key, now()).unwrap();
        self.tick().await;
        key.reveal().to_owned()
    }

    pub async fn revoke(&self, key: &str) {
        let digest = ApiKey::parse(key).unwrap().digest();
        self.operator.lock().unwrap().revoke_key(&digest.key_id(), now()).unwrap();
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
        self.people.suppress(&Email::parse(email).unwrap(), now()).unwrap();
        self.people.refresh().unwrap();
    }

    /// What a workspace has at this moment: available, held, spent.
    pub fn totals(&self, tenant: &Tenant) -> (u64, u64, u64) {
        let balance = self.ledger.balance(&tenant.id).unwrap();
        let on_disk = self.operator.lock().unwrap().balance(&tenant.id).unwrap();
        // Between the two, one that is under way may have become durable.
        let is_on_disk = if balance.held == 0 { u64::eq } else { u64::ge };
        assert!(is_on_disk(&on_disk.spent, &balance.spent), "{} of {} spent", on_disk.spent, balance.spent);
        assert_eq!(balance.granted, balance.available + balance.held + balance.spent);
        (balance.available, balance.held, balance.spent)
    }

    /// Where the stores are.
    pub fn files(&self) -> &std::path::Path {
        self.files.path()
    }

    /// What the operator did is seen by the host from here on.
    async fn tick(&self) {
        self.ledger.tick(now()).await.unwrap();
    }
}

/// As `enrich serve` puts them together.
fn services(tap: &Arc<Tap>, Settings { policy, limits, deadline, .. }: Settings) -> Services {
    let service = Service {
        policy: Arc::new(policy),
        keys: Arc::new(TimelyKeys { keys: tap.clone(), deadline }),
        windows: Arc::new(TimelyWindows { windows: tap.clone(), deadline }),
        credits: Arc::new(PersistentCredits { credits: tap.clone(), deadline }),
        resolver: Arc::new(Deadline::new(tap.clone(), deadline)),
    };
    Services { limits, ..Services::new(service) }
}

async fn serve(services: Services, stop: &CancellationToken) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(run(listener, services, stop.clone().cancelled_owned()));
    address
}

/// A key that nobody has yet.
pub(super) fn new_key() -> ApiKey {
    ApiKey::generate(rand::random)
}

fn now() -> Timestamp {
    SystemArrivals.arrive().now
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("plain", &self.plain).field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("policy", &self.policy).finish_non_exhaustive()
    }
}
