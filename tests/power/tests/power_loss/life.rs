//! A service and its operator at work until the power is cut.

use std::error::Error;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::Credits;
use enrich_lib::window::Quota;
use enrich_power::Disk;
use enrich_sqlite::{Admin, DataDir, Ledger, Work};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rusqlite::Connection;

use crate::books::Books;

const START: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

const BATCH_MAX: usize = 20;

/// An error means that the power is off or the disk is faulty. The caller checks the power to distinguish them.
type Done = Result<(), Box<dyn Error>>;

/// Runs the service until the power is cut, or until a graceful shutdown.
pub(crate) fn live(dir: &DataDir, disk: &Disk, books: &mut Books, rng: &mut StdRng) -> Done {
    let mut life = Life::begin(dir, books, rng)?;
    while disk.is_on() {
        match life.rng.random_range(0..100) {
            0..60 => life.spend()?,
            60..75 => life.grant()?,
            75..85 => life.tick()?,
            85..90 => life.release()?,
            90..95 => life.checkpoint()?,
            _ => {
                life.close();
                return Ok(());
            }
        }
    }
    Ok(())
}

struct Life<'a> {
    dir: &'a DataDir,
    books: &'a mut Books,
    rng: &'a mut StdRng,
    admin: Admin,
    ledger: Ledger,
    writer: Work,
}

impl<'a> Life<'a> {
    fn begin(dir: &'a DataDir, books: &'a mut Books, rng: &'a mut StdRng) -> Result<Self, Box<dyn Error>> {
        let mut admin = Admin::open(dir)?;
        for workspace in books.missing() {
            let credits = rng.random_range(1..=50);
            books.grants(&workspace, credits);
            admin.create_workspace(&workspace, Quota::default(), credits, START)?;
            books.granted(&workspace);
        }
        let mut writer = None;
        let ledger = Ledger::open(dir, START, |work| writer = Some(work))?;
        Ok(Self { dir, books, rng, admin, ledger, writer: writer.ok_or("a ledger starts its writer")? })
    }

    /// Spends in one batch. Some spends are abandoned before the commit, some after it.
    fn spend(&mut self) -> Done {
        let count = self.rng.random_range(1..=BATCH_MAX);
        let holds = (0..count).map(|_| self.hold()).collect::<Result<Vec<_>, _>>()?;
        let holds: Vec<Hold> = holds.into_iter().flatten().collect();
        let mut waiting = Vec::new();
        for hold in &holds {
            let mut spend = self.ledger.settle(hold, Settlement::Spend(1));
            if poll(spend.as_mut()).is_ready() {
                return Err("a spend was answered before it was written".into());
            }
            if self.rng.random_bool(0.05) {
                drop(spend);
                self.books.given_up(hold);
            } else {
                self.books.asked(hold);
                waiting.push((hold, spend));
            }
        }
        work(&mut self.writer)?;
        let mut untold = Vec::new();
        for (hold, mut spend) in waiting {
            if self.rng.random_bool(0.05) {
                untold.push(hold);
                continue;
            }
            let Poll::Ready(answer) = poll(spend.as_mut()) else { return Err("no answer".into()) };
            answer?;
            self.books.told(hold);
        }
        // These spends were dropped without taking their replies, so they must be voided.
        if !untold.is_empty() && self.rng.random_bool(0.8) {
            self.tick()?;
            untold.into_iter().for_each(|hold| self.books.voided(hold));
        }
        Ok(())
    }

    /// Holds a credit and perhaps releases it. Neither leaves a trace on disk.
    fn release(&mut self) -> Done {
        let Some(hold) = self.hold()? else { return Ok(()) };
        self.books.given_up(&hold);
        if self.rng.random_bool(0.5) {
            self.drive(|ledger| ledger.settle(&hold, Settlement::Release))??;
        }
        Ok(())
    }

    /// Holds one credit. Returns `None` if the workspace has no credits.
    fn hold(&mut self) -> Result<Option<Hold>, Box<dyn Error>> {
        let hold = Hold {
            lookup_id: LookupId::new(START, self.rng.random()),
            workspace: self.workspace(),
            credits: 1,
            placed_at: START,
            expires_at: START + Duration::from_secs(60),
        };
        let holding = self.drive(|ledger| ledger.hold(&hold))??;
        Ok((holding == HoldOutcome::Granted).then_some(hold))
    }

    fn grant(&mut self) -> Done {
        let (workspace, credits) = (self.workspace(), self.rng.random_range(1..=50));
        self.books.grants(&workspace, credits);
        self.admin.grant(&workspace, credits, START)?;
        self.books.granted(&workspace);
        self.tick()
    }

    fn tick(&mut self) -> Done {
        Ok(self.drive(|ledger| Box::pin(ledger.tick(START)))??)
    }

    /// Runs a checkpoint on a separate connection, as a backup does.
    fn checkpoint(&mut self) -> Done {
        let db = Connection::open(self.dir.path().join("accounts.db"))?;
        let mode = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"].choose(self.rng).unwrap();
        db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))?;
        Ok(())
    }

    /// Closes all connections. The last one moves the log into the database.
    fn close(self) {
        let Self { admin, ledger, mut writer, .. } = self;
        drop(ledger);
        assert!(poll(writer.as_mut()).is_ready(), "the writer ends with its ledger");
        drop(writer);
        drop(admin);
    }

    fn workspace(&mut self) -> WorkspaceId {
        self.books.workspaces().choose(self.rng).unwrap().clone()
    }

    /// Polls an operation of the ledger, and the writer if the operation waits for it.
    fn drive<'s, T>(
        &'s mut self,
        step: impl FnOnce(&'s Ledger) -> Pin<Box<dyn Future<Output = T> + Send + 's>>,
    ) -> Result<T, Box<dyn Error>> {
        let mut step = pin!(step(&self.ledger));
        if let Poll::Ready(done) = poll(step.as_mut()) {
            return Ok(done);
        }
        work(&mut self.writer)?;
        match poll(step.as_mut()) {
            Poll::Ready(done) => Ok(done),
            Poll::Pending => Err("nothing moves any more".into()),
        }
    }
}

/// Runs the writer until it has finished all queued jobs.
fn work(writer: &mut Work) -> Done {
    match poll(writer.as_mut()) {
        Poll::Ready(()) => Err("the writer ended before its ledger".into()),
        Poll::Pending => Ok(()),
    }
}

/// Polls a future once, with a waker that does nothing.
fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
