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
use enrich_sqlite::{Admin, DataDir, Ledger, Work};
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
const HOLD_LIFE: Duration = Duration::from_secs(60);

/// Returns when all holds expire.
pub fn end() -> Timestamp {
    START + HOLD_LIFE
}

/// Returns the workspace of all tests.
pub fn workspace() -> WorkspaceId {
    "acme".parse().expect("a name")
}

/// Returns the workspace's key.
pub fn key() -> ApiKey {
    ApiKey::generate(|| 7)
}

/// Returns the hold of the `n`-th lookup, of `credits`.
pub fn hold(n: u8, credits: u64) -> Hold {
    let lookup_id = LookupId::new(START, [n; 10]);
    Hold { lookup_id, workspace: workspace(), credits, placed_at: START, expires_at: end() }
}

/// Runs a ledger's writer on a thread.
pub fn write(work: Work) -> JoinHandle<()> {
    thread::spawn(move || block_on(work))
}

/// A ledger for one schedule.
#[derive(Debug)]
pub struct Scene {
    /// Dropped by [`Scene::leave`], or later by the last thread that uses it.
    pub ledger: Arc<Ledger>,
    disk: Arc<Disk>,
    dir: TempDir,
}

impl Scene {
    /// Opens a ledger. Returns its writer, which is not running yet.
    pub fn open() -> (Self, Work) {
        // A file system in memory, where there is one, avoids waiting for a disk.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        let dir = TempDir::with_prefix_in("enrich-interleavings-", place).expect("a directory");
        let file = dir.path().join("accounts.db");
        fs::write(&file, accounts()).expect("a copy");
        let data = DataDir::create(dir.path()).expect("data");
        let mut work = None;
        let ledger = Ledger::open(&data, START, |writer| work = Some(writer)).expect("a ledger");
        let disk = Disk(Mutex::new(Connection::open(file).expect("a reader")));
        (Self { ledger: Arc::new(ledger), disk: Arc::new(disk), dir }, work.expect("a writer"))
    }

    /// Opens the accounts as an operator.
    pub fn admin(&self) -> Admin {
        let data = DataDir::open(self.dir.path()).expect("data");
        Admin::open(&data).expect("accounts")
    }

    /// Returns the `n`-th lookup, which does not hold its `credits` yet.
    pub fn spender(&self, n: u8, credits: u64) -> Spender {
        Spender { ledger: self.ledger.clone(), disk: self.disk.clone(), hold: hold(n, credits) }
    }

    /// Returns the `n`-th lookup, which holds its `credits`.
    pub fn holding(&self, n: u8, credits: u64) -> Spender {
        let spender = self.spender(n, credits);
        assert_eq!(spender.hold(), HoldOutcome::Granted);
        spender
    }

    /// Ticks the ledger at each of `moments`, on a separate thread.
    pub fn clock<const N: usize>(&self, moments: [Timestamp; N]) -> JoinHandle<()> {
        let ledger = self.ledger.clone();
        thread::spawn(move || {
            for now in moments {
                block_on(ledger.tick(now)).expect("a tick");
                check(&ledger);
            }
        })
    }

    /// Checks that memory and disk agree after a last tick: both contain the acknowledged spends and no others. Then
    /// drops the ledger, and checks that its writer ends and the disk is unchanged.
    pub fn close(self, writer: JoinHandle<()>, ended: &[Ended]) {
        block_on(self.ledger.tick(end() + 10 * HOLD_LIFE)).expect("the last tick");
        let balance = check(&self.ledger);
        let told = self.disk.check(ended);
        assert_eq!((balance.held, balance.spent), (0, told), "held for ever, or spent without a word");
        assert_eq!(Arc::strong_count(&self.ledger), 1, "nobody else has it");
        let left = self.leave();
        writer.join().expect("a writer that ends");
        left.check(ended);
    }

    /// Drops this reference to the ledger. Other threads may still use it.
    pub fn leave(self) -> Left {
        Left { disk: self.disk, _dir: self.dir }
    }
}

/// The data that remains after a ledger has been dropped.
#[derive(Debug)]
pub struct Left {
    disk: Arc<Disk>,
    _dir: TempDir,
}

impl Left {
    /// Checks that the disk contains the acknowledged spends and no others.
    pub fn check(self, ended: &[Ended]) {
        self.disk.check(ended);
    }
}

/// Checks that the granted credits equal the sum of available, held and spent credits.
fn check(ledger: &Ledger) -> Balance {
    let balance = ledger.balance(&workspace()).expect("a balance");
    assert_eq!(balance.granted, balance.available + balance.held + balance.spent, "{balance:?}");
    balance
}

/// The result of a spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Acknowledged to the caller.
    Told,
    /// The caller received an error.
    Refused,
    /// The caller stopped waiting.
    GivenUp,
}

/// The hold of a lookup, and the result of its last attempt to spend.
pub type Ended = (Hold, Answer);

/// A lookup that holds, spends or releases credits.
#[derive(Clone, Debug)]
pub struct Spender {
    ledger: Arc<Ledger>,
    disk: Arc<Disk>,
    hold: Hold,
}

impl Spender {
    /// Holds the credits.
    pub fn hold(&self) -> HoldOutcome {
        self.try_hold().expect("a hold that has not expired")
    }

    /// Holds the credits. Returns `None` if the hold has expired.
    pub fn try_hold(&self) -> Option<HoldOutcome> {
        let holding = block_on(self.ledger.hold(&self.hold)).ok();
        check(&self.ledger);
        holding
    }

    /// Releases the credits. Returns `false` if the ledger refuses.
    pub fn release(&self) -> bool {
        let released = block_on(self.ledger.settle(&self.hold, Settlement::Release)).is_ok();
        check(&self.ledger);
        released
    }

    /// Spends the credits and waits for the result.
    pub fn spend(&self) -> Ended {
        let told = block_on(self.ledger.settle(&self.hold, Settlement::Spend(self.hold.credits)));
        self.ended(if told.is_ok() { Answer::Told } else { Answer::Refused })
    }

    /// Spends the credits and stops waiting after a random number of polls.
    pub fn spend_impatiently(&self) -> Ended {
        let patience = thread_rng().gen_range(1..8);
        let mut spend = self.ledger.settle(&self.hold, Settlement::Spend(self.hold.credits));
        let mut answers = (0..patience).map(|_| poll(spend.as_mut()));
        let told = answers.find_map(|answer| match answer {
            Poll::Ready(Ok(())) => Some(Answer::Told),
            Poll::Ready(Err(_)) => Some(Answer::Refused),
            Poll::Pending => None,
        });
        drop(spend);
        self.ended(told.unwrap_or(Answer::GivenUp))
    }

    /// Checks that an acknowledged spend is present in memory and on disk.
    fn ended(&self, answer: Answer) -> Ended {
        if answer == Answer::Told {
            assert!(self.disk.has(&self.hold), "told, and not on the disk");
            assert!(check(&self.ledger).spent >= self.hold.credits, "told, and not spent");
        }
        (self.hold.clone(), answer)
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
    /// Checks that the acknowledged spends, and no others, are on disk. Returns their credits.
    fn check(&self, ended: &[Ended]) -> u64 {
        let mut spent = 0;
        for (hold, answer) in ended {
            assert_eq!(self.has(hold), *answer == Answer::Told, "{answer:?}");
            spent += if *answer == Answer::Told { hold.credits } else { 0 };
        }
        let db = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: u64 =
            db.query_row("SELECT sum(spent) FROM account", [], |row| row.get(0)).expect("a total");
        assert_eq!(total, spent, "the total is the sum of what was told");
        spent
    }

    /// Returns whether a spend is committed and not voided.
    fn has(&self, hold: &Hold) -> bool {
        let select = "SELECT EXISTS (SELECT 1 FROM credit_spend WHERE lookup_id = ?1)
             AND NOT EXISTS (SELECT 1 FROM credit_void WHERE lookup_id = ?1)";
        let db = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        db.query_row(select, [hold.lookup_id.as_bytes()], |row| row.get(0)).expect("an answer")
    }
}

/// The initial database of each schedule. It is created once, because that takes longer than a schedule.
fn accounts() -> &'static [u8] {
    static ACCOUNTS: OnceLock<Vec<u8>> = OnceLock::new();
    ACCOUNTS.get_or_init(|| {
        let dir = TempDir::new().expect("a directory");
        let mut admin = Admin::open(&DataDir::create(dir.path()).expect("data")).expect("accounts");
        admin.create_workspace(&workspace(), Quota::default(), GRANTED, START).expect("a workspace");
        admin.create_key(&workspace(), "a key", &key(), START).expect("a key");
        drop(admin);
        fs::read(dir.path().join("accounts.db")).expect("a file")
    })
}
