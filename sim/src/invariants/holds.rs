//! Invariant 2.

use std::time::Duration;

use enrich_lib::credit::{HoldOutcome, Settlement};
use enrich_lib::model::{LookupId, Timestamp};

use super::ensure;
use crate::event::{Answer, Deed, Event, Question};
use crate::story::{Talk, stories};
use crate::trace::Entry;

/// The maximum delay before a store expires a hold: the interval between two ticks of a ledger plus one step of the
/// simulation.
const EXPIRY_LATE_MAX: Duration = Duration::from_millis(260);

/// Checks that a hold begins at most once and ends at most once.
///
/// A hold ends by one settlement, which may be repeated but not changed, or by its expiry. The host may leave a hold to its
/// expiry only after a crash or if it never received the result of the hold.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    for (lookup, story) in stories(entries) {
        let is_granted = story.talk.contains(&Talk::Told(Answer::Hold(HoldOutcome::Granted)));
        let is_settled = story.talk.iter().any(|talk| matches!(talk, Talk::Asks(Question::Settle(_))));
        let is_left_over = is_granted && !is_settled && !story.is_cut_off;
        ensure(!is_left_over, || format!("{lookup} leaves its hold to expire: {story:?}"))?;

        let mut end = None::<Settlement>;
        let mut has_begun = false;
        for (_, deed) in &story.deeds {
            match deed {
                Deed::Held { .. } => {
                    ensure(!has_begun && end.is_none(), || format!("{lookup} is held again: {story:?}"))?;
                    has_begun = true;
                }
                Deed::Settled(_, settlement) => {
                    let is_spend = matches!(settlement, Settlement::Spend(_));
                    ensure(has_begun || !is_spend, || {
                        format!("{lookup} spends what it does not hold: {story:?}")
                    })?;
                    let first = *end.get_or_insert(*settlement);
                    ensure(first == *settlement, || format!("{lookup} is settled two ways: {story:?}"))?;
                }
                Deed::Denied { .. } | Deed::Refused(_) => {}
            }
        }
    }
    no_spend_after_expiry(entries)
}

fn no_spend_after_expiry(entries: &[Entry]) -> Result<(), String> {
    let mut now = Timestamp::default();
    let mut expiries = Vec::<(LookupId, Timestamp)>::new();
    let mut spent = Vec::<LookupId>::new();
    for entry in entries {
        match &entry.event {
            Event::Totals(_, time, _) => now = *time,
            Event::Did(lookup, Deed::Held { expires_at, .. }) => expiries.push((*lookup, *expires_at)),
            Event::Did(lookup, Deed::Settled(_, Settlement::Spend(_))) if !spent.contains(lookup) => {
                let is_expired = |&(held, at): &(_, Timestamp)| held == *lookup && at + EXPIRY_LATE_MAX < now;
                ensure(!expiries.iter().any(is_expired), || {
                    format!("{lookup} is charged after its expiry: {entry}")
                })?;
                spent.push(*lookup);
            }
            _ => {}
        }
    }
    Ok(())
}
