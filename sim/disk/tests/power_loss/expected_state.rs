//! The state that the disk must have after a cut: every acknowledged change.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::Duration;

use enrich_lib::credit::{Balance, Hold};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::receipt::Receipt;
use enrich_sqlite::{DataDir, Ledger, accounts, complete};
use enrich_store::Clocks;
use enrich_store::usage::Day;
use rusqlite::Connection;

use crate::counters::Counters;

type Lookup = [u8; 16];

/// A violated guarantee.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Violation {
    #[error("the acknowledged spend of lookup {0:02x?} is not on disk")]
    SpendLost(Lookup),
    #[error("workspace {0} was granted {1:?} credits, but has {2:?} on disk")]
    GrantLost(WorkspaceId, Option<u64>, Option<u64>),
    #[error("two spends of workspace {0} with one receipt are on disk")]
    PaidTwice(WorkspaceId),
    #[error("the spend of lookup {0:02x?} is on disk, but was never requested or has failed")]
    UnexpectedSpend(Lookup),
    #[error("the totals of workspace {0} are wrong: {1}")]
    Totals(WorkspaceId, String),
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    #[error("an operation failed although the power was on: {0}")]
    OperationFailed(String),
}

/// The progress of a spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpendState {
    /// Requested, without a result. It may be on disk.
    InFlight,
    Acknowledged,
    /// Never requested, or reported as failed. It must never be on disk.
    Failed,
}

#[derive(Debug)]
pub(crate) struct ExpectedState {
    spends: BTreeMap<Lookup, (WorkspaceId, SpendState)>,
    receipts: BTreeMap<Lookup, Receipt>,
    grants: BTreeMap<WorkspaceId, Granted>,
    counters: Counters,
}

/// The granted credits of a workspace. `None` means that the workspace does not exist.
#[derive(Clone, Copy, Debug, Default)]
struct Granted {
    acknowledged: Option<u64>,
    /// The value if the pending grant is committed.
    pending: Option<u64>,
}

impl Default for ExpectedState {
    fn default() -> Self {
        let grants = ["north", "south"].map(|id| (id.parse().unwrap(), Granted::default()));
        Self {
            spends: BTreeMap::new(),
            receipts: BTreeMap::new(),
            grants: BTreeMap::from(grants),
            counters: Counters::default(),
        }
    }
}

/// Recording of requests and replies.
impl ExpectedState {
    pub(crate) fn workspaces(&self) -> Vec<WorkspaceId> {
        self.grants.keys().cloned().collect()
    }

    /// Returns the workspaces that do not exist yet.
    pub(crate) fn missing(&self) -> Vec<WorkspaceId> {
        let missing = self.grants.iter().filter(|(_, granted)| granted.acknowledged.is_none());
        missing.map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn grant_requested(&mut self, workspace: &WorkspaceId, credits: i64) {
        let granted = &mut self.grants.get_mut(workspace).unwrap();
        granted.pending = granted.acknowledged.unwrap_or(0).checked_add_signed(credits);
    }

    pub(crate) fn grant_refused(&mut self, workspace: &WorkspaceId) {
        self.grants.get_mut(workspace).unwrap().pending = None;
    }

    pub(crate) fn grant_acknowledged(&mut self, workspace: &WorkspaceId) {
        let granted = &mut self.grants.get_mut(workspace).unwrap();
        granted.acknowledged = granted.pending.take();
    }

    pub(crate) fn spend_requested(&mut self, hold: &Hold) {
        self.set_state(hold, SpendState::InFlight);
    }

    /// Records the reply to a spend: it is durable, or another lookup has paid for its receipt, whose spend is.
    pub(crate) fn spend_settled(&mut self, hold: &Hold, payer: Option<LookupId>) {
        let state = if payer.is_some() { SpendState::Failed } else { SpendState::Acknowledged };
        self.set_state(hold, state);
        if let Some((_, state)) = payer.and_then(|payer| self.spends.get_mut(payer.as_bytes())) {
            *state = SpendState::Acknowledged;
        }
    }

    pub(crate) fn spend_failed(&mut self, hold: &Hold) {
        self.set_state(hold, SpendState::Failed);
    }

    /// Records that the process ended because a sync failed.
    pub(crate) fn fail_stopped(&mut self) {
        self.counters.count("fail stop", 1);
    }

    fn set_state(&mut self, hold: &Hold, state: SpendState) {
        self.spends.insert(*hold.lookup_id.as_bytes(), (hold.workspace.clone(), state));
        self.receipts.extend(hold.receipt.map(|receipt| (*hold.lookup_id.as_bytes(), receipt)));
    }

    pub(crate) fn into_counters(self) -> Counters {
        self.counters
    }
}

/// Comparison with the disk.
impl ExpectedState {
    /// Compares the records with the disk after a cut. Each pending operation is then recorded as it was
    /// found.
    pub(crate) fn audit(&mut self, dir: &DataDir) -> Result<(), Violation> {
        let disk = DiskContent::read(dir).map_err(|error| Violation::OperationFailed(error.to_string()))?;
        if !disk.damage.is_empty() {
            return Err(Violation::Corrupt(disk.damage));
        }
        self.audit_spends(&disk)?;
        self.audit_grants(&disk)?;
        self.audit_totals(&disk)?;
        self.counters.count("cut", 1);
        Ok(())
    }

    fn audit_spends(&mut self, disk: &DiskContent) -> Result<(), Violation> {
        if let Some(unexpected) = disk.spends.iter().find(|lookup| !self.spends.contains_key(*lookup)) {
            return Err(Violation::UnexpectedSpend(*unexpected));
        }
        let mut paid = BTreeSet::new();
        for lookup in &disk.spends {
            let (workspace, receipt) = (&self.spends[lookup].0, self.receipts.get(lookup));
            if receipt.is_some_and(|receipt| !paid.insert((workspace, receipt))) {
                return Err(Violation::PaidTwice(workspace.clone()));
            }
        }
        for (lookup, (_, state)) in &mut self.spends {
            let (event, now) = match (*state, disk.spends.contains(lookup)) {
                (SpendState::Acknowledged, false) => return Err(Violation::SpendLost(*lookup)),
                (SpendState::Failed, true) => return Err(Violation::UnexpectedSpend(*lookup)),
                (SpendState::Acknowledged, true) => ("acknowledged spend found", SpendState::Acknowledged),
                (SpendState::Failed, false) => ("failed spend not found", SpendState::Failed),
                (SpendState::InFlight, true) => ("pending spend kept", SpendState::Acknowledged),
                (SpendState::InFlight, false) => ("pending spend lost", SpendState::Failed),
            };
            self.counters.count(event, 1);
            *state = now;
        }
        Ok(())
    }

    fn audit_grants(&mut self, disk: &DiskContent) -> Result<(), Violation> {
        for (id, granted) in &mut self.grants {
            let found = disk.totals.get(id).map(|totals| totals.granted);
            if found != granted.acknowledged && (granted.pending.is_none() || found != granted.pending) {
                return Err(Violation::GrantLost(id.clone(), granted.acknowledged, found));
            }
            if granted.pending.is_some() {
                let is_kept = found == granted.pending;
                self.counters.count(if is_kept { "pending grant kept" } else { "pending grant lost" }, 1);
            }
            *granted = Granted { acknowledged: found, pending: None };
        }
        Ok(())
    }

    fn audit_totals(&self, disk: &DiskContent) -> Result<(), Violation> {
        for (id, totals) in &disk.totals {
            let is_committed = |(lookup, (of, _)): &(&Lookup, &(WorkspaceId, SpendState))| {
                of == id && disk.spends.contains(*lookup)
            };
            let spent = self.spends.iter().filter(is_committed).count() as u64;
            let expected = Balance {
                granted: totals.grants,
                available: totals.grants.saturating_sub(spent),
                held: 0,
                spent,
            };
            if [totals.ledger, totals.admin] != [expected; 2] || totals.granted != totals.grants {
                return Err(Violation::Totals(id.clone(), format!("{totals:?}, expected {expected:?}")));
            }
        }
        Ok(())
    }
}

/// The content of a disk.
struct DiskContent {
    /// Faults found by SQLite's own checks, and keys that differ from their events; empty if there are none.
    damage: String,
    spends: BTreeSet<Lookup>,
    totals: BTreeMap<WorkspaceId, Totals>,
}

#[derive(Debug)]
struct Totals {
    granted: u64,
    /// The sum of the individual grants.
    grants: u64,
    ledger: Balance,
    admin: Balance,
}

impl DiskContent {
    /// Reads the data with the adapter, and directly with SQLite.
    fn read(dir: &DataDir) -> Result<Self, Box<dyn Error>> {
        let mut admin = accounts(dir)?;
        let mut writer = None;
        let now = Clocks::simulated(Timestamp::from_unix_ms(0));
        let ledger = Ledger::open(dir, now, || Duration::ZERO, |work| writer = Some(work))?;
        let db = Connection::open(dir.path().join("accounts.db"))?;
        let orphaned_rows: u64 =
            db.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))?;
        // Includes SQLite's integrity check, and compares the usage with the spends.
        let mut damage = complete(admin.audit())?.errors;
        if orphaned_rows > 0 {
            damage.push(format!("{orphaned_rows} orphaned rows"));
        }
        let spends = db
            .prepare("SELECT lookup_id FROM credit_spend")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let mut totals = BTreeMap::new();
        for row in complete(admin.workspaces())? {
            let sum = "SELECT sum(credits) FROM credit_grant JOIN workspace ON workspace.rowid = workspace WHERE id = ?";
            let grants = db.query_row(sum, [row.id.as_str()], |row| row.get(0))?;
            let (keys, events) = (
                complete(admin.keys(&row.id, Day::default()))?,
                complete(admin.audit_log(&row.id, None, u32::MAX))?,
            );
            let revoked = keys.iter().filter(|key| key.revoked_at.is_some()).count();
            for (keys, action) in [(keys.len(), "key.created"), (revoked, "key.revoked")] {
                let events = events.iter().filter(|event| event.action == action).count();
                if keys != events {
                    damage.push(format!("{keys} keys, but {events} events {action}"));
                }
            }
            let ledger = ledger.balance(&row.id)?;
            totals
                .insert(row.id, Totals { granted: row.balance.granted, grants, ledger, admin: row.balance });
        }
        Ok(Self { damage: damage.join("; "), spends, totals })
    }
}
