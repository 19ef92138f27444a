//! The request body (specification 2.1): one JSON object with one field, `email`.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use thiserror::Error;

/// The longest request body, in bytes (decided; specification 8.6 leaves it open).
pub const BODY_BYTES_MAX: usize = 4_096;

/// A request body as read by the server, or the reason why it is unavailable.
pub type Body = Result<Bytes, BodyError>;

/// The reason why a body, or a header that is checked with it, is invalid. Every variant results in 400 `invalid_request`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BodyError {
    /// There is no content type (specification 2.1, rule 2).
    #[error("the content type is missing")]
    MissingContentType,
    /// The content type is not `application/json`, or it is repeated (specification 2.1, rule 2).
    #[error("the content type is not application/json")]
    ContentType,
    /// The body is longer than [`BODY_BYTES_MAX`] bytes.
    #[error("the body is longer than the limit")]
    TooLarge,
    /// The connection ended inside the body.
    #[error("the body was cut off")]
    CutOff,
    /// The body did not arrive in time.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// The body is not a single JSON object in UTF-8.
    #[error("the body is not one JSON object")]
    Json,
    /// The body repeats the field `email`.
    #[error("the body repeats the field email")]
    DuplicateField,
    /// The body has a field other than `email` (specification 2.1, rule 1).
    #[error("the body has a field other than email")]
    UnknownField,
    /// The header `Idempotency-Key` is malformed or repeated, or the gateway keeps no receipts.
    #[error("the header Idempotency-Key is malformed, repeated or not supported")]
    IdempotencyKey,
}

/// The value of the `email` field, or `None` if it is missing or not a string.
pub type EmailField<'a> = Option<Cow<'a, str>>;

/// Parses the body (specification 2.1). A repeated field takes precedence over an unknown one, and that over
/// an invalid `email`.
///
/// Fails with [`BodyError::TooLarge`], [`BodyError::Json`], [`BodyError::DuplicateField`] or
/// [`BodyError::UnknownField`].
pub fn read(bytes: &[u8]) -> Result<EmailField<'_>, BodyError> {
    if bytes.len() > BODY_BYTES_MAX {
        return Err(BodyError::TooLarge);
    }
    if let Some(email) = only_email(bytes) {
        return Ok(Some(email.into()));
    }
    // serde_json does not check the UTF-8 of values that it skips.
    let text = std::str::from_utf8(bytes).map_err(|_| BodyError::Json)?;
    let mut json = serde_json::Deserializer::from_str(text);
    let fields = json.deserialize_any(FieldsVisitor).map_err(|_| BodyError::Json)?;
    json.end().map_err(|_| BodyError::Json)?;
    match fields {
        Fields { emails: 2.., .. } => Err(BodyError::DuplicateField),
        Fields { other: true, .. } => Err(BodyError::UnknownField),
        Fields { email, .. } => Ok(email),
    }
}

/// Extracts the email from a body in its most common form, `{"email":"…"}` without escapes. Takes a third of
/// the parser's time and returns the same result.
fn only_email(body: &[u8]) -> Option<&str> {
    let value = body.strip_prefix(br#"{"email":"#)?;
    let value = value.strip_prefix(b" ").unwrap_or(value);
    let email = value.strip_prefix(b"\"")?.strip_suffix(b"\"}")?;
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') & !matches!(byte, b'"' | b'\\');
    // Checks every byte without early exit so that the loop vectorizes.
    let are_plain = email.iter().fold(true, |all, byte| all & is_plain(byte));
    are_plain.then(|| std::str::from_utf8(email).ok())?
}

#[derive(Default)]
struct Fields<'a> {
    email: EmailField<'a>,
    /// The number of fields `email`.
    emails: usize,
    other: bool,
}

/// Accepts only objects. A derived `Deserialize` would also accept an array.
struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Fields::default();
        while let Some(Text(name)) = map.next_key()? {
            // `RawValue` accepts any JSON value, including numbers too large for any Rust type.
            let value: &RawValue = map.next_value()?;
            if name != "email" {
                fields.other = true;
            } else {
                fields.emails += 1;
                fields.email = string(value.get()).map_err(de::Error::custom)?;
            }
        }
        Ok(fields)
    }
}

/// Returns the string, or `None` if `value` is not a string. `value` is valid JSON, but its escapes may not
/// be Unicode.
fn string(value: &str) -> serde_json::Result<Option<Cow<'_, str>>> {
    if value.starts_with('"') { serde_json::from_str(value).map(|Text(text)| Some(text)) } else { Ok(None) }
}

/// A string, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use BodyError::{DuplicateField, Json, UnknownField};
    use proptest::prelude::*;

    #[test]
    fn reads_the_email_field() {
        assert_eq!(read(br#"{"email":"a@b.c"}"#), Ok(Some("a@b.c".into())));
        assert_eq!(read(b" { \"\\u0065mail\" : \"a\\u0040b.c\" }\r\n"), Ok(Some("a@b.c".into())));
        assert!(matches!(read(br#"{"email":"a@b.c"}"#), Ok(Some(Cow::Borrowed(_)))));
    }

    proptest! {
        /// A leading space disables the fast path, so that the parser reads the body.
        #[test]
        fn fast_path_agrees_with_the_parser(
            body in r#"\{"email":[ \n]?"([a-zA-Z0-9@. "\\\t\x7fé]|\\[n"\\]|", ?"){0,12}"?\}?"#,
        ) {
            let for_the_parser = format!(" {body}");
            prop_assert_eq!(read(body.as_bytes()), read(for_the_parser.as_bytes()));
        }
    }

    #[test]
    fn missing_or_non_string_email_is_not_a_body_error() {
        for body in [
            "{}",
            r#"{"email":null}"#,
            r#"{"email":true}"#,
            r#"{"email":-1}"#,
            r#"{"email":1}"#,
            r#"{"email":1.5e3}"#,
            r#"{"email":1e999}"#,
            r#"{"email":["a@b.c"]}"#,
            r#"{"email":{"email":"a@b.c"}}"#,
        ] {
            assert_eq!(read(body.as_bytes()), Ok(None), "{body}");
        }
    }

    #[test]
    fn unknown_field_takes_precedence_over_invalid_email() {
        for body in [
            r#"{"email":"a@b.c","name":"Ada"}"#,
            r#"{"name":"Ada"}"#,
            r#"{"email":1,"":[{}]}"#,
            r#"{"Email":"a@b.c"}"#,
            r#"{"email ":"a@b.c"}"#,
        ] {
            assert_eq!(read(body.as_bytes()), Err(UnknownField), "{body}");
        }
    }

    #[test]
    fn rejects_anything_but_one_json_object_in_utf8() {
        for body in [
            &b""[..],
            b" ",
            b"null",
            b"\"a@b.c\"",
            b"[\"a@b.c\"]",
            b"[]",
            b"{",
            b"{\"email\":\"a@b.c\"",
            b"{\"email\":\"a@b.c\"}}",
            b"{\"email\":\"a@b.c\"} {}",
            b"{\"email\":\"a@b.c\",}",
            b"{'email':'a@b.c'}",
            b"{email:\"a@b.c\"}",
            b"{\"email\":\"\xff@b.c\"}",
            b"{\"email\":[\"\xff\"]}",
            b"{\"email\":\"\\ud800\"}",
            b"{\"email\":\"a\nb\"}",
            b"{\"email\":\"\t\"}",
            b"{\"email\":\"\"\"}",
            b"{\"email\":\"\\\"}",
            b"{\"email\":01}",
            b"{\"email\":NaN}",
            b"\xef\xbb\xbf{\"email\":\"a@b.c\"}",
            b"{\"email\":\"a@b.c\"}\0",
        ] {
            assert_eq!(read(body), Err(Json), "{}", body.escape_ascii());
        }
        for body in ["{\"email\":\"a@b.c\",\"email\":\"a@b.c\"}", "{\"email\":1,\"x\":0,\"\\u0065mail\":2}"] {
            assert_eq!(read(body.as_bytes()), Err(DuplicateField), "{body}");
        }
    }

    #[test]
    fn deeply_nested_body_does_not_overflow_the_stack() {
        let nested = |deep: usize| format!("{{\"email\":{}{}}}", "[".repeat(deep), "]".repeat(deep));
        assert_eq!(read(nested(2_000).as_bytes()), Ok(None));
        assert_eq!(read(&nested(2_000).as_bytes()[..2_500]), Err(Json));
    }

    #[test]
    fn rejects_body_over_the_limit() {
        let padded = |bytes: usize| format!("{}{{}}", " ".repeat(bytes - 2));
        assert_eq!(read(padded(BODY_BYTES_MAX).as_bytes()), Ok(None));
        assert_eq!(read(padded(BODY_BYTES_MAX + 1).as_bytes()), Err(BodyError::TooLarge));
    }
}
