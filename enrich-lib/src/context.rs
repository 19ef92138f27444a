//! The context of a request: its client's address and its trace, for the log and for vendors.

use std::fmt;
use std::net::IpAddr;

/// Metadata of a request for its log line and for vendors. No check depends on it.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestContext {
    /// The client's address, if the server logs it.
    pub client: Option<IpAddr>,
    /// The trace that the request is part of.
    pub trace: Option<TraceContext>,
}

/// Omits the client's address.
impl fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestContext").field("trace", &self.trace).finish_non_exhaustive()
    }
}

/// The trace of a request, as its headers `traceparent` and `tracestate` describe it (W3C Trace Context,
/// level 2).
///
/// ```
/// use enrich_lib::context::TraceContext;
///
/// let trace = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
/// assert_eq!(trace.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert_eq!(
///     trace.traceparent([7; 8]),
///     "00-4bf92f3577b34da6a3ce929d0e0e4736-0707070707070707-01"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: TraceId,
    flags: u8,
    state: Option<Box<str>>,
}

/// The id of a trace. `Display` formats it as 32 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(u128);

impl TraceContext {
    /// The maximum length of a `tracestate` that is kept, in octets: the length that must be supported.
    pub const STATE_OCTETS_MAX: usize = 512;

    /// The flags of level 2: sampled, and a random trace id. Others "MUST be set to 0".
    const FLAGS: u8 = 0b11;

    /// Parses the header `traceparent`. Returns `None` if it is invalid, which means that there is no trace.
    ///
    /// A later version may have more fields after those of version 0. They are ignored.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let (version, rest) = traceparent.split_at_checked(2)?;
        let version = hex(version)?;
        let (fields, more) =
            rest.split_at_checked("-TTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT-PPPPPPPPPPPPPPPP-FF".len())?;
        let is_complete = more.is_empty() || version > 0 && more.starts_with('-');
        let mut fields = fields.strip_prefix('-')?.split('-');
        let (trace_id, parent_id, flags) = (fields.next()?, fields.next()?, fields.next()?);
        let is_well_formed = trace_id.len() == 32 && parent_id.len() == 16 && flags.len() == 2;
        if version == 0xff || !is_complete || !is_well_formed || hex(parent_id)? == 0 {
            return None;
        }
        let trace_id = TraceId(hex(trace_id).filter(|id| *id > 0)?);
        let flags = u8::try_from(hex(flags)?).ok()? & Self::FLAGS;
        Some(Self { trace_id, flags, state: None })
    }

    /// Adds the header `tracestate`. It is dropped if it is empty or longer than [`Self::STATE_OCTETS_MAX`].
    #[must_use]
    pub fn with_state(self, state: &str) -> Self {
        let fits = (1..=Self::STATE_OCTETS_MAX).contains(&state.len());
        Self { state: fits.then(|| state.into()), ..self }
    }

    /// Returns the id of the trace.
    pub const fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// Returns the header `tracestate`, unchanged.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the header `traceparent` of a request that this service sends, for example to a vendor.
    /// `parent_id` identifies that request within the trace; it must not be zero.
    pub fn traceparent(&self, parent_id: [u8; 8]) -> String {
        format!("00-{}-{:016x}-{:02x}", self.trace_id, u64::from_be_bytes(parent_id), self.flags)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Parses lower-case hex digits. `from_str_radix` also accepts upper case and a sign.
fn hex(digits: &str) -> Option<u128> {
    let is_hex = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn rejects_invalid_headers() {
        for invalid in [
            "",
            "00",
            &VALID[1..],
            &VALID[..54],
            &VALID.replacen("00-", "ff-", 1),
            &VALID.replacen("00-", "0-", 1),
            &VALID.replacen("00-", "+0-", 1),
            &VALID.to_uppercase(),
            &VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &VALID.replace("4bf", "xbf"),
            &VALID.replace("-01", "-0x"),
            &VALID.replace("-01", "_01"),
            &VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736-00", "4bf92f3577b34da6a3ce929d0e0e47-3600"),
            &VALID.replace("00f067aa0ba902b7-01", "00f067aa0ba9-000001"),
            &format!("{VALID}-00"),
            &format!("{VALID} "),
            &format!("{}00", VALID.replacen("00-", "01-", 1)),
            "00-é",
        ] {
            assert_eq!(TraceContext::parse(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn accepts_later_versions_and_drops_unknown_flags() {
        for (text, flags) in [
            (VALID.to_owned(), "01"),
            (VALID.replacen("00-", "cc-", 1), "01"),
            (VALID.replacen("00-", "cc-", 1) + "-what-the-future-brings", "01"),
            (VALID.replace("-01", "-fe"), "02"),
            (VALID.replace("-01", "-00"), "00"),
        ] {
            let trace = TraceContext::parse(&text).expect(&text);
            let expected = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00000000000000ff-{flags}");
            assert_eq!(trace.traceparent([0, 0, 0, 0, 0, 0, 0, 0xff]), expected);
        }
    }

    #[test]
    fn keeps_a_state_of_limited_length() {
        let state = |length: usize| {
            let state = "x".repeat(length);
            TraceContext::parse(VALID).and_then(|trace| Some(trace.with_state(&state).state()?.len()))
        };
        assert_eq!([state(0), state(1), state(512), state(513)], [None, Some(1), Some(512), None]);
    }

    proptest! {
        #[test]
        fn accepts_exactly_the_headers_that_it_formats(
            trace_id in 1..=u128::MAX,
            parent_id in 1..=u64::MAX,
            flags in 0..4_u8,
        ) {
            let trace = TraceContext { trace_id: TraceId(trace_id), flags, state: None };
            let text = trace.traceparent(parent_id.to_be_bytes());
            prop_assert_eq!(TraceContext::parse(&text), Some(trace));
        }

        #[test]
        fn parses_any_text_without_panic(text in "[0-9a-f-]{0,70}", other: String) {
            for text in [text, other] {
                if let Some(trace) = TraceContext::parse(&text) {
                    prop_assert_eq!(trace.trace_id().to_string(), &text[3..35]);
                }
            }
        }
    }
}
