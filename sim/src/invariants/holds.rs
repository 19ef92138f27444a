//! Invariant 2.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_lib::credit::{HoldOutcome, Settlement};
use enrich_lib::model::LookupId;

use super::ensure::ensure;
use crate::event::{Event, PortCall, PortResult, StoreEffect};
use crate::lookup_history::{LookupHistory, PortEvent, lookup_histories};
use crate::trace::Entry;

/// The maximum delay before a store expires a hold: the interval between two ticks of a ledger plus one step of the
/// simulation.
const EXPIRY_DELAY_MAX: Duration = Duration::from_millis(260);

/// Checks that a hold begins at most once and ends at most once.
///
/// A hold ends by one settlement, which may be repeated but not changed, or by its expiry. The host may leave a hold to its
/// expiry only after a crash or if it never received the result of the hold.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    for (lookup, history) in lookup_histories(entries) {
        let granted = PortEvent::Returned(PortResult::Hold(HoldOutcome::Granted));
        let is_settled = |event: &PortEvent| matches!(event, PortEvent::Called(PortCall::Settle(_)));
        let is_abandoned = history.port_events.contains(&granted)
            && !history.port_events.iter().any(is_settled)
            && !history.is_interrupted;
        ensure(!is_abandoned, || format!("{lookup} leaves its hold to expire: {history:?}"))?;
        check_store_effects(lookup, &history)?;
    }
    check_no_spend_after_expiry(entries)
}

fn check_store_effects(lookup: LookupId, history: &LookupHistory) -> Result<(), String> {
    let mut end = None::<Settlement>;
    let mut has_begun = false;
    for (_, effect) in &history.store_effects {
        match effect {
            StoreEffect::Held { .. } => {
                ensure(!has_begun && end.is_none(), || format!("{lookup} is held twice: {history:?}"))?;
                has_begun = true;
            }
            StoreEffect::Settled(_, settlement) => {
                let is_spend = matches!(settlement, Settlement::Spend(_));
                ensure(has_begun || !is_spend, || format!("{lookup} spends without a hold: {history:?}"))?;
                let first = *end.get_or_insert(*settlement);
                ensure(first == *settlement, || format!("{lookup} has two settlements: {history:?}"))?;
            }
            StoreEffect::HoldRefused { .. } | StoreEffect::SettleRefused(_) => {}
        }
    }
    Ok(())
}

fn check_no_spend_after_expiry(entries: &[Entry]) -> Result<(), String> {
    let mut now = Duration::ZERO;
    let mut expiries = BTreeMap::<LookupId, Duration>::new();
    let mut spent = BTreeSet::<LookupId>::new();
    for entry in entries {
        match &entry.event {
            Event::Balance(_, time, _) => now = *time,
            Event::StoreEffect(lookup, StoreEffect::Held { expires_at, .. }) => {
                expiries.insert(*lookup, *expires_at);
            }
            Event::StoreEffect(lookup, StoreEffect::Settled(_, Settlement::Spend(_)))
                if spent.insert(*lookup) =>
            {
                let is_expired = expiries.get(lookup).is_some_and(|at| *at + EXPIRY_DELAY_MAX < now);
                ensure(!is_expired, || format!("{lookup} is charged after its expiry: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}
