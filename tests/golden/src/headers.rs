//! Replies without what proxies and gateways add to them.

use crate::client::{Reply, head_bytes};

/// The headers of the interface. Proxies add others, which are not compared.
const COMPARED: [&str; 9] = [
    "allow",
    "content-type",
    "error-reason",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "request-id",
    "retry-after",
    "www-authenticate",
];

/// Headers whose values differ in each reply, or belong to the connection.
const VARYING: [&str; 6] =
    ["connection", "content-length", "date", "keep-alive", "request-id", "transfer-encoding"];

/// Returns the status of a reply.
pub(crate) fn status(reply: &[u8]) -> Option<u16> {
    std::str::from_utf8(reply.get(9..12)?).ok()?.parse().ok()
}

/// Returns the status, the headers of the interface by name, and the body, as text to compare.
///
/// The version, the reason phrase, and the case and order of headers may change on the way.
pub(crate) fn comparable(reply: &[u8]) -> Vec<u8> {
    let (head, body) = reply.split_at(head_bytes(reply).unwrap_or(reply.len()));
    let mut lines: Vec<_> =
        named(head).into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    lines.retain(|(name, _)| COMPARED.contains(&name.as_str()));
    lines.sort();
    let lines: String = lines.into_iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    [format!("{}\r\n{lines}\r\n", status(reply).unwrap_or_default()).as_bytes(), body].concat()
}

/// The bytes of a 401 that must be equal in every other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unauthorized {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Unauthorized {
    pub(crate) fn of(reply: &Reply) -> Self {
        let mut headers = named(&reply.head);
        headers.retain(|(name, _)| !VARYING.contains(&name.to_ascii_lowercase().as_str()));
        Self { headers, body: reply.body.clone() }
    }

    /// Clears the values that differ between two replies to one request, such as the id that a proxy adds.
    pub(crate) fn without_varying(mut self, again: &Self) -> Self {
        if self.names().eq(again.names()) {
            let values = self.headers.iter_mut().zip(&again.headers);
            values.filter(|(one, other)| one != other).for_each(|(one, _)| one.1.clear());
        }
        self
    }

    /// Returns the name of a header that differs, or `the body`.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if !self.names().eq(other.names()) {
            return Some("the names or the order of the headers".to_owned());
        }
        let mut values = self.headers.iter().zip(&other.headers);
        let differs = values.find(|((_, expected), (_, actual))| !expected.is_empty() && expected != actual);
        let header = differs.map(|((name, _), _)| format!("the header {name}"));
        header.or_else(|| (self.body != other.body).then(|| "the body".to_owned()))
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.headers.iter().map(|(name, _)| name)
    }
}

/// Returns the names and values of the header lines.
fn named(head: &[u8]) -> Vec<(String, String)> {
    let head = String::from_utf8_lossy(head);
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}
