//! Fuzzing of the request body parser, compared with serde_json.

use std::fmt;

use enrich_lib::body::{BODY_BYTES_MAX, BodyError, read};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Error, Value};

/// Parses `data` as a request body and compares the result with serde_json's.
pub fn body(data: &[u8]) {
    let ours = read(data);
    if data.len() > BODY_BYTES_MAX {
        return assert_eq!(ours, Err(BodyError::TooLarge));
    }
    match serde_json::from_slice::<Fields>(data) {
        Ok(fields) => assert_eq!(ours.map(|email| email.map(Into::into)), expected(fields)),
        // Both parsers accept the same strings as an email, so a body on which they differ never leads to a
        // lookup.
        Err(error) if is_explained(&error) => assert!(!matches!(ours, Ok(Some(_))), "{error}"),
        Err(error) => assert_eq!(ours, Err(BodyError::Json), "{error}"),
    }
}

/// Returns the expected result for an object that serde_json parsed: specification 2.1, and the documented
/// decision to reject duplicate keys.
fn expected(Fields(fields): Fields) -> Result<Option<String>, BodyError> {
    let (emails, others): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(name, _)| name == "email");
    if emails.len() > 1 {
        return Err(BodyError::DuplicateField);
    }
    if !others.is_empty() {
        return Err(BodyError::UnknownField);
    }
    Ok(emails.into_iter().find_map(|(_, value)| match value {
        Value::String(email) => Some(email),
        _ => None,
    }))
}

/// Returns whether `Value` rejects a document that the grammar of RFC 8259 allows. The service skips the
/// values of unknown fields without building them in memory, and rejects such documents because of the field.
fn is_explained(error: &Error) -> bool {
    let error = error.to_string();
    [
        // 128 levels. `Value` is parsed recursively; skipping a value is not recursive.
        "recursion limit exceeded",
        // `1e999` is a valid number, but exceeds the range of f64.
        "number out of range",
        // `"\ud800"` is a valid string, but not valid Unicode (RFC 8259, 8.2).
        "lone leading surrogate in hex escape",
        "unexpected end of hex escape",
    ]
    .iter()
    .any(|difference| error.starts_with(difference))
}

/// An object with all its fields, including duplicates, of which a `Value` keeps only the last.
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
