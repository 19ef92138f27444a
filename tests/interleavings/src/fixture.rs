//! A ledger with its own database, and lookups that spend from it.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{env, fs};

use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::key::ApiKey;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::Credits;
use enrich_lib::window::Quota;
use enrich_sqlite::{DataDir, Ledger, Work, accounts, complete};
use enrich_store::records::NewKey;
use enrich_store::{Accounts, Actor, Clocks, Ledger as _};
use rusqlite::Connection;
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};
use tempfile::TempDir;

/// The credits granted to the workspace.
pub const GRANTED: u64 = 3;

/// When all holds are placed.
pub const START: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

/// Lifetime of a hold.
pub const HOLD_TTL: Duration = Duration::from_secs(60);

/// Returns when all holds expire.
pub fn expiry() -> Timestamp {
    START + HOLD_TTL
}

/// Returns the workspace of all tests.
pub fn workspace() -> WorkspaceId {
    "acme".parse().expect("a valid name")
}

/// Returns the workspace's key.
pub fn key() -> ApiKey {
    ApiKey::generate(|| 7)
}

/// Returns the hold of the `n`-th lookup, of `credits`.
pub fn hold(n: u8, credits: u64) -> Hold {
    let lookup_id = LookupId::new(START, [n; 10]);
    let mut hold = Hold::new(lookup_id, workspace(), credits);
    hold.key = key().digest().key_id();
    hold.ttl = HOLD_TTL;
    hold
}

/// Runs a ledger's writer on a thread.
pub fn spawn_writer(work: Work) -> JoinHandle<()> {
    thread::spawn(move || block_on(work))
}

/// A ledger with a database of its own, for one schedule.
#[derive(Debug)]
pub struct LedgerFixture {
    /// Dropped by [`LedgerFixture::drop_ledger`], or later by the last thread that uses it.
    pub ledger: Arc<Ledger>,
    disk: Arc<Disk>,
    dir: TempDir,
}

impl LedgerFixture {
    /// Opens a ledger. Returns its writer, which is not running yet.
    pub fn open() -> (Self, Work) {
        // A file system in memory, where there is one, avoids waiting for a disk.
        let shared_memory = Path::new("/dev/shm");
        let parent = if shared_memory.is_dir() { shared_memory.to_owned() } else { env::temp_dir() };
        let dir = TempDir::with_prefix_in("enrich-interleavings-", parent).expect("a directory");
        let file = dir.path().join("accounts.db");
        fs::write(&file, initial_database()).expect("a copy");
        let data = DataDir::create(dir.path()).expect("data");
        let mut work = None;
        let spawn = |writer| work = Some(writer);
        let ledger =
            Ledger::open(&data, Clocks::simulated(START), || Duration::ZERO, spawn).expect("a ledger");
        let disk = Disk(Mutex::new(Connection::open(file).expect("a reader")));
        (Self { ledger: Arc::new(ledger), disk: Arc::new(disk), dir }, work.expect("a writer"))
    }

    /// Opens the accounts as an operator.
    pub fn admin(&self) -> Accounts {
        let data = DataDir::open(self.dir.path()).expect("data");
        accounts(&data).expect("accounts")
    }

    /// Returns the `n`-th lookup, which does not hold its `credits` yet.
    pub fn lookup(&self, n: u8, credits: u64) -> TestLookup {
        TestLookup { ledger: self.ledger.clone(), disk: self.disk.clone(), hold: hold(n, credits) }
    }

    /// Returns the `n`-th lookup, which holds its `credits`.
    pub fn lookup_with_hold(&self, n: u8, credits: u64) -> TestLookup {
        let lookup = self.lookup(n, credits);
        assert_eq!(lookup.hold(), HoldOutcome::Granted);
        lookup
    }

    /// Ticks the ledger at each of `times`, on a separate thread.
    pub fn tick_at<const N: usize>(&self, times: [Timestamp; N]) -> JoinHandle<()> {
        let ledger = self.ledger.clone();
        thread::spawn(move || {
            for now in times {
                ledger.refresh_keys().expect("a refresh");
                block_on(ledger.tick(Clocks::simulated(now))).expect("a tick");
                check(&ledger);
            }
        })
    }

    /// Checks that memory and disk agree after a last tick: both contain the acknowledged spends, and no
    /// refused ones. Then drops the ledger, and checks that its writer ends and the disk is unchanged.
    pub fn close(self, writer: JoinHandle<()>, results: &[SpendResult]) {
        block_on(self.ledger.tick(Clocks::simulated(expiry() + 10 * HOLD_TTL))).expect("the last tick");
        let balance = check(&self.ledger);
        let spent = self.disk.check(results);
        assert_eq!(
            (balance.held, balance.spent),
            (0, spent),
            "no credits are held, and memory and disk agree"
        );
        assert_eq!(Arc::strong_count(&self.ledger), 1, "no other thread uses the ledger");
        let data = self.drop_ledger();
        writer.join().expect("the writer ends");
        data.check(results);
    }

    /// Drops this reference to the ledger. Other threads may still use it.
    pub fn drop_ledger(self) -> RemainingData {
        RemainingData { disk: self.disk, _dir: self.dir }
    }
}

/// The data that remains after a ledger has been dropped.
#[derive(Debug)]
pub struct RemainingData {
    disk: Arc<Disk>,
    _dir: TempDir,
}

impl RemainingData {
    /// Checks that the disk contains the acknowledged spends and no refused ones.
    pub fn check(self, results: &[SpendResult]) {
        self.disk.check(results);
    }
}

/// Checks that the granted credits equal the sum of available, held and spent credits.
fn check(ledger: &Ledger) -> Balance {
    let balance = ledger.balance(&workspace()).expect("a balance");
    assert_eq!(balance.granted, balance.available + balance.held + balance.spent, "{balance:?}");
    balance
}

/// The outcome of a spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendOutcome {
    /// Acknowledged to the caller.
    Acknowledged,
    /// The caller received an error.
    Refused,
    /// The caller stopped waiting, so that the spend may be committed or not.
    Abandoned,
}

/// The hold of a lookup, and the outcome of its last attempt to spend.
pub type SpendResult = (Hold, SpendOutcome);

/// A lookup that holds, spends or releases credits.
#[derive(Clone, Debug)]
pub struct TestLookup {
    ledger: Arc<Ledger>,
    disk: Arc<Disk>,
    hold: Hold,
}

impl TestLookup {
    /// Holds the credits.
    pub fn hold(&self) -> HoldOutcome {
        self.try_hold().expect("a hold that has not expired")
    }

    /// Holds the credits. Returns `None` if the hold has expired.
    pub fn try_hold(&self) -> Option<HoldOutcome> {
        let outcome = block_on(self.ledger.hold(&self.hold)).ok();
        check(&self.ledger);
        outcome
    }

    /// Releases the credits. Returns `false` if the ledger refuses.
    pub fn release(&self) -> bool {
        let released = block_on(self.ledger.settle(&self.hold, Settlement::Release)).is_ok();
        check(&self.ledger);
        released
    }

    /// Spends the credits and waits for the result.
    pub fn spend(&self) -> SpendResult {
        let result = block_on(self.ledger.settle(&self.hold, Settlement::Spend(self.hold.credits)));
        self.checked(if result.is_ok() { SpendOutcome::Acknowledged } else { SpendOutcome::Refused })
    }

    /// Spends the credits and stops waiting after a random number of polls.
    pub fn spend_with_timeout(&self) -> SpendResult {
        let polls = thread_rng().gen_range(1..8);
        let mut spend = self.ledger.settle(&self.hold, Settlement::Spend(self.hold.credits));
        let mut polled = (0..polls).map(|_| poll(spend.as_mut()));
        let outcome = polled.find_map(|poll| match poll {
            Poll::Ready(Ok(_)) => Some(SpendOutcome::Acknowledged),
            Poll::Ready(Err(_)) => Some(SpendOutcome::Refused),
            Poll::Pending => None,
        });
        drop(spend);
        self.checked(outcome.unwrap_or(SpendOutcome::Abandoned))
    }

    /// Checks that an acknowledged spend is present in memory and on disk.
    fn checked(&self, outcome: SpendOutcome) -> SpendResult {
        if outcome == SpendOutcome::Acknowledged {
            assert!(self.disk.is_committed(&self.hold), "acknowledged, but not on disk");
            assert!(check(&self.ledger).spent >= self.hold.credits, "acknowledged, but not spent in memory");
        }
        (self.hold.clone(), outcome)
    }
}

/// Polls a future once, with a waker that does nothing.
pub fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A reader of the database. The scheduler does not switch threads while it reads.
#[derive(Debug)]
struct Disk(Mutex<Connection>);

impl Disk {
    /// Checks that the acknowledged spends, and no refused ones, are on disk. Returns the credits of all
    /// spends there.
    fn check(&self, results: &[SpendResult]) -> u64 {
        let mut spent = 0;
        for (hold, outcome) in results {
            let is_committed = self.is_committed(hold);
            match outcome {
                SpendOutcome::Acknowledged => assert!(is_committed, "{hold:?}"),
                SpendOutcome::Refused => assert!(!is_committed, "{hold:?}"),
                SpendOutcome::Abandoned => {}
            }
            spent += if is_committed { hold.credits } else { 0 };
        }
        let db = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: u64 =
            db.query_row("SELECT sum(spent) FROM account", [], |row| row.get(0)).expect("a total");
        assert_eq!(total, spent, "the total is the sum of the spends");
        spent
    }

    /// Returns whether a spend is committed.
    fn is_committed(&self, hold: &Hold) -> bool {
        let select = "SELECT EXISTS (SELECT 1 FROM credit_spend WHERE lookup_id = ?)";
        let db = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        db.query_row(select, [hold.lookup_id.as_bytes()], |row| row.get(0)).expect("an answer")
    }
}

/// The initial database of each schedule. It is created once, because that takes longer than a schedule.
fn initial_database() -> &'static [u8] {
    static DATABASE: OnceLock<Vec<u8>> = OnceLock::new();
    DATABASE.get_or_init(|| {
        let dir = TempDir::new().expect("a directory");
        let mut admin = accounts(&DataDir::create(dir.path()).expect("data")).expect("accounts");
        complete(admin.create_workspace(&workspace(), Quota::default(), GRANTED, START))
            .expect("a workspace");
        let (workspace, key) = (workspace(), key());
        let new = NewKey::new(&workspace, "a key", &key);
        complete(admin.create_key(&new, &Actor::operator(START))).expect("a key");
        drop(admin);
        fs::read(dir.path().join("accounts.db")).expect("a file")
    })
}
