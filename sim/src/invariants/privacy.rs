//! Invariant 7.

use std::collections::BTreeSet;

use super::ensure::ensure;
use crate::event::Event;
use crate::trace::Entry;

/// Checks that no log line of any level contains an email, API key, idempotency key or profile from a request or reply.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let mut secrets = BTreeSet::new();
    for entry in entries {
        match &entry.event {
            Event::RequestSent(sent) => {
                secrets.extend([sent.email.as_str(), sent.profile.as_str()]);
                secrets.extend(sent.key.as_deref());
                secrets.extend(sent.idempotency_key.as_deref());
            }
            Event::Logged(line) => {
                let secret = secrets.iter().find(|secret| line.text.contains(**secret));
                ensure(secret.is_none(), || format!("the log contains {secret:?}: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}
