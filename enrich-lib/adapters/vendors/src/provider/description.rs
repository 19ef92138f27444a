//! The description of a vendor in TOML: requests, the meaning of answers, and billing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::answer::{AnswerShape, Confidence, ProfileForm, Scale};
use super::parse::parse_toml;
use super::pointer::Pointer;
use super::request::RequestShape;
use super::secret::SecretSource;
use super::setting::SettingError;
use super::status::Statuses;

/// The description of a vendor: requests, the meaning of answers, and billing.
///
/// It is parsed from TOML and validated, either alone by [`Description::parse`] or as a part of another file
/// by serde. In the second case, the parser of that file reports mistakes and may show the line. Its `Debug`
/// shows only the name.
#[derive(Clone, derive_more::Debug, PartialEq, Deserialize)]
#[debug("Description {{ name: {name:?}, .. }}")]
#[serde(try_from = "Settings")]
pub struct Description {
    pub(crate) name: Arc<str>,
    pub(crate) request: RequestShape,
    pub(crate) secret: Option<SecretSource>,
    pub(crate) answer: AnswerShape,
    pub(crate) statuses: Statuses,
    bills: Bills,
    limits: Limits,
}

/// Which requests a vendor bills. Exhaustive: a caller that adds up costs must handle a further kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bills {
    /// All requests. A lookup at two such vendors is billed by both.
    Requests,
    /// Only matches.
    Matches,
}

/// Limits on the requests to a vendor. A [`Provider`](super::Provider) enforces only the deadline; the
/// middleware around it enforces the rest, if its [policy](crate::middleware::VendorPolicy) is made from the
/// description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Deadline of one exchange, from connecting to the last byte of the answer: 1 to 20,000 ms.
    pub deadline_ms: u64,
    /// Maximum number of concurrent requests: 1 to 1,000.
    pub concurrency: usize,
    /// Maximum number of requests for one lookup, if they fail in a way that is safe to repeat: 1 to 5.
    pub tries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { deadline_ms: 8_000, concurrency: 16, tries: 2 }
    }
}

impl Description {
    /// Parses and validates a description. Does not load the key. An error has its line.
    pub fn parse(text: &str) -> Result<Self, SettingError> {
        Self::try_from(parse_toml::<Settings>(text)?).map_err(|error| error.on_its_line(text))
    }

    /// Reads and validates the description in a file. A relative path of the key is resolved against the
    /// file's directory.
    pub fn read(path: &Path) -> Result<Self, SettingError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| SettingError::new("", error.to_string()).in_file(path))?;
        let description = Self::parse(&text).map_err(|error| error.in_file(path))?;
        let secret = description.secret.map(|source| source.relative_to(path));
        Ok(Self { secret, ..description })
    }

    /// Returns the vendor's name, as it appears in logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns which requests the vendor bills.
    pub const fn bills(&self) -> Bills {
        self.bills
    }

    /// Returns the limits on requests to the vendor.
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the deadline of one exchange.
    pub const fn deadline(&self) -> Duration {
        Duration::from_millis(self.limits.deadline_ms)
    }

    /// Returns the source of the vendor's key, or `None` if the vendor uses none.
    pub const fn secret(&self) -> Option<&SecretSource> {
        self.secret.as_ref()
    }

    /// Returns the same description with other limits.
    pub fn with_limits(self, limits: Limits) -> Result<Self, SettingError> {
        limits.check().map(|()| Self { limits, ..self })
    }

    /// Returns the same description with another source of the key. Has no effect on a vendor that uses no
    /// key.
    pub fn with_secret(self, source: SecretSource) -> Result<Self, SettingError> {
        check_secret(&source)?;
        Ok(Self { secret: self.secret.is_some().then_some(source), ..self })
    }
}

/// The settings as written, before validation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    name: String,
    bills: Bills,
    request: RequestSettings,
    secret: Option<SecretSource>,
    answer: AnswerSettings,
    #[serde(default)]
    statuses: Statuses,
    #[serde(default)]
    limits: Limits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestSettings {
    method: MethodSetting,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum MethodSetting {
    Get,
    Post,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerSettings {
    profile: Vec<String>,
    #[serde(default)]
    profile_is: ProfileForm,
    confidence: Option<ConfidenceSettings>,
    #[serde(default)]
    untrusted_if: Vec<DoubtSettings>,
    #[serde(default)]
    failed_if: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfidenceSettings {
    at: String,
    #[serde(default)]
    scale: Scale,
    min: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DoubtSettings {
    at: String,
    is: Value,
}

impl TryFrom<Settings> for Description {
    type Error = SettingError;

    fn try_from(settings: Settings) -> Result<Self, SettingError> {
        let Settings { name, bills, request, secret, answer, statuses, limits } = settings;
        check_name(&name)?;
        if let Some(source) = &secret {
            check_secret(source)?;
        }
        let method = match request.method {
            MethodSetting::Get => Method::GET,
            MethodSetting::Post => Method::POST,
        };
        let request = RequestShape::new(method, &request.url, &request.headers, request.body.as_deref());
        let request = request.map_err(|(setting, why)| SettingError::new(setting, why))?;
        if request.takes_secret() != secret.is_some() {
            let why = "must be set if and only if the request contains {secret}";
            return Err(SettingError::new("secret", why));
        }
        let answer = answer.check()?;
        statuses.check().map_err(|(setting, why)| SettingError::new(setting, why))?;
        limits.check()?;
        Ok(Self { name: name.into(), request, secret, answer, statuses, bills, limits })
    }
}

fn check_name(name: &str) -> Result<(), SettingError> {
    let is_name = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(is_name) {
        Ok(())
    } else {
        Err(SettingError::new("name", "must be 1 to 64 lower-case letters, digits or dashes"))
    }
}

fn check_secret(source: &SecretSource) -> Result<(), SettingError> {
    let why = match source {
        SecretSource::Env(name) => {
            let is_name = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
            let starts_well = !name.starts_with(|c: char| c.is_ascii_digit());
            (name.is_empty() || !starts_well || !name.bytes().all(is_name))
                .then_some(("secret.env", "must be the name of an environment variable"))
        }
        SecretSource::File(path) => {
            path.as_os_str().is_empty().then_some(("secret.file", "must be the path of a file"))
        }
    };
    why.map_or(Ok(()), |(setting, why)| Err(SettingError::new(setting, why)))
}

fn check_confidence_min(min: f64) -> Result<(), SettingError> {
    if (0.0..=1.0).contains(&min) {
        Ok(())
    } else {
        Err(SettingError::new(
            "answer.confidence.min",
            "must be from 0 to 1, independent of the vendor's scale",
        ))
    }
}

impl AnswerSettings {
    fn check(self) -> Result<AnswerShape, SettingError> {
        let pointer =
            |setting: &str, text: &str| Pointer::parse(text).map_err(|why| SettingError::new(setting, why));
        if self.profile.is_empty() {
            return Err(SettingError::new("answer.profile", "must have at least one JSON pointer"));
        }
        let profile = self.profile.iter().map(|text| pointer("answer.profile", text));
        let confidence = self.confidence.map(|ConfidenceSettings { at, scale, min }| {
            check_confidence_min(min)?;
            Ok(Confidence { at: pointer("answer.confidence.at", &at)?, scale, min })
        });
        let untrusted_if = self.untrusted_if.into_iter().map(|DoubtSettings { at, is }| {
            if is.is_array() || is.is_object() || is.is_null() {
                let why = "must be true, false, a number or a string";
                return Err(SettingError::new("answer.untrusted_if.is", why));
            }
            Ok((pointer("answer.untrusted_if.at", &at)?, is))
        });
        let failed_if = self.failed_if.iter().map(|text| pointer("answer.failed_if", text));
        Ok(AnswerShape {
            profile: profile.collect::<Result<_, _>>()?,
            form: self.profile_is,
            confidence: confidence.transpose()?,
            untrusted_if: untrusted_if.collect::<Result<_, _>>()?,
            failed_if: failed_if.collect::<Result<_, _>>()?,
        })
    }
}

impl Limits {
    fn check(&self) -> Result<(), SettingError> {
        let ranges = [
            // A lookup must end before its hold expires.
            ("limits.deadline_ms", self.deadline_ms, 20_000),
            ("limits.concurrency", self.concurrency as u64, 1_000),
            ("limits.tries", self.tries.into(), 5),
        ];
        match ranges.into_iter().find(|(_, value, max)| !(1..=*max).contains(value)) {
            Some((setting, _, max)) => Err(SettingError::new(setting, format!("must be from 1 to {max}"))),
            None => Ok(()),
        }
    }
}
