//! Invariant 2.

use std::collections::BTreeMap;

use enrich_lib::credit::{HoldOutcome, Settlement};
use enrich_lib::lookup::Policy;

use super::ensure::ensure;
use crate::event::{Event, PortCall, PortResult};
use crate::lookup_history::{PortEvent, lookup_histories};
use crate::trace::Entry;

/// Checks that a lookup holds at most once, and that a hold ends once, by one settlement. Only a crash leaves
/// a hold to its expiry, so a settlement is requested before the hold expires.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    for (lookup, history) in lookup_histories(entries) {
        let mut holds = 0;
        let mut settlements = Vec::<Settlement>::new();
        for event in &history.port_events {
            match event {
                PortEvent::Called(PortCall::Hold) => holds += 1,
                PortEvent::Called(PortCall::Settle(settlement)) => settlements.push(*settlement),
                _ => {}
            }
        }
        let granted = PortEvent::Returned(PortResult::Hold(HoldOutcome::Granted));
        let is_granted = history.port_events.contains(&granted);
        ensure(holds <= 1, || format!("{lookup} holds twice: {history:?}"))?;
        let is_ended = settlements.len() == usize::from(is_granted) || history.is_interrupted;
        ensure(is_ended, || format!("{lookup} does not settle its hold once: {history:?}"))?;
    }
    check_settled_before_expiry(entries)
}

fn check_settled_before_expiry(entries: &[Entry]) -> Result<(), String> {
    let mut requested = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            Event::HoldRequested(lookup, ..) => drop(requested.insert(lookup, entry.at)),
            Event::PortCalled(lookup, PortCall::Settle(_)) => {
                let expires_at = requested.get(lookup).map(|at| *at + Policy::default().hold_ttl);
                ensure(expires_at.is_some_and(|at| entry.at < at), || format!("after the expiry: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}
