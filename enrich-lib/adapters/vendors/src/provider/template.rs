//! Texts with placeholders: URLs, headers, and the strings of a JSON body.
//!
//! Values cannot inject syntax: they are percent-encoded in a URL, and a JSON body is filled in as a tree of
//! values before it is serialized.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

/// A placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placeholder {
    /// The email as the client sent it, in lower case.
    Email,
    /// The SHA-256 of [`Placeholder::Email`], as 64 lower-case hex digits.
    EmailSha256,
    /// The API key.
    Secret,
}

/// The values of the placeholders.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    pub(crate) email: &'a str,
    pub(crate) email_sha256: &'a str,
    pub(crate) secret: &'a str,
}

/// A text with placeholders.
#[derive(Clone, PartialEq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, PartialEq)]
enum Part {
    Text(String),
    Placeholder(Placeholder),
}

impl Placeholder {
    pub(crate) const ALL: [Self; 3] = [Self::Email, Self::EmailSha256, Self::Secret];

    const fn name(self) -> &'static str {
        match self {
            Self::Email => "{email}",
            Self::EmailSha256 => "{email_sha256}",
            Self::Secret => "{secret}",
        }
    }
}

impl Values<'_> {
    const fn of(&self, place: Placeholder) -> &str {
        match place {
            Placeholder::Email => self.email,
            Placeholder::EmailSha256 => self.email_sha256,
            Placeholder::Secret => self.secret,
        }
    }
}

impl Template {
    /// Parses a text that may contain `places`. A brace that is not part of one is an error.
    pub(crate) fn parse(mut text: &str, places: &[Placeholder]) -> Result<Self, String> {
        let mut parts = Vec::new();
        while let Some(at) = text.find(['{', '}']) {
            let place = places.iter().find(|place| text[at..].starts_with(place.name()));
            let place = place.ok_or_else(|| {
                let names: Vec<_> = places.iter().map(|place| place.name()).collect();
                format!("has an unknown placeholder; use one of {}", names.join(", "))
            })?;
            parts.extend([Part::Text(text[..at].to_owned()), Part::Placeholder(*place)]);
            text = &text[at + place.name().len()..];
        }
        parts.push(Part::Text(text.to_owned()));
        Ok(Self(parts))
    }

    /// Returns whether the text contains `place`.
    pub(crate) fn has(&self, place: Placeholder) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Placeholder(p) if *p == place))
    }

    /// Returns the text with each value inserted unchanged.
    pub(crate) fn fill(&self, values: &Values<'_>) -> String {
        self.fill_with(values, String::push_str)
    }

    /// Returns the text with each value percent-encoded.
    pub(crate) fn fill_url(&self, values: &Values<'_>) -> String {
        self.fill_with(values, push_percent_encoded)
    }

    fn fill_with(&self, values: &Values<'_>, push: fn(&mut String, &str)) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Placeholder(place) => push(&mut text, values.of(*place)),
            }
        }
        text
    }
}

/// All but the unreserved characters of RFC 3986 (2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn push_percent_encoded(text: &mut String, value: &str) {
    text.extend(utf8_percent_encode(value, RESERVED));
}

/// A JSON body with placeholders in its strings.
#[derive(Clone, PartialEq)]
pub(crate) enum JsonTemplate {
    Text(Template),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
    Other(Value),
}

impl JsonTemplate {
    /// Parses JSON with placeholders in string values. Placeholders in object keys are an error.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // The parser's own message could quote the text.
        let value = serde_json::from_str(text)
            .map_err(|e| format!("is not valid JSON (line {}, column {})", e.line(), e.column()))?;
        Self::of(value)
    }

    fn of(value: Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::parse(&text, &Placeholder::ALL)?),
            Value::Array(items) => Self::Array(items.into_iter().map(Self::of).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| {
                    if name.contains(['{', '}']) {
                        return Err(
                            "has a placeholder in an object key; use placeholders only in string values"
                                .to_owned(),
                        );
                    }
                    Ok((name, Self::of(value)?))
                });
                Self::Object(fields.collect::<Result<_, _>>()?)
            }
            other => Self::Other(other),
        })
    }

    /// Returns whether one of its strings contains `place`.
    pub(crate) fn has(&self, place: Placeholder) -> bool {
        match self {
            Self::Text(text) => text.has(place),
            Self::Array(items) => items.iter().any(|item| item.has(place)),
            Self::Object(fields) => fields.iter().any(|(_, value)| value.has(place)),
            Self::Other(_) => false,
        }
    }

    /// Returns the body with all placeholders filled in.
    pub(crate) fn fill(&self, values: &Values<'_>) -> Value {
        match self {
            Self::Text(text) => Value::String(text.fill(values)),
            Self::Array(items) => items.iter().map(|item| item.fill(values)).collect(),
            Self::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.clone(), value.fill(values)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            Self::Other(value) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;
    use proptest::prelude::*;

    /// Generates emails with quoted and unquoted local parts. The domain is fixed, as it cannot contain
    /// special characters.
    fn emails() -> impl Strategy<Value = String> {
        let plain = r"[a-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
        let quoted = r#""([ !#-\[\]-~]|\\[ -~]){0,20}""#;
        prop_oneof![plain, quoted, "[é{}&?#\"\\\\]{1,9}"].prop_map(|local| format!("{local}@example.org"))
    }

    fn values<'a>(email: &'a str, secret: &'a str) -> Values<'a> {
        Values { email, email_sha256: "00", secret }
    }

    fn decoded(text: &str) -> String {
        percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned()
    }

    proptest! {
        #[test]
        fn values_cannot_inject_url_syntax(email in emails(), secret in "[ -~]{1,20}") {
            let text = "https://api.example/v1/{secret}/of?first=1&email={email}&last=2";
            let template = Template::parse(text, &Placeholder::ALL).unwrap();
            let uri: Uri = template.fill_url(&values(&email, &secret)).parse().unwrap();
            prop_assert_eq!(uri.host(), Some("api.example"));
            let path: Vec<_> = uri.path().split('/').collect();
            prop_assert_eq!((path.len(), decoded(path[2])), (4, secret));
            let query: Vec<_> = uri.query().unwrap().split('&').collect();
            prop_assert_eq!((query.len(), query[0], query[2]), (3, "first=1", "last=2"));
            prop_assert_eq!(decoded(query[1].strip_prefix("email=").unwrap()), email);
        }

        #[test]
        fn values_cannot_inject_json_syntax(email in emails(), secret in any::<String>()) {
            let text = r#"{"a": [{"email": "<{email}>"}], "key": "{secret}", "n": 1}"#;
            let template = JsonTemplate::parse(text).unwrap();
            let body = template.fill(&values(&email, &secret)).to_string();
            let read: Value = serde_json::from_str(&body).unwrap();
            let meant = serde_json::json!({
                "a": [{ "email": format!("<{email}>") }],
                "key": secret,
                "n": 1,
            });
            prop_assert_eq!(read, meant);
        }
    }
}
