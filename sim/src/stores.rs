//! What is behind the ports: shared by all nodes and outliving them, or opened by one node and dropped by its crash.

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

/// How often a ledger is told the time, as the host's command line does it.
const LEDGER_TICK: Duration = Duration::from_millis(250);

const PROBER_CREDITS: u64 = 10;

/// The ports of a node that lead to a store, before anything is wrong with them.
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

    /// The ports of a node that comes up now, on the machine on which this runs and by its `clock`.
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

    /// Whether a hold ends with the node that it was placed by.
    pub(crate) fn holds_end_with_their_node(&self) -> bool {
        matches!(self.kind, Kind::Sqlite { .. })
    }

    /// Notes the totals of stores that no node has to itself. A node that has notes them as it tells them the time.
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

    /// Notes what stands in the end, where nodes share the books.
    pub(crate) fn close(&self, at: Duration) {
        if let Kind::Servers { auditor, .. } = &self.kind {
            auditor.close(at);
        }
    }

    /// The machines that the stores are on.
    pub(crate) fn servers(&self) -> &'static [Server] {
        if matches!(self.kind, Kind::Servers { .. }) { &Server::ALL } else { &[] }
    }

    /// One life of such a machine.
    pub(crate) async fn serve(self: Arc<Self>, server: Server) -> turmoil::Result {
        match &self.kind {
            Kind::Servers { servers, .. } => servers.clone().serve(server).await,
            Kind::Memory { .. } | Kind::Sqlite { .. } => Ok(()),
        }
    }

    /// What a server loses with its power.
    pub(crate) fn lose_memory_of(&self, server: Server, at: Duration) {
        if let (Kind::Servers { servers, .. }, Server::Redis) = (&self.kind, server) {
            servers.redis.forget();
            self.trace.note_at(at, Event::Forgot);
        }
    }

    /// An operator revokes the clients' key.
    pub(crate) fn revoke(&self, at: Duration) {
        let digest = tenant().1.digest();
        match &self.kind {
            Kind::Memory { keys, .. } => keys.revoke(&digest),
            Kind::Servers { servers, .. } => {
                servers.postgres.with(|books| books.revoke_key(digest.as_bytes()))
            }
            // It is not drawn for these: another process would have to do it.
            Kind::Sqlite { .. } => return,
        }
        self.trace.note_at(at, Event::Revoked);
    }

    async fn keep_current(self: Arc<Self>, ledger: Arc<Ledger>, clock: Clock) {
        loop {
            let now = clock.now();
            // What a tick meets is the store's own trouble: the totals tell whether it came to harm.
            let _ = ledger.tick(now).await;
            // Whose spend was committed right before it is told of it first.
            tokio::task::yield_now().await;
            for workspace in workspaces() {
                if let Ok(balance) = ledger.balance(&workspace) {
                    self.show(turmoil::sim_elapsed().unwrap_or_default(), &workspace, now, balance);
                }
            }
            tokio::time::sleep(LEDGER_TICK).await;
        }
    }

    /// Every change, and what stays as it is once a second.
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
