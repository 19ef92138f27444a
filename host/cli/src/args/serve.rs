//! What `enrich serve` takes.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::{BoolishValueParser, RangedU64ValueParser};
use enrich_sqlite::Durability;

use crate::config::{Config, PeopleIndex, listen};
use crate::url::ServerUrl;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServeArgs {
    /// Where to listen: an address and a port, or a port of this machine alone [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", env = "ENRICH_LISTEN", value_parser = listen::parse)]
    pub listen: Option<SocketAddr>,
    /// How many threads serve connections [default: one a core]
    #[arg(long, value_name = "N", env = "ENRICH_WORKERS")]
    pub workers: Option<NonZeroUsize>,
    /// If there is no data yet, create sample people and a workspace `demo` with 1,000 credits and one key
    #[arg(long)]
    pub sample: bool,
    /// The certificate chain, in PEM
    #[arg(long, value_name = "FILE", env = "ENRICH_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long, value_name = "FILE", env = "ENRICH_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Serve plain HTTP beyond this machine: a proxy in front ends TLS
    #[arg(long, env = "ENRICH_PLAINTEXT", value_parser = BoolishValueParser::new())]
    pub plaintext: bool,
    /// What a match costs, in credits [default: 1]
    #[arg(long, value_name = "N", env = "ENRICH_PRICE_FOUND")]
    pub price_found: Option<u32>,
    /// What a lookup without a match costs, in credits [default: 0]
    #[arg(long, value_name = "N", env = "ENRICH_PRICE_NOT_FOUND")]
    pub price_not_found: Option<u32>,
    /// When a spend is answered: `strict`, when it is on the disk, or `relaxed`, at once: a crash loses the spends of up to 2 ms
    /// [default: strict]
    #[arg(long, value_name = "WHEN", env = "ENRICH_CREDITS_DURABILITY")]
    pub credits_durability: Option<DurabilitySetting>,
    /// The least confidence of a trusted match in the people directory, from 0 to 1 [default: 0.8]
    #[arg(long, value_name = "X", env = "ENRICH_CONFIDENCE_MIN", value_parser = confidence)]
    pub confidence_min: Option<f64>,
    /// Where the people directory is answered from: memory takes 5 GB for 100 million people, disk is slower [default: memory]
    #[arg(long, value_name = "PLACE", env = "ENRICH_PEOPLE_INDEX")]
    pub people_index: Option<PeopleIndex>,
    /// How long a lookup may take at all whom it asks, up to 20000 [default: 10000]
    #[arg(long, value_name = "MS", env = "ENRICH_DEADLINE_MS", value_parser = deadline_ms())]
    pub deadline_ms: Option<u64>,
    /// Where requests are counted against the limits: `memory`, if this is the only node, or a URL such as
    /// redis://HOST [default: memory, and none with --database]
    #[arg(long, value_name = "URL", env = "ENRICH_WINDOWS", hide_env_values = true)]
    pub windows: Option<ServerUrl>,
    /// Settings in TOML; flags and variables win over it
    #[arg(long, value_name = "FILE", env = "ENRICH_CONFIG")]
    pub config: Option<PathBuf>,
    /// The form of the log [default: text]
    #[arg(long, value_enum, env = "ENRICH_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// [`Durability`], as a flag and as a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DurabilitySetting {
    #[default]
    Strict,
    Relaxed,
}

impl From<DurabilitySetting> for Durability {
    fn from(setting: DurabilitySetting) -> Self {
        match setting {
            DurabilitySetting::Strict => Self::Strict,
            DurabilitySetting::Relaxed => Self::Relaxed,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

fn confidence(text: &str) -> Result<f64, String> {
    let confidence = text.parse().ok().filter(|confidence| Config::CONFIDENCES.contains(confidence));
    confidence.ok_or_else(|| "has to be a number from 0 to 1".to_owned())
}

fn deadline_ms() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(Config::RESOLVER_DEADLINES_MS)
}
