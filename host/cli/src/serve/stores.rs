//! The stores of `serve`: people, accounts and rate-limit windows. Nodes can share the accounts and the windows.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use enrich_host::SystemArrivals;
use enrich_lib::drive::Service;
use enrich_lib::lookup::Policy;
use enrich_lib::observe::{LookupEvent, Observer};
use enrich_lib::ports::{Resolver, Windows};
use enrich_sqlite::{DataDir, People};
use enrich_store::sync::Mutex;
use enrich_store::{Clocks, Ledger, TickError};
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
    pub accounts: Arc<dyn Ledger>,
    pub windows: RateLimits,
    clock: SteadyClock,
    pub people: PeopleSource,
    pub ticks: Arc<Ticks>,
}

/// How long a tick may take before it is reported. The next tick then withdraws spends that wait for the disk.
const TICK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a failing database may take to recover at shutdown, and how long the close may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

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
        let accounts: Arc<dyn Ledger> = match &locations.database {
            Some(url) => Arc::new(join(url, clock.read()).await?),
            None => {
                let (now, spawn) = (clock.read(), enrich_sqlite::run_on_thread);
                let ledger = enrich_sqlite::Ledger::open(&dir, now, spawn)?;
                ledger.time_commits(clocks::monotonic);
                Arc::new(ledger)
            }
        };
        Ok(Self { accounts, windows, clock, people, ticks: Arc::default() })
    }

    pub fn service(&self, config: &Config, resolver: Arc<dyn Resolver>) -> Service {
        let policy = Policy { price: config.price(), emails: config.email_policy(), ..Policy::default() };
        let (keys, windows, credits) = (self.accounts.clone(), self.windows.port(), self.accounts.clone());
        Service { policy: Arc::new(policy), keys, windows, credits, resolver }
    }

    /// Returns an observer that counts the free lookups of each key. The accounts count the billed ones.
    pub fn usage(&self) -> Arc<dyn Observer> {
        Arc::new(FreeLookups(self.accounts.clone()))
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
        let compare = async || self.accounts.compare_clocks(&SystemArrivals::now).await;
        tokio::join!(self.windows.watch_clock(), clocks::watch("PostgreSQL", compare));
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
            let tick = timeout(TICK_TIMEOUT, self.accounts.tick(self.clock.read())).await;
            let failure = match tick {
                Ok(Ok(())) => None,
                Ok(Err(TickError::Fatal(error))) => return error.into(),
                Ok(Err(TickError::Transient(error))) => Some(error.to_string()),
                Err(_) => Some(format!("no reply within {TICK_TIMEOUT:?}")),
            };
            if failure.is_none() {
                self.ticks.record();
            }
            let was_failing = std::mem::replace(&mut is_failing, failure.is_some());
            if let (Some(error), false) = (failure, was_failing) {
                warn!(error, "the stores cannot be refreshed");
            }
        }
    }

    /// Writes the remaining state, such as the last use of keys. Call this when no lookup is in flight. Gives the database
    /// [`CLOSE_TIMEOUT`] to recover if it fails.
    pub async fn close(&self) -> Result<(), Failure> {
        let recovered = async {
            let mut interval = tokio::time::interval(TICK);
            while let Err(TickError::Transient(_)) = self.accounts.tick(self.clock.read()).await {
                interval.tick().await;
            }
        };
        // The result is that of the close.
        let _ = timeout(CLOSE_TIMEOUT, recovered).await;
        match timeout(CLOSE_TIMEOUT, self.accounts.close()).await {
            Ok(closed) => Ok(closed?),
            Err(_) => Err(Failure::new(
                "the disk did not complete the last commit; the next start determines its outcome",
            )),
        }
    }
}

/// Counts the free lookups of each key.
struct FreeLookups(Arc<dyn Ledger>);

impl Observer for FreeLookups {
    fn now(&self) -> Duration {
        Duration::ZERO // not used
    }

    fn times_ports(&self, _: Duration) -> bool {
        false
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        self.0.usage().record(event);
    }
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
