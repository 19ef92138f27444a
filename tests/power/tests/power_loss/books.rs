//! Records what the service acknowledged to its clients and its operator, and compares it with the disk.

use std::collections::BTreeMap;
use std::error::Error;

use enrich_lib::credit::{Balance, Hold};
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_sqlite::{Admin, DataDir, Ledger};
use rusqlite::Connection;

use crate::history::Tally;

type Lookup = [u8; 16];

/// A violated guarantee.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("a client was told of the spend of {0:02x?}, and it is not there")]
    SpendLost(Lookup),
    #[error("{0} was granted {1:?}, and has {2:?}")]
    GrantLost(WorkspaceId, Option<u64>, Option<u64>),
    #[error("the spend of {0:02x?} is there, and was never asked for or given up before it was written")]
    Unasked(Lookup),
    #[error("the spend of {0:02x?} was taken back, and stands")]
    VoidLost(Lookup),
    #[error("the totals of {0} are {1}")]
    Totals(WorkspaceId, String),
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    #[error("with the power on, this failed: {0}")]
    Refused(String),
}

/// The progress of a spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Requested but not acknowledged. It may be on disk, and it may be voided.
    InFlight,
    Told,
    /// Abandoned before it was written.
    GivenUp,
    Voided,
}

#[derive(Debug)]
pub(crate) struct Books {
    spends: BTreeMap<Lookup, (WorkspaceId, Fate)>,
    grants: BTreeMap<WorkspaceId, Granted>,
    tally: Tally,
}

/// The granted credits of a workspace. `None` means that the workspace does not exist.
#[derive(Clone, Copy, Debug, Default)]
struct Granted {
    told: Option<u64>,
    /// The value if the pending grant is committed.
    asked: Option<u64>,
}

impl Default for Books {
    fn default() -> Self {
        let grants = ["north", "south"].map(|id| (id.parse().unwrap(), Granted::default()));
        Self { spends: BTreeMap::new(), grants: BTreeMap::from(grants), tally: Tally::default() }
    }
}

/// Recording of requests and replies.
impl Books {
    pub(crate) fn workspaces(&self) -> Vec<WorkspaceId> {
        self.grants.keys().cloned().collect()
    }

    /// Returns the workspaces that do not exist yet.
    pub(crate) fn missing(&self) -> Vec<WorkspaceId> {
        let missing = self.grants.iter().filter(|(_, granted)| granted.told.is_none());
        missing.map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn grants(&mut self, workspace: &WorkspaceId, credits: u64) {
        let granted = &mut self.grants.get_mut(workspace).unwrap();
        granted.asked = Some(granted.told.unwrap_or(0) + credits);
    }

    pub(crate) fn granted(&mut self, workspace: &WorkspaceId) {
        let granted = &mut self.grants.get_mut(workspace).unwrap();
        granted.told = granted.asked.take();
    }

    pub(crate) fn asked(&mut self, hold: &Hold) {
        self.note(hold, Fate::InFlight);
    }

    pub(crate) fn told(&mut self, hold: &Hold) {
        self.note(hold, Fate::Told);
    }

    pub(crate) fn given_up(&mut self, hold: &Hold) {
        self.note(hold, Fate::GivenUp);
    }

    pub(crate) fn voided(&mut self, hold: &Hold) {
        self.note(hold, Fate::Voided);
    }

    fn note(&mut self, hold: &Hold, fate: Fate) {
        self.spends.insert(*hold.lookup_id.as_bytes(), (hold.workspace.clone(), fate));
    }

    pub(crate) fn tally(self) -> Tally {
        self.tally
    }
}

/// Comparison with the disk.
impl Books {
    /// Compares the records with the disk after a cut. Each pending operation is then recorded as it was found.
    pub(crate) fn audit(&mut self, dir: &DataDir) -> Result<(), Broken> {
        let disk = OnDisk::read(dir).map_err(|error| Broken::Refused(error.to_string()))?;
        if !disk.damage.is_empty() {
            return Err(Broken::Corrupt(disk.damage));
        }
        self.audit_spends(&disk)?;
        self.audit_grants(&disk)?;
        self.audit_totals(&disk)?;
        self.tally.cuts += 1;
        Ok(())
    }

    fn audit_spends(&mut self, disk: &OnDisk) -> Result<(), Broken> {
        if let Some(stranger) = disk.spends.keys().find(|lookup| !self.spends.contains_key(*lookup)) {
            return Err(Broken::Unasked(*stranger));
        }
        let tally = &mut self.tally;
        for (lookup, (_, fate)) in &mut self.spends {
            let voided = disk.spends.get(lookup);
            match (*fate, voided) {
                (Fate::Told, Some(false)) => tally.told += 1,
                (Fate::Told, _) => return Err(Broken::SpendLost(*lookup)),
                (Fate::GivenUp, None) => {}
                (Fate::GivenUp, Some(_)) => return Err(Broken::Unasked(*lookup)),
                (Fate::Voided, Some(true)) => tally.voided += 1,
                (Fate::Voided, _) => return Err(Broken::VoidLost(*lookup)),
                (Fate::InFlight, Some(false)) => {
                    tally.kept += 1;
                    *fate = Fate::Told;
                }
                (Fate::InFlight, Some(true)) => *fate = Fate::Voided,
                (Fate::InFlight, None) => {
                    tally.gone += 1;
                    *fate = Fate::GivenUp;
                }
            }
        }
        Ok(())
    }

    fn audit_grants(&mut self, disk: &OnDisk) -> Result<(), Broken> {
        for (id, granted) in &mut self.grants {
            let found = disk.totals.get(id).map(|totals| totals.granted);
            if found != granted.told && (granted.asked.is_none() || found != granted.asked) {
                return Err(Broken::GrantLost(id.clone(), granted.told, found));
            }
            if granted.asked.is_some() {
                let kept = found == granted.asked;
                *(if kept { &mut self.tally.grants_kept } else { &mut self.tally.grants_gone }) += 1;
            }
            *granted = Granted { told: found, asked: None };
        }
        Ok(())
    }

    fn audit_totals(&self, disk: &OnDisk) -> Result<(), Broken> {
        for (id, totals) in &disk.totals {
            let stands = |(lookup, (of, _)): &(&Lookup, &(WorkspaceId, Fate))| {
                of == id && disk.spends.get(*lookup) == Some(&false)
            };
            let spent = self.spends.iter().filter(stands).count() as u64;
            let expected = Balance {
                granted: totals.grants,
                available: totals.grants.saturating_sub(spent),
                held: 0,
                spent,
            };
            if [totals.ledger, totals.admin] != [expected; 2] || totals.granted != totals.grants {
                return Err(Broken::Totals(id.clone(), format!("{totals:?}, expected {expected:?}")));
            }
        }
        Ok(())
    }
}

/// The content of a disk.
struct OnDisk {
    /// Faults found by SQLite's own checks; empty if there are none.
    damage: String,
    /// Committed spends, each with a flag that is set if it is voided.
    spends: BTreeMap<Lookup, bool>,
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

impl OnDisk {
    /// Reads the data with the adapter, and directly with SQLite.
    fn read(dir: &DataDir) -> Result<Self, Box<dyn Error>> {
        let admin = Admin::open(dir)?;
        let mut writer = None;
        let ledger = Ledger::open(dir, Timestamp::from_unix_ms(0), |work| writer = Some(work))?;
        let db = Connection::open(dir.path().join("accounts.db"))?;
        let check: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        let orphans: u64 =
            db.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))?;
        let damage = if (check.as_str(), orphans) == ("ok", 0) {
            String::new()
        } else {
            format!("{check}; {orphans} orphans")
        };
        let spends = db
            .prepare("SELECT lookup_id, lookup_id IN (SELECT lookup_id FROM credit_void) FROM credit_spend")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut totals = BTreeMap::new();
        for row in admin.workspaces()? {
            let sum = "SELECT sum(credits) FROM credit_grant JOIN workspace ON workspace.rowid = workspace WHERE id = ?";
            let grants = db.query_row(sum, [row.id.as_str()], |row| row.get(0))?;
            let ledger = ledger.balance(&row.id)?;
            totals
                .insert(row.id, Totals { granted: row.balance.granted, grants, ledger, admin: row.balance });
        }
        Ok(Self { damage, spends, totals })
    }
}
