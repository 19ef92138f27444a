//! Invariant 5.

use std::collections::BTreeMap;

use enrich_node::Ticks;

use super::ensure::ensure;
use crate::event::{Event, SentRequest};
use crate::fault::FaultKind;
use crate::lookup_history::last_balances;
use crate::trace::Entry;

/// Checks that after healing every node answers a valid request with 200, and that it ticks until it stops.
/// After the last hold has expired, no credits may be held. A node on SQLite ends with an error only after
/// its disk has failed.
///
/// The prober may [repeat its request](crate::topology::PROBES_MAX); the last reply counts.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    check_failures(entries)?;
    let healed = entries.iter().skip_while(|entry| !matches!(entry.event, Event::Healed));
    let (mut nodes, mut probes) = (BTreeMap::new(), BTreeMap::new());
    for entry in healed {
        match &entry.event {
            Event::RequestSent(SentRequest { number, node, client: None, .. }) => {
                nodes.insert(*number, *node);
                probes.insert(*node, None);
            }
            Event::ReplyReceived(number, reply) => {
                if let Some(node) = nodes.get(number) {
                    probes.insert(*node, Some(reply.status));
                }
            }
            Event::LastTick(_, age) => ensure(*age < Ticks::AGE_MAX, || entry.to_string())?,
            _ => {}
        }
    }
    let all_succeed = !probes.is_empty() && probes.values().all(|status| *status == Some(200));
    ensure(all_succeed, || format!("the last replies to the prober by node: {probes:?}"))?;
    let balances = last_balances(entries);
    ensure(balances.values().all(|balance| balance.held == 0), || {
        format!("credits are held at the end of the run: {balances:?}")
    })
}

fn check_failures(entries: &[Entry]) -> Result<(), String> {
    let (mut has_disk, mut may_fail) = (false, false);
    for entry in entries {
        match &entry.event {
            Event::NodeStarted { is_alone, .. } => has_disk = *is_alone,
            Event::FaultStarted(FaultKind::Disk(..)) => may_fail = true,
            Event::Healed => may_fail = false,
            Event::NodeFailed(..) => {
                ensure(may_fail || !has_disk, || format!("without a failing disk: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}
