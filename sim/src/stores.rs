//! The stores behind the ports. They are either shared by all nodes and survive their crashes, or opened by one node and
//! dropped when it crashes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use enrich_lib::credit::Balance;
use enrich_lib::key::ApiKey;
use enrich_lib::memory::{AccountTable, KeyTable, WindowTable};
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys, Windows};
use enrich_lib::window::{Quota, Workspace};
use enrich_sqlite::{Admin, DataDir, Ledger};
use tempfile::TempDir;

use crate::books::Books;
use crate::clock::Clock;
use crate::disk;
use crate::event::Event;
use crate::faulty::Faults;
use crate::leases::{Audited, Auditor};
use crate::plan::{Plan, StoreKind, prober, tenant};
use crate::servers::{self, Servers};
use crate::trace::Trace;
use crate::trouble::Server;
use crate::windows::SharedWindows;

/// The interval between two ticks of a ledger, the same as in the host's command line.
const LEDGER_TICK: Duration = Duration::from_millis(250);

const PROBER_CREDITS: u64 = 10;

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
    shown: Mutex<BTreeMap<WorkspaceId, (Timestamp, Balance)>>,
}

enum Kind {
    Memory { keys: Arc<KeyTable>, windows: Arc<SharedWindows>, accounts: Arc<AccountTable> },
    Sqlite { dir: DataDir, _temp: TempDir },
    Servers { servers: Arc<Servers>, auditor: Arc<Auditor>, lives: AtomicUsize },
}

impl Stores {
    pub(crate) fn new(plan: &Plan, trace: &Trace, now: Timestamp) -> turmoil::Result<Self> {
        let kind = match plan.stores {
            StoreKind::Memory => memory(plan)?,
            StoreKind::Sqlite => sqlite(plan, now)?,
            StoreKind::Servers(_) => {
                let servers = Arc::new(Servers::new(plan));
                let (postgres, clock) = (servers.postgres.clone(), plan.servers.postgres);
                let auditor = Arc::new(Auditor::new(postgres, clock, trace.clone()));
                Kind::Servers { servers, auditor, lives: AtomicUsize::new(0) }
            }
        };
        for Customer { workspace, credits, .. } in customers(plan) {
            trace.note_at(Duration::ZERO, Event::Granted(workspace.id, credits));
        }
        Ok(Self { kind, trace: trace.clone(), shown: Mutex::default() })
    }

    /// Opens the ports of a starting node that uses `clock`. Must run on the node's simulated machine.
    pub(crate) async fn open(
        self: Arc<Self>,
        node: usize,
        clock: Clock,
        faults: Arc<Faults>,
    ) -> turmoil::Result<Ports> {
        let (keys, windows, credits): (Arc<dyn Keys>, Arc<dyn Windows>, Arc<dyn Credits>) = match &self.kind {
            Kind::Memory { keys, windows, accounts } => (keys.clone(), windows.clone(), accounts.clone()),
            Kind::Sqlite { dir, .. } => {
                let spawn = |work| drop(tokio::spawn(disk::write(work, faults)));
                let ledger = Arc::new(Ledger::open(dir, clock.now(), spawn)?);
                tokio::spawn(self.clone().keep_current(ledger.clone(), clock));
                (ledger.clone(), Arc::new(WindowTable::default()), ledger)
            }
            Kind::Servers { servers, auditor, lives } => {
                let life = lives.fetch_add(1, Ordering::Relaxed);
                let name = servers::life(node, life);
                let ledger = servers.ledger(&name, clock).await?;
                tokio::spawn(servers::keep_current(ledger.clone(), clock));
                let (credits, auditor) = (ledger.clone(), auditor.clone());
                let credits = Arc::new(Audited { credits, auditor, name, clock });
                (ledger, Arc::new(Servers::windows(life as u64)), credits)
            }
        };
        let credits = Arc::new(Books { credits, trace: self.trace.clone() });
        Ok(Ports { keys, windows, credits })
    }

    /// Returns whether a node's holds are lost when it crashes.
    pub(crate) fn holds_end_with_their_node(&self) -> bool {
        matches!(self.kind, Kind::Sqlite { .. })
    }

    /// Records the totals of the shared stores. A node with its own store records them at every tick.
    pub(crate) fn audit(&self, at: Duration, now: Timestamp) {
        match &self.kind {
            Kind::Memory { accounts, .. } => {
                accounts.advance(now);
                for workspace in workspaces() {
                    self.show(at, &workspace, now, accounts.balance(&workspace));
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

    /// Runs one life of a server's machine.
    pub(crate) async fn serve(self: Arc<Self>, server: Server) -> turmoil::Result {
        match &self.kind {
            Kind::Servers { servers, .. } => servers.clone().serve(server).await,
            Kind::Memory { .. } | Kind::Sqlite { .. } => Ok(()),
        }
    }

    /// Drops the data that a server loses in a crash.
    pub(crate) fn lose_memory_of(&self, server: Server, at: Duration) {
        if let (Kind::Servers { servers, .. }, Server::Redis) = (&self.kind, server) {
            servers.redis.forget();
            self.trace.note_at(at, Event::Forgot);
        }
    }

    /// Revokes the clients' key, as an operator would.
    pub(crate) fn revoke(&self, at: Duration) {
        let digest = tenant().1.digest();
        match &self.kind {
            Kind::Memory { keys, .. } => keys.revoke(&digest),
            Kind::Servers { servers, .. } => {
                servers.postgres.with(|books| books.revoke_key(digest.as_bytes()))
            }
            // Plans for SQLite never revoke keys, because another process would have to do it.
            Kind::Sqlite { .. } => return,
        }
        self.trace.note_at(at, Event::Revoked);
    }

    async fn keep_current(self: Arc<Self>, ledger: Arc<Ledger>, clock: Clock) {
        loop {
            let now = clock.now();
            // A failed tick is one of the faults under test. The totals show whether it caused damage.
            let _ = ledger.tick(now).await;
            // Lets the tasks whose spends were just committed run first, so that their events precede the totals.
            tokio::task::yield_now().await;
            for workspace in workspaces() {
                if let Ok(balance) = ledger.balance(&workspace) {
                    self.show(turmoil::sim_elapsed().unwrap_or_default(), &workspace, now, balance);
                }
            }
            tokio::time::sleep(LEDGER_TICK).await;
        }
    }

    /// Records the totals if they have changed or were last recorded a second ago.
    fn show(&self, at: Duration, workspace: &WorkspaceId, now: Timestamp, balance: Balance) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = shown
            .get(workspace)
            .is_some_and(|&(time, b)| b == balance && now < time + Duration::from_secs(1));
        if !is_known {
            shown.insert(workspace.clone(), (now, balance));
            self.trace.note_at(at, Event::Totals(workspace.clone(), now, balance));
        }
    }
}

pub(crate) struct Customer {
    pub(crate) workspace: Workspace,
    pub(crate) key: ApiKey,
    pub(crate) credits: u64,
}

pub(crate) fn customers(plan: &Plan) -> [Customer; 2] {
    let ((tenant, tenant_key), (prober, prober_key)) = (tenant(), prober());
    [
        Customer {
            workspace: Workspace { id: tenant, quota: plan.quota },
            key: tenant_key,
            credits: plan.credits,
        },
        Customer {
            workspace: Workspace { id: prober, quota: Quota::default() },
            key: prober_key,
            credits: PROBER_CREDITS,
        },
    ]
}

pub(crate) fn workspaces() -> [WorkspaceId; 2] {
    [tenant().0, prober().0]
}

fn memory(plan: &Plan) -> turmoil::Result<Kind> {
    let (keys, accounts) = (KeyTable::default(), AccountTable::default());
    for Customer { workspace, key, credits } in customers(plan) {
        accounts.grant(&workspace.id, credits)?;
        keys.insert(key.digest(), workspace);
    }
    Ok(Kind::Memory { keys: Arc::new(keys), windows: Arc::default(), accounts: Arc::new(accounts) })
}

fn sqlite(plan: &Plan, now: Timestamp) -> turmoil::Result<Kind> {
    let temp = tempfile::tempdir()?;
    let dir = DataDir::create(temp.path().join("data"))?;
    let mut admin = Admin::open(&dir)?;
    for Customer { workspace, key, credits } in customers(plan) {
        admin.create_workspace(&workspace.id, workspace.quota, credits, now)?;
        admin.create_key(&workspace.id, "simulated", &key, now)?;
    }
    Ok(Kind::Sqlite { dir, _temp: temp })
}
