//! A ledger with a disk of its own, and those who spend from it.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{env, fs};

use enrich_lib::credit::{Balance, Hold, Holding, Settlement};
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

/// What the workspace is granted.
pub const GRANTED: u64 = 3;

/// When all holds are placed.
pub const START: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

/// How long they last.
const HOLD_LIFE: Duration = Duration::from_secs(60);

/// When they expire.
pub fn end() -> Timestamp {
    START + HOLD_LIFE
}

/// The workspace of all tests.
pub fn workspace() -> WorkspaceId {
    "acme".parse().expect("a name")
}

/// Its key.
pub fn key() -> ApiKey {
    ApiKey::generate(|| 7)
}

/// The `n`-th lookup, which holds `credits`.
pub fn hold(n: u8, credits: u64) -> Hold {
    let lookup_id = LookupId::new(START, [n; 10]);
    Hold { lookup_id, workspace: workspace(), credits, placed_at: START, expires_at: end() }
}

/// Runs a ledger's writer.
pub fn write(work: Work) -> JoinHandle<()> {
    thread::spawn(move || block_on(work))
}

/// A ledger that one schedule has to itself.
#[derive(Debug)]
pub struct Scene {
    /// Dropped by [`Scene::leave`], once nobody else has it.
    pub ledger: Arc<Ledger>,
    disk: Arc<Disk>,
    dir: TempDir,
}

impl Scene {
    /// The ledger, and its writer that has not begun.
    pub fn open() -> (Self, Work) {
        // No disk waits, where there is a file system in memory.
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

    /// The operator of this data.
    pub fn admin(&self) -> Admin {
        let data = DataDir::open(self.dir.path()).expect("data");
        Admin::open(&data).expect("accounts")
    }

    /// The `n`-th lookup, which has not held its `credits` yet.
    pub fn spender(&self, n: u8, credits: u64) -> Spender {
        Spender { ledger: self.ledger.clone(), disk: self.disk.clone(), hold: hold(n, credits) }
    }

    /// A lookup that holds them.
    pub fn holding(&self, n: u8, credits: u64) -> Spender {
        let spender = self.spender(n, credits);
        assert_eq!(spender.hold(), Holding::Granted);
        spender
    }

    /// Tells the time, one moment after the other, in a thread of its own.
    pub fn clock<const N: usize>(&self, moments: [Timestamp; N]) -> JoinHandle<()> {
        let ledger = self.ledger.clone();
        thread::spawn(move || {
            for now in moments {
                block_on(ledger.tick(now)).expect("a tick");
                check(&ledger);
            }
        })
    }

    /// After a last tick, memory and disk agree: both have what was told and nothing else, and when the ledger is
    /// dropped, its writer ends and leaves it so.
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

    /// Drops the ledger, perhaps while others still have it.
    pub fn leave(self) -> Left {
        Left { disk: self.disk, _dir: self.dir }
    }
}

/// What is there when a ledger has been dropped.
#[derive(Debug)]
pub struct Left {
    disk: Arc<Disk>,
    _dir: TempDir,
}

impl Left {
    /// On the disk is what was told and nothing else.
    pub fn check(self, ended: &[Ended]) {
        self.disk.check(ended);
    }
}

/// Makes sure of the one equation of credits.
fn check(ledger: &Ledger) -> Balance {
    let balance = ledger.balance(&workspace()).expect("a balance");
    assert_eq!(balance.granted, balance.available + balance.held + balance.spent, "{balance:?}");
    balance
}

/// What became of a spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its caller was told that it is spent.
    Told,
    /// Its caller was told that it is not.
    Refused,
    /// Its caller did not wait for an answer.
    GivenUp,
}

/// A lookup, and the last answer that it got.
pub type Ended = (Hold, Answer);

/// A lookup at work.
#[derive(Clone, Debug)]
pub struct Spender {
    ledger: Arc<Ledger>,
    disk: Arc<Disk>,
    hold: Hold,
}

impl Spender {
    /// Holds its credits.
    pub fn hold(&self) -> Holding {
        self.try_hold().expect("a hold that has not expired")
    }

    /// The same, and `None` if the hold has expired.
    pub fn try_hold(&self) -> Option<Holding> {
        let holding = block_on(self.ledger.hold(&self.hold)).ok();
        check(&self.ledger);
        holding
    }

    /// Releases them. Whether they are released.
    pub fn release(&self) -> bool {
        let released = block_on(self.ledger.settle(&self.hold, Settlement::Release)).is_ok();
        check(&self.ledger);
        released
    }

    /// Spends them, and waits for the answer.
    pub fn spend(&self) -> Ended {
        let told = block_on(self.ledger.settle(&self.hold, Settlement::Spend(self.hold.credits)));
        self.ended(if told.is_ok() { Answer::Told } else { Answer::Refused })
    }

    /// Spends them, and gives up at any moment.
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

    /// Whoever is told of a spend finds it spent, in memory and on the disk.
    fn ended(&self, answer: Answer) -> Ended {
        if answer == Answer::Told {
            assert!(self.disk.has(&self.hold), "told, and not on the disk");
            assert!(check(&self.ledger).spent >= self.hold.credits, "told, and not spent");
        }
        (self.hold.clone(), answer)
    }
}

/// One step of a future that nobody wakes.
pub fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// What a reader finds there. No thread is switched while it reads.
#[derive(Debug)]
struct Disk(Mutex<Connection>);

impl Disk {
    /// Exactly what was told is spent. How many credits that is.
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

    /// Whether a spend stands: it was written, and not taken back.
    fn has(&self, hold: &Hold) -> bool {
        let select = "SELECT EXISTS (SELECT 1 FROM credit_spend WHERE lookup_id = ?1)
             AND NOT EXISTS (SELECT 1 FROM credit_void WHERE lookup_id = ?1)";
        let db = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        db.query_row(select, [hold.lookup_id.as_bytes()], |row| row.get(0)).expect("an answer")
    }
}

/// The accounts that each schedule begins with: made once, as that takes longer than a schedule.
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
