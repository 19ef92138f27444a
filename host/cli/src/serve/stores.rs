//! The stores of `serve`: people, accounts and rate-limit windows. Nodes can share the accounts and the windows.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use enrich_host::SystemArrivals;
use enrich_lib::drive::Service;
use enrich_lib::lookup::Policy;
use enrich_lib::observe::{LookupEvent, Observer};
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::refusal::PortError;
use enrich_middleware::timeouts::{CreditsWithTimeout, KeysWithTimeout};
use enrich_postgres::LeaseStatistics;
use enrich_sqlite::{DataDir, People};
use enrich_store::statistics::LedgerStatistics;
use enrich_store::sync::Mutex;
use enrich_store::{ClockSkew, Clocks};
use tokio::time::timeout;
use tracing::warn;

use super::rate_limits::RateLimits;
use super::ticks::Ticks;
use super::{clocks, opt_outs};
use crate::accounts;
use crate::failure::Failure;
use crate::settings::{Config, PeopleConfig, Settings, StoreLocations};
use crate::sources::PeopleSource;
use crate::url::ServerUrl;
use crate::values::PeopleIndex;

/// Interval at which the stores apply changes by other processes. Must be well below the documented maximum of one second.
const TICK: Duration = Duration::from_millis(250);

pub struct Stores {
    pub accounts: Accounts,
    pub windows: RateLimits,
    clock: SteadyClock,
    pub people: PeopleSource,
    pub ticks: Arc<Ticks>,
}

/// How long a tick of a local store may take before it is reported. The next tick then withdraws spends that wait for the disk.
const TICK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the last spends are retried at shutdown, and how long the last commit may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The store of keys and credits.
#[derive(Clone)]
pub enum Accounts {
    Own(Arc<enrich_sqlite::Ledger>),
    Shared(Arc<enrich_postgres::Ledger>),
}

impl Stores {
    /// Opens the stores. Runs `people_loaded` before it locks the data directory.
    pub async fn open(
        data: &Path,
        settings: &Settings,
        people_loaded: impl AsyncFnOnce(&DataDir) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let locations = &settings.locations;
        let windows = RateLimits::open_checked(&locations.windows).await?;
        let dir = DataDir::open(data).map_err(|error| match &locations.database {
            Some(_) => no_people(data),
            None => error.into(),
        })?;
        let shared = match &locations.database {
            Some(url) => Some(opt_outs::Connection::open(url, data).await?),
            None => None,
        };
        let directory = open_people(&dir, &settings.config.people)?;
        people_loaded(&dir).await?;
        let shared = match shared {
            Some(connection) => Some(Arc::new(connection.read(&directory).await?)),
            None => None,
        };
        let people = PeopleSource { directory, shared };
        let clock = SteadyClock::new();
        let accounts = match &locations.database {
            Some(url) => Accounts::Shared(Arc::new(join(url, clock.read()).await?)),
            None => {
                let (now, spawn) = (clock.read(), enrich_sqlite::run_on_thread);
                let ledger = enrich_sqlite::Ledger::open(&dir, now, spawn)?;
                ledger.time_commits(clocks::monotonic);
                Accounts::Own(Arc::new(ledger))
            }
        };
        Ok(Self { accounts, windows, clock, people, ticks: Arc::default() })
    }

    pub fn service(&self, config: &Config, resolver: Arc<dyn Resolver>) -> Service {
        let policy = Policy { price: config.price(), emails: config.email_policy(), ..Policy::default() };
        let (keys, credits) = self.accounts.ports();
        Service { policy: Arc::new(policy), keys, windows: self.windows.port(), credits, resolver }
    }

    /// Returns an observer that counts the free lookups of each key. The accounts count the billed ones.
    pub fn usage(&self) -> Arc<dyn Observer> {
        Arc::new(self.accounts.clone())
    }

    /// Returns the rate-limit store for another thread. A connection to Redis belongs to the thread that uses it first.
    pub fn windows_of_thread(&self, locations: &StoreLocations) -> Result<Arc<dyn Windows>, Failure> {
        match self.windows {
            RateLimits::Memory(_) => Ok(self.windows.port()),
            RateLimits::Redis(_) => Ok(RateLimits::open(&locations.windows)?.port()),
        }
    }

    /// Compares the clock of this machine with the clocks of the servers until it is cancelled.
    pub async fn watch_clocks(&self) {
        let postgres = async {
            if let Accounts::Shared(ledger) = &self.accounts {
                let compare = async || ledger.compare_clocks(SystemArrivals::now).await;
                clocks::watch("PostgreSQL", compare).await;
            }
        };
        tokio::join!(self.windows.watch_clock(), postgres, std::future::pending::<()>());
    }

    /// Ticks the accounts at least every [`TICK`]. Logs only the first of consecutive failures; the next successful tick
    /// catches up. Returns the error after which the accounts work no more.
    pub async fn keep_current(&self) -> Failure {
        let mut is_failing = false;
        let mut interval = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = self.accounts.changed() => {}
            }
            let ticked = self.accounts.tick(self.clock.read()).await;
            if ticked.is_ok() {
                self.ticks.record();
            }
            let was_failing = std::mem::replace(&mut is_failing, ticked.is_err());
            match ticked {
                Err(TickError::Fatal(failure)) => return failure,
                Err(TickError::Transient(error)) if !was_failing => {
                    warn!(%error, "the stores cannot be refreshed");
                }
                Err(TickError::Transient(_)) | Ok(()) => {}
            }
        }
    }

    /// Writes the remaining state, such as the last use of keys, and returns the leases of shared accounts. Call this when
    /// no lookup is in flight. Spends that were acknowledged early are retried for [`CLOSE_TIMEOUT`].
    pub async fn close(&self) -> Result<(), Failure> {
        match &self.accounts {
            Accounts::Own(ledger) => close(ledger, &self.clock).await,
            Accounts::Shared(ledger) => {
                if let Err(error) = ledger.close().await {
                    warn!(%error, "the stores could not be closed cleanly");
                }
                Ok(())
            }
        }
    }
}

/// Closes the accounts, so that `accounts.db` is complete without its write-ahead log.
async fn close(ledger: &enrich_sqlite::Ledger, clock: &SteadyClock) -> Result<(), Failure> {
    let flushed = async {
        let mut interval = tokio::time::interval(TICK);
        while ledger.tick(clock.read()).await.is_err_and(|error| !error.is_fatal()) {
            interval.tick().await;
        }
    };
    // The result is that of the close.
    let _ = timeout(CLOSE_TIMEOUT, flushed).await;
    match timeout(CLOSE_TIMEOUT, ledger.close()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Failure::new(
            "the disk did not complete the last commit; the next start determines its outcome",
        )),
    }
}

/// Counts free lookups.
impl Observer for Accounts {
    fn now(&self) -> Duration {
        Duration::ZERO // not used
    }

    fn times_ports(&self, _: Duration) -> bool {
        false
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        match self {
            Self::Own(ledger) => ledger.usage().record(event),
            Self::Shared(ledger) => ledger.usage().record(event),
        }
    }
}

impl Accounts {
    fn ports(&self) -> (Arc<dyn Keys>, Arc<dyn Credits>) {
        match self {
            Self::Own(ledger) => (ledger.clone(), ledger.clone()),
            Self::Shared(ledger) => {
                let keys =
                    KeysWithTimeout { keys: ledger.clone(), timeout: KeysWithTimeout::DEFAULT_TIMEOUT };
                let credits = CreditsWithTimeout {
                    credits: ledger.clone(),
                    timeout: CreditsWithTimeout::DEFAULT_TIMEOUT,
                };
                (Arc::new(keys), Arc::new(credits))
            }
        }
    }

    /// Fails if lookups could not be billed: the disk fails, or PostgreSQL is unreachable.
    pub fn check(&self) -> Result<(), PortError> {
        match self {
            Self::Own(ledger) => Ok(ledger.check()?),
            Self::Shared(ledger) => Ok(ledger.check()?),
        }
    }

    pub fn statistics(&self) -> LedgerStatistics {
        match self {
            Self::Own(ledger) => ledger.statistics(),
            Self::Shared(ledger) => ledger.statistics(),
        }
    }

    /// Returns the leases of a node on PostgreSQL.
    pub fn leases(&self) -> Option<LeaseStatistics> {
        match self {
            Self::Own(_) => None,
            Self::Shared(ledger) => Some(ledger.leases()),
        }
    }

    /// Returns the name of the database.
    pub fn database(&self) -> &'static str {
        match self {
            Self::Own(_) => "sqlite",
            Self::Shared(_) => "postgresql",
        }
    }

    /// Returns the last measured difference to PostgreSQL's clock.
    pub fn clock_skew(&self) -> Option<ClockSkew> {
        match self {
            Self::Own(_) => None,
            Self::Shared(ledger) => ledger.clock_skew(),
        }
    }

    async fn tick(&self, now: Clocks) -> Result<(), TickError> {
        match self {
            Self::Own(ledger) => match timeout(TICK_TIMEOUT, ledger.tick(now)).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) if error.is_fatal() => Err(TickError::Fatal(error.into())),
                Ok(Err(error)) => Err(TickError::Transient(error.into())),
                Err(_) => {
                    let error = format!("the disk did not complete a write within {TICK_TIMEOUT:?}");
                    Err(TickError::Transient(PortError::new(error)))
                }
            },
            Self::Shared(ledger) => {
                ledger.tick(now).await.map_err(|error| TickError::Transient(error.into()))
            }
        }
    }

    /// Waits until a tick is needed before its regular time.
    async fn changed(&self) {
        match self {
            Self::Own(_) => std::future::pending().await,
            Self::Shared(ledger) => ledger.changed().await,
        }
    }
}

enum TickError {
    /// A later tick may succeed.
    Transient(PortError),
    /// The accounts work no more.
    Fatal(Failure),
}

/// A monotonic clock that does not count the time during which this process was suspended: its lookups did not run either,
/// so that their holds must not expire.
struct SteadyClock(Mutex<SteadyTime>);

struct SteadyTime {
    last: Instant,
    elapsed: Duration,
}

impl SteadyClock {
    /// The longest time that can pass between two readings without a suspension.
    const STEP_MAX: Duration = Duration::from_secs(2);

    fn new() -> Self {
        Self(Mutex::new(SteadyTime { last: Instant::now(), elapsed: Duration::ZERO }))
    }

    fn read(&self) -> Clocks {
        let mut time = self.0.lock();
        let now = Instant::now();
        let step = (now - time.last).min(Self::STEP_MAX);
        time.elapsed += step;
        time.last = now;
        Clocks { wall: SystemArrivals::now(), elapsed: time.elapsed }
    }
}

/// Registers this process as a node on the PostgreSQL server.
async fn join(url: &ServerUrl, now: Clocks) -> Result<enrich_postgres::Ledger, Failure> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let config = enrich_postgres::Config { name, ..enrich_postgres::Config::default() };
    let ledger = enrich_postgres::Ledger::open(accounts::server(url)?, config, now).await;
    ledger.map_err(|error| accounts::at(url, error))
}

/// Opens the people directory and refreshes it on a separate thread until it is dropped. Reading the changes of an import
/// takes too long for a tick.
fn open_people(dir: &DataDir, config: &PeopleConfig) -> Result<Arc<People>, Failure> {
    let people = People::open(dir, config.confidence_min, rand::random())?;
    let people = Arc::new(match config.index {
        PeopleIndex::Memory => people.in_memory()?,
        PeopleIndex::Disk => people,
    });
    let used = Arc::downgrade(&people);
    thread::spawn(move || {
        let mut is_failing = false;
        while let Some(people) = used.upgrade() {
            let refreshed = people.refresh();
            if let (Err(error), false) = (&refreshed, is_failing) {
                warn!(%error, "the people directory cannot be refreshed");
            }
            is_failing = refreshed.is_err();
            drop(people);
            thread::sleep(TICK);
        }
    });
    Ok(people)
}

/// Creates the error for a node with shared accounts and no people directory.
fn no_people(data: &Path) -> Failure {
    Failure::new(format!("there is no people directory in {}", data.display())).advise(
        "create one with `enrich people import FILE`, or choose another directory with --data or ENRICH_DATA; each node has its own",
    )
}
