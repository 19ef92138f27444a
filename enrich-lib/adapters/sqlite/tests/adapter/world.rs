//! A data directory, and a ledger whose writer runs only when the test polls it.

use std::cell::RefCell;
use std::error::Error;
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Quota;
use enrich_sqlite::{DataDir, Ledger, SqliteError, Work, accounts, complete};
use enrich_store::{Accounts, Clocks, Ledger as _};
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) const START: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

/// A temporary data directory, removed at the end of the test.
pub(crate) struct Files {
    pub(crate) dir: DataDir,
    _tmp: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        let tmp = TempDir::new().unwrap();
        Self { dir: DataDir::create(tmp.path().join("data")).unwrap(), _tmp: tmp }
    }

    /// Creates a data directory with a workspace `demo` that has `credits`.
    pub(crate) fn with_credits(credits: u64) -> Self {
        let files = Self::new();
        files.create_workspace("demo", credits);
        files
    }

    /// Opens a separate connection, like an operator in another process.
    pub(crate) fn admin(&self) -> Accounts {
        accounts(&self.dir).unwrap()
    }

    pub(crate) fn create_workspace(&self, id: &str, credits: u64) {
        complete(self.admin().create_workspace(&workspace(id), Quota::default(), credits, START)).unwrap();
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    /// Opens the accounts directly with SQLite.
    pub(crate) fn sql(&self) -> Connection {
        Connection::open(self.path("accounts.db")).unwrap()
    }

    /// Returns the balance of `demo` on disk.
    pub(crate) fn on_disk(&self) -> Balance {
        complete(self.admin().balance(&workspace("demo"))).unwrap()
    }
}

/// A ledger over [`Files`].
pub(crate) struct World {
    pub(crate) ledger: Ledger,
    /// The ledger's monotonic clock.
    pub(crate) elapsed_ms: Arc<AtomicU64>,
    writer: RefCell<Option<Work>>,
    files: Files,
}

impl Deref for World {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.files
    }
}

impl World {
    pub(crate) fn with_credits(credits: u64) -> Self {
        Self::serve(Files::with_credits(credits))
    }

    pub(crate) fn serve(files: Files) -> Self {
        let (mut writer, elapsed_ms) = (None, Arc::<AtomicU64>::default());
        let clock = elapsed_ms.clone();
        let clock = move || Duration::from_millis(clock.load(Ordering::Relaxed));
        let spawn = |work| writer = Some(work);
        let ledger = Ledger::open(&files.dir, Clocks::simulated(START), clock, spawn).unwrap();
        Self { ledger, elapsed_ms, writer: RefCell::new(writer), files }
    }

    /// Shuts down gracefully: the writer finishes the queued jobs.
    pub(crate) fn close(self) -> Files {
        let Self { ledger, writer, files, .. } = self;
        drop(ledger);
        assert!(run(writer.take().unwrap().as_mut()).is_ready(), "the writer ends with its ledger");
        files
    }

    /// Runs the writer until it has finished all queued jobs.
    pub(crate) fn write(&self) {
        if let Some(writer) = &mut *self.writer.borrow_mut() {
            assert!(run(writer.as_mut()).is_pending(), "the writer ends with its ledger, not before");
        }
    }

    /// Runs the writer until it ends, after the ledger was closed.
    pub(crate) fn finish(&self) {
        let writer = self.writer.take();
        assert!(run(writer.unwrap().as_mut()).is_ready(), "the writer ends when the ledger is closed");
    }

    /// Drops the writer, as a panic in it would.
    pub(crate) fn end_writer(&self) {
        *self.writer.borrow_mut() = None;
    }

    /// Polls `step` and the writer until `step` completes.
    pub(crate) fn drive<T>(&self, step: impl Future<Output = T>) -> T {
        let mut step = pin!(step);
        for _ in 0..3 {
            if let Poll::Ready(done) = poll(step.as_mut()) {
                return done;
            }
            self.write();
        }
        panic!("neither the step nor the writer makes progress");
    }

    pub(crate) fn tick(&self, now: Timestamp) {
        self.ledger.refresh_keys().unwrap();
        self.drive(self.ledger.tick(Clocks::simulated(now))).unwrap();
    }

    /// Holds one credit for the `n`-th lookup of `demo`.
    pub(crate) fn hold(&self, n: u16) -> Hold {
        self.hold_of("demo", n)
    }

    pub(crate) fn hold_of(&self, id: &str, n: u16) -> Hold {
        let lookup = lookup(id, n);
        assert_eq!(self.drive(self.ledger.hold(&lookup)).unwrap(), HoldOutcome::Granted);
        lookup
    }

    /// Spends the credit of `hold` and waits until the spend is durable.
    pub(crate) fn spend(&self, hold: &Hold) -> Result<(), PortError> {
        self.drive(self.ledger.settle(hold, Settlement::Spend(1))).map(drop)
    }

    /// Begins to spend the credit of `hold`, up to the point where it waits for the writer.
    pub(crate) fn queue_spend<'w>(&'w self, hold: &'w Hold) -> QueuedSpend<'w> {
        let spend = self.ledger.settle(hold, Settlement::Spend(1));
        let mut spend: QueuedSpend<'_> = Box::pin(async { spend.await.map(drop) });
        assert!(poll(spend.as_mut()).is_pending(), "a spend waits for the writer");
        spend
    }

    /// Returns the balance of `demo` in the ledger.
    pub(crate) fn balance(&self) -> Balance {
        self.balance_of("demo")
    }

    pub(crate) fn balance_of(&self, id: &str) -> Balance {
        self.ledger.balance(&workspace(id)).unwrap()
    }

    pub(crate) fn finds(&self, key: &ApiKey) -> bool {
        self.drive(self.ledger.find(&key.digest())).unwrap().is_some()
    }
}

/// Opens a ledger whose monotonic clock stands still.
pub(crate) fn open_ledger(dir: &DataDir, spawn: impl FnOnce(Work)) -> Result<Ledger, SqliteError> {
    Ledger::open(dir, Clocks::simulated(START), || Duration::ZERO, spawn)
}

pub(crate) type QueuedSpend<'w> = Pin<Box<dyn Future<Output = Result<(), PortError>> + Send + 'w>>;

/// Polls a writer until it waits for something other than its own wake-up.
fn run(mut writer: Pin<&mut (impl Future<Output = ()> + ?Sized)>) -> Poll<()> {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    loop {
        let step = writer.as_mut().poll(&mut Context::from_waker(&waker));
        if step.is_ready() || !woken.0.swap(false, Ordering::Relaxed) {
            return step;
        }
    }
}

/// A waker that records whether it was called.
#[derive(Default)]
pub(crate) struct Woken(AtomicBool);

impl Woken {
    /// Polls a future that is not ready yet. Returns whether its task was woken since then.
    pub(crate) fn poll_pending<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Arc<Self> {
        let woken = Arc::new(Self::default());
        let waker = Waker::from(woken.clone());
        assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
        woken
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls a future once, with a waker that does nothing.
pub(crate) fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

pub(crate) fn workspace(id: &str) -> WorkspaceId {
    id.parse().unwrap()
}

pub(crate) fn lookup(id: &str, n: u16) -> Hold {
    let mut random = [0; 10];
    random[8..].copy_from_slice(&n.to_be_bytes());
    let mut hold = Hold::new(LookupId::new(START, random), workspace(id), 1);
    hold.key = KeyId::from_number(1);
    hold.ttl = Duration::from_secs(60);
    hold
}

pub(crate) fn after_seconds(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

/// Returns a key that is determined by the seed.
pub(crate) fn key(seed: u8) -> ApiKey {
    ApiKey::generate(|| seed)
}

/// Returns the available, held and spent credits.
pub(crate) fn totals(balance: Balance) -> (u64, u64, u64) {
    assert_eq!(balance.granted, balance.available + balance.held + balance.spent, "{balance:?}");
    (balance.available, balance.held, balance.spent)
}

/// Returns the error message that an operator would read.
pub(crate) fn message<T>(result: Result<T, impl Error>) -> String {
    result.map(drop).unwrap_err().to_string()
}

/// Returns the number of commits in the write-ahead log. A commit frame contains the size of the database
/// after the commit (<https://sqlite.org/fileformat2.html#the_write_ahead_log>).
pub(crate) fn commits(files: &Files) -> usize {
    const HEADER_BYTES: usize = 32;
    const FRAME_HEADER_BYTES: usize = 24;
    let log = fs::read(files.path("accounts.db-wal")).unwrap();
    if log.is_empty() {
        return 0; // no write since the log was opened
    }
    let page_bytes = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let salts = &log[16..24];
    log[HEADER_BYTES..]
        .chunks_exact(FRAME_HEADER_BYTES + page_bytes)
        .take_while(|frame| &frame[8..16] == salts) // frames of an older log follow
        .filter(|frame| frame[4..8] != [0; 4])
        .count()
}
