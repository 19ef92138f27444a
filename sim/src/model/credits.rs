//! The least credits that workspaces can have had available.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_lib::credit::{HoldOutcome, Shortage};
use enrich_lib::model::{LookupId, WorkspaceId};

use super::causes::{Causes, Dependency};
use super::grants::Grants;
use crate::event::{Event, PortCall, PortResult};
use crate::fault::FaultKind;
use crate::lookup_history::LookupHistory;
use crate::topology::Server;
use crate::trace::Entry;

/// How long after its request a hold can last that no lookup settles: its lifetime of 30 s by the clock of
/// PostgreSQL, and 1 s until it is returned.
const HOLD_TIME_MAX: Duration = Duration::from_secs(32);

/// How long after it was placed a hold exists that its lookup has not settled, by any clock.
const HOLD_TIME_MIN: Duration = Duration::from_secs(15);

/// A hold that may exist.
struct PossibleHold {
    node: usize,
    workspace: WorkspaceId,
    credits: u64,
    /// When it ends at the latest. `None` while its lookup has it, and forever if it is spent.
    ends_at: Option<Duration>,
    /// PostgreSQL has released it, which is not durable at once.
    is_released: bool,
    /// Its credits are spent, so that it is no hold any more.
    is_spent: bool,
    /// It certainly exists until this time.
    is_certain_until: Duration,
}

/// A hold whose call has not returned.
struct Request {
    called_at: Duration,
    credits: u64,
    /// The least credits that its workspace can have had available since it was requested.
    available_min: u64,
    has_receipt: bool,
    /// Whether other lookups can have held credits since, and whether none can.
    may_be_held: bool,
    may_be_exhausted: bool,
}

/// Returns the holds that were refused although their workspaces had enough credits, or with a reason that they
/// cannot have had.
pub(super) fn unjust_refusals(
    entries: &[Entry],
    histories: &BTreeMap<LookupId, LookupHistory>,
    causes: &Causes,
) -> BTreeSet<LookupId> {
    let (mut grants, mut holds) = (Grants::default(), BTreeMap::<LookupId, PossibleHold>::new());
    let (mut requests, mut unjust) = (BTreeMap::<LookupId, Request>::new(), BTreeSet::new());
    let (mut is_alone, mut repeated) = (false, Vec::new());
    let has_spent = |lookup: &LookupId| histories.get(lookup).is_none_or(LookupHistory::has_spent);
    for entry in entries {
        grants.add(entry);
        let Entry { at, event } = entry;
        holds.retain(|_, hold| hold.ends_at.is_none_or(|ends_at| *at <= ends_at));
        repeated.retain(|(_, _, ends_at)| at <= ends_at);
        match event {
            Event::NodeStarted { is_alone: is, .. } => is_alone = *is,
            // It can have withdrawn what is held.
            Event::CreditsGranted(..) => end_certainty(&mut holds),
            Event::PortCalled(lookup, PortCall::Settle(_)) => {
                holds.entry(*lookup).and_modify(|hold| hold.is_certain_until = Duration::ZERO);
            }
            Event::HoldRequested(lookup, workspace, credits, receipt) => {
                let node = histories.get(lookup).map_or(0, |history| history.node);
                let (workspace, credits) = (workspace.clone(), *credits);
                let hold = PossibleHold {
                    node,
                    workspace,
                    credits,
                    ends_at: None,
                    is_released: false,
                    is_spent: false,
                    is_certain_until: Duration::ZERO,
                };
                holds.insert(*lookup, hold);
                let request = Request {
                    called_at: *at,
                    credits,
                    available_min: u64::MAX,
                    has_receipt: receipt.is_some(),
                    may_be_held: false,
                    may_be_exhausted: false,
                };
                requests.insert(*lookup, request);
            }
            Event::PortReturned(lookup, PortResult::Hold(outcome)) => {
                let Some(request) = requests.remove(lookup) else { continue };
                if *outcome == HoldOutcome::Granted {
                    // A hold takes no credits if its receipt is paid.
                    if let Some(hold) = holds.get_mut(lookup).filter(|_| !request.has_receipt) {
                        hold.is_certain_until = *at + HOLD_TIME_MIN;
                    }
                    let node = histories.get(lookup).map_or(0, |history| history.node);
                    let hold = holds.get(lookup).filter(|_| !is_alone && !has_spent(lookup));
                    // A statement that was repeated may arrive after its lookup was released, and hold again.
                    let has_failed = |dependency| causes.has(dependency, node, request.called_at, *at);
                    if has_failed(Dependency::Accounts) || has_failed(Dependency::Balance) {
                        repeated.extend(
                            hold.map(|hold| (hold.workspace.clone(), hold.credits, *at + HOLD_TIME_MAX)),
                        );
                    }
                } else {
                    holds.remove(lookup);
                    let is_possible = match outcome {
                        HoldOutcome::Insufficient(Shortage::Exhausted) => request.may_be_exhausted,
                        _ => request.may_be_held,
                    };
                    if request.available_min >= request.credits || !is_possible {
                        unjust.insert(*lookup);
                    }
                }
            }
            Event::PortReturned(lookup, PortResult::Failed) => {
                requests.remove(lookup);
                if let Some(hold) = holds.get_mut(lookup).filter(|_| !has_spent(lookup)) {
                    hold.ends_at.get_or_insert(*at + HOLD_TIME_MAX);
                }
            }
            Event::PortReturned(lookup, PortResult::Settled(_)) if has_spent(lookup) => {
                holds.entry(*lookup).and_modify(|hold| hold.is_spent = true);
            }
            Event::PortReturned(lookup, PortResult::Settled(_)) if is_alone => drop(holds.remove(lookup)),
            Event::PortReturned(lookup, PortResult::Settled(_)) => {
                if let Some(hold) = holds.get_mut(lookup) {
                    (hold.is_released, hold.ends_at) = (true, Some(*at + HOLD_TIME_MAX));
                }
            }
            Event::FaultStarted(fault) | Event::FaultEnded(fault) if loses_releases(fault) => {
                holds.values_mut().for_each(|hold| hold.is_released = false);
                end_certainty(&mut holds);
            }
            Event::NodeCrashed(node) => {
                end_certainty(&mut holds);
                let is_its =
                    |lookup: &LookupId, hold: &PossibleHold| hold.node == *node && !has_spent(lookup);
                if is_alone {
                    holds.retain(|lookup, hold| !is_its(lookup, hold));
                } else {
                    for (_, hold) in holds.iter_mut().filter(|(lookup, hold)| is_its(lookup, hold)) {
                        hold.ends_at.get_or_insert(*at + HOLD_TIME_MAX);
                    }
                }
            }
            _ => continue,
        }
        for (lookup, request) in &mut requests {
            let Some(workspace) = holds.get(lookup).map(|hold| &hold.workspace) else { continue };
            let others =
                holds.iter().filter(|(other, hold)| *other != lookup && hold.workspace == *workspace);
            let is_repeated = repeated.iter().any(|(of, ..)| of == workspace);
            request.may_be_held |= is_repeated || others.clone().any(|(_, hold)| !hold.is_spent);
            let is_certain = |hold: &PossibleHold| hold.credits > 0 && hold.is_certain_until > *at;
            request.may_be_exhausted |= !others.clone().any(|(_, hold)| is_certain(hold));
            let held: u64 = others.filter(|(_, hold)| !hold.is_released).map(|(_, hold)| hold.credits).sum();
            let again = repeated.iter().filter(|(of, ..)| of == workspace).map(|(_, credits, _)| credits);
            let held = held + again.sum::<u64>();
            request.available_min =
                request.available_min.min(grants.least(workspace, *at).saturating_sub(held));
        }
    }
    unjust
}

/// Forgets which holds certainly exist.
fn end_certainty(holds: &mut BTreeMap<LookupId, PossibleHold>) {
    holds.values_mut().for_each(|hold| hold.is_certain_until = Duration::ZERO);
}

/// Returns whether PostgreSQL may lose releases that it has acknowledged, since it commits them
/// asynchronously.
fn loses_releases(fault: &FaultKind) -> bool {
    matches!(
        fault,
        FaultKind::ServerCrash(Server::Postgres) | FaultKind::FailedCommit { .. } | FaultKind::Promotion
    )
}
