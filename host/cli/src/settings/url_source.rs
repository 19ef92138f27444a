//! A URL setting: the URL itself, or its location, because a URL may contain a password.

use std::fmt;
use std::path::Path;

use enrich_provider::{SecretSource, SettingError};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};

use crate::url::ServerUrl;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlSource {
    /// In the settings file itself.
    Here(ServerUrl),
    /// In an environment variable, or in another file that contains only the URL.
    Elsewhere(SecretSource),
}

impl UrlSource {
    #[must_use]
    pub fn beside(self, file: &Path) -> Self {
        match self {
            Self::Elsewhere(source) => Self::Elsewhere(source.relative_to(file)),
            here => here,
        }
    }

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
