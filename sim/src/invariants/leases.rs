//! Invariant 1 for accounts that several nodes share.

use std::collections::BTreeMap;

use super::ensure;
use crate::event::{Event, Shared};
use crate::trace::Entry;

/// Checks the shared accounts at every moment.
///
/// `granted = free + leased + spent`, and none of these is negative. `leased` is the sum of the leases, and `spent` is the
/// sum of the committed spends. No node's lookups hold more credits than are left on its lease, and no hold is placed on a
/// lease that has ended.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let mut granted = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            Event::Granted(workspace, credits) => drop(granted.insert(workspace.clone(), *credits)),
            Event::Shared(workspace, shared) => {
                let granted = granted.get(workspace).copied().and_then(|credits| i64::try_from(credits).ok());
                ensure(granted == Some(shared.granted) && is_whole(shared), || entry.to_string())?;
            }
            Event::Placed { lives, .. } => ensure(*lives, || entry.to_string())?,
            _ => {}
        }
    }
    Ok(())
}

fn is_whole(shared: &Shared) -> bool {
    let leased: i64 = shared.leases.iter().map(|lease| lease.left).sum();
    let free = shared.granted - shared.leased - shared.spent;
    free >= 0
        && shared.leased == leased
        && shared.spent == shared.standing
        && shared.leases.iter().all(|lease| lease.left >= 0 && lease.held <= lease.left)
}
