//! Audit of leased credits: PostgreSQL's accounts at every moment, and the holds that nodes place on their leases.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use enrich_fakes::postgres::{Database, Postgres};
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::Credits;
use enrich_lib::refusal::PortError;

use crate::clock::Clock;
use crate::event::{Event, Lease, SharedAccount};
use crate::trace::Trace;
use crate::workspaces::workspace_ids;

/// Tracks which holds are placed on which lease.
pub(crate) struct LeaseAuditor {
    postgres: Postgres,
    /// PostgreSQL's clock.
    clock: Clock,
    trace: Trace,
    holds: Mutex<BTreeMap<LookupId, PlacedHold>>,
    recorded: Mutex<BTreeMap<WorkspaceId, SharedAccount>>,
}

struct PlacedHold {
    epoch: i64,
    workspace: WorkspaceId,
    credits: u64,
    /// The simulated time since the start of the run.
    expires_at: Duration,
}

impl LeaseAuditor {
    pub(crate) fn new(postgres: Postgres, clock: Clock, trace: Trace) -> Self {
        Self { postgres, clock, trace, holds: Mutex::default(), recorded: Mutex::default() }
    }

    /// Records a hold placed by the node `name`. A node places holds under its newest epoch.
    fn record_hold(&self, hold: &Hold, name: &str) {
        let now = millis(self.clock.now());
        let newest = self.postgres.read(|database| {
            let nodes = database.nodes().iter().rev();
            nodes.map(|(epoch, node)| (*epoch, node.clone())).find(|(_, node)| node.name == name)
        });
        let lease_is_valid = newest.as_ref().is_some_and(|(_, node)| node.expires_at > now);
        self.trace.record(Event::HoldPlaced { lookup: hold.lookup_id, lease_is_valid });
        if let Some((epoch, _)) = newest {
            let (workspace, credits) = (hold.workspace.clone(), hold.credits);
            let expires_at = turmoil::sim_elapsed().unwrap_or_default() + hold.ttl;
            let placed = PlacedHold { epoch, workspace, credits, expires_at };
            lock(&self.holds).insert(hold.lookup_id, placed);
        }
    }

    fn remove_hold(&self, lookup: LookupId) {
        lock(&self.holds).remove(&lookup);
    }

    /// Records the accounts that have changed since the last call.
    pub(crate) fn audit(&self, at: Duration, correct: Timestamp) {
        let now = millis(self.clock.at(at, correct));
        let mut holds = lock(&self.holds);
        holds.retain(|_, placed| at < placed.expires_at);
        let accounts = self.postgres.read(|database| {
            // Once PostgreSQL has committed or rejected the spend, the hold is over, even if the node has not received
            // the response yet.
            holds.retain(|lookup, _| !database.is_settled(lookup.as_bytes()));
            workspace_ids().map(|workspace| {
                shared_account(database, &workspace, &holds, now).map(|account| (workspace, account))
            })
        });
        let mut recorded = lock(&self.recorded);
        for (workspace, account) in accounts.into_iter().flatten() {
            if recorded.get(&workspace) != Some(&account) {
                self.trace.record_at(at, Event::SharedAccount(workspace.clone(), account.clone()));
                recorded.insert(workspace, account);
            }
        }
    }

    /// Records the committed spends at the end of the run.
    pub(crate) fn close(&self, at: Duration) {
        let committed: BTreeMap<_, _> = self.postgres.read(|database| {
            database
                .committed_spends()
                .map(|(lookup, _, credits)| (LookupId::from_bytes(*lookup), credits))
                .collect()
        });
        self.trace.record_at(at, Event::CommittedSpends(committed));
    }
}

fn shared_account(
    database: &Database,
    id: &WorkspaceId,
    holds: &BTreeMap<LookupId, PlacedHold>,
    now: i64,
) -> Option<SharedAccount> {
    let (rowid, _) = (1..).zip(database.workspaces()).find(|(_, w)| w.id == id.as_str())?;
    let leases = database.leases().iter().filter(|((of, _), _)| *of == rowid);
    let leases = leases.map(|((_, epoch), lease)| {
        let placed = holds.values().filter(|placed| placed.epoch == *epoch && placed.workspace == *id);
        Lease {
            epoch: *epoch,
            remaining: lease.remaining(),
            held: placed.map(|placed| credits(placed.credits)).sum(),
            reported_held: lease.held,
            is_expired: database.nodes().get(epoch).is_none_or(|node| node.expires_at <= now),
        }
    });
    let committed = database.committed_spends().filter(|(_, of, _)| *of == rowid);
    let [granted, spent, leased] = database.account(rowid);
    Some(SharedAccount {
        granted,
        spent,
        leased,
        leases: leases.collect(),
        committed: committed.map(|(_, _, credits)| credits).sum(),
    })
}

/// One node's ledger, wrapped to record its holds.
pub(crate) struct AuditedCredits {
    pub(crate) credits: Arc<dyn Credits>,
    pub(crate) auditor: Arc<LeaseAuditor>,
    /// The node's name in PostgreSQL.
    pub(crate) name: String,
}

#[async_trait]
impl Credits for AuditedCredits {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let outcome = self.credits.hold(hold).await?;
        if outcome == HoldOutcome::Granted {
            self.auditor.record_hold(hold, &self.name);
        }
        Ok(outcome)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let settled = self.credits.settle(hold, settlement).await;
        // A failed spend ends its hold as well.
        self.auditor.remove_hold(hold.lookup_id);
        settled
    }
}

fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.unix_ms()).unwrap_or(i64::MAX)
}

fn credits(credits: u64) -> i64 {
    i64::try_from(credits).unwrap_or(i64::MAX)
}

/// Locks a mutex. Poisoning is ignored: every critical section leaves its data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
