//! The request body (specification 2.1): one JSON object with one field, `email`.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use thiserror::Error;

/// The longest request body, in bytes (decided; specification 8.6 leaves it open).
pub const BODY_BYTES_MAX: usize = 4_096;

/// The body as the server gathered it: its bytes, or why there are none.
pub type Body = Result<Bytes, BodyFault>;

/// Why a body is invalid: all of them are answered with 400 `invalid_request`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BodyFault {
    /// The HTTP around it is broken, or asks for another path or method.
    #[error("the HTTP request is malformed")]
    Http,
    /// The content type is missing or not `application/json` (specification 2.1, rule 2).
    #[error("the content type is not application/json")]
    ContentType,
    /// More than [`BODY_BYTES_MAX`].
    #[error("the body is longer than 4096 bytes")]
    TooLarge,
    /// The connection ended inside the body.
    #[error("the body was cut off")]
    CutOff,
    /// The body did not arrive in time.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// Not one JSON object in UTF-8, or with a field twice.
    #[error("the body is not one JSON object")]
    Json,
    /// A field other than `email` (specification 2.1, rule 1).
    #[error("the body has a field other than email")]
    UnknownField,
}

/// The value of the `email` field: `None` if it is missing or no string.
pub type EmailField<'a> = Option<Cow<'a, str>>;

/// Reads the body. A field other than `email` wins over whatever is wrong with `email`.
pub fn read(bytes: &[u8]) -> Result<EmailField<'_>, BodyFault> {
    // Checked first as a whole: the parser skips over ignored strings without a look at their UTF-8.
    let text = std::str::from_utf8(bytes).map_err(|_| BodyFault::Json)?;
    let mut json = serde_json::Deserializer::from_str(text);
    let fields = json.deserialize_any(FieldsVisitor).map_err(|_| BodyFault::Json)?;
    json.end().map_err(|_| BodyFault::Json)?;
    if fields.other { Err(BodyFault::UnknownField) } else { Ok(fields.email) }
}

#[derive(Default)]
struct Fields<'a> {
    email: EmailField<'a>,
    other: bool,
}

/// Accepts objects only: a derived struct would accept a JSON array too.
struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Fields::default();
        // The names of unknown fields are not kept, so a field twice is looked for by name only among `email`;
        // a body with any other field is refused all the same.
        let mut has_email = false;
        while let Some(Text(name)) = map.next_key()? {
            if name != "email" {
                map.next_value::<IgnoredAny>()?;
                fields.other = true;
            } else if has_email {
                return Err(de::Error::duplicate_field("email"));
            } else {
                fields.email = map.next_value::<MaybeText<'de>>()?.0;
                has_email = true;
            }
        }
        Ok(fields)
    }
}

/// A string, borrowed where it has no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> de::Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let MaybeText(text) = json.deserialize_str(MaybeTextVisitor)?;
        text.map(Text).ok_or_else(|| de::Error::custom("not a string"))
    }
}

/// A string, or `None` for any other JSON value.
struct MaybeText<'a>(Option<Cow<'a, str>>);

impl<'de> de::Deserialize<'de> for MaybeText<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(MaybeTextVisitor)
    }
}

struct MaybeTextVisitor;

impl<'de> Visitor<'de> for MaybeTextVisitor {
    type Value = MaybeText<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(MaybeText(Some(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(MaybeText(Some(Cow::Owned(text.to_owned()))))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(MaybeText(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(MaybeText(None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(MaybeText(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(MaybeText(None))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(MaybeText(None))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(MaybeText(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(MaybeText(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BodyFault::{Json, UnknownField};

    #[test]
    fn reads_the_email_field() {
        assert_eq!(read(br#"{"email":"a@b.c"}"#), Ok(Some("a@b.c".into())));
        assert_eq!(read(b" { \"\\u0065mail\" : \"a\\u0040b.c\" }\r\n"), Ok(Some("a@b.c".into())));
        assert!(matches!(read(br#"{"email":"a@b.c"}"#), Ok(Some(Cow::Borrowed(_)))));
    }

    #[test]
    fn a_missing_email_or_one_that_is_no_string_is_left_to_the_email_check() {
        for body in [
            "{}",
            r#"{"email":null}"#,
            r#"{"email":true}"#,
            r#"{"email":-1}"#,
            r#"{"email":1}"#,
            r#"{"email":1.5e3}"#,
            r#"{"email":["a@b.c"]}"#,
            r#"{"email":{"email":"a@b.c"}}"#,
        ] {
            assert_eq!(read(body.as_bytes()), Ok(None), "{body}");
        }
    }

    #[test]
    fn an_unknown_field_wins_over_a_wrong_email() {
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
    fn refuses_whatever_is_not_one_json_object_in_utf8() {
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
            b"{\"email\":\"a@b.c\",\"email\":\"a@b.c\"}",
            b"{\"email\":1,\"\\u0065mail\":2}",
            b"{'email':'a@b.c'}",
            b"{email:\"a@b.c\"}",
            b"{\"email\":\"\xff@b.c\"}",
            b"{\"email\":[\"\xff\"]}",
            b"{\"email\":\"\\ud800\"}",
            b"{\"email\":\"a\nb\"}",
            b"{\"email\":01}",
            b"{\"email\":NaN}",
            b"\xef\xbb\xbf{\"email\":\"a@b.c\"}",
            b"{\"email\":\"a@b.c\"}\0",
        ] {
            assert_eq!(read(body), Err(Json), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn a_body_nested_as_deeply_as_its_size_allows_is_refused_and_not_overflowed() {
        let deep = format!("{{\"email\":{}", "[".repeat(BODY_BYTES_MAX));
        assert_eq!(read(deep.as_bytes()), Err(Json));
    }
}
