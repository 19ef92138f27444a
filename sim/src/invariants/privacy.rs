//! Invariant 7.

use std::collections::BTreeSet;

use super::ensure;
use crate::event::Event;
use crate::trace::Entry;

/// Checks that no log line of any level contains an email, API key or profile from a request or reply.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let mut secrets = BTreeSet::new();
    for entry in entries {
        match &entry.event {
            Event::Sent(sent) => {
                secrets.extend([sent.email.as_str(), sent.profile.as_str()]);
                secrets.extend(sent.key.as_deref());
            }
            Event::Logged(logged) => {
                let told = secrets.iter().find(|secret| logged.line.contains(**secret));
                ensure(told.is_none(), || format!("{told:?} is in the log: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}
