//! The API key of a vendor, and where to load it from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::{env, fmt};

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use thiserror::Error;

/// The source of a key: an environment variable, or a file that contains only the key. Exhaustive:
/// a caller that prints or writes settings must handle a further source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The environment variable with this name.
    Env(String),
    /// This file. One line break at its end is removed.
    File(PathBuf),
}

/// Why a key cannot be loaded. It names the source, never the content.
#[derive(Debug, Error)]
#[error("cannot load the secret from {place}: {why}")]
pub struct SecretError {
    place: String,
    why: String,
}

/// A key or another confidential value. It has no `Display`, and its `Debug` hides the value.
#[derive(Clone, derive_more::Debug, Default, PartialEq, Eq)]
#[debug("Secret(…)")]
pub struct Secret(String);

impl SecretSource {
    /// Maximum length of a key, in bytes.
    pub const OCTETS_MAX: usize = 4096;

    /// Resolves a relative path against the directory of `file`.
    pub(crate) fn relative_to(self, file: &Path) -> Self {
        match (self, file.parent()) {
            (Self::File(path), Some(dir)) => Self::File(dir.join(path)),
            (source, _) => source,
        }
    }

    /// Loads the key. Fails unless it consists of 1 to 4,096 visible ASCII characters without surrounding
    /// spaces.
    pub fn load(&self) -> Result<Secret, SecretError> {
        let (place, text) = match self {
            Self::Env(name) => {
                let text = env::var(name).map_err(|e| match e {
                    env::VarError::NotPresent => "it is not set".to_owned(),
                    env::VarError::NotUnicode(_) => "it is not valid UTF-8".to_owned(),
                });
                (format!("the environment variable {name}"), text)
            }
            Self::File(path) => {
                let text = File::open(path).and_then(read).map_err(|e| e.to_string());
                (path.display().to_string(), text)
            }
        };
        text.and_then(Secret::parse).map_err(|why| SecretError { place, why })
    }
}

fn read(file: File) -> io::Result<String> {
    let mut text = String::new();
    // At most one byte more than the longest key with its line break, so that a longer key is detected.
    file.take(SecretSource::OCTETS_MAX as u64 + 3).read_to_string(&mut text)?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

impl Secret {
    fn parse(text: String) -> Result<Self, String> {
        let is_visible = text.bytes().all(|c| matches!(c, b' '..=b'~'));
        let is_bare = !text.starts_with(' ') && !text.ends_with(' ');
        if text.is_empty() || text.len() > SecretSource::OCTETS_MAX || !is_visible || !is_bare {
            return Err(format!(
                "it must be 1 to {} visible ASCII characters, without line breaks or surrounding spaces",
                SecretSource::OCTETS_MAX
            ));
        }
        Ok(Self(text))
    }

    /// Returns the key. Use it only in data that is sent.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Implemented by hand, as serde's own errors quote a text in the place of a table, which could be the key.
impl<'de> Deserialize<'de> for SecretSource {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table;

        const ALLOWED: &str =
            "must be { env = \"NAME\" } or { file = \"PATH\" }; do not write the key itself here";

        impl<'de> Visitor<'de> for Table {
            type Value = SecretSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with `env` or `file`")
            }

            fn visit_str<E: de::Error>(self, _: &str) -> Result<SecretSource, E> {
                Err(E::custom(ALLOWED))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SecretSource, A::Error> {
                let source = match map.next_key::<String>()?.as_deref() {
                    Some("env") => map.next_value().map(SecretSource::Env),
                    Some("file") => map.next_value().map(SecretSource::File),
                    _ => return Err(de::Error::custom(ALLOWED)),
                };
                match map.next_key::<String>()? {
                    None => source,
                    Some(_) => Err(de::Error::custom(ALLOWED)),
                }
            }
        }

        deserializer.deserialize_any(Table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_file(content: impl AsRef<[u8]>) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, content).unwrap();
        let secret = SecretSource::File(path).load();
        secret.map(|secret| secret.reveal().to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn strips_one_line_break_at_end_of_file() {
        for content in ["s3cret", "s3cret\n", "s3cret\r\n"] {
            assert_eq!(in_a_file(content).as_deref(), Ok("s3cret"));
        }
        let longest = "x".repeat(SecretSource::OCTETS_MAX);
        assert_eq!(in_a_file(format!("{longest}\r\n")), Ok(longest));
    }

    #[test]
    fn rejects_keys_that_are_invalid_in_headers_without_showing_them() {
        let long = "s3cret".repeat(1000);
        for content in [
            "",
            "\n",
            "s3cret\n\n",
            "s3\ncret",
            "s3\0cret",
            "s3\tcret",
            " s3cret",
            "s3cret ",
            "s3crét",
            &long,
        ] {
            let error = in_a_file(content).unwrap_err();
            assert!(error.contains("visible ASCII") && !error.contains("s3c"), "{error}");
        }
        assert!(in_a_file(b"s3cret\xff").is_err_and(|error| !error.contains("s3c")));
    }

    #[test]
    fn loads_key_from_environment() {
        let source = SecretSource::Env("CARGO_PKG_NAME".to_owned());
        assert_eq!(source.load().unwrap().reveal(), "enrich-vendors");
        assert_eq!(format!("{:?}", source.load().unwrap()), "Secret(…)");
        let missing = SecretSource::Env("NO_SUCH_VARIABLE".to_owned()).load().unwrap_err();
        assert!(missing.to_string().contains("NO_SUCH_VARIABLE: it is not set"), "{missing}");
    }
}
