//! The stores behind the ports. They are either shared by all nodes and survive their crashes, or opened by one node and
//! dropped when it crashes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use enrich_fakes::postgres::Database;
use enrich_lib::credit::Balance;
use enrich_lib::memory::{AccountTable, KeyTable, WindowTable};
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys, Windows};
use enrich_sqlite::{Admin, DataDir, Ledger};
use enrich_store::Actor;
use enrich_store::records::NewKey;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::clock::NodeClock;
use crate::disk;
use crate::event::Event;
use crate::faulty_port::ActiveFaults;
use crate::lease_auditor::{AuditedCredits, LeaseAuditor};
use crate::plan::Plan;
use crate::servers::{self, Servers};
use crate::store_recorder::{StoreRecorder, StoreTime};
use crate::topology::{Server, StoreKind};
use crate::trace::Trace;
use crate::windows::SharedWindows;
use crate::workspaces::{InitialWorkspace, client_key, client_workspace, initial_workspaces, workspace_ids};

/// The interval between two ticks of a ledger, the same as in the host's command line.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// How long a node waits for a tick, as in the host's command line.
const TICK_TIMEOUT: Duration = Duration::from_secs(1);

/// A node's store ports, without injected faults.
pub(crate) struct Ports {
    pub(crate) keys: Arc<dyn Keys>,
    pub(crate) windows: Arc<dyn Windows>,
    pub(crate) credits: Arc<dyn Credits>,
}

/// The stores of a run.
pub(crate) struct Stores {
    kind: Kind,
    trace: Trace,
    recorded: Mutex<BTreeMap<WorkspaceId, (Duration, Balance)>>,
    time: Arc<StoreTime>,
}

enum Kind {
    Memory { keys: Arc<KeyTable>, windows: Arc<SharedWindows>, accounts: Arc<AccountTable> },
    Sqlite { dir: DataDir, _temp: TempDir },
    Servers { servers: Arc<Servers>, auditor: Arc<LeaseAuditor>, node_starts: AtomicUsize },
}

impl Stores {
    pub(crate) fn new(plan: &Plan, trace: &Trace, now: Timestamp) -> turmoil::Result<Self> {
        let kind = match plan.stores {
            StoreKind::Memory => memory(plan)?,
            StoreKind::Sqlite => sqlite(plan, now)?,
            StoreKind::Servers(_) => {
                let servers = Arc::new(Servers::new(plan));
                let (postgres, clock) = (servers.postgres.clone(), plan.servers.postgres);
                let auditor = Arc::new(LeaseAuditor::new(postgres, clock, trace.clone()));
                Kind::Servers { servers, auditor, node_starts: AtomicUsize::new(0) }
            }
        };
        for InitialWorkspace { workspace, credits, .. } in initial_workspaces(plan) {
            trace.record_at(Duration::ZERO, Event::CreditsGranted(workspace.id, credits));
        }
        Ok(Self { kind, trace: trace.clone(), recorded: Mutex::default(), time: Arc::default() })
    }

    /// Opens the ports of a starting node that uses `clock`. Must run on the node's simulated machine.
    pub(crate) async fn open(
        self: Arc<Self>,
        node: usize,
        clock: NodeClock,
        faults: Arc<ActiveFaults>,
    ) -> turmoil::Result<Ports> {
        let (keys, windows, credits): (Arc<dyn Keys>, Arc<dyn Windows>, Arc<dyn Credits>) = match &self.kind {
            Kind::Memory { keys, windows, accounts } => (keys.clone(), windows.clone(), accounts.clone()),
            Kind::Sqlite { dir, .. } => {
                let spawn = |work| drop(tokio::spawn(disk::run_writer(work, faults)));
                let ledger = Arc::new(Ledger::open(dir, clock.read(), spawn)?);
                tokio::spawn(self.clone().run_ticks(ledger.clone(), clock));
                (ledger.clone(), Arc::new(WindowTable::default()), ledger)
            }
            Kind::Servers { servers, auditor, node_starts } => {
                let start = node_starts.fetch_add(1, Ordering::Relaxed);
                let name = servers::ledger_name(node, start);
                let ledger = servers.ledger(&name, &clock).await?;
                tokio::spawn(servers::run_ticks(ledger.clone(), clock));
                let (credits, auditor) = (ledger.clone(), auditor.clone());
                let credits = Arc::new(AuditedCredits { credits, auditor, name });
                (ledger, Arc::new(Servers::windows(start as u64)), credits)
            }
        };
        let credits = Arc::new(StoreRecorder { credits, trace: self.trace.clone(), time: self.time.clone() });
        Ok(Ports { keys, windows, credits })
    }

    /// Returns whether a node's holds are lost when it crashes.
    pub(crate) fn loses_holds_in_crash(&self) -> bool {
        matches!(self.kind, Kind::Sqlite { .. })
    }

    /// Records the balances of the shared stores. A node with its own store records them at every tick.
    pub(crate) fn audit(&self, at: Duration, now: Timestamp) {
        match &self.kind {
            Kind::Memory { accounts, .. } => {
                self.time.set(at);
                accounts.advance(at);
                for workspace in workspace_ids() {
                    self.record_balance(at, at, &workspace, accounts.balance(&workspace));
                }
            }
            Kind::Sqlite { .. } => {}
            Kind::Servers { auditor, .. } => auditor.audit(at, now),
        }
    }

    /// Records the committed spends at the end of the run, if nodes share accounts.
    pub(crate) fn close(&self, at: Duration) {
        if let Kind::Servers { auditor, .. } = &self.kind {
            auditor.close(at);
        }
    }

    /// Returns the servers that host the stores.
    pub(crate) fn servers(&self) -> &'static [Server] {
        if matches!(self.kind, Kind::Servers { .. }) { &Server::ALL } else { &[] }
    }

    /// Runs a server until it crashes.
    pub(crate) async fn serve(self: Arc<Self>, server: Server) -> turmoil::Result {
        match &self.kind {
            Kind::Servers { servers, .. } => servers.clone().serve(server).await,
            Kind::Memory { .. } | Kind::Sqlite { .. } => Ok(()),
        }
    }

    /// Drops the data that `server` loses in a crash.
    pub(crate) fn drop_volatile_data(&self, server: Server, at: Duration) {
        let Kind::Servers { servers, .. } = &self.kind else { return };
        match server {
            Server::Redis => {
                servers.redis.clear();
                self.trace.record_at(at, Event::RedisDataLost);
            }
            Server::Postgres => servers.postgres.crash(),
        }
    }

    /// Moves PostgreSQL's address to a standby.
    pub(crate) fn fail_over(&self) {
        if let Kind::Servers { servers, .. } = &self.kind {
            servers.postgres.fail_over();
        }
    }

    /// Moves PostgreSQL's address to the primary.
    pub(crate) fn promote(&self) {
        if let Kind::Servers { servers, .. } = &self.kind {
            servers.postgres.promote();
        }
    }

    /// Locks the leases of the clients' workspace in PostgreSQL.
    pub(crate) fn lock_leases(&self) {
        if let Kind::Servers { servers, .. } = &self.kind {
            servers.postgres.with(|database| {
                let workspaces = (1..).zip(database.workspaces());
                let locked = workspaces.filter(|(_, workspace)| workspace.id == client_workspace().as_str());
                for rowid in locked.map(|(rowid, _)| rowid).collect::<Vec<_>>() {
                    database.lock_leases(rowid);
                }
            });
        }
    }

    /// Unlocks all leases in PostgreSQL.
    pub(crate) fn unlock_leases(&self) {
        if let Kind::Servers { servers, .. } = &self.kind {
            servers.postgres.with(Database::unlock_leases);
        }
    }

    /// Revokes the clients' key, as an operator would.
    pub(crate) fn revoke(&self, at: Duration) {
        let digest = client_key().digest();
        match &self.kind {
            Kind::Memory { keys, .. } => keys.revoke(&digest),
            Kind::Servers { servers, .. } => {
                servers.postgres.with(|database| database.revoke_key(digest.as_bytes()))
            }
            // Plans for SQLite never revoke keys, because another process would have to do it.
            Kind::Sqlite { .. } => return,
        }
        self.trace.record_at(at, Event::KeyRevoked);
    }

    async fn run_ticks(self: Arc<Self>, ledger: Arc<Ledger>, clock: NodeClock) {
        loop {
            let now = clock.read();
            self.time.set(now.elapsed);
            // A failed tick is one of the faults under test, and one that takes too long is given up, as in the program. The
            // balances show whether it caused damage.
            let _ = timeout(TICK_TIMEOUT, ledger.tick(now)).await;
            // Lets the tasks whose spends were just committed run first, so that their events precede the balances.
            tokio::task::yield_now().await;
            for workspace in workspace_ids() {
                if let Ok(balance) = ledger.balance(&workspace) {
                    let at = turmoil::sim_elapsed().unwrap_or_default();
                    self.record_balance(at, now.elapsed, &workspace, balance);
                }
            }
            tokio::time::sleep(TICK_INTERVAL).await;
        }
    }

    /// Records the balance of the last tick if it has changed or was last recorded a second ago.
    fn record_balance(&self, at: Duration, ticked_at: Duration, workspace: &WorkspaceId, balance: Balance) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = recorded
            .get(workspace)
            .is_some_and(|&(time, b)| b == balance && at < time + Duration::from_secs(1));
        if !is_recent {
            recorded.insert(workspace.clone(), (at, balance));
            self.trace.record_at(at, Event::Balance(workspace.clone(), ticked_at, balance));
        }
    }
}

fn memory(plan: &Plan) -> turmoil::Result<Kind> {
    let (keys, accounts) = (KeyTable::default(), AccountTable::default());
    for InitialWorkspace { workspace, key, credits } in initial_workspaces(plan) {
        accounts.grant(&workspace.id, credits)?;
        keys.insert(key.digest(), workspace);
    }
    Ok(Kind::Memory { keys: Arc::new(keys), windows: Arc::default(), accounts: Arc::new(accounts) })
}

fn sqlite(plan: &Plan, now: Timestamp) -> turmoil::Result<Kind> {
    let temp = tempfile::tempdir()?;
    let dir = DataDir::create(temp.path().join("data"))?;
    let mut admin = Admin::open(&dir)?;
    for InitialWorkspace { workspace, key, credits } in initial_workspaces(plan) {
        admin.create_workspace(&workspace.id, workspace.quota, credits, now)?;
        admin.create_key(&NewKey::new(&workspace.id, "simulated", &key), &Actor::operator(now))?;
    }
    Ok(Kind::Sqlite { dir, _temp: temp })
}
