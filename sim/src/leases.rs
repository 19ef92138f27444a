//! Audit of leased credits: PostgreSQL's accounts at every moment, and the holds that nodes place on their leases.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use enrich_fakes::postgres::Postgres;
use enrich_fakes::postgres::books::Books;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::Credits;
use enrich_lib::refusal::PortError;

use crate::clock::Clock;
use crate::event::{Event, Lease, Shared};
use crate::stores::workspaces;
use crate::trace::Trace;

/// Tracks which holds are placed on which lease.
pub(crate) struct Auditor {
    postgres: Postgres,
    /// PostgreSQL's clock.
    clock: Clock,
    trace: Trace,
    holds: Mutex<BTreeMap<LookupId, Placed>>,
    shown: Mutex<BTreeMap<WorkspaceId, Shared>>,
}

struct Placed {
    epoch: i64,
    workspace: WorkspaceId,
    credits: u64,
    expires_at: Timestamp,
    /// The node's clock.
    clock: Clock,
}

impl Auditor {
    pub(crate) fn new(postgres: Postgres, clock: Clock, trace: Trace) -> Self {
        Self { postgres, clock, trace, holds: Mutex::default(), shown: Mutex::default() }
    }

    /// Records a hold placed by the node `name`. A node places holds under its newest epoch.
    fn place(&self, hold: &Hold, name: &str, clock: Clock) {
        let now = millis(self.clock.now());
        let newest = self.postgres.with(|books| {
            let nodes = books.nodes().iter().rev();
            nodes.map(|(epoch, node)| (*epoch, node.clone())).find(|(_, node)| node.name == name)
        });
        let lives = newest.as_ref().is_some_and(|(_, node)| node.ends_at > now);
        self.trace.note(Event::Placed { lookup: hold.lookup_id, lives });
        if let Some((epoch, _)) = newest {
            let (workspace, credits, expires_at) = (hold.workspace.clone(), hold.credits, hold.expires_at);
            let placed = Placed { epoch, workspace, credits, expires_at, clock };
            lock(&self.holds).insert(hold.lookup_id, placed);
        }
    }

    fn end(&self, lookup: LookupId) {
        lock(&self.holds).remove(&lookup);
    }

    /// Records the accounts that have changed since the last call.
    pub(crate) fn audit(&self, at: Duration, right: Timestamp) {
        let now = millis(self.clock.at(at, right));
        let mut holds = lock(&self.holds);
        holds.retain(|_, placed| placed.clock.at(at, right) < placed.expires_at);
        let seen = self.postgres.with(|books| {
            // Once PostgreSQL has recorded the spend or void, the hold is over, even if the node has not received the
            // response yet.
            holds.retain(|lookup, _| !books.has_decided(lookup.as_bytes()));
            workspaces().map(|workspace| shared(books, &workspace, &holds, now).map(|s| (workspace, s)))
        });
        let mut shown = lock(&self.shown);
        for (workspace, shared) in seen.into_iter().flatten() {
            if shown.get(&workspace) != Some(&shared) {
                self.trace.note_at(at, Event::Shared(workspace.clone(), shared.clone()));
                shown.insert(workspace, shared);
            }
        }
    }

    /// Records the committed spends at the end of the run.
    pub(crate) fn close(&self, at: Duration) {
        let standing: BTreeMap<_, _> = self.postgres.with(|books| {
            books.standing().map(|(lookup, _, credits)| (LookupId::from_bytes(*lookup), credits)).collect()
        });
        self.trace.note_at(at, Event::Stand(standing));
    }
}

fn shared(books: &Books, id: &WorkspaceId, holds: &BTreeMap<LookupId, Placed>, now: i64) -> Option<Shared> {
    let (rowid, _) = (1..).zip(books.workspaces()).find(|(_, w)| w.id == id.as_str())?;
    let leases = books.leases().iter().filter(|((of, _), _)| *of == rowid);
    let leases = leases.map(|((_, epoch), lease)| {
        let placed = holds.values().filter(|placed| placed.epoch == *epoch && placed.workspace == *id);
        Lease {
            epoch: *epoch,
            left: lease.left(),
            held: placed.map(|placed| credits(placed.credits)).sum(),
            shown: lease.held,
            has_ended: books.nodes().get(epoch).is_none_or(|node| node.ends_at <= now),
        }
    });
    let standing = books.standing().filter(|(_, of, _)| *of == rowid);
    let [granted, spent, leased] = books.account(rowid);
    Some(Shared {
        granted,
        spent,
        leased,
        leases: leases.collect(),
        standing: standing.map(|(_, _, credits)| credits).sum(),
    })
}

/// One node's ledger, wrapped to record its holds.
pub(crate) struct Audited {
    pub(crate) credits: Arc<dyn Credits>,
    pub(crate) auditor: Arc<Auditor>,
    /// The node's name in PostgreSQL.
    pub(crate) name: String,
    pub(crate) clock: Clock,
}

#[async_trait]
impl Credits for Audited {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let held = self.credits.hold(hold).await?;
        if held == HoldOutcome::Granted {
            self.auditor.place(hold, &self.name, self.clock);
        }
        Ok(held)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        self.credits.settle(hold, settlement).await?;
        self.auditor.end(hold.lookup_id);
        Ok(())
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
