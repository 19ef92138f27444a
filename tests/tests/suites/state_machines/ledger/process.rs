//! A simulated process that serves a data directory, and its operator. The ledger's writer runs only when a
//! test polls it.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Quota;
use enrich_sqlite::{Admin, DataDir, Ledger, Work};
use enrich_store::Actor;
use enrich_store::records::NewKey;
use tempfile::TempDir;

use super::super::model::LOOKUPS;
use super::super::{at_once, poll};

pub(crate) const START: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

pub(crate) const GRANTED_FIRST: u64 = 4;

pub(crate) static WORKSPACES: LazyLock<[WorkspaceId; 2]> =
    LazyLock::new(|| ["north", "south"].map(|name| name.parse().unwrap()));

/// The key of each workspace.
static KEYS: LazyLock<[ApiKey; 2]> = LazyLock::new(|| [1, 2].map(|seed| ApiKey::generate(|| seed)));

/// A database with the workspaces and their keys.
static PREPARED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let files = files();
    let dir = DataDir::create(files.path()).unwrap();
    let mut operator = Admin::open(&dir).unwrap();
    for (id, key) in WORKSPACES.iter().zip(&*KEYS) {
        operator.create_workspace(id, Quota::default(), GRANTED_FIRST, START).unwrap();
        operator.create_key(&NewKey::new(id, "test", key), &Actor::operator(START)).unwrap();
    }
    drop(operator); // closing the last connection checkpoints the WAL into the database
    fs::read(files.path().join(DATABASE)).unwrap()
});

const DATABASE: &str = "accounts.db";

/// Creates a data directory, in `/dev/shm` if it exists. Only processes crash here, so written data survives
/// in memory.
fn files() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap()
}

pub(crate) struct World {
    /// `None` only during a restart, because only one process can open the directory at a time.
    process: Option<Process>,
    pub(crate) operator: RefCell<Admin>,
    dir: DataDir,
    _files: TempDir,
}

/// A process that serves the directory. Its first field, the writer, is dropped first, together with its
/// queue.
struct Process {
    writer: Work,
    waiting: [Option<Spend>; LOOKUPS],
    ledger: Arc<Ledger>,
}

/// The result of a hold or settlement. Errors are compared by their message.
pub(crate) type Outcome = Result<&'static str, String>;

type Spend = Pin<Box<dyn Future<Output = Outcome>>>;

impl World {
    pub(crate) fn open() -> Self {
        let files = files();
        let dir = DataDir::create(files.path()).unwrap();
        fs::write(files.path().join(DATABASE), &*PREPARED).unwrap();
        let operator = RefCell::new(Admin::open(&dir).unwrap());
        Self { process: Some(Process::open(&dir, START)), operator, dir, _files: files }
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    /// Drops the process without a shutdown and starts another one.
    pub(crate) fn crash(&mut self, now: Timestamp) {
        self.process = None;
        self.process = Some(Process::open(&self.dir, now));
    }

    /// Shuts the process down gracefully and starts another one: drops all callers and lets the writer finish
    /// its queue.
    pub(crate) fn close(&mut self, now: Timestamp) {
        if let Some(Process { mut writer, waiting, ledger }) = self.process.take() {
            drop(waiting);
            drop(ledger);
            assert!(poll(writer.as_mut()).is_ready(), "the writer ends with its ledger");
        }
        self.process = Some(Process::open(&self.dir, now));
    }

    pub(crate) fn hold(&mut self, hold: &Hold) -> Outcome {
        at_once(self.process().ledger.hold(hold)).map_err(words).map(|holding| match holding {
            HoldOutcome::Granted => "granted",
            HoldOutcome::Insufficient => "insufficient",
        })
    }

    pub(crate) fn release(&mut self, hold: &Hold) -> Outcome {
        outcome(at_once(self.process().ledger.settle(hold, Settlement::Release)))
    }

    /// Requests a spend. Returns `None` if it is pending; [`World::take`] polls its result.
    pub(crate) fn spend(&mut self, lookup: usize, hold: &Hold, credits: u64) -> Option<Outcome> {
        let (ledger, hold) = (self.process().ledger.clone(), hold.clone());
        let settle = async move { outcome(ledger.settle(&hold, Settlement::Spend(credits)).await) };
        self.process().waiting[lookup] = Some(Box::pin(settle));
        self.take(lookup)
    }

    /// Polls the result of the pending spend of `lookup`.
    pub(crate) fn take(&mut self, lookup: usize) -> Option<Outcome> {
        let waiting = &mut self.process().waiting[lookup];
        match poll(waiting.as_mut()?.as_mut()) {
            Poll::Ready(outcome) => {
                *waiting = None;
                Some(outcome)
            }
            Poll::Pending => None,
        }
    }

    /// Drops the future that waits for the spend of `lookup`.
    pub(crate) fn give_up(&mut self, lookup: usize) {
        self.process().waiting[lookup] = None;
    }

    /// Lets the writer process its queue. The second poll is needed if the first one only ends a pause.
    pub(crate) fn write(&mut self) {
        for _ in 0..2 {
            assert!(
                poll(self.process().writer.as_mut()).is_pending(),
                "the writer ends with its ledger, not before"
            );
        }
    }

    pub(crate) fn tick(&mut self, now: Timestamp) {
        let ledger = self.process().ledger.clone();
        let mut tick = pin!(ledger.tick(now));
        assert!(poll(tick.as_mut()).is_pending());
        self.write();
        assert!(matches!(poll(tick.as_mut()), Poll::Ready(Ok(()))));
    }

    pub(crate) fn finds(&mut self, workspace: usize) -> bool {
        let found = at_once(self.process().ledger.find(&KEYS[workspace].digest())).unwrap();
        found.is_some_and(|found| found.id == WORKSPACES[workspace])
    }

    pub(crate) fn revoke(&mut self, workspace: usize) {
        let id = KEYS[workspace].digest().key_id();
        self.operator.get_mut().revoke_key(id, &Actor::operator(START)).unwrap();
    }

    /// Returns the balance in memory and the balance in the database.
    pub(crate) fn balances(&self, workspace: usize) -> [Balance; 2] {
        let id = &WORKSPACES[workspace];
        let ledger = &self.process.as_ref().unwrap().ledger;
        [ledger.balance(id).unwrap(), self.operator.borrow_mut().balance(id).unwrap()]
    }
}

impl Process {
    fn open(dir: &DataDir, now: Timestamp) -> Self {
        let mut writer = None;
        let ledger = Ledger::open(dir, now, |work| writer = Some(work)).unwrap();
        Self { writer: writer.unwrap(), waiting: Default::default(), ledger: Arc::new(ledger) }
    }
}

fn outcome(settled: Result<(), PortError>) -> Outcome {
    settled.map(|()| "done").map_err(words)
}

fn words(error: PortError) -> String {
    error.to_string()
}
