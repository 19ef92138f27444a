//! The request body against serde_json's own reading of it.

use std::fmt;

use enrich_lib::body::{BODY_BYTES_MAX, BodyFault, read};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Error, Value};

/// Reads `data` as a request body, and compares.
pub fn body(data: &[u8]) {
    let ours = read(data);
    if data.len() > BODY_BYTES_MAX {
        return assert_eq!(ours, Err(BodyFault::TooLarge));
    }
    match serde_json::from_slice::<Fields>(data) {
        Ok(fields) => assert_eq!(ours.map(|email| email.map(Into::into)), expected(fields)),
        // A string as the email is valid to both or to neither, so what differs is never given a lookup.
        Err(error) if is_explained(&error) => assert!(!matches!(ours, Ok(Some(_))), "{error}"),
        Err(error) => assert_eq!(ours, Err(BodyFault::Json), "{error}"),
    }
}

/// Specification 2.1, and the decided gap of the duplicate key, on what serde_json found.
fn expected(Fields(fields): Fields) -> Result<Option<String>, BodyFault> {
    let (emails, others): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(name, _)| name == "email");
    if emails.len() > 1 {
        return Err(BodyFault::Json);
    }
    if !others.is_empty() {
        return Err(BodyFault::UnknownField);
    }
    Ok(emails.into_iter().find_map(|(_, value)| match value {
        Value::String(email) => Some(email),
        _ => None,
    }))
}

/// Where `Value` refuses what the grammar of RFC 8259 allows. The values of these fields don't matter to us, so they
/// are skipped over and not held in memory; whatever is refused then, is refused for the field.
fn is_explained(error: &Error) -> bool {
    let error = error.to_string();
    [
        // 128 levels: `Value` recurses, a value that is skipped over does not.
        "recursion limit exceeded",
        // `1e999` is a number, which no f64 holds.
        "number out of range",
        // `"\ud800"` is a string, which is no Unicode (RFC 8259, 8.2).
        "lone leading surrogate in hex escape",
        "unexpected end of hex escape",
    ]
    .iter()
    .any(|difference| error.starts_with(difference))
}

/// An object with each of its fields: a `Value` keeps but the last of a name.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}
