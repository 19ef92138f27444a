//! A setting with a secret, such as a URL with a password: its text, or the location of the text.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use enrich_store::parse_people_key;
use enrich_vendors::provider::{SecretSource, SettingError};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};

use crate::url::ServerUrl;

/// The source of a text. `Display` of the text hides what is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextSource<T> {
    /// In the settings file itself, or in the variable of the setting.
    Here(T),
    /// In an environment variable, or in another file that contains only the text.
    Elsewhere(SecretSource),
}

pub type UrlSource = TextSource<ServerUrl>;

/// The key of the hashes of emails. `Display` and `Debug` hide it.
#[derive(Clone, Copy, derive_more::Debug, PartialEq, Eq)]
#[debug("PeopleKey(…)")]
pub struct PeopleKey(pub [u8; 16]);

impl FromStr for PeopleKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let error = "must be 32 hexadecimal digits; `openssl rand -hex 16` prints a new key";
        parse_people_key(text).map(Self).ok_or(error)
    }
}

impl Display for PeopleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl<T: Clone + FromStr<Err: Display>> TextSource<T> {
    /// Returns the environment variable with the text.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Elsewhere(SecretSource::Env(name)) => Some(name),
            _ => None,
        }
    }

    /// Loads the text of `setting`. Errors name its location and never quote it.
    pub fn load(&self, setting: &str) -> Result<T, SettingError> {
        match self {
            Self::Here(text) => Ok(text.clone()),
            Self::Elsewhere(source) => {
                let secret = source.load().map_err(|error| SettingError::new(setting, error.to_string()))?;
                secret.reveal().parse().map_err(|why: T::Err| SettingError::new(setting, why.to_string()))
            }
        }
    }
}

/// Implemented by hand, because errors of a derived implementation would quote the text.
impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for TextSource<T> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable<T>(PhantomData<T>);

        impl<'de, T: FromStr<Err: Display>> Visitor<'de> for TextOrTable<T> {
            type Value = TextSource<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, { env = \"NAME\" } or { file = \"PATH\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TextSource<T>, E> {
                text.parse().map(TextSource::Here).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextSource<T>, A::Error> {
                SecretSource::deserialize(MapAccessDeserializer::new(map)).map(TextSource::Elsewhere)
            }
        }

        deserializer.deserialize_any(TextOrTable(PhantomData))
    }
}
