//! The least credits that workspaces can have had available.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_lib::credit::HoldOutcome;
use enrich_lib::model::{LookupId, WorkspaceId};

use super::state::CHANGE_TIME;
use crate::event::{Event, PortResult};
use crate::fault::FaultKind;
use crate::lookup_history::LookupHistory;
use crate::trace::Entry;

/// How long after its request a hold can last that no lookup settles: its lifetime of 30 s by the clock of
/// PostgreSQL, and 1 s until it is returned.
const HOLD_TIME_MAX: Duration = Duration::from_secs(32);

/// A hold that may exist.
struct PossibleHold {
    node: usize,
    workspace: WorkspaceId,
    credits: u64,
    /// When it ends at the latest. `None` while its lookup has it, and forever if it is spent.
    ends_at: Option<Duration>,
}

/// A hold whose call has not returned.
struct Request {
    credits: u64,
    /// The least credits that its workspace can have had available since it was requested.
    available_min: u64,
}

/// Returns the holds that were refused although their workspaces had enough credits.
pub(super) fn unjust_refusals(
    entries: &[Entry],
    histories: &BTreeMap<LookupId, LookupHistory>,
) -> BTreeSet<LookupId> {
    let (mut granted, mut holds) = (BTreeMap::new(), BTreeMap::<LookupId, PossibleHold>::new());
    let (mut requests, mut unjust) = (BTreeMap::<LookupId, Request>::new(), BTreeSet::new());
    let (mut is_alone, mut failing, mut failed_until) = (false, 0_u32, Duration::ZERO);
    for Entry { at, event } in entries {
        holds.retain(|_, hold| hold.ends_at.is_none_or(|ends_at| *at <= ends_at));
        match event {
            Event::NodeStarted { is_alone: is, .. } => is_alone = *is,
            // A node reads no grant meanwhile.
            Event::FaultStarted(FaultKind::Disk(..)) => failing += 1,
            Event::FaultEnded(FaultKind::Disk(..)) => {
                failing -= 1;
                failed_until = *at;
            }
            Event::CreditsGranted(workspace, credits) => {
                granted.entry(workspace.clone()).or_insert_with(Vec::new).push((*at, *credits));
            }
            Event::HoldRequested(lookup, workspace, credits) => {
                let node = histories.get(lookup).map_or(0, |history| history.node);
                let (workspace, credits) = (workspace.clone(), *credits);
                holds.insert(*lookup, PossibleHold { node, workspace, credits, ends_at: None });
                requests.insert(*lookup, Request { credits, available_min: u64::MAX });
            }
            Event::PortReturned(lookup, PortResult::Hold(outcome)) => {
                let request = requests.remove(lookup);
                if *outcome != HoldOutcome::Granted {
                    holds.remove(lookup);
                    unjust.extend(
                        request.filter(|request| request.available_min >= request.credits).map(|_| *lookup),
                    );
                }
            }
            Event::PortReturned(lookup, PortResult::Failed) => {
                requests.remove(lookup);
                let is_released = histories.get(lookup).is_some_and(|history| !history.has_spent());
                if let Some(hold) = holds.get_mut(lookup).filter(|_| is_released) {
                    hold.ends_at.get_or_insert(*at + HOLD_TIME_MAX);
                }
            }
            Event::PortReturned(lookup, PortResult::Settled) => {
                let is_released = histories.get(lookup).is_some_and(|history| !history.has_spent());
                if is_released {
                    holds.remove(lookup);
                }
            }
            Event::NodeCrashed(node) => {
                let is_its = |lookup: &LookupId, hold: &PossibleHold| {
                    hold.node == *node && histories.get(lookup).is_some_and(|history| !history.has_spent())
                };
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
        let is_failing = failing > 0;
        for (lookup, request) in &mut requests {
            let Some(workspace) = holds.get(lookup).map(|hold| &hold.workspace) else { continue };
            let others =
                holds.iter().filter(|(other, hold)| *other != lookup && hold.workspace == *workspace);
            let held: u64 = others.map(|(_, hold)| hold.credits).sum();
            let grants = granted.get(workspace).into_iter().flatten();
            let is_read = |granted_at: Duration| {
                granted_at.is_zero() || !is_failing && granted_at.max(failed_until) + CHANGE_TIME <= *at
            };
            let granted: u64 = grants.filter(|(at, _)| is_read(*at)).map(|(_, credits)| credits).sum();
            request.available_min = request.available_min.min(granted.saturating_sub(held));
        }
    }
    unjust
}
