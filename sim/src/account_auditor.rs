//! Audit of shared accounts: what PostgreSQL stores of each workspace, at every moment.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use enrich_fakes::postgres::{Database, Postgres};
use enrich_lib::model::{LookupId, WorkspaceId};

use crate::event::{Event, SharedAccount};
use crate::trace::Trace;
use crate::workspaces::workspace_ids;

/// Records the accounts in PostgreSQL.
pub(crate) struct AccountAuditor {
    postgres: Postgres,
    trace: Trace,
    recorded: Mutex<BTreeMap<WorkspaceId, SharedAccount>>,
}

impl AccountAuditor {
    pub(crate) fn new(postgres: Postgres, trace: Trace) -> Self {
        Self { postgres, trace, recorded: Mutex::default() }
    }

    /// Records the accounts that have changed since the last call.
    pub(crate) fn audit(&self, at: Duration) {
        let accounts = self.postgres.read(|database| {
            workspace_ids()
                .map(|workspace| shared_account(database, &workspace).map(|account| (workspace, account)))
        });
        // Every critical section leaves its data consistent.
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        for (workspace, account) in accounts.into_iter().flatten() {
            if recorded.get(&workspace) != Some(&account) {
                self.trace.record_at(at, Event::SharedAccount(workspace.clone(), account));
                recorded.insert(workspace, account);
            }
        }
    }

    /// Records the committed spends at the end of the run.
    pub(crate) fn close(&self, at: Duration) {
        let committed: BTreeMap<_, _> = self.postgres.read(|database| {
            let spends = database.spends().iter();
            spends.map(|(lookup, spend)| (LookupId::from_bytes(*lookup), spend.credits)).collect()
        });
        self.trace.record_at(at, Event::CommittedSpends(committed));
    }
}

fn shared_account(database: &Database, id: &WorkspaceId) -> Option<SharedAccount> {
    let rowid = database.workspace_rowid(id.as_str())?;
    let workspace = &database.workspaces()[rowid as usize - 1];
    let holds = database.holds().values().filter(|hold| hold.workspace == rowid);
    let spends = database.spends().values().filter(|spend| spend.workspace == rowid);
    Some(SharedAccount {
        granted: workspace.granted,
        used: workspace.used,
        held: holds.map(|hold| hold.credits).sum(),
        rest: database.rest(rowid),
        committed: spends.map(|spend| spend.credits).sum(),
    })
}
