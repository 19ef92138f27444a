//! Parsing of a vendor's answer into a profile or "no trusted match".
//!
//! Answers are untrusted input. An answer that does not match the description is an error, never "no match".

use std::mem::discriminant;

use enrich_lib::model::{ProfileUrl, ProfileUrlError};
use enrich_lib::resolver::VendorErrorKind;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::pointer::{Found, Pointer};

/// Where the values are in an answer, and which values are accepted.
#[derive(Clone, PartialEq)]
pub(crate) struct AnswerShape {
    /// Candidates. The first one that is present counts.
    pub(crate) profile: Vec<Pointer>,
    pub(crate) form: ProfileForm,
    pub(crate) confidence: Option<Confidence>,
    pub(crate) untrusted_if: Vec<(Pointer, Value)>,
    /// Values with which a vendor reports a failure in an answer.
    pub(crate) failed_if: Vec<Pointer>,
}

/// The format of the profile value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProfileForm {
    /// A URL.
    #[default]
    Url,
    /// A URL, or its last part: `ada-marlowe` or `in/ada-marlowe`.
    UrlOrName,
}

/// The minimum confidence of a match.
#[derive(Clone, PartialEq)]
pub(crate) struct Confidence {
    pub(crate) at: Pointer,
    pub(crate) scale: Scale,
    /// From 0 to 1, independent of the scale.
    pub(crate) min: f64,
}

/// The scale of the vendor's confidence values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Scale {
    #[default]
    #[serde(rename = "0-1")]
    One,
    /// A value of 8 is 0.8.
    #[serde(rename = "1-10")]
    Ten,
    #[serde(rename = "0-100")]
    Hundred,
}

/// Why an answer is invalid. It contains the position or the pointer, never the value.
#[derive(Debug, Error)]
pub(crate) enum AnswerError {
    #[error("the response is not valid JSON (line {line}, column {column})")]
    Json { line: usize, column: usize },
    #[error("the response has no {at}, because a value before it has another type")]
    Mismatch { at: String },
    #[error("the response has {at}, with which the vendor reports a failure")]
    Failed { at: String },
    #[error("{at} is neither a string nor null")]
    NotText { at: String },
    #[error("{at} is not a profile URL: {error}")]
    NotProfile { at: String, error: ProfileUrlError },
    #[error("{at} is the URL of no person, such as `/in/null`")]
    NamesNobody { at: String },
    #[error("{at} is not a number on the scale")]
    NotConfidence { at: String },
    #[error("{at} has another type than the value of `is` in `untrusted_if`")]
    NotComparable { at: String },
}

impl AnswerError {
    /// Returns whether the response is invalid, or only its values about one person are unusable.
    pub(crate) fn kind(&self) -> VendorErrorKind {
        match self {
            Self::Json { .. } | Self::Mismatch { .. } => VendorErrorKind::InvalidResponse,
            _ => VendorErrorKind::UnusableAnswer,
        }
    }
}

impl AnswerShape {
    /// Reads the body of a 200. Returns `None` if there is no trusted match.
    pub(crate) fn read(&self, body: &[u8]) -> Result<Option<ProfileUrl>, AnswerError> {
        let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        for pointer in &self.failed_if {
            if has_failure(pointer, body)? {
                return Err(AnswerError::Failed { at: pointer.as_str().to_owned() });
            }
        }
        let Some(profile) = self.profile(body)? else { return Ok(None) };
        Ok(self.is_trusted(body)?.then_some(profile))
    }

    fn profile(&self, body: &[u8]) -> Result<Option<ProfileUrl>, AnswerError> {
        for pointer in &self.profile {
            let at = || pointer.as_str().to_owned();
            match value(pointer, body)? {
                None | Some(Ok(Value::Null)) => {}
                Some(Ok(Value::String(text))) if text.trim().is_empty() => {}
                Some(Ok(Value::String(text))) => {
                    let profile = self.form.parse(text.trim());
                    let profile = profile.map_err(|error| AnswerError::NotProfile { at: at(), error })?;
                    if profile.names_nobody() {
                        return Err(AnswerError::NamesNobody { at: at() });
                    }
                    return Ok(Some(profile));
                }
                Some(_) => return Err(AnswerError::NotText { at: at() }),
            }
        }
        Ok(None)
    }

    fn is_trusted(&self, body: &[u8]) -> Result<bool, AnswerError> {
        for (pointer, doubt) in &self.untrusted_if {
            let is_doubtful = match (value(pointer, body)?, doubt) {
                (None | Some(Ok(Value::Null)), _) => false,
                (Some(Ok(Value::Number(number))), Value::Number(doubt)) => number.as_f64() == doubt.as_f64(),
                (Some(Ok(value)), doubt) if discriminant(&value) == discriminant(doubt) => value == *doubt,
                _ => return Err(AnswerError::NotComparable { at: pointer.as_str().to_owned() }),
            };
            if is_doubtful {
                return Ok(false);
            }
        }
        let Some(Confidence { at, scale, min }) = &self.confidence else { return Ok(true) };
        let number = value(at, body)?.and_then(Result::ok).as_ref().and_then(Value::as_f64);
        number
            .and_then(|number| scale.confidence(number))
            .map(|confidence| confidence >= *min)
            .ok_or_else(|| AnswerError::NotConfidence { at: at.as_str().to_owned() })
    }
}

/// Some servers send it before UTF-8. A parser may ignore it (RFC 8259, 8.1).
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns the value at a pointer, if there is one. It cannot be parsed if it is a number or a string that
/// Rust cannot represent.
fn value(pointer: &Pointer, body: &[u8]) -> Result<Option<serde_json::Result<Value>>, AnswerError> {
    // The parser's own message could quote the text.
    let found = pointer.find(body).map_err(|e| AnswerError::Json { line: e.line(), column: e.column() })?;
    match found {
        Found::Nothing => Ok(None),
        Found::Value(value) => Ok(Some(serde_json::from_str(value.get()))),
        Found::Mismatch => Err(AnswerError::Mismatch { at: pointer.as_str().to_owned() }),
    }
}

/// Returns whether there is a value other than null, false, and an empty string, array or object, which
/// vendors send beside a result.
fn has_failure(pointer: &Pointer, body: &[u8]) -> Result<bool, AnswerError> {
    Ok(match value(pointer, body)? {
        None | Some(Ok(Value::Null | Value::Bool(false))) => false,
        Some(Ok(Value::String(text))) => !text.is_empty(),
        Some(Ok(Value::Array(list))) => !list.is_empty(),
        Some(Ok(Value::Object(members))) => !members.is_empty(),
        Some(_) => true,
    })
}

impl ProfileForm {
    fn parse(self, text: &str) -> Result<ProfileUrl, ProfileUrlError> {
        let name = match self {
            Self::Url => None,
            Self::UrlOrName if text.contains('/') => text.strip_prefix("in/"),
            Self::UrlOrName => Some(text),
        };
        name.map_or_else(|| ProfileUrl::parse(text), ProfileUrl::from_name)
    }
}

impl Scale {
    fn confidence(self, number: f64) -> Option<f64> {
        let (min, max) = match self {
            Self::One => (0.0, 1.0),
            Self::Ten => (1.0, 10.0),
            Self::Hundred => (0.0, 100.0),
        };
        (min..=max).contains(&number).then(|| number / max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shape() -> AnswerShape {
        AnswerShape {
            profile: vec![Pointer::parse("/a/url").unwrap(), Pointer::parse("/list/0").unwrap()],
            form: ProfileForm::Url,
            confidence: None,
            untrusted_if: Vec::new(),
            failed_if: Vec::new(),
        }
    }

    /// Returns the profile's name or the error message.
    fn read(shape: &AnswerShape, answer: &Value) -> Result<Option<String>, String> {
        let profile = shape.read(answer.to_string().as_bytes()).map_err(|error| error.to_string())?;
        Ok(profile.map(|profile| profile.name().to_owned()))
    }

    #[test]
    fn uses_first_present_candidate() {
        let ada = Ok(Some("ada".to_owned()));
        for answer in [
            json!({"a": {"url": "https://www.linkedin.com/in/ada"}}),
            json!({"a": {"url": "de.linkedin.com/in/ada/?trk=1"}, "list": ["linkedin.com/in/bob"]}),
            json!({"a": {"url": null}, "list": [" http://linkedin.com/in/ada/ "]}),
            json!({"a": {"url": ""}, "list": ["linkedin.com/in/ada"]}),
            json!({"a": [], "list": ["linkedin.com/in/ada", 7]}),
        ] {
            assert_eq!(read(&shape(), &answer), ada, "{answer}");
        }
    }

    #[test]
    fn null_missing_and_empty_are_no_match() {
        for answer in [
            json!({}),
            json!({"a": null}),
            json!({"a": {"url": null}}),
            json!({"a": {"url": " "}, "list": []}),
        ] {
            assert_eq!(read(&shape(), &answer), Ok(None), "{answer}");
        }
    }

    #[test]
    fn answer_of_another_type_is_never_no_match() {
        for answer in
            [json!(null), json!([]), json!([1]), json!("x"), json!(1), json!({"a": "x"}), json!({"a": [1]})]
        {
            let fails = AnswerShape { failed_if: shape().profile, profile: Vec::new(), ..shape() };
            for shape in [shape(), fails] {
                let error = read(&shape, &answer).unwrap_err();
                assert_eq!(error, "the response has no /a/url, because a value before it has another type");
            }
        }
    }

    #[test]
    fn answer_with_a_failure_is_no_answer() {
        let shape = AnswerShape { failed_if: vec![Pointer::parse("/error").unwrap()], ..shape() };
        let with = |error: &str| {
            shape.read(format!(r#"{{"error": {error}, "list": ["linkedin.com/in/ada"]}}"#).as_bytes())
        };
        for none in ["null", "false", "\"\"", "[ ]", "{}"] {
            assert!(with(none).unwrap().is_some(), "{none}");
        }
        for failure in ["true", "0", "\"quota\"", "{\"code\": 7}", "[\"\"]", "\"\\ud800\"", "1e999"] {
            let error = with(failure).unwrap_err().to_string();
            assert_eq!(
                error, "the response has /error, with which the vendor reports a failure",
                "{failure}"
            );
        }
        assert!(shape.read(b"{}").unwrap().is_none());
    }

    #[test]
    fn rejects_other_values_in_place_of_profile() {
        for profile in [
            json!("https://evil.example/in/ada"),
            json!("https://www.linkedin.com/company/ada"),
            json!("javascript:alert(1)//linkedin.com/in/ada"),
            json!("ada"),
            json!("n/a"),
            json!(7),
            json!(false),
            json!({"url": "https://www.linkedin.com/in/ada"}),
            json!(["https://www.linkedin.com/in/ada"]),
        ] {
            let error = read(&shape(), &json!({"a": {"url": profile}})).unwrap_err();
            assert!(error.starts_with("/a/url is n") && !error.contains("ada"), "{error}");
        }
    }

    #[test]
    fn accepts_profile_names_if_configured() {
        let shape = AnswerShape { form: ProfileForm::UrlOrName, ..shape() };
        for text in ["ada", "in/ada", "linkedin.com/in/ada", "https://uk.linkedin.com/in/ada/"] {
            assert_eq!(read(&shape, &json!({"a": {"url": text}})), Ok(Some("ada".to_owned())), "{text}");
        }
        for text in ["company/ada", "in/ada/x", "a d a", "linkedin.com", "../ada"] {
            assert!(read(&shape, &json!({"a": {"url": text}})).is_err(), "{text}");
        }
    }

    #[test]
    fn trusts_match_from_minimum_confidence() {
        for (scale, below, enough) in [
            (Scale::One, json!(0.79), json!(0.8)),
            (Scale::Ten, json!(7), json!(8)),
            (Scale::Hundred, json!(79.9), json!(80)),
        ] {
            let confidence = Confidence { at: Pointer::parse("/c").unwrap(), scale, min: 0.8 };
            let shape = AnswerShape { confidence: Some(confidence), ..shape() };
            let with = |c: &Value| read(&shape, &json!({"c": c, "list": ["linkedin.com/in/ada"]}));
            assert_eq!(with(&below), Ok(None), "{scale:?}");
            assert_eq!(with(&enough), Ok(Some("ada".to_owned())), "{scale:?}");
            // Without a profile, the confidence is not read.
            assert_eq!(read(&shape, &json!({})), Ok(None));
            for c in [json!(null), json!("9"), json!(-1), json!(101), json!(true)] {
                assert_eq!(with(&c), Err("/c is not a number on the scale".to_owned()), "{scale:?} {c}");
            }
        }
    }

    #[test]
    fn untrusted_match_is_no_match() {
        for (is, doubtful, trusted, invalid) in [
            (json!(true), ["true", "true"], ["false", "null"], ["\"true\"", "1"]),
            (json!(1), ["1", "1.0"], ["0", "1.5"], ["\"1\"", "1e999"]),
            (json!("guess"), ["\"guess\"", "\"gu\\u0065ss\""], ["\"\"", "\"Guess\""], ["[]", "\"\\ud800\""]),
        ] {
            let shape =
                AnswerShape { untrusted_if: vec![(Pointer::parse("/fuzzy").unwrap(), is)], ..shape() };
            let with = |fuzzy: &str| {
                let answer = format!(r#"{{"fuzzy": {fuzzy}, "list": ["linkedin.com/in/ada"]}}"#);
                shape.read(answer.as_bytes()).map(|profile| profile.is_some()).ok()
            };
            assert_eq!(doubtful.map(with), [Some(false); 2], "{doubtful:?}");
            assert_eq!(trusted.map(with), [Some(true); 2], "{trusted:?}");
            assert_eq!(invalid.map(with), [None; 2], "{invalid:?}");
        }
    }
}
