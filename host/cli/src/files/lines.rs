//! Lines of JSON Lines, and the members of the object in a line.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::text::unmarked;

/// The lines of a text that are not blank.
pub(crate) struct Lines<R> {
    text: BufReader<R>,
    line_bytes_max: u64,
    /// The number of the line that was last read.
    line: u64,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(text: R, line_bytes_max: u64) -> Self {
        Self { text: BufReader::new(text), line_bytes_max, line: 0 }
    }

    /// Reads the next line, and returns it with its number. A line that is too long is truncated to one byte
    /// more than the maximum.
    fn read(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        loop {
            let mut line = Vec::new();
            let taken = self.text.by_ref().take(self.line_bytes_max + 1).read_until(b'\n', &mut line)?;
            if taken == 0 {
                return Ok(None);
            }
            self.line += 1;
            if taken as u64 > self.line_bytes_max && !line.ends_with(b"\n") {
                self.text.skip_until(b'\n')?;
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some((self.line, line)));
            }
        }
    }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = io::Result<(u64, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// The values of an object for one name.
pub(crate) enum Member {
    Missing,
    One(Value),
    Several,
}

impl Member {
    /// Returns the value, or `None` if it is missing or null.
    pub(crate) fn into_value(self, name: &str) -> Result<Option<Value>, String> {
        match self {
            Self::Missing | Self::One(Value::Null) => Ok(None),
            Self::One(value) => Ok(Some(value)),
            Self::Several => Err(format!("there are several fields {name}")),
        }
    }
}

/// Returns the object in a line, without a byte order mark and white space around it.
pub(crate) fn object(line: &[u8]) -> &[u8] {
    unmarked(line).trim_ascii()
}

/// Returns the members of an object with these names, in upper or lower case as in a CSV header, or `None` if the
/// text is not one JSON object.
pub(crate) fn members(object: &[u8], names: &[&str]) -> Option<Vec<Member>> {
    let mut json = serde_json::Deserializer::from_str(std::str::from_utf8(object).ok()?);
    let members = json.deserialize_map(Members(names)).ok()?;
    json.end().ok().map(|()| members)
}

/// A visitor that collects the members with these names. It ignores all others.
struct Members<'a>(&'a [&'a str]);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Vec<Member>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Member>, A::Error> {
        let mut members: Vec<_> = self.0.iter().map(|_| Member::Missing).collect();
        while let Some(name) = map.next_key::<String>()? {
            let Some(at) = self.0.iter().position(|known| known.eq_ignore_ascii_case(&name)) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value()?;
            members[at] = match members[at] {
                Member::Missing => Member::One(value),
                _ => Member::Several,
            };
        }
        Ok(members)
    }
}
