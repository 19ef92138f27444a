//! Invariant 1 for accounts that several nodes share.

use std::collections::BTreeMap;

use super::ensure::ensure;
use crate::event::{Event, SharedAccount};
use crate::trace::Entry;

/// Checks the shared accounts at every moment: no more is used than granted, and the holds, the committed
/// spends and the rest of settlements add up to what is used.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let mut granted = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            Event::CreditsGranted(workspace, credits) => {
                *granted.entry(workspace.clone()).or_insert(0) += credits;
            }
            Event::SharedAccount(workspace, account) => {
                let is_consistent =
                    granted.get(workspace) == Some(&account.granted) && is_consistent(account);
                ensure(is_consistent, || entry.to_string())?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_consistent(account: &SharedAccount) -> bool {
    let SharedAccount { granted, used, held, rest, committed } = *account;
    used <= granted && held >= 0 && rest >= 0 && used == held + rest + committed
}
