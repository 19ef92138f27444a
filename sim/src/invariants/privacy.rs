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
                let in_url = sent.email.replace('@', "%40");
                secrets.extend([sent.email.clone(), in_url, sent.profile.clone()]);
                secrets.extend(sent.key.clone());
                secrets.extend(sent.idempotency_key.clone());
            }
            Event::Logged(line) => {
                let secret = secrets.iter().find(|secret| line.text.contains(*secret));
                ensure(secret.is_none(), || format!("the log contains {secret:?}: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}
