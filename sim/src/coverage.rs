//! Counts what the runs of a test have reached, prints a summary, and checks that nothing is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use enrich_lib::credit::HoldOutcome;
use enrich_lib::model::LookupId;
use enrich_lib::refusal::Refusal;
use strum::VariantNames;

use crate::event::{Event, PortCall, PortResult, SentRequest};
use crate::fault::{DiskFault, Fault, FaultKind};
use crate::lookup_history::{LookupHistory, PortEvent, lookup_histories};
use crate::operator::Operation;
use crate::request::HttpVersion;
use crate::run::Run;
use crate::topology::StoreKind;
use crate::workspaces::client_workspace;

/// The situations on which an invariant depends: without them, it checks nothing.
const SITUATIONS: [Situation; 25] = [
    ("64 lookups in flight", |facts| facts.in_flight_max >= 64),
    ("more than 16 spends in one commit", |facts| facts.commit_min >= 16),
    ("more than 64 spends in one commit of SQLite", |facts| facts.is_on_sqlite && facts.commit_min >= 64),
    ("more than 64 spends in one commit of PostgreSQL", |facts| {
        !facts.is_on_sqlite && facts.commit_min >= 64
    }),
    ("a 502 that released a hold", |facts| {
        let held = PortEvent::Returned(PortResult::Hold(HoldOutcome::Granted));
        facts.any_lookup(|history| history.logged_statuses == [502] && history.port_events.contains(&held))
    }),
    ("a crash during a spend", |facts| {
        facts.any_lookup(|history| history.is_interrupted && history.has_requested_spend())
    }),
    ("a crash between hold and settlement", |facts| {
        facts.any_lookup(|history| history.is_interrupted && history.has_called(PortCall::Resolve))
    }),
    ("a spend of a crashed node that was committed", |facts| {
        facts.any_lookup(|history| history.is_interrupted && history.committed_credits.is_some())
    }),
    ("a committed spend that a promoted standby lacked", |facts| facts.has_lost_spend),
    ("a power cut during an operation of the disk", |facts| facts.has_power_cut),
    ("a node that ended because a sync failed", |facts| facts.has_failed_sync),
    ("a lookup that failed on a full disk", |facts| facts.has_full_disk),
    ("a spend that failed", |facts| {
        facts.any_lookup(|history| history.has_requested_spend() && history.logged_statuses == [500])
    }),
    ("a lookup in flight when its node began to shut down", |facts| facts.has_lookup_at_stop),
    ("a reply that announces the end of its connection", |facts| facts.has_closing_reply),
    ("a lookup in flight when the sources were replaced", |facts| facts.has_lookup_at_reload),
    ("a client that stopped waiting for a lookup that ended", |facts| facts.has_abandoned_lookup),
    ("a request with a revoked key", |facts| facts.has_revoked_key),
    ("a workspace that spends on two nodes", |facts| facts.spending_nodes.len() > 1),
    ("a person found in PostgreSQL", |facts| {
        facts.any_lookup(|history| {
            let is_imported = history.email.as_ref().is_some_and(|email| facts.imported.contains(email));
            is_imported && history.logged_statuses == [200]
        })
    }),
    ("a request on an open connection over HTTP/1.1", |facts| facts.has_reused_http1),
    ("a request on an HTTP/2 connection after one that was cancelled", |facts| facts.has_reused_http2),
    ("two workspaces that spend", |facts| facts.spending_workspaces.len() > 2),
    ("two faults at once", |facts| facts.has_two_faults),
    ("a match while a fault lasts to the end", |facts| {
        facts.has_lasting_fault && facts.any_lookup(|history| history.logged_statuses == [200])
    }),
];

type Situation = (&'static str, fn(&Facts) -> bool);

/// The faults, changes by operators, statuses and situations that a number of runs have reached, each with the
/// number of worlds in which it occurred.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<String, u64>);

impl Coverage {
    /// Adds a run.
    pub fn add(&mut self, run: &Run) {
        let facts = Facts::of(run);
        let operations = run.trace.iter().filter_map(|entry| match &entry.event {
            Event::Operated(operation) => Some(<&str>::from(operation)),
            _ => None,
        });
        let situations = SITUATIONS.iter().filter(|(_, has_occurred)| has_occurred(&facts));
        let reached: BTreeSet<_> = names(
            facts.faults.iter().copied(),
            operations,
            run.statuses().into_iter().flatten(),
            situations.map(|(name, _)| *name),
        )
        .collect();
        for name in reached {
            *self.0.entry(name).or_default() += 1;
        }
    }

    /// Returns what never occurred.
    pub fn missing(&self) -> Vec<String> {
        let statuses: BTreeSet<_> =
            Refusal::ALL.iter().map(|refusal| refusal.status()).chain([200, 404]).collect();
        let operations = Operation::VARIANTS.iter().copied();
        let situations = SITUATIONS.iter().map(|(name, _)| *name);
        let all = names(FaultKind::names(), operations, statuses, situations);
        all.filter(|name| !self.0.contains_key(name)).collect()
    }
}

fn names<'a>(
    faults: impl Iterator<Item = &'a str>,
    operations: impl Iterator<Item = &'a str>,
    statuses: impl IntoIterator<Item = u16>,
    situations: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = String> {
    let faults = faults.map(|name| format!("fault: {name}"));
    let operations = operations.map(|name| format!("operation: {name}"));
    let statuses = statuses.into_iter().map(|status| format!("status: {status}"));
    faults.chain(operations).chain(statuses).chain(situations.map(str::to_owned))
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> = self.0.iter().map(|(name, worlds)| format!("{name} ({worlds})")).collect();
        write!(f, "worlds with: {}", counts.join("; "))
    }
}

/// The events of one run that coverage counts.
#[derive(Default)]
struct Facts {
    /// The names of the faults that have started.
    faults: Vec<&'static str>,
    histories: BTreeMap<LookupId, LookupHistory>,
    in_flight_max: usize,
    is_on_sqlite: bool,
    /// The largest commit had more spends.
    commit_min: u64,
    has_lookup_at_stop: bool,
    has_lookup_at_reload: bool,
    has_closing_reply: bool,
    has_abandoned_lookup: bool,
    has_revoked_key: bool,
    has_two_faults: bool,
    has_lasting_fault: bool,
    has_reused_http1: bool,
    has_reused_http2: bool,
    has_lost_spend: bool,
    has_power_cut: bool,
    has_failed_sync: bool,
    has_full_disk: bool,
    spending_nodes: BTreeSet<usize>,
    spending_workspaces: BTreeSet<String>,
    /// The emails of the people in PostgreSQL.
    imported: BTreeSet<String>,
}

impl Facts {
    fn of(run: &Run) -> Self {
        let is_on_sqlite = run.plan.stores == StoreKind::Sqlite;
        let imported = run.plan.imported_people().map(|(email, _)| email).collect();
        let histories = lookup_histories(&run.trace);
        let has_lasting_fault = run.plan.faults.iter().any(|fault| fault.duration == Fault::LASTING);
        let mut facts = Self { histories, is_on_sqlite, imported, has_lasting_fault, ..Self::default() };
        let mut in_flight = BTreeMap::<LookupId, usize>::new();
        let (mut faults, mut workspaces, mut sent) = (0_usize, BTreeMap::new(), BTreeMap::new());
        let (mut is_full, mut cancelled) = (false, BTreeSet::new());
        let is_on =
            |in_flight: &BTreeMap<LookupId, usize>, node: &usize| in_flight.values().any(|on| on == node);
        for entry in &run.trace {
            match &entry.event {
                Event::LookupStarted(node, lookup) => drop(in_flight.insert(*lookup, *node)),
                Event::Logged(line) => {
                    if let Some((lookup, status)) = &line.lookup_end {
                        in_flight.remove(lookup);
                        facts.has_full_disk |= is_full && *status == 500;
                    }
                }
                Event::NodeCrashed(node) => in_flight.retain(|_, on| on != node),
                Event::NodeFailed(_, error) => {
                    facts.has_failed_sync |= error.contains("failed to store a commit");
                }
                Event::SpendLost(_) => facts.has_lost_spend = true,
                Event::PowerCut(_) => facts.has_power_cut = true,
                Event::LargeCommit(_, spends) => facts.commit_min = facts.commit_min.max(*spends),
                Event::NodeStopping(node) => facts.has_lookup_at_stop |= is_on(&in_flight, node),
                Event::SourcesLoaded(node, _) => facts.has_lookup_at_reload |= is_on(&in_flight, node),
                Event::FaultStarted(fault) => {
                    facts.faults.push(fault.name());
                    faults += 1;
                    facts.has_two_faults |= faults > 1;
                    is_full |= matches!(fault, FaultKind::Disk(_, DiskFault::Full));
                }
                Event::FaultEnded(fault) => {
                    faults -= 1;
                    is_full &= !matches!(fault, FaultKind::Disk(_, DiskFault::Full));
                }
                Event::HoldRequested(lookup, workspace, ..) => {
                    workspaces.insert(*lookup, workspace.to_string());
                }
                Event::PortReturned(lookup, PortResult::Settled(_)) => {
                    facts.spending_workspaces.extend(workspaces.get(lookup).cloned());
                }
                Event::PortReturned(_, PortResult::KeyFound { is_valid: false, key: Some(_) }) => {
                    facts.has_revoked_key = true;
                }
                Event::RequestSent(request) => {
                    let (is_http1, is_reused) =
                        (request.http == HttpVersion::Http1, request.reuses_connection);
                    facts.has_reused_http1 |= is_http1 && is_reused;
                    facts.has_reused_http2 |= !is_http1 && is_reused && cancelled.remove(&request.client);
                    sent.insert(request.number, request);
                }
                Event::ReplyReceived(number, reply) => {
                    let is_closing = |request: &&SentRequest| request.http == HttpVersion::Http1;
                    let closes = reply.headers.iter().any(|(name, _)| name == "connection");
                    facts.has_closing_reply |=
                        closes && reply.status != 401 && sent.get(number).is_some_and(is_closing);
                }
                Event::RequestFailed(number, _) => {
                    cancelled.extend(sent.get(number).map(|request| request.client));
                    let email = sent.get(number).map(|request| &request.email);
                    facts.has_abandoned_lookup |= facts.histories.values().any(|history| {
                        history.ended_at.is_some() && email.is_some() && history.email.as_ref() == email
                    });
                }
                _ => {}
            }
            facts.in_flight_max = facts.in_flight_max.max(in_flight.len());
        }
        let tenant = client_workspace().to_string();
        let spending = facts.histories.iter().filter(|(id, history)| {
            history.committed_credits.is_some() && workspaces.get(*id) == Some(&tenant)
        });
        facts.spending_nodes = spending.map(|(_, history)| history.node).collect();
        facts
    }

    fn any_lookup(&self, is_it: impl Fn(&LookupHistory) -> bool) -> bool {
        self.histories.values().any(is_it)
    }
}
