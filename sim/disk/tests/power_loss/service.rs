//! A service and its operator at work until the power is cut.

use std::error::Error;
use std::num::NonZeroI64;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use enrich_disk::{Disk, LogError};
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::Credits;
use enrich_lib::receipt::Receipt;
use enrich_lib::window::Quota;
use enrich_sqlite::{DataDir, Ledger, SqliteError, Work, accounts, accounts_for_pages, complete};
use enrich_store::records::NewKey;
use enrich_store::{Accounts, Actor, Clocks, Ledger as _, StoreError, TickError};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rusqlite::Connection;

use crate::expected_state::ExpectedState;

pub(crate) const START: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

/// Maximum number of spends in a batch.
const BATCH_MAX: usize = 20;

/// An error means that the power is off or the disk is faulty. The caller checks the power to distinguish
/// them.
pub(crate) type StepResult = Result<(), Box<dyn Error>>;

/// Runs the service until the power is cut, or until a graceful shutdown.
pub(crate) fn run_until_cut(
    dir: &DataDir,
    disk: &Disk,
    expected: &mut ExpectedState,
    rng: &mut StdRng,
) -> StepResult {
    let mut run = ServiceRun::start(dir, disk, expected, rng)?;
    while disk.is_on() {
        if run.has_failed() {
            run.expected.fail_stopped();
            return Ok(());
        }
        match run.rng.random_range(0..100) {
            0..60 => run.spend()?,
            60..75 => run.grant()?,
            75..85 => run.tick()?,
            85..90 => run.release()?,
            90..93 => run.revoke()?,
            93..96 => run.checkpoint()?,
            _ => {
                run.close();
                return Ok(());
            }
        }
    }
    Ok(())
}

struct ServiceRun<'a> {
    dir: &'a DataDir,
    disk: &'a Disk,
    expected: &'a mut ExpectedState,
    rng: &'a mut StdRng,
    admin: Accounts,
    ledger: Ledger,
    writer: Work,
}

impl<'a> ServiceRun<'a> {
    fn start(
        dir: &'a DataDir,
        disk: &'a Disk,
        expected: &'a mut ExpectedState,
        rng: &'a mut StdRng,
    ) -> Result<Self, Box<dyn Error>> {
        let open = if rng.random() { accounts } else { accounts_for_pages };
        let mut admin = open(dir)?;
        for workspace in expected.missing() {
            let credits = rng.random_range(1..=50);
            expected.grant_requested(&workspace, credits);
            complete(admin.create_workspace(&workspace, Quota::default(), credits.unsigned_abs(), START))?;
            expected.grant_acknowledged(&workspace);
        }
        let mut writer = None;
        let ledger =
            Ledger::open(dir, Clocks::simulated(START), || Duration::ZERO, |work| writer = Some(work))?;
        Ok(Self {
            dir,
            disk,
            expected,
            rng,
            admin,
            ledger,
            writer: writer.ok_or("the ledger did not start its writer")?,
        })
    }

    /// Spends in one batch. Some callers stop waiting before the commit, some after it. Some commits fail,
    /// some of them again and again.
    fn spend(&mut self) -> StepResult {
        let count = self.rng.random_range(1..=BATCH_MAX);
        let holds = (0..count).map(|_| self.hold()).collect::<Result<Vec<_>, _>>()?;
        let holds: Vec<Hold> = holds.into_iter().flatten().collect();
        if self.rng.random_bool(0.2) {
            self.withdraw()?;
        }
        if self.rng.random_bool(0.1) {
            fail_log(self.disk, self.rng);
        }
        let mut waiting = Vec::new();
        for hold in &holds {
            let mut spend = self.ledger.settle(hold, Settlement::Spend(1));
            match poll(spend.as_mut()) {
                Poll::Ready(Ok(Some(payer))) => {
                    self.expected.spend_settled(hold, Some(payer));
                    continue;
                }
                Poll::Ready(_) => return Err("a spend returned before it was written".into()),
                Poll::Pending => self.expected.spend_requested(hold),
            }
            if !self.rng.random_bool(0.05) {
                waiting.push((hold, spend));
            }
        }
        let ran = run_writer(&mut self.writer);
        // The error lasts, or comes back, while the writer discards the commit. A result is final, also
        // during an error.
        for _ in 0..self.rng.random_range(0..4) {
            if ran.is_err() {
                break;
            }
            if self.rng.random_bool(0.1) {
                fail_log(self.disk, self.rng);
            }
            if poll(pin!(self.ledger.tick(Clocks::simulated(START)))).is_pending()
                && run_writer(&mut self.writer).is_err()
            {
                break;
            }
            waiting.retain_mut(|(hold, spend)| match poll(spend.as_mut()) {
                Poll::Ready(Ok(payer)) => {
                    self.expected.spend_settled(hold, payer);
                    false
                }
                Poll::Ready(Err(_)) => {
                    self.expected.spend_failed(hold);
                    false
                }
                Poll::Pending => true,
            });
            if !waiting.is_empty() && self.ledger.check().is_ok() {
                return Err("credits can be held while a commit is in doubt".into());
            }
        }
        self.disk.cancel_error();
        if ran.is_ok() && poll(pin!(self.ledger.tick(Clocks::simulated(START)))).is_pending() {
            // Overwrites a commit that failed.
            let _ = run_writer(&mut self.writer);
        }
        for (hold, mut spend) in waiting {
            if self.rng.random_bool(0.05) {
                continue;
            }
            match poll(spend.as_mut()) {
                Poll::Ready(Ok(payer)) => self.expected.spend_settled(hold, payer),
                Poll::Ready(Err(_)) => self.expected.spend_failed(hold),
                Poll::Pending if self.has_failed() || !self.disk.is_on() => {}
                Poll::Pending => return Err("a spend has no result although its outcome is known".into()),
            }
        }
        Ok(())
    }

    /// Returns whether the ledger has stopped because a sync failed.
    fn has_failed(&self) -> bool {
        let tick = poll(pin!(self.ledger.tick(Clocks::simulated(START))));
        matches!(tick, Poll::Ready(Err(TickError::Fatal(_))))
    }

    /// Holds a credit and perhaps releases it. Neither leaves a trace on disk.
    fn release(&mut self) -> StepResult {
        let Some(hold) = self.hold()? else { return Ok(()) };
        self.expected.spend_failed(&hold);
        if self.rng.random_bool(0.5) {
            self.drive(|ledger| ledger.settle(&hold, Settlement::Release))??;
        }
        Ok(())
    }

    /// Holds one credit. Returns `None` if the workspace has no credits.
    fn hold(&mut self) -> Result<Option<Hold>, Box<dyn Error>> {
        let lookup_id = LookupId::new(START, self.rng.random());
        let mut hold = Hold::new(lookup_id, self.workspace(), 1);
        hold.key = KeyId::from_number(1);
        hold.ttl = Duration::from_secs(60);
        // Several lookups have the same receipt, also in one batch.
        let receipt = Receipt::from_bytes([self.rng.random_range(0..20); 16]);
        hold.receipt = Some(receipt).filter(|_| self.rng.random_bool(0.3));
        let outcome = self.drive(|ledger| ledger.hold(&hold))??;
        Ok((outcome == HoldOutcome::Granted).then_some(hold))
    }

    fn grant(&mut self) -> StepResult {
        let (workspace, credits) = (self.workspace(), self.rng.random_range(1..=50));
        self.expected.grant_requested(&workspace, credits);
        complete(self.admin.grant(&workspace, credits.unsigned_abs(), START))?;
        self.expected.grant_acknowledged(&workspace);
        self.tick()
    }

    /// Withdraws credits, which the ledger may hold and has not read yet: their spends fail.
    fn withdraw(&mut self) -> StepResult {
        let (workspace, credits) = (self.workspace(), self.rng.random_range(-40..=-1));
        self.expected.grant_requested(&workspace, credits);
        let credits = NonZeroI64::new(credits).unwrap();
        match complete(self.admin.adjust(&workspace, credits, "late", &Actor::operator(START))) {
            Err(SqliteError::Store(StoreError::Overdrawn { .. })) => self.expected.grant_refused(&workspace),
            changed => {
                changed?;
                self.expected.grant_acknowledged(&workspace);
            }
        }
        Ok(())
    }

    /// Creates a key and revokes it. A cut between the statements of a change must not separate a key from its events.
    fn revoke(&mut self) -> StepResult {
        let (workspace, key) = (self.workspace(), ApiKey::generate(|| self.rng.random()));
        let (new, operator) = (NewKey::new(&workspace, "till", &key), Actor::operator(START));
        let id = complete(self.admin.create_key(&new, &operator))?;
        Ok(complete(self.admin.revoke_key(id, &operator))?)
    }

    fn tick(&mut self) -> StepResult {
        Ok(self.drive(|ledger| Box::pin(ledger.tick(Clocks::simulated(START))))??)
    }

    /// Runs a checkpoint on a separate connection, as a backup does.
    fn checkpoint(&mut self) -> StepResult {
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
        self.expected.workspaces().choose(self.rng).unwrap().clone()
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
        run_writer(&mut self.writer)?;
        match poll(step.as_mut()) {
            Poll::Ready(done) => Ok(done),
            Poll::Pending => Err("the operation is still pending after the writer ran".into()),
        }
    }
}

/// Schedules an error of one operation on the log, or of many.
fn fail_log(disk: &Disk, rng: &mut StdRng) {
    let error = *[LogError::Write, LogError::WriteDone, LogError::Sync].choose(rng).unwrap();
    let count = if error == LogError::Sync { 0 } else { rng.random_range(0..12) };
    disk.fail_log_after(count, error, if rng.random() { 1 } else { rng.random_range(2..50) });
}

/// Runs the writer until it has finished all queued jobs.
pub(crate) fn run_writer(writer: &mut Work) -> StepResult {
    match poll(writer.as_mut()) {
        Poll::Ready(()) => Err("the writer ended before its ledger".into()),
        Poll::Pending => Ok(()),
    }
}

/// Polls a future once, with a waker that does nothing.
pub(crate) fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
