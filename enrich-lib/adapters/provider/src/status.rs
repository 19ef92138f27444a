//! What a status means: as the description lists it, else as HTTP has it.

use std::collections::BTreeSet;

use enrich_compose::FaultKind;
use http::StatusCode;
use serde::Deserialize;

/// The statuses that a vendor gives a meaning of its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Statuses {
    pub(crate) no_match: BTreeSet<u16>,
    pub(crate) refused_key: BTreeSet<u16>,
    pub(crate) out_of_credits: BTreeSet<u16>,
    pub(crate) slow_down: BTreeSet<u16>,
}

/// What follows from a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The body is the answer.
    Answer,
    NoMatch,
    Fault(FaultKind),
}

impl Statuses {
    /// Each with the name of its setting.
    fn lists(&self) -> [(&'static str, &BTreeSet<u16>, Meaning); 4] {
        [
            ("no_match", &self.no_match, Meaning::NoMatch),
            ("refused_key", &self.refused_key, Meaning::Fault(FaultKind::KeyRefused)),
            ("out_of_credits", &self.out_of_credits, Meaning::Fault(FaultKind::OutOfCredits)),
            ("slow_down", &self.slow_down, Meaning::Fault(FaultKind::SlowDown)),
        ]
    }

    /// The first setting that can't be, and why.
    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        let mut seen: Vec<(u16, &str)> = Vec::new();
        for (name, list, _) in self.lists() {
            for &status in list {
                let fault = if !(201..=599).contains(&status) {
                    Some(format!("has {status}; it can have statuses from 201 to 599, as a 200 is an answer"))
                } else {
                    let other = seen.iter().find(|(other, _)| *other == status);
                    other.map(|(_, other)| {
                        format!("has {status}, which statuses.{other} has; it can be in one of them")
                    })
                };
                if let Some(fault) = fault {
                    return Err((format!("statuses.{name}"), fault));
                }
                seen.push((status, name));
            }
        }
        Ok(())
    }

    /// A status that is not listed means what HTTP says (RFC 9110, 15). A 404 is then a wrong address, not "no match".
    pub(crate) fn meaning(&self, status: StatusCode) -> Meaning {
        let listed = self.lists().into_iter().find(|(_, list, _)| list.contains(&status.as_u16()));
        listed.map_or_else(
            || match status.as_u16() {
                200 => Meaning::Answer,
                401 | 403 => Meaning::Fault(FaultKind::KeyRefused),
                402 => Meaning::Fault(FaultKind::OutOfCredits),
                429 => Meaning::Fault(FaultKind::SlowDown),
                400..=499 => Meaning::Fault(FaultKind::BadRequest),
                500..=599 => Meaning::Fault(FaultKind::Unavailable),
                // Another 2xx has no answer yet or never will, and a redirect is not followed: it would take the email
                // and the key to where nobody decided to send them.
                _ => Meaning::Fault(FaultKind::BadAnswer),
            },
            |(_, _, meaning)| meaning,
        )
    }
}
