//! Invariant 1 for accounts that several nodes share.

use std::collections::BTreeMap;

use super::ensure::ensure;
use crate::event::{Event, SharedAccount};
use crate::trace::Entry;

/// Checks the shared accounts at every moment.
///
/// `granted = free + leased + spent`, and none of these is negative. `leased` is the sum of the leases, and `spent` is the
/// sum of the committed spends. No node's lookups hold more credits than are left on its lease, and no hold is placed on an
/// expired lease.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let mut granted = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            Event::CreditsGranted(workspace, credits) => drop(granted.insert(workspace.clone(), *credits)),
            Event::SharedAccount(workspace, account) => {
                let granted = granted.get(workspace).copied().and_then(|credits| i64::try_from(credits).ok());
                let is_consistent = granted == Some(account.granted) && is_consistent(account);
                ensure(is_consistent, || entry.to_string())?;
            }
            Event::HoldPlaced { lease_is_valid, .. } => ensure(*lease_is_valid, || entry.to_string())?,
            _ => {}
        }
    }
    Ok(())
}

fn is_consistent(account: &SharedAccount) -> bool {
    let leased: i64 = account.leases.iter().map(|lease| lease.remaining).sum();
    let free = account.granted - account.leased - account.spent;
    free >= 0
        && account.leased == leased
        && account.spent == account.committed
        && account.leases.iter().all(|lease| lease.remaining >= 0 && lease.held <= lease.remaining)
}
