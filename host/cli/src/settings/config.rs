//! The settings. Each is one field: its documentation is the manual, its default the default of the file, its
//! range the check, and `x-reload` marks what a reload applies. `schema` reads them, and `print` prints them.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use enrich_host::Limits;
use enrich_lib::email::EmailPolicy;
use enrich_middleware::Deadline;
use enrich_sqlite::People;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_address::{self, ClientAddressSource};
use super::order::in_order;
use super::text_source::{PeopleKey, TextSource, UrlSource};
use super::vendor_config::VendorConfig;
use crate::console_url::ConsoleUrl;
use crate::listen::Listen;
use crate::log::LogFormat;
use crate::values::{DATA, LISTEN, ms};

/// All settings of Enrich.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct Config {
    /// The address and port: "127.0.0.1:8080", "localhost:8080", or 8080 alone for a port of 127.0.0.1.
    /// "fd://3" or "fd://NAME" is a socket that systemd or another parent process passes.
    pub listen: Listen,
    /// The data directory. The default is in the working directory of the server.
    #[schemars(extend("x-unset" = true))]
    pub data: PathBuf,
    /// Number of threads that serve connections. Default: one per core.
    #[schemars(example = 4)]
    pub workers: Option<NonZeroUsize>,
    /// "text", or "json" for one JSON object per line.
    pub log_format: LogFormat,
    /// The source of a client's address. "peer": the address of the connection. "forwarded" or
    /// "x-forwarded-for": the address in this header, if the connection is one of `trusted_proxies`. The
    /// first address from the end that is not a trusted proxy is the client. The web application limits
    /// attempts to sign in by address.
    pub client_address: ClientAddressSource,
    /// The networks of the proxies that set the header.
    #[serde(deserialize_with = "client_address::deserialize", serialize_with = "client_address::serialize")]
    #[schemars(with = "Vec<String>", example = ["10.0.0.0/8", "fd00::/8"])]
    pub trusted_proxies: Vec<IpNet>,
    /// Writes the client's address to the line of its lookup. It is personal data.
    pub log_client_address: bool,
    /// Allows plain HTTP on addresses other than loopback. Set it only behind a proxy that terminates TLS.
    pub plaintext: bool,
    /// The PostgreSQL database of workspaces, keys, credits and people, which replaces the data directory: a
    /// URL, { env = "NAME" } or { file = "PATH" }. The last two forms keep its password out of this file.
    #[schemars(example = serde_json::json!({ "file": "database.url" }))]
    pub database: Option<UrlSource>,
    /// The rate-limit store: "memory" for a single node, or the URL of Redis, for example redis://HOST, in
    /// one of the forms of `database`. Required with `database`.
    #[schemars(example = &"memory")]
    pub windows: Option<UrlSource>,
    /// The certificates to trust for TLS to Redis (rediss://), in PEM. Default: those of the system.
    #[schemars(example = "redis-ca.pem")]
    pub windows_ca: Option<PathBuf>,
    /// The certificate chain and its private key, in PEM. Enables HTTPS. A reload reads both files again.
    pub tls: Option<Tls>,
    /// The web application, in which users manage keys and view usage.
    pub console: ConsoleConfig,
    /// The admin listener, which serves health checks and metrics over plain HTTP, without a password.
    pub admin: AdminConfig,
    /// The price of a lookup, in credits. It does not depend on what a vendor bills. Other outcomes are free.
    pub price: PriceConfig,
    pub credits: CreditsConfig,
    /// The imported people.
    pub people: PeopleConfig,
    pub resolver: ResolverConfig,
    /// Emails to look up. All others are refused with `unsupported_email`. These settings do not apply to
    /// `people import`, which always rejects disposable domains, private relays and role accounts.
    pub emails: EmailsConfig,
    pub connections: ConnectionsConfig,
    /// A cache of vendors' results, in memory. Default: off. Check whether your vendors' terms permit it. It
    /// also caches results of the people directory, which delays the effect of an import. Opt-outs take
    /// effect within a second in any case.
    #[schemars(extend("x-reload" = true))]
    pub cache: Option<CacheConfig>,
    /// The sources of a lookup, in this order. The first trusted match wins. Default: the people directory
    /// alone.
    #[schemars(extend("x-reload" = true))]
    pub vendors: Vec<VendorConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = in_order::<Self>)]
pub struct Tls {
    /// The server's certificate, followed by those of its issuers.
    #[schemars(example = "cert.pem", extend("x-reload" = true))]
    pub cert: PathBuf,
    /// The key of the certificate, without a passphrase.
    #[schemars(example = "key.pem", extend("x-reload" = true))]
    pub key: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct ConsoleConfig {
    /// Its address and port, or a passed socket. Default: no web application. It uses the certificate of
    /// `tls`.
    #[schemars(example = "127.0.0.1:8081")]
    pub listen: Option<Listen>,
    /// The URL under which users reach it, without a path. Links begin with it. Default: the scheme and
    /// address of `listen`.
    #[schemars(example = "https://enrich.example.com")]
    pub url: Option<ConsoleUrl>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct AdminConfig {
    /// Its address and port, or a passed socket. Default: no admin listener. Only the monitoring system
    /// should reach it.
    #[schemars(example = "127.0.0.1:9464")]
    pub listen: Option<Listen>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct PriceConfig {
    /// Price of a match.
    pub found: u32,
    /// Price of a lookup without a match.
    pub not_found: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct CreditsConfig {
    /// Maximum time for which the outcome of a commit may be unknown, in milliseconds. Until then, a lookup
    /// waits for the outcome. Afterwards, its connection is closed without a reply.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub in_doubt_ms: u64,
    /// Removes spends that are older, in days. Balances and usage stay exact. Default: keeps them.
    #[schemars(range(min = 1, max = 36_525), example = 400)]
    pub keep_spends_days: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct PeopleConfig {
    /// The key of the hashes of emails: 32 hexadecimal digits, as `openssl rand -hex 16` prints, or { env =
    /// "NAME" } or { file = "PATH" }. Required with `database`, and the same on all nodes. Without a
    /// database, the default is the file people.key in the data directory.
    #[schemars(example = serde_json::json!({ "file": "people.key" }))]
    pub key: Option<TextSource<PeopleKey>>,
    /// Finds people in the data directory of this node instead of in the database. An import then concerns
    /// this node only. Opt-outs are in the database in any case.
    pub local: bool,
    /// Minimum confidence of a trusted match. Vendors have a minimum of their own.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub confidence_min: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct ResolverConfig {
    /// Deadline for finding the person, in milliseconds, over all vendors.
    // The longest leaves enough time for the lookup to end before its hold expires.
    #[schemars(range(min = 1, max = 20_000), extend("x-reload" = true))]
    pub deadline_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct EmailsConfig {
    /// Refuses disposable providers.
    pub refuse_disposable: bool,
    /// A file with more disposable domains, one per line. Each domain includes its subdomains.
    #[schemars(example = "disposable.txt")]
    pub disposable_file: Option<PathBuf>,
    /// Refuses private relays, for example duck.com.
    pub refuse_relays: bool,
    /// Refuses role accounts, for example info@ and noreply@.
    pub refuse_roles: bool,
    /// Looks up only emails at these domains.
    #[schemars(example = ["gmail.com", "outlook.com"])]
    pub providers_allowed: Option<BTreeSet<String>>,
    /// The content of `disposable_file`.
    #[serde(skip)]
    pub disposable_domains: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct ConnectionsConfig {
    /// Maximum number of connections. The server accepts fewer if half of the limit on open files (`ulimit
    /// -n`) is less. At the limit, a new connection replaces an idle one: first those that never sent a valid
    /// key, then the one that is idle for the longest time.
    #[schemars(range(min = 1))]
    pub max: usize,
    /// Maximum number of connections per address, except loopback addresses. An IPv6 network (/64) counts as
    /// one address. Set it to `max` if a proxy or load balancer on another machine opens the connections.
    /// Default: half of `max`, or `max` with `plaintext`.
    #[schemars(range(min = 1), example = 5000)]
    pub per_address_max: Option<usize>,
    /// Timeout of a request's head, in milliseconds. It includes the first HTTP/2 request.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub head_ms: u64,
    /// Timeout of a request's body, in milliseconds.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub body_ms: u64,
    /// Timeout of an idle connection, in milliseconds. Set it longer than the idle timeout of your load
    /// balancer.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub idle_ms: u64,
    /// Time between a signal to stop and the graceful shutdown, in milliseconds. The server serves as before,
    /// but `/readyz` fails. Behind a load balancer, set it longer than the balancer takes to notice. A second
    /// signal ends the delay.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub shutdown_delay_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct CacheConfig {
    /// Time to live of a match, in seconds: up to one year.
    #[schemars(range(min = 0, max = 31_622_400))]
    pub found_seconds: u64,
    /// Time to live of a result without a match, in seconds.
    #[schemars(range(min = 0, max = 31_622_400))]
    pub not_found_seconds: u64,
    /// Maximum number of entries, of about 200 bytes each.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub entries: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Listen::Address(LISTEN),
            data: DATA.into(),
            workers: None,
            log_format: LogFormat::default(),
            client_address: ClientAddressSource::default(),
            trusted_proxies: Vec::new(),
            log_client_address: false,
            plaintext: false,
            database: None,
            windows: None,
            windows_ca: None,
            tls: None,
            console: ConsoleConfig::default(),
            admin: AdminConfig::default(),
            price: PriceConfig::default(),
            credits: CreditsConfig::default(),
            people: PeopleConfig::default(),
            resolver: ResolverConfig::default(),
            emails: EmailsConfig::default(),
            connections: ConnectionsConfig::default(),
            cache: None,
            vendors: Vec::new(),
        }
    }
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
        Self { key: None, local: false, confidence_min: People::CONFIDENCE_MIN }
    }
}

impl Default for ResolverConfig {
    fn default() -> Self {
        Self { deadline_ms: ms(Deadline::BUDGET) }
    }
}

impl Default for EmailsConfig {
    fn default() -> Self {
        let EmailPolicy {
            refuse_disposable,
            disposable_domains,
            refuse_relays,
            refuse_roles,
            providers_allowed,
            ..
        } = EmailPolicy::default();
        Self {
            refuse_disposable,
            disposable_file: None,
            refuse_relays,
            refuse_roles,
            providers_allowed,
            disposable_domains,
        }
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
