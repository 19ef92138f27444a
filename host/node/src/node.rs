//! The assembly of a node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use enrich_host::swap::Swap;
use enrich_lib::drive::Service;
use enrich_lib::lookup::Policy;
use enrich_lib::observe::{LookupEvent, Observer};
use enrich_lib::ports::Resolver;
use enrich_lib::receipt::ReceiptKey;
use enrich_metrics::{LookupMetrics, VendorMetrics};
use enrich_postgres::{Config, Server};
use enrich_redis::WindowStoreError;
use enrich_sqlite::{DataDir, People};
use enrich_store::{Accounts, EmailHasher, Ledger, StoreError, TickError};
use enrich_vendors::middleware::StackMonitor;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::{interval, sleep, timeout};

use crate::clocks::{self, SteadyClock};
use crate::housekeeping::{self, spawn_refresh};
use crate::machine::Machine;
use crate::outage::Outage;
use crate::sources::{PeopleSource, Sources};
use crate::ticks::Ticks;
use crate::windows::RateLimits;

/// Interval at which the stores apply changes by other processes. Must be well below the documented maximum
/// of one second.
const TICK: Duration = Duration::from_millis(250);

/// How long a tick may take before it is reported. The next tick then withdraws spends that wait for the
/// disk.
const TICK_TIMEOUT: Duration = Duration::from_secs(1);

const KEYS_OUTAGE: Outage = Outage::new("changes of keys cannot be read", "changes of keys are read again");
const PEOPLE_OUTAGE: Outage =
    Outage::new("the people directory cannot be refreshed", "the people directory is refreshed again");

/// How long a failing database may take to recover at shutdown, and how long the close may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The stores of a node.
#[derive(Debug)]
pub struct Stores {
    /// The rate-limit windows.
    pub windows: RateLimits,
    /// The location of keys, credits and people.
    pub database: Database,
}

/// The location of keys, credits and people.
#[derive(Debug)]
pub enum Database {
    /// SQLite in this directory.
    Dir(DataDir, Arc<People>),
    /// A PostgreSQL server that several nodes share.
    Server(Box<SharedDatabase>),
}

/// A PostgreSQL server that several nodes share, and this node's configuration.
#[derive(Debug)]
pub struct SharedDatabase {
    /// The server.
    pub server: Server,
    /// The configuration of keys and credits.
    pub config: Config,
    /// Hashes emails under the key of all nodes.
    pub hasher: EmailHasher,
    /// The minimum confidence of a trusted match.
    pub confidence_min: f64,
}

/// The location of the accounts.
#[derive(Clone)]
enum Location {
    Dir(DataDir),
    Server(Server),
}

impl Location {
    async fn open(&self) -> Result<Accounts, StoreError> {
        Ok(match self {
            Self::Dir(dir) => enrich_sqlite::accounts_for_pages(dir)?,
            Self::Server(server) => enrich_postgres::accounts_for_pages(server).await?,
        })
    }
}

/// A node that can serve.
pub struct Node {
    machine: Arc<dyn Machine>,
    clock: SteadyClock,
    location: Location,
    /// Keys and credits.
    pub accounts: Arc<dyn Ledger>,
    /// Rate-limit windows.
    pub windows: RateLimits,
    /// The people and the opt-outs.
    pub people: PeopleSource,
    /// The age of the last tick.
    pub ticks: Ticks,
    /// The age of the last complete write of statistics.
    pub statistics: Ticks,
    vendors: Arc<VendorMetrics>,
    resolver: Arc<Swap<Arc<dyn Resolver>>>,
    /// The middleware of the resolver.
    stack: Swap<StackMonitor>,
    sources: Swap<Sources>,
    low_balances: Arc<AtomicU64>,
    receipts: ReceiptKey,
    is_draining: AtomicBool,
}

/// Why a node has ended other than by a graceful shutdown.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The database no longer works, or could not be closed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The accounts did not close in time.
    #[error("the accounts did not close within 10 s; whether the last lookups were billed is unknown")]
    NotClosed,
}

impl Node {
    /// Opens the database. `vendors` counts the requests to the vendors among the `sources`.
    pub async fn open(
        machine: Arc<dyn Machine>,
        stores: Stores,
        sources: &Sources,
        vendors: Arc<VendorMetrics>,
    ) -> Result<Self, StoreError> {
        let Stores { windows, database } = stores;
        let clock = SteadyClock::new(machine.clone());
        let (location, accounts, people, receipts): (_, Arc<dyn Ledger>, _, _) = match database {
            Database::Dir(dir, people) => {
                let spawn = |work| machine.run_writer(work);
                let ledger = enrich_sqlite::Ledger::open(&dir, clock.read(), clocks::monotonic, spawn)?;
                let ledger = Arc::new(ledger);
                spawn_refresh(
                    &*machine,
                    "keys",
                    &ledger,
                    enrich_sqlite::Ledger::refresh_keys,
                    KEYS_OUTAGE,
                    TICK,
                );
                spawn_refresh(&*machine, "people", &people, People::refresh, PEOPLE_OUTAGE, TICK);
                let receipts = people.hasher().receipts().clone();
                (Location::Dir(dir), ledger, PeopleSource::Directory(people), receipts)
            }
            Database::Server(shared) => {
                let SharedDatabase { server, config, hasher, confidence_min } = *shared;
                let (limit, receipts) = (config.timeout, hasher.receipts().clone());
                let ledger = enrich_postgres::Ledger::open(server.clone(), config, clock.read()).await?;
                let people = enrich_postgres::People::open(server.clone(), limit, hasher, confidence_min);
                let people = PeopleSource::Database(Arc::new(people.await?));
                (Location::Server(server), Arc::new(ledger), people, receipts)
            }
        };
        let (resolver, stack) = sources.resolver(&people, &vendors, machine.random(), None);
        Ok(Self {
            machine,
            clock,
            location,
            accounts,
            windows,
            people,
            ticks: Ticks::default(),
            statistics: Ticks::default(),
            vendors,
            resolver: Arc::new(Swap::new(resolver)),
            stack: Swap::new(stack),
            sources: Swap::new(sources.clone()),
            low_balances: Arc::default(),
            receipts,
            is_draining: AtomicBool::new(false),
        })
    }

    /// Returns the service that runs lookups, with receipts under the key of all nodes.
    pub fn service(&self, policy: Policy) -> Service {
        let (keys, credits) = (self.accounts.clone(), self.accounts.clone());
        let mut service = Service::new(keys, self.windows.port(), credits, self.resolver.clone());
        service.policy = Arc::new(policy.with_receipts(self.receipts.clone()));
        service
    }

    /// Returns the observer of lookups, which counts the free ones of each key. The database counts the
    /// billed ones.
    pub fn observer(&self, metrics: Option<Arc<LookupMetrics>>) -> Arc<dyn Observer> {
        let usage = Usage(self.accounts.clone());
        match metrics {
            Some(metrics) => Arc::new((metrics, usage)),
            None => Arc::new(usage),
        }
    }

    /// Replaces the sources. Lookups in flight finish with those that they started with, and count for the
    /// limits of vendors whose limits are unchanged.
    pub fn replace_sources(&self, sources: &Sources) {
        let (previous, monitor, seed) = (self.sources.load(), self.stack(), self.machine.random());
        let (resolver, stack) =
            sources.resolver(&self.people, &self.vendors, seed, Some((&previous, &monitor)));
        self.resolver.store(resolver);
        self.stack.store(stack);
        self.sources.store(sources.clone());
    }

    /// Returns the current middleware of the resolver.
    pub fn stack(&self) -> StackMonitor {
        self.stack.load()
    }

    /// Opens the accounts for pages. Their operations do not block the thread. They are not
    /// [current](Accounts::is_current) when the node has found that another server is the primary.
    pub async fn open_accounts(&self) -> Result<Accounts, StoreError> {
        self.location.open().await
    }

    /// Warns about low balances, and removes spends that are older than `keep_spends`, until the machine
    /// stops.
    pub fn keep_house(&self, keep_spends: Option<Duration>) {
        let (machine, location, low) =
            (self.machine.clone(), self.location.clone(), self.low_balances.clone());
        let open = async move || location.open().await;
        let keep = async move || housekeeping::run(open, &low, keep_spends, || machine.now()).await;
        self.machine.spawn("housekeeping", Box::new(move || Box::pin(keep())));
    }

    /// Returns the number of workspaces with few credits.
    pub fn low_balances(&self) -> u64 {
        self.low_balances.load(Ordering::Relaxed)
    }

    /// Keeps the stores current while the node serves, and then closes them. `serving` ends after the last
    /// lookup.
    ///
    /// After an error of a store, ends at once: the connections close without an answer.
    pub async fn run(&self, serving: impl Future<Output = ()>) -> Result<(), NodeError> {
        let stop = Notify::new();
        let serving = async {
            serving.await;
            stop.notify_one();
        };
        tokio::select! { biased;
            // A write in progress ends first, because its rows are in no other place.
            _ = async { tokio::join!(serving, self.keep_statistics(&stop)) } => {}
            error = self.keep_current() => return Err(error.into()),
        }
        self.close().await
    }

    /// Fails if keys and credits cannot be used, or are not current.
    pub fn check_accounts(&self) -> Result<(), StoreError> {
        self.accounts.check()?;
        self.ticks.check().map_err(|error| StoreError::Backend(error.into()))
    }

    /// Fails if requests cannot be counted.
    pub async fn check_windows(&self) -> Result<(), WindowStoreError> {
        self.windows.check(self.machine.now()).await
    }

    /// Announces that the node stops and should receive no new connections. Returns after `delay`, or when
    /// `hurry` resolves.
    pub async fn drain(&self, delay: Duration, hurry: impl Future<Output = ()>) {
        self.is_draining.store(true, Ordering::Relaxed);
        tokio::select! { biased;
            () = hurry => {}
            () = sleep(delay) => {}
        }
    }

    /// Returns whether the node stops.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Ticks the database at least every [`TICK`]. The next successful tick catches up after failures. Returns
    /// the error after which the database no longer works.
    async fn keep_current(&self) -> StoreError {
        let mut outage = Outage::new("the stores cannot be refreshed", "the stores are refreshed again");
        let mut interval = interval(TICK);
        loop {
            interval.tick().await;
            let refreshed = match timeout(TICK_TIMEOUT, self.accounts.tick(self.clock.read())).await {
                Ok(Err(TickError::Fatal(error))) => return error,
                Ok(Err(TickError::Transient(error))) => Err(error.to_string()),
                Ok(Ok(())) => Ok(()),
                Err(_) => Err(format!("no reply within {TICK_TIMEOUT:?}")),
            };
            if refreshed.is_ok() {
                self.ticks.record();
            }
            outage.record(&refreshed);
        }
    }

    /// Writes the statistics at least every [`TICK`] until `stop`.
    async fn keep_statistics(&self, stop: &Notify) {
        let mut outage = Outage::new("the statistics cannot be written", "the statistics are written again");
        loop {
            let written = self.accounts.write_statistics().await;
            if written.is_ok() {
                self.statistics.record();
            }
            outage.record(&written);
            if timeout(TICK, stop.notified()).await.is_ok() {
                return;
            }
        }
    }

    /// Writes the rest of the state, such as the last use of keys. Gives a failing database [`CLOSE_TIMEOUT`]
    /// to recover.
    async fn close(&self) -> Result<(), NodeError> {
        let recovered = async {
            let mut interval = interval(TICK);
            while let Err(TickError::Transient(_)) = self.accounts.tick(self.clock.read()).await {
                interval.tick().await;
            }
            // If credits cannot be returned to a workspace, the rest is written nevertheless.
            while let Err(error) = self.accounts.write_statistics().await
                && !matches!(error, StoreError::NotReturned { .. })
            {
                interval.tick().await;
            }
        };
        // The result is that of the close.
        let _ = timeout(CLOSE_TIMEOUT, recovered).await;
        match timeout(CLOSE_TIMEOUT, self.accounts.close()).await {
            Ok(closed) => Ok(closed?),
            Err(_) => Err(NodeError::NotClosed),
        }
    }
}

/// Passes each event to the usage of the database.
struct Usage(Arc<dyn Ledger>);

impl Observer for Usage {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn times_ports(&self, _: Duration) -> bool {
        false
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        self.0.usage().record(event);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("accounts", &self.accounts).finish_non_exhaustive()
    }
}
