//! The file of `enrich serve --config`. What it leaves out has its default; what it does not know is an error.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use enrich_host::Limits;
use enrich_lib::credit::Price;
use enrich_sqlite::People;
use serde::Deserialize;

use crate::failure::Failure;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where to listen.
    pub listen: Option<SocketAddr>,
    /// Serve plain HTTP beyond this machine.
    pub plaintext: bool,
    pub tls: Option<Tls>,
    pub price: PriceConfig,
    pub people: PeopleConfig,
    pub resolver: ResolverConfig,
    pub emails: EmailsConfig,
    pub connections: ConnectionsConfig,
}

/// PEM files; a path is relative to where `enrich` was started.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// In credits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceConfig {
    pub found: u32,
    pub not_found: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeopleConfig {
    /// The least confidence of a trusted match, from 0 to 1.
    pub confidence_min: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResolverConfig {
    /// How long a resolver may take: up to 20 s, so that a lookup ends before its hold expires.
    pub deadline_ms: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmailsConfig {
    /// If set, only addresses at these domains are looked up.
    pub providers_allowed: Option<BTreeSet<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionsConfig {
    /// The most connections at a time.
    pub max: usize,
    /// How long a client may take for a request's head.
    pub head_ms: u64,
    /// How long a client may take for a request's body.
    pub body_ms: u64,
    /// How long a connection may be without a request.
    pub idle_ms: u64,
}

impl Default for PriceConfig {
    fn default() -> Self {
        Self { found: 1, not_found: 0 }
    }
}

impl Default for PeopleConfig {
    fn default() -> Self {
        Self { confidence_min: People::CONFIDENCE_MIN }
    }
}

impl Default for ResolverConfig {
    fn default() -> Self {
        Self { deadline_ms: 10_000 }
    }
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        let limits = Limits::default();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            max: limits.connections_max,
            head_ms: ms(limits.head_time_max),
            body_ms: ms(limits.body_time_max),
            idle_ms: ms(limits.idle_time_max),
        }
    }
}

impl Config {
    const RESOLVER_DEADLINE_MS_MAX: u64 = 20_000;

    /// An hour: whoever waits longer is not there any more.
    const CONNECTION_MS_MAX: u64 = 3_600_000;

    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, e))?;
        // The parser's message shows the line and points at the place.
        let config: Self = toml::from_str(&text).map_err(|e| Failure::file("use", path, e))?;
        config.check().map_err(|what| Failure::new(format!("can't use {}: {what}", path.display())))?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.people.confidence_min) {
            return Err("people.confidence_min has to be from 0 to 1".to_owned());
        }
        if !(1..=Self::RESOLVER_DEADLINE_MS_MAX).contains(&self.resolver.deadline_ms) {
            return Err("resolver.deadline_ms has to be from 1 to 20000".to_owned());
        }
        if self.connections.max == 0 {
            return Err("connections.max has to be at least 1".to_owned());
        }
        let ConnectionsConfig { head_ms, body_ms, idle_ms, .. } = self.connections;
        for (setting, ms) in [("head_ms", head_ms), ("body_ms", body_ms), ("idle_ms", idle_ms)] {
            if !(1..=Self::CONNECTION_MS_MAX).contains(&ms) {
                return Err(format!("connections.{setting} has to be from 1 to {}", Self::CONNECTION_MS_MAX));
            }
        }
        Ok(())
    }

    pub fn price(&self) -> Price {
        Price { found: self.price.found.into(), not_found: self.price.not_found.into() }
    }

    pub fn resolver_deadline(&self) -> Duration {
        Duration::from_millis(self.resolver.deadline_ms)
    }

    pub fn limits(&self) -> Limits {
        let ConnectionsConfig { max, head_ms, body_ms, idle_ms } = self.connections;
        Limits {
            connections_max: max,
            head_time_max: Duration::from_millis(head_ms),
            body_time_max: Duration::from_millis(body_ms),
            idle_time_max: Duration::from_millis(idle_ms),
            ..Limits::default()
        }
    }

    /// In lower case, as domains are compared.
    pub fn providers_allowed(&self) -> Option<BTreeSet<String>> {
        let providers = self.emails.providers_allowed.as_ref()?;
        Some(providers.iter().map(|domain| domain.to_ascii_lowercase()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_default() {
        let config: Config = toml::from_str("").unwrap();
        assert_eq!(config.price(), Price::default());
        assert_eq!(format!("{:?}", config.limits()), format!("{:?}", Limits::default()));
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn the_readme_shows_the_defaults() {
        let readme = include_str!("../../../../README.md");
        let shown = readme.split_once("```toml").unwrap().1.split_once("```").unwrap().0;
        let shown: Config = toml::from_str(shown).unwrap();
        let defaults = Config { listen: Some(crate::serve::LISTEN), ..Config::default() };
        assert_eq!(format!("{shown:?}"), format!("{defaults:?}"));
    }

    #[test]
    fn an_unknown_setting_is_told_with_its_line() {
        let told =
            toml::from_str::<Config>("plaintext = true\n[people]\nconfidence = 1\n").unwrap_err().to_string();
        assert!(told.contains("line 3") && told.contains("confidence_min"), "{told}");
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        for text in [
            "[people]\nconfidence_min = 1.5",
            "[people]\nconfidence_min = nan",
            "[resolver]\ndeadline_ms = 0",
            "[resolver]\ndeadline_ms = 20001",
            "[connections]\nmax = 0",
            "[connections]\nhead_ms = 0",
            "[connections]\nbody_ms = 3600001",
            "[connections]\nidle_ms = 0",
        ] {
            assert!(toml::from_str::<Config>(text).unwrap().check().is_err(), "{text}");
        }
    }
}
