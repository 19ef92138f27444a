//! A URL setting: the URL itself, or its location, because a URL may contain a password.

use std::borrow::Cow;
use std::fmt;

use enrich_provider::{SecretSource, SettingError};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::url::ServerUrl;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlSource {
    /// In the settings file itself.
    Here(ServerUrl),
    /// In an environment variable, or in another file that contains only the URL.
    Elsewhere(SecretSource),
}

impl UrlSource {
    /// Returns the environment variable with the URL.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Elsewhere(SecretSource::Env(name)) => Some(name),
            _ => None,
        }
    }

    /// Loads the URL of `setting`. Errors name its location and never quote it.
    pub fn load(&self, setting: &str) -> Result<ServerUrl, SettingError> {
        match self {
            Self::Here(url) => Ok(url.clone()),
            Self::Elsewhere(source) => {
                let secret = source.load().map_err(|error| SettingError::new(setting, error.to_string()))?;
                secret.reveal().parse().map_err(|never| match never {})
            }
        }
    }
}

/// Implemented by hand, because errors of a derived implementation would quote the URL.
impl<'de> Deserialize<'de> for UrlSource {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UrlOrTable;

        impl<'de> Visitor<'de> for UrlOrTable {
            type Value = UrlSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL, { env = \"NAME\" } or { file = \"PATH\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<UrlSource, E> {
                text.parse().map(UrlSource::Here).map_err(|never| match never {})
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<UrlSource, A::Error> {
                SecretSource::deserialize(MapAccessDeserializer::new(map)).map(UrlSource::Elsewhere)
            }
        }

        deserializer.deserialize_any(UrlOrTable)
    }
}

/// Without the password.
impl Serialize for UrlSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Here(url) => serializer.collect_str(url),
            Self::Elsewhere(source) => serialize_source(source, serializer),
        }
    }
}

impl JsonSchema for UrlSource {
    fn schema_name() -> Cow<'static, str> {
        "UrlSource".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "object"] })
    }
}

/// Serializes the location of a secret.
pub fn serialize_secret<S: Serializer>(
    source: &Option<SecretSource>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match source {
        Some(source) => serialize_source(source, serializer),
        None => serializer.serialize_none(),
    }
}

pub fn secret_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["object", "null"] })
}

fn serialize_source<S: Serializer>(source: &SecretSource, serializer: S) -> Result<S::Ok, S::Error> {
    match source {
        SecretSource::Env(name) => serializer.collect_map([("env", name.as_str())]),
        SecretSource::File(path) => serializer.collect_map([("file", &path.display().to_string())]),
    }
}
