//! JSON pointers into an untrusted text (RFC 6901).
//!
//! Only the values on the way to a pointer's value are parsed. Vendors send strings and numbers in other fields
//! that are not valid Unicode or do not fit into a double.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    text: String,
    names: Vec<String>,
}

/// The result of resolving a pointer.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing: the way to the value ends with a missing member, null or an empty array.
    Nothing,
    /// A value, as it is in the text.
    Value(Box<RawValue>),
    /// The value cannot exist, because a value on the way to it has another type, or the whole text is null.
    Mismatch,
}

impl Pointer {
    /// Parses a pointer (RFC 6901, 3).
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_rooted = text.is_empty() || text.starts_with('/');
        let mut tildes = text.split('~').skip(1);
        if is_rooted && tildes.all(|after| after.starts_with(['0', '1'])) {
            let names = text.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~"));
            Ok(Self { text: text.to_owned(), names: names.collect() })
        } else {
            Err("must be a JSON pointer like \"/data/linkedin_url\", with ~0 for ~ and ~1 for /".to_owned())
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Finds the value in a JSON text. The parser's errors could quote the text.
    pub(crate) fn find(&self, json: &[u8]) -> Result<Found, serde_json::Error> {
        let mut parser = serde_json::Deserializer::from_slice(json);
        let found = At { names: &self.names, is_root: true }.deserialize(&mut parser)?;
        parser.end()?;
        Ok(found)
    }
}

/// The value at the rest of a pointer.
#[derive(Clone, Copy)]
struct At<'p> {
    names: &'p [String],
    is_root: bool,
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        match self.names {
            [] => Box::<RawValue>::deserialize(deserializer).map(Found::Value),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl At<'_> {
    fn inner(self) -> Self {
        Self { names: &self.names[1..], is_root: false }
    }

    fn nothing(self) -> Found {
        if self.is_root { Found::Mismatch } else { Found::Nothing }
    }
}

/// Defines the methods for values that contain no others.
macro_rules! mismatches {
    ($($visit:ident: $value:ty),*) => {
        $(fn $visit<E: Error>(self, _: $value) -> Result<Found, E> { Ok(Found::Mismatch) })*
    };
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut found = Found::Nothing;
        while let Some(is_it) = map.next_key_seed(IsName(&self.names[0]))? {
            if is_it {
                found = map.next_value_seed(self.inner())?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
        let Ok(index) = self.names[0].parse::<usize>() else {
            let is_empty = list.next_element::<IgnoredAny>()?.is_none();
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(if is_empty { self.nothing() } else { Found::Mismatch });
        };
        for _ in 0..index {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(Found::Nothing);
            }
        }
        let found = list.next_element_seed(self.inner())?.unwrap_or(Found::Nothing);
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }

    fn visit_unit<E: Error>(self) -> Result<Found, E> {
        Ok(self.nothing())
    }

    mismatches! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str }
}

/// Compares the name of a member. Other names may be invalid Unicode.
struct IsName<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<bool, E> {
        Ok(name == self.0.as_bytes())
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_json_pointers_as_in_rfc_6901() {
        for good in ["", "/", "/a/0/b", "/a~1b/~0", "/é"] {
            assert!(Pointer::parse(good).is_ok(), "{good}");
        }
        for bad in ["a", "a/b", "$.a", "/a~", "/~2", "/a~x", "#/a"] {
            assert!(Pointer::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn finds_a_value_beside_values_that_cannot_be_parsed() {
        let json = br#"{"\ud800": 1, "name": "\ud800", "latin": "J\xe9", "big": 1e999, "m~/n": [0, {"": "x"}], "n": null}"#;
        let json = String::from_utf8_lossy(json).replace("\\xe9", "\u{1}").into_bytes();
        let json: Vec<_> = json.into_iter().map(|byte| if byte == 1 { 0xe9 } else { byte }).collect();
        for (pointer, expected) in [
            ("/m~0~1n/1/", Some("\"x\"")),
            ("/m~0~1n/0", Some("0")),
            ("/m~0~1n/2", None),
            ("/n", Some("null")),
            ("/n/a", None),
            ("/missing/a", None),
            ("/big", Some("1e999")),
        ] {
            match Pointer::parse(pointer).unwrap().find(&json).unwrap() {
                Found::Value(value) => assert_eq!(Some(value.get()), expected, "{pointer}"),
                Found::Nothing => assert_eq!(None, expected, "{pointer}"),
                Found::Mismatch => panic!("{pointer}"),
            }
        }
        for pointer in ["/m~0~1n/a", "/m~0~1n/0/a", "/m~0~1n/1//a"] {
            let found = Pointer::parse(pointer).unwrap().find(&json).unwrap();
            assert!(matches!(found, Found::Mismatch), "{pointer}: {found:?}");
        }
    }
}
