//! The values that the server takes from the settings, and checks that concern several settings.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

use enrich_host::{BodyLimits, ClientAddress, Limits};
use enrich_lib::credit::Price;
use enrich_lib::email::EmailPolicy;
use enrich_postgres::Ledger;
use enrich_redis::RedisPolicy;
use enrich_vendors::middleware::CachePolicy;
use enrich_vendors::provider::SettingError;

use super::config::{CacheConfig, Config, ConnectionsConfig, ConsoleConfig};
use super::text_source::{TextSource, UrlSource};
use super::vendor_config::VendorConfig;
use super::vendors;
use crate::listen::Listen;
use crate::public_url::PublicUrl;

/// The longest deadline of a resolver. It leaves enough time for the lookup to end before its hold expires.
pub const RESOLVER_DEADLINE_MAX: Duration = Duration::from_secs(20);

impl Config {
    /// Checks the settings that depend on others.
    pub fn check(&self) -> Result<(), SettingError> {
        self.client_address.check(&self.trusted_proxies)?;
        self.console.check()?;
        self.emails.check()?;
        self.check_listeners()?;
        vendors::check(&self.vendors, self.resolver.deadline_ms)?;
        if self.cache.is_some() && self.vendors.iter().all(VendorConfig::is_people) {
            let why = "needs a vendor; the people directory alone is as fast as the cache";
            return Err(SettingError::new("cache", why));
        }
        Ok(())
    }

    /// Checks that no two listeners have the same address.
    fn check_listeners(&self) -> Result<(), SettingError> {
        let address = |listen: &Option<Listen>| listen.as_ref().and_then(Listen::address);
        let listeners = [
            ("listen", self.listen.address()),
            ("console.listen", address(&self.console.listen)),
            ("admin.listen", address(&self.admin.listen)),
        ];
        let listeners: Vec<_> =
            listeners.into_iter().filter_map(|(name, address)| Some((name, address?))).collect();
        for (index, (setting, address)) in listeners.iter().enumerate() {
            if let Some((other, _)) = listeners[..index].iter().find(|(_, other)| overlap(*address, *other)) {
                let why = format!("{address} is in use by `{other}`; choose another port");
                return Err(SettingError::new(*setting, why));
            }
        }
        Ok(())
    }

    /// Returns the environment variables that the settings name.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let urls = [&self.database, &self.windows].into_iter().flatten().filter_map(UrlSource::variable);
        let urls = urls.chain(self.people.key.as_ref().and_then(TextSource::variable));
        urls.chain(self.vendors.iter().filter_map(VendorConfig::variable))
    }

    pub fn client_address(&self) -> ClientAddress {
        self.client_address.resolve(&self.trusted_proxies)
    }

    pub fn price(&self) -> Price {
        Price { found: self.price.found.into(), not_found: self.price.not_found.into() }
    }

    pub fn resolver_deadline(&self) -> Duration {
        Duration::from_millis(self.resolver.deadline_ms)
    }

    /// Returns the maximum time for which the outcome of a commit may be unknown.
    fn in_doubt_max(&self) -> Duration {
        Duration::from_millis(self.credits.in_doubt_ms)
    }

    /// Returns the age after which spends are removed.
    pub fn keep_spends(&self) -> Option<Duration> {
        self.credits.keep_spends_days.map(|days| Duration::from_secs(u64::from(days) * 86_400))
    }

    /// Returns the number of threads that serve connections.
    pub fn workers(&self) -> NonZeroUsize {
        let workers = self.workers.and_then(NonZeroUsize::new).or_else(|| available_parallelism().ok());
        workers.unwrap_or(NonZeroUsize::MIN)
    }

    /// Returns the time between a signal to stop and the graceful shutdown.
    pub fn shutdown_delay(&self) -> Duration {
        Duration::from_millis(self.connections.shutdown_delay_ms)
    }

    /// Returns the limits for `connections_max` connections, which may be fewer than
    /// [`ConnectionsConfig::max`].
    pub fn limits(&self, connections_max: usize) -> Limits {
        let ConnectionsConfig { per_address_max, head_ms, body_ms, idle_ms, .. } = self.connections;
        // Without TLS, all connections may be those of one proxy.
        let per_address = if self.plaintext { connections_max } else { connections_max.div_ceil(2) };
        // Those of PostgreSQL and Redis. Local stores take no time.
        let (hold, settlement) = (Ledger::HOLD_TIMEOUT, Ledger::SETTLE_TIMEOUT);
        let before_hold = Ledger::KEY_TIMEOUT + RedisPolicy::default().timeout;
        // The longest deadline, because a reload can change it.
        let before_settlement = before_hold + hold + RESOLVER_DEADLINE_MAX;
        let mut body = BodyLimits::default();
        body.timeout = Duration::from_millis(body_ms);
        Limits {
            connections_max,
            connections_per_address_max: per_address_max.unwrap_or(per_address),
            lookup_timeout: before_settlement + settlement + self.in_doubt_max(),
            shutdown_timeout: self.resolver_deadline() + settlement,
            head_timeout: Duration::from_millis(head_ms),
            body,
            idle_timeout: Duration::from_millis(idle_ms),
            ..Limits::default()
        }
    }

    pub fn email_policy(&self) -> EmailPolicy {
        self.emails.policy()
    }

    pub fn cache_policy(&self) -> Option<CachePolicy> {
        let CacheConfig { found_seconds, not_found_seconds, entries } = *self.cache.as_ref()?;
        Some(CachePolicy {
            entries_max: NonZeroUsize::new(entries)?,
            found_ttl: Duration::from_secs(found_seconds),
            not_found_ttl: Duration::from_secs(not_found_seconds),
        })
    }
}

/// Returns whether the second of two listeners could not be bound. Port 0 is another port each time, and `[::]` includes
/// the addresses of IPv4.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let includes =
        |one: SocketAddr, other: SocketAddr| one.ip().is_unspecified() && (one.is_ipv6() || other.is_ipv4());
    let is_same_ip = one.ip() == other.ip() || includes(one, other) || includes(other, one);
    one.port() == other.port() && one.port() != 0 && is_same_ip
}

impl ConsoleConfig {
    fn check(&self) -> Result<(), SettingError> {
        if self.listen.is_some() || *self == Self::default() {
            return Ok(());
        }
        let why = "needs `listen`, such as \"127.0.0.1:8081\"; without it, there is no web application";
        Err(SettingError::new("console", why))
    }

    /// Returns the URL of the web application, which listens there.
    pub fn url(&self, scheme: &str, listen: &Listen) -> String {
        self.url.as_ref().map_or_else(|| listen.url(scheme), ToString::to_string)
    }

    /// Returns the URL of the API in the examples, if it listens at `url`.
    pub fn api_url(&self, url: &str) -> String {
        self.api_url.as_ref().map_or_else(|| url.to_owned(), ToString::to_string)
    }

    /// Returns the URL with which links begin, if the web application listens at `listen`. Fails if browsers
    /// could not use it.
    pub fn link_url(&self, scheme: &str, listen: &Listen) -> Result<PublicUrl, SettingError> {
        let is_specific =
            self.url.is_some() || listen.address().is_some_and(|address| !address.ip().is_unspecified());
        let url = self.url(scheme, listen);
        url.parse().ok().filter(|_| is_specific).ok_or_else(|| {
            let why = format!(
                "must be set, because links cannot begin with {url}; set it or ENRICH_CONSOLE_URL to the URL that users open, such as \
                 https://enrich.example.com, or http://127.0.0.1:8081 on this machine"
            );
            SettingError::new("console.url", why)
        })
    }

    /// Returns warnings if users cannot open the default URLs. `api` is where the API listens.
    pub fn warnings(&self, api: &Listen) -> impl Iterator<Item = String> {
        let is_unspecified =
            |listen: &Listen| listen.address().is_some_and(|address| address.ip().is_unspecified());
        let console = self.listen.as_ref().filter(|listen| self.url.is_none() && is_unspecified(listen));
        let links = console.map(|listen| {
            format!("console.url is not set, so invitations begin with the address {listen}; set it to the URL that users open")
        });
        // A web application with a public URL has users on other machines.
        let has_examples = self.listen.is_some() && self.api_url.is_none();
        let is_remote = is_unspecified(api) || self.url.as_ref().is_some_and(|url| !url.is_local());
        let examples = (has_examples && is_remote).then(|| {
            format!(
                "console.api_url is not set, so examples use the address {api}; set it to the URL of the API"
            )
        });
        links.into_iter().chain(examples)
    }
}
