//! The settings file of `enrich serve --config`. Missing settings have defaults; unknown settings are errors.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use enrich_host::{BodyLimits, ClientAddress, Limits, Network};
use enrich_lib::credit::Price;
use enrich_lib::email::EmailPolicy;
use enrich_middleware::timeouts::{CreditsWithTimeout, KeysWithTimeout, WindowsWithTimeout};
use enrich_middleware::{CachePolicy, Deadline};
use enrich_node::sources::Sources;
use enrich_provider::{SettingError, SettingErrors, parse_toml};
use enrich_sqlite::People;
use serde::Deserialize;

use super::admin::AdminConfig;
use super::client_address::{ClientAddressSource, deserialize_networks};
use super::console::ConsoleConfig;
use super::emails::EmailsConfig;
use super::range::{check_range, ms};
use super::url_source::UrlSource;
use super::vendors::{self, VendorConfig};
use crate::listen::{self, Listen};
use crate::values::{CONFIDENCES, LogFormat, PeopleIndex, RESOLVER_DEADLINES_MS};

/// The settings. Paths in the file are relative to the file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The address to listen on.
    #[serde(deserialize_with = "listen::deserialize")]
    pub listen: Option<Listen>,
    /// The data directory.
    pub data: Option<PathBuf>,
    /// Number of threads that serve connections. Defaults to one per core.
    pub workers: Option<NonZeroUsize>,
    pub log_format: LogFormat,
    log_client_address: ClientAddressSource,
    /// The proxies whose header is read.
    #[serde(deserialize_with = "deserialize_networks")]
    trusted_proxies: Vec<Network>,
    /// Allows plain HTTP on addresses other than loopback.
    pub plaintext: bool,
    pub tls: Option<Tls>,
    pub console: ConsoleConfig,
    pub admin: AdminConfig,
    /// The PostgreSQL server with the accounts.
    pub database: Option<UrlSource>,
    /// The rate-limit store.
    pub windows: Option<UrlSource>,
    /// The PEM file with the certificates to trust for TLS to Redis.
    pub windows_ca: Option<PathBuf>,
    pub price: PriceConfig,
    pub credits: CreditsConfig,
    pub people: PeopleConfig,
    pub resolver: ResolverConfig,
    emails: EmailsConfig,
    pub connections: ConnectionsConfig,
    /// Disabled if missing.
    pub cache: Option<CacheConfig>,
    /// In the order in which a lookup queries them.
    vendors: Vec<VendorConfig>,
}

/// The PEM files of the certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// The price of a lookup, in credits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceConfig {
    pub found: u32,
    pub not_found: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CreditsConfig {
    /// Maximum time for which the outcome of a commit may be unknown, in milliseconds.
    pub in_doubt_ms: u64,
    /// Age after which the server removes spends, in days. It keeps them if missing.
    keep_spends_days: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeopleConfig {
    /// Minimum confidence of a trusted match, from 0 to 1.
    pub confidence_min: f64,
    pub index: PeopleIndex,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResolverConfig {
    /// Deadline for finding a person in all sources, in milliseconds. At most 20,000, so that the lookup ends before its hold
    /// expires.
    pub deadline_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionsConfig {
    /// Maximum number of simultaneous connections.
    pub max: usize,
    /// Maximum number of simultaneous connections per address.
    pub per_address_max: Option<usize>,
    /// Timeout for receiving a request's head, in milliseconds.
    pub head_ms: u64,
    /// Timeout for receiving a request's body, in milliseconds.
    pub body_ms: u64,
    /// Maximum idle time of a connection between requests, in milliseconds.
    pub idle_ms: u64,
    /// Time between a signal to stop and the graceful shutdown, in milliseconds.
    shutdown_delay_ms: u64,
}

/// The cache of vendor results.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Time to live of a match, in seconds.
    pub found_seconds: u64,
    /// Time to live of a result without a match, in seconds.
    pub not_found_seconds: u64,
    /// Maximum number of entries.
    pub entries: usize,
}

impl Default for PriceConfig {
    fn default() -> Self {
        Self { found: 1, not_found: 0 }
    }
}

impl Default for CreditsConfig {
    fn default() -> Self {
        Self { in_doubt_ms: 30_000, keep_spends_days: None }
    }
}

impl Default for PeopleConfig {
    fn default() -> Self {
        Self { confidence_min: People::CONFIDENCE_MIN, index: PeopleIndex::default() }
    }
}

impl Default for ResolverConfig {
    fn default() -> Self {
        Self { deadline_ms: ms(Deadline::BUDGET) }
    }
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            max: limits.connections_max,
            per_address_max: None,
            head_ms: ms(limits.head_timeout),
            body_ms: ms(limits.body.timeout),
            idle_ms: ms(limits.idle_timeout),
            shutdown_delay_ms: 0,
        }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { found_seconds: 86_400, not_found_seconds: 3_600, entries: 100_000 }
    }
}

/// A settings file and its text.
pub struct File {
    path: PathBuf,
    text: String,
}

impl File {
    pub fn read(path: &Path) -> Result<Self, SettingError> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| SettingError::new("", format!("cannot read {}: {e}", path.display())))?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// Adds the file and line to a mistake.
    pub fn locate(&self, error: SettingError) -> SettingError {
        error.on_its_line(&self.text).in_file(&self.path)
    }

    fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| path.to_owned(), |dir| dir.join(path))
    }
}

impl Config {
    /// One hour. A client that is silent for longer is gone.
    const CONNECTION_MS_MAX: u64 = 3_600_000;
    /// 100 years.
    const SPENDS_DAYS_MAX: u32 = 36_525;
    /// One year.
    const CACHE_SECONDS_MAX: u64 = 366 * 86_400;
    /// About 2 GB of memory.
    const CACHE_ENTRIES_MAX: usize = 10_000_000;

    /// Parses a file without checking the settings. Returns `None` if the text cannot be parsed.
    pub fn parse(file: &File) -> (Option<Self>, SettingErrors) {
        let (mut config, errors) = parse_toml::<Self>(&file.text);
        if let Some(config) = &mut config {
            if let Some(tls) = &mut config.tls {
                *tls = Tls { cert: file.beside(&tls.cert), key: file.beside(&tls.key) };
            }
            config.data = config.data.take().map(|data| file.beside(&data));
            config.windows_ca = config.windows_ca.take().map(|authority| file.beside(&authority));
            for source in [&mut config.database, &mut config.windows] {
                *source = source.take().map(|source| source.beside(&file.path));
            }
        }
        (config, errors)
    }

    /// Returns the environment variables that the settings name.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let urls = [&self.database, &self.windows].into_iter().flatten().filter_map(UrlSource::variable);
        urls.chain(self.vendors.iter().filter_map(VendorConfig::variable))
    }

    /// Parses a file, applies `change`, and checks the result. Reads the files that it names: vendor descriptions, keys and
    /// the list of domains. Returns all mistakes, and `None` as settings if the text cannot be parsed.
    pub fn read(file: &File, change: impl FnOnce(&mut Self)) -> (Option<(Self, Sources)>, SettingErrors) {
        let (config, mut errors) = Self::parse(file);
        let read = config.map(|mut config| {
            change(&mut config);
            config.check(&mut errors);
            let emails = config.emails.read(&file.path);
            errors.check(emails.map_err(|error| error.within("emails")));
            let sources = Sources {
                list: vendors::open(&config.vendors, &file.path, config.resolver_deadline(), &mut errors),
                deadline: config.resolver_deadline(),
                cache: config.cache_policy(),
            };
            (config, sources)
        });
        (read, errors.map(|error| file.locate(error)))
    }

    fn check(&self, errors: &mut SettingErrors) {
        let (min, max) = CONFIDENCES.into_inner();
        errors.check(check_range("people.confidence_min", self.people.confidence_min, min, max));
        let (min, max) = RESOLVER_DEADLINES_MS.into_inner();
        errors.check(check_range("resolver.deadline_ms", self.resolver.deadline_ms, min, max));
        self.log_client_address.check(&self.trusted_proxies, errors);
        self.console.check(errors);
        let ConnectionsConfig { max, per_address_max, .. } = self.connections;
        for (setting, number) in [("max", max), ("per_address_max", per_address_max.unwrap_or(1))] {
            if number == 0 {
                errors.push(SettingError::new(format!("connections.{setting}"), "must be at least 1"));
            }
        }
        let in_doubt_ms = self.credits.in_doubt_ms;
        errors.check(check_range("credits.in_doubt_ms", in_doubt_ms, 1, Self::CONNECTION_MS_MAX));
        if let Some(days) = self.credits.keep_spends_days {
            errors.check(check_range("credits.keep_spends_days", days, 1, Self::SPENDS_DAYS_MAX));
        }
        let ConnectionsConfig { head_ms, body_ms, idle_ms, shutdown_delay_ms, .. } = self.connections;
        errors.check(check_range(
            "connections.shutdown_delay_ms",
            shutdown_delay_ms,
            0,
            Self::CONNECTION_MS_MAX,
        ));
        for (setting, ms) in [("head_ms", head_ms), ("body_ms", body_ms), ("idle_ms", idle_ms)] {
            errors.check(check_range(&format!("connections.{setting}"), ms, 1, Self::CONNECTION_MS_MAX));
        }
        if let Some(CacheConfig { found_seconds, not_found_seconds, entries }) = self.cache {
            errors.check(check_range("cache.found_seconds", found_seconds, 0, Self::CACHE_SECONDS_MAX));
            errors.check(check_range(
                "cache.not_found_seconds",
                not_found_seconds,
                0,
                Self::CACHE_SECONDS_MAX,
            ));
            errors.check(check_range("cache.entries", entries, 1, Self::CACHE_ENTRIES_MAX));
            if self.vendors.iter().all(VendorConfig::is_people) && !errors.has("vendors") {
                let why = "needs a vendor; the people directory alone is as fast as the cache";
                errors.push(SettingError::new("cache", why));
            }
        }
        vendors::check(&self.vendors, self.resolver.deadline_ms, errors);
    }

    /// Returns the names of the settings that differ from `other` and need a restart.
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let differences = [
            ("console", self.console != other.console),
            ("admin", self.admin != other.admin),
            ("workers", self.workers != other.workers),
            ("log_format", self.log_format != other.log_format),
            ("log_client_address", self.log_client_address != other.log_client_address),
            ("trusted_proxies", self.trusted_proxies != other.trusted_proxies),
            ("plaintext", self.plaintext != other.plaintext),
            ("windows_ca", self.windows_ca != other.windows_ca),
            ("price", self.price != other.price),
            ("credits", self.credits != other.credits),
            ("people", self.people != other.people),
            ("emails", self.emails != other.emails),
            ("connections", self.connections != other.connections),
        ];
        differences.into_iter().filter(|(_, is_different)| *is_different).map(|(name, _)| name).collect()
    }

    pub fn client_address(&self) -> ClientAddress {
        self.log_client_address.resolve(&self.trusted_proxies)
    }

    pub fn price(&self) -> Price {
        Price { found: self.price.found.into(), not_found: self.price.not_found.into() }
    }

    pub fn resolver_deadline(&self) -> Duration {
        Duration::from_millis(self.resolver.deadline_ms)
    }

    /// Returns the maximum time for which the outcome of a commit may be unknown.
    pub fn in_doubt_max(&self) -> Duration {
        Duration::from_millis(self.credits.in_doubt_ms)
    }

    /// Returns the age after which spends are removed.
    pub fn keep_spends(&self) -> Option<Duration> {
        self.credits.keep_spends_days.map(|days| Duration::from_secs(u64::from(days) * 86_400))
    }

    /// Returns the time between a signal to stop and the graceful shutdown.
    pub fn shutdown_delay(&self) -> Duration {
        Duration::from_millis(self.connections.shutdown_delay_ms)
    }

    /// Returns the limits for `connections_max` connections, which may be fewer than [`ConnectionsConfig::max`].
    pub fn limits(&self, connections_max: usize) -> Limits {
        let ConnectionsConfig { per_address_max, head_ms, body_ms, idle_ms, .. } = self.connections;
        // Without TLS, all connections may be those of one proxy.
        let per_address = if self.plaintext { connections_max } else { connections_max.div_ceil(2) };
        let settlement = CreditsWithTimeout::DEFAULT_TIMEOUT;
        // The longest deadline, because a reload can change it.
        let before_settlement = KeysWithTimeout::DEFAULT_TIMEOUT
            + WindowsWithTimeout::DEFAULT_TIMEOUT
            + CreditsWithTimeout::DEFAULT_TIMEOUT
            + Duration::from_millis(*RESOLVER_DEADLINES_MS.end());
        Limits {
            connections_max,
            connections_per_address_max: per_address_max.unwrap_or(per_address),
            lookup_timeout: before_settlement + settlement + self.in_doubt_max(),
            shutdown_timeout: self.resolver_deadline() + settlement,
            head_timeout: Duration::from_millis(head_ms),
            body: BodyLimits { timeout: Duration::from_millis(body_ms), ..BodyLimits::default() },
            idle_timeout: Duration::from_millis(idle_ms),
            ..Limits::default()
        }
    }

    pub fn email_policy(&self) -> EmailPolicy {
        self.emails.policy()
    }

    fn cache_policy(&self) -> Option<CachePolicy> {
        let CacheConfig { found_seconds, not_found_seconds, entries } = *self.cache.as_ref()?;
        Some(CachePolicy {
            entries_max: NonZeroUsize::new(entries)?,
            found_ttl: Duration::from_secs(found_seconds),
            not_found_ttl: Duration::from_secs(not_found_seconds),
        })
    }
}

#[cfg(test)]
mod tests;
