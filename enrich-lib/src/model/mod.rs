//! The domain types of the specification.

mod profile_url;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use uuid::fmt::Simple;
use uuid::{Builder, Uuid};

pub use self::profile_url::{ProfileUrl, ProfileUrlError};

/// A point in time, in whole milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Creates a timestamp from milliseconds since the Unix epoch.
    pub const fn from_unix_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Returns the number of milliseconds since the Unix epoch.
    pub const fn unix_ms(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(whole_ms(wait)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(whole_ms(time)))
    }
}

/// Returns a duration in whole milliseconds, or `u64::MAX` if it is longer.
pub fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The identity and the arrival time of a request. All checks of the lookup use this one clock reading.
///
/// Time and randomness enter the library only through this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// The lookup's id.
    pub id: LookupId,
    /// The time at which the request arrived.
    pub now: Timestamp,
}

impl Arrival {
    /// Creates the arrival of a request at `now`. `random` makes the lookup id unguessable, and must be new for each
    /// request: lookups with the same id are billed once.
    pub fn new(now: Timestamp, random: [u8; 10]) -> Self {
        Self { id: LookupId::new(now, random), now }
    }
}

/// The unique identifier of a lookup (specification 2.2): a UUIDv7 (RFC 9562, 5.7), formatted as `lookup_`
/// and 32 hex digits.
///
/// Ids sort by arrival time. Clients treat them as opaque.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LookupId(Uuid);

impl LookupId {
    const PREFIX: &str = "lookup_";
    const TEXT_OCTETS: usize = Self::PREFIX.len() + Simple::LENGTH;

    /// Creates the id of a lookup that arrived at `now`.
    pub const fn new(now: Timestamp, random: [u8; 10]) -> Self {
        Self(Builder::from_unix_timestamp_millis(now.unix_ms(), &random).into_uuid())
    }

    /// Returns the time at which the lookup arrived.
    pub const fn arrived_at(&self) -> Timestamp {
        let [a, b, c, d, e, f, ..] = *self.as_bytes();
        Timestamp(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// Returns the 16 bytes of the UUID.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Creates an id from the bytes that [`LookupId::as_bytes`] returned.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Formats the id. `format!` would take ten times as long.
    pub(crate) fn text(&self) -> [u8; Self::TEXT_OCTETS] {
        let mut text = [0; Self::TEXT_OCTETS];
        let (prefix, digits) = text.split_at_mut(Self::PREFIX.len());
        prefix.copy_from_slice(Self::PREFIX.as_bytes());
        self.0.simple().encode_lower(digits);
        text
    }
}

/// The error for a text that is not a [`LookupId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected `lookup_` and 32 hexadecimal digits")]
pub struct LookupIdError;

impl FromStr for LookupId {
    type Err = LookupIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(Self::PREFIX).filter(|digits| digits.len() == Simple::LENGTH);
        digits.and_then(|digits| Uuid::try_parse(digits).ok()).map(Self).ok_or(LookupIdError)
    }
}

/// Hashes the bytes as one integer, which takes fewer instructions than as a slice.
impl Hash for LookupId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.0.as_u128());
    }
}

/// Compares the bytes as one integer, because maps of ids compare often.
impl Ord for LookupId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.as_u128().cmp(&other.0.as_u128())
    }
}

impl PartialOrd for LookupId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for LookupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::PREFIX)?;
        f.write_str(self.0.simple().encode_lower(&mut [0; Simple::LENGTH]))
    }
}

impl fmt::Debug for LookupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of a workspace: 1 to 64 characters of `A-Z a-z 0-9 . _ -`, starting with a letter or a digit.
///
/// Names are case-sensitive. UUIDs and slugs are valid names, so that a gateway can use its existing ids. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspaceId(Arc<str>);

/// The error for a text that is not a valid [`WorkspaceId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a workspace is named by 1 to 64 letters, digits, dots, dashes or underscores, and starts with a letter or a digit"
)]
pub struct WorkspaceIdError;

impl WorkspaceId {
    /// The maximum length of a name, in octets.
    pub const OCTETS_MAX: usize = 64;

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for WorkspaceId {
    type Err = WorkspaceIdError;

    fn from_str(text: &str) -> Result<Self, WorkspaceIdError> {
        let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
        let fits = text.len() <= Self::OCTETS_MAX
            && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
            && text.bytes().all(inner);
        if fits { Ok(Self(text.into())) } else { Err(WorkspaceIdError) }
    }
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_id_is_a_uuid_v7_that_sorts_by_time() {
        let early = LookupId::new(Timestamp::from_unix_ms(0x0123_4567_89ab), [0xff; 10]);
        let late = LookupId::new(Timestamp::from_unix_ms(0x0123_4567_89ac), [0; 10]);
        assert_eq!(early.to_string(), "lookup_0123456789ab7fffbfffffffffffffff");
        assert_eq!(late.to_string(), "lookup_0123456789ac70008000000000000000");
        assert!(early < late);
        assert_eq!(late.arrived_at(), Timestamp::from_unix_ms(0x0123_4567_89ac));
        assert_eq!(LookupId::from_bytes(*early.as_bytes()), early);
        assert_eq!(early.to_string().parse(), Ok(early));
        for text in
            ["", "lookup_", "0123456789ab7fffbfffffffffffffff", "lookup_01234567-89ab-7fff-bfff-ffffffffffff"]
        {
            assert_eq!(text.parse::<LookupId>(), Err(LookupIdError), "{text}");
        }
    }

    #[test]
    fn workspace_id_accepts_slugs_and_uuids_only() {
        for good in ["demo", "7", "org_2abc.x-y", "0190a6b2-6f1c-7c3e-8d7a-1f0e5a3b9c11", &"w".repeat(64)] {
            assert_eq!(good.parse::<WorkspaceId>().map(|w| w.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-x", "_x", "a b", "a\nb", "é", &"w".repeat(65)] {
            assert_eq!(bad.parse::<WorkspaceId>(), Err(WorkspaceIdError), "{bad:?}");
        }
    }
}
