//! The settings. `example.toml` has their manual and their defaults.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::Deserialize;

use super::client_address::{self, ClientAddressSource};
use super::range::{fraction, optional, whole};
use super::text_source::{PeopleKey, TextSource, UrlSource};
use super::vendor_config::VendorConfig;
use crate::listen::Listen;
use crate::log::LogFormat;
use crate::public_url::PublicUrl;

/// The data directory by default.
pub const DATA: &str = "./enrich-data";

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub listen: Listen,
    /// In a file, it is relative to the file, so that the example has no default.
    #[serde(default = "data")]
    pub data: PathBuf,
    #[serde(default, deserialize_with = "optional::<_, _, 1, 1024>")]
    pub workers: Option<usize>,
    pub log_format: LogFormat,
    pub client_address: ClientAddressSource,
    #[serde(default, deserialize_with = "client_address::deserialize")]
    pub trusted_proxies: Vec<IpNet>,
    pub log_client_address: bool,
    pub plaintext: bool,
    pub database: Option<UrlSource>,
    pub windows: Option<UrlSource>,
    pub windows_ca: Option<PathBuf>,
    pub tls: Option<Tls>,
    pub console: ConsoleConfig,
    pub admin: AdminConfig,
    pub price: PriceConfig,
    pub credits: CreditsConfig,
    pub people: PeopleConfig,
    pub resolver: ResolverConfig,
    pub emails: EmailsConfig,
    pub connections: ConnectionsConfig,
    pub cache: Option<CacheConfig>,
    #[serde(default)]
    pub vendors: Vec<VendorConfig>,
}

fn data() -> PathBuf {
    DATA.into()
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleConfig {
    pub listen: Option<Listen>,
    pub url: Option<PublicUrl>,
    pub api_url: Option<PublicUrl>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminConfig {
    pub listen: Option<Listen>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    pub found: u32,
    pub not_found: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreditsConfig {
    #[serde(deserialize_with = "whole::<_, _, 1, 3_600_000>")]
    pub in_doubt_ms: u64,
    #[serde(default, deserialize_with = "optional::<_, _, 1, 36_525>")]
    pub keep_spends_days: Option<u32>,
    pub show_available: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeopleConfig {
    pub key: Option<TextSource<PeopleKey>>,
    #[serde(deserialize_with = "fraction::<_, 0>")]
    pub confidence_min: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolverConfig {
    // The longest leaves enough time for the lookup to end before its hold expires.
    #[serde(deserialize_with = "whole::<_, _, 1, 20_000>")]
    pub deadline_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmailsConfig {
    pub refuse_disposable: bool,
    pub disposable_file: Option<PathBuf>,
    pub refuse_relays: bool,
    pub refuse_roles: bool,
    pub providers_allowed: Option<BTreeSet<String>>,
    /// The content of `disposable_file`.
    #[serde(skip)]
    pub disposable_domains: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsConfig {
    #[serde(deserialize_with = "whole::<_, _, 1, { i64::MAX }>")]
    pub max: usize,
    #[serde(default, deserialize_with = "optional::<_, _, 1, { i64::MAX }>")]
    pub per_address_max: Option<usize>,
    #[serde(deserialize_with = "whole::<_, _, 1, 3_600_000>")]
    pub head_ms: u64,
    #[serde(deserialize_with = "whole::<_, _, 1, 3_600_000>")]
    pub body_ms: u64,
    #[serde(deserialize_with = "whole::<_, _, 1, 3_600_000>")]
    pub idle_ms: u64,
    #[serde(deserialize_with = "whole::<_, _, 0, 3_600_000>")]
    pub shutdown_delay_ms: u64,
}

/// Off by default, so that the example has its defaults in comments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    #[serde(deserialize_with = "whole::<_, _, 0, 31_622_400>")]
    pub found_seconds: u64,
    #[serde(deserialize_with = "whole::<_, _, 0, 31_622_400>")]
    pub not_found_seconds: u64,
    #[serde(deserialize_with = "whole::<_, _, 1, 10_000_000>")]
    pub entries: usize,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { found_seconds: 86_400, not_found_seconds: 3_600, entries: 100_000 }
    }
}
