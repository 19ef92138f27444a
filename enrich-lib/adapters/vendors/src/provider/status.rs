//! The meaning of response statuses: as listed in the description, otherwise as defined by HTTP.

use std::collections::BTreeSet;

use enrich_lib::resolver::VendorErrorKind;
use http::StatusCode;
use serde::Deserialize;

/// The statuses to which a description assigns a meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Statuses {
    pub(crate) no_match: BTreeSet<u16>,
    pub(crate) key_rejected: BTreeSet<u16>,
    pub(crate) out_of_credits: BTreeSet<u16>,
    pub(crate) rate_limited: BTreeSet<u16>,
}

/// The meaning of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The body contains the answer.
    Answer,
    NoMatch,
    Error(VendorErrorKind),
}

impl Statuses {
    /// Returns each list with the name of its setting and its meaning.
    fn lists(&self) -> [(&'static str, &BTreeSet<u16>, Meaning); 4] {
        [
            ("no_match", &self.no_match, Meaning::NoMatch),
            ("key_rejected", &self.key_rejected, Meaning::Error(VendorErrorKind::KeyRejected)),
            ("out_of_credits", &self.out_of_credits, Meaning::Error(VendorErrorKind::OutOfCredits)),
            ("rate_limited", &self.rate_limited, Meaning::Error(VendorErrorKind::RateLimited)),
        ]
    }

    /// Validates the lists. Returns the first invalid setting and the reason.
    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        let mut seen: Vec<(u16, &str)> = Vec::new();
        for (name, list, _) in self.lists() {
            for &status in list {
                let error = if !(201..=599).contains(&status) {
                    Some(format!("contains {status}; use statuses from 201 to 599, as 200 is an answer"))
                } else {
                    let other = seen.iter().find(|(other, _)| *other == status);
                    other.map(|(_, other)| {
                        format!("contains {status}, which is in statuses.{other} too; list it once")
                    })
                };
                if let Some(error) = error {
                    return Err((format!("statuses.{name}"), error));
                }
                seen.push((status, name));
            }
        }
        Ok(())
    }

    /// Returns the meaning of a status. A status that is not listed has its HTTP meaning (RFC 9110, 15), and 524
    /// that of 504; a 404 then means a wrong URL, not "no match".
    pub(crate) fn meaning(&self, status: StatusCode) -> Meaning {
        let listed = self.lists().into_iter().find(|(_, list, _)| list.contains(&status.as_u16()));
        listed.map_or_else(
            || match status.as_u16() {
                200 => Meaning::Answer,
                401 | 403 => Meaning::Error(VendorErrorKind::KeyRejected),
                402 => Meaning::Error(VendorErrorKind::OutOfCredits),
                429 => Meaning::Error(VendorErrorKind::RateLimited),
                // A proxy waited for the vendor, which may have billed the request.
                504 | 524 => Meaning::Error(VendorErrorKind::TimedOut),
                400..=499 => Meaning::Error(VendorErrorKind::RequestRejected),
                500..=599 => Meaning::Error(VendorErrorKind::Unavailable),
                // Other 2xx statuses have no answer. Redirects are not followed, as they would send the email
                // and the key to an address that the operator did not configure.
                _ => Meaning::Error(VendorErrorKind::InvalidResponse),
            },
            |(_, _, meaning)| meaning,
        )
    }
}
