//! Invariant 6.

use std::collections::{BTreeMap, BTreeSet};

use enrich_lib::model::LookupId;

use super::ensure::ensure;
use crate::event::{Event, LogLine, PortCall, PortResult, SentRequest};
use crate::lookup_history::{self, LookupHistory, lookup_histories};
use crate::trace::Entry;

/// Checks that a result is sent if and only if its price is spent, and only then. Repeated spends of a lookup
/// have no further effect, which the balances show.
///
/// Of the lookups with one receipt, at most one is spent, and the others are free. A spend lacks a result only if
/// the node crashed before the lookup ended. In particular, no lookup with another status is spent, however late
/// the store responded. The database at the end of the run determines which spends are committed.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let (histories, price) = (lookup_histories(entries), lookup_history::price(entries));
    let is_priced = |lookup, status| {
        let history = histories.get(lookup);
        [200, 404].contains(&status) && history.is_some_and(|history| history.cost(price) > 0)
    };
    for (lookup, history) in &histories {
        let cost = history.cost(price);
        ensure(history.has_requested_spend() == (cost > 0), || {
            format!("{lookup} must request a spend if and only if its result costs {cost}: {history:?}")
        })?;
        let is_replied = history.logged_statuses.iter().any(|status| is_priced(lookup, *status));
        let is_spent = history.has_spent();
        ensure(history.committed_credits.is_none_or(|credits| credits == cost.cast_signed()), || {
            format!("{lookup} is not charged {cost}: {history:?}")
        })?;
        let payer = history.paid_by().unwrap_or(*lookup);
        let is_paid = histories.get(&payer).is_some_and(LookupHistory::has_spent);
        ensure(!is_replied || is_paid, || {
            format!("{payer} is not charged for the result of {lookup}: {history:?}")
        })?;
        ensure(!is_spent || payer == *lookup, || format!("{lookup} is charged beside {payer}: {history:?}"))?;
        ensure(!is_spent || is_replied || history.is_interrupted, || {
            format!("{lookup} is charged without a result: {history:?}")
        })?;
    }
    check_receipts(entries, &histories)?;
    let (mut seen, mut settled) = (BTreeSet::new(), BTreeSet::new());
    for entry in entries {
        match &entry.event {
            Event::PortReturned(lookup, PortResult::Settled(_)) => drop(settled.insert(*lookup)),
            Event::Logged(LogLine { lookup_end: Some((lookup, status)), .. }) => {
                ensure(settled.contains(lookup) || !is_priced(lookup, *status), || {
                    format!("{lookup} ended before its spend was settled: {entry}")
                })?;
            }
            _ => {}
        }
        if let Event::ReplyReceived(_, reply) = &entry.event
            && reply.status == 200
        {
            let lookup = reply.lookup_id().filter(|lookup| seen.insert(*lookup));
            let history = lookup.and_then(|lookup| histories.get(&lookup));
            ensure(history.is_some_and(|history| history.logged_statuses == [200]), || {
                format!("no lookup ended with this 200: {entry}")
            })?;
        }
    }
    Ok(())
}

/// Checks that of the lookups of a workspace with one receipt, at most one has a spend that is not refunded, and
/// that no lookup is free because of a spend that was refunded before.
fn check_receipts(entries: &[Entry], histories: &BTreeMap<LookupId, LookupHistory>) -> Result<(), String> {
    let (mut paying, mut refunded) = (BTreeMap::new(), BTreeSet::new());
    let (mut settling, mut keys, mut receipts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for entry in entries {
        match &entry.event {
            Event::RequestSent(SentRequest { email, idempotency_key: Some(key), .. }) => {
                keys.entry(email.to_ascii_lowercase()).or_insert_with(BTreeSet::new).insert(key);
            }
            Event::HoldRequested(lookup, workspace, _, Some(receipt)) => {
                let history = histories.get(lookup);
                if let Some(email) = history.and_then(|history| history.email.as_ref()) {
                    let email = email.to_ascii_lowercase();
                    receipts.entry((workspace, email)).or_insert_with(BTreeSet::new).insert(receipt);
                }
                if history.is_some_and(LookupHistory::has_spent) {
                    paying.entry((workspace, receipt)).or_insert_with(BTreeSet::new).insert(*lookup);
                }
            }
            Event::SpendRefunded(lookup) => drop(refunded.insert(*lookup)),
            Event::PortCalled(lookup, PortCall::Settle(_)) => {
                settling.insert(*lookup, refunded.clone());
            }
            Event::PortReturned(lookup, PortResult::Settled(Some(payer))) => {
                let is_refunded = settling.get(lookup).is_some_and(|refunded| refunded.contains(payer));
                ensure(!is_refunded, || format!("{payer} was refunded before: {entry}"))?;
            }
            _ => {}
        }
    }
    for ((workspace, email), receipts) in receipts {
        let keys = keys.get(&email).map_or(0, BTreeSet::len);
        let count = receipts.len();
        ensure(count <= keys, || format!("{count} receipts of {workspace} for one address and {keys} keys"))?;
    }
    for lookups in paying.values() {
        let unrefunded: Vec<_> = lookups.difference(&refunded).collect();
        ensure(unrefunded.len() <= 1, || format!("several lookups paid for one receipt: {unrefunded:?}"))?;
    }
    Ok(())
}
