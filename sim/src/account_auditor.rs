//! Audit of shared accounts: what PostgreSQL, or the database of a gateway, stores of each workspace, at
//! every moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_fakes::postgres::{Database, Postgres};
use enrich_lib::credit::Balance;
use enrich_lib::model::{LookupId, WorkspaceId};
use parking_lot::Mutex;

use crate::event::{Event, SharedAccount};
use crate::own_database::CreditDatabase;
use crate::trace::Trace;
use crate::workspaces::workspace_ids;

/// Records the shared accounts.
pub(crate) struct AccountAuditor {
    accounts: Accounts,
    trace: Trace,
    recorded: Mutex<BTreeMap<WorkspaceId, SharedAccount>>,
    /// The number of commits of a gateway's own database at the last audit.
    commits: AtomicU64,
}

/// The store of the shared accounts.
pub(crate) enum Accounts {
    Postgres(Postgres),
    /// A gateway's own database.
    Own(Arc<dyn CreditDatabase>),
}

impl Accounts {
    fn of(&self, workspace: &WorkspaceId) -> Option<SharedAccount> {
        match self {
            Self::Postgres(postgres) => postgres.read(|database| shared_account(database, workspace)),
            Self::Own(database) => Some(own_account(database.balance(workspace))),
        }
    }

    fn spends(&self) -> BTreeMap<LookupId, i64> {
        match self {
            Self::Postgres(postgres) => postgres.read(|database| {
                let spends = database.spends().iter();
                spends.map(|(lookup, spend)| (LookupId::from_bytes(*lookup), spend.credits)).collect()
            }),
            Self::Own(database) => {
                database.spends().into_iter().map(|(lookup, credits)| (lookup, signed(credits))).collect()
            }
        }
    }
}

impl AccountAuditor {
    pub(crate) fn new(accounts: Accounts, trace: Trace) -> Self {
        Self { accounts, trace, recorded: Mutex::default(), commits: AtomicU64::new(u64::MAX) }
    }

    /// Records the accounts that have changed since the last call.
    pub(crate) fn audit(&self, at: Duration) {
        if let Accounts::Own(database) = &self.accounts {
            let commits = database.commits();
            if self.commits.swap(commits, Ordering::Relaxed) == commits {
                return;
            }
        }
        let mut recorded = self.recorded.lock();
        for workspace in workspace_ids() {
            let Some(account) = self.accounts.of(&workspace) else { continue };
            if recorded.get(&workspace) != Some(&account) {
                self.trace.record_at(at, Event::SharedAccount(workspace.clone(), account));
                recorded.insert(workspace, account);
            }
        }
    }

    /// Records the committed spends and the usage at the end of the run. A gateway's database has no usage.
    pub(crate) fn close(&self, at: Duration) {
        if let Accounts::Postgres(postgres) = &self.accounts {
            for workspace in workspace_ids() {
                let usage = postgres.read(|database| {
                    database.workspace_rowid(workspace.as_str()).map(|rowid| database.usage(rowid))
                });
                self.trace.record_at(at, Event::Usage(workspace, usage.unwrap_or_default()));
            }
        }
        self.trace.record_at(at, Event::CommittedSpends(self.accounts.spends()));
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

fn own_account(balance: Balance) -> SharedAccount {
    let Balance { granted, available, held, spent } = balance;
    let (granted, committed) = (signed(granted), signed(spent));
    SharedAccount { granted, used: granted - signed(available), held: signed(held), rest: 0, committed }
}

fn signed(credits: u64) -> i64 {
    i64::try_from(credits).unwrap_or(i64::MAX)
}
