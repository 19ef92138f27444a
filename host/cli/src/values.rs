//! Values that are both flags of `enrich serve` and settings of its file.

use std::ops::RangeInclusive;

/// The address that `serve` listens on by default.
pub const LISTEN: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// The address of the web application that `serve --sample` starts by default.
pub const SAMPLE_CONSOLE: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8081);

/// The data directory by default.
pub const DATA: &str = "./enrich-data";

/// Valid deadlines of a lookup. The longest leaves enough time for the lookup to end before its hold expires.
pub const RESOLVER_DEADLINES_MS: RangeInclusive<u64> = 1..=20_000;

pub const CONFIDENCES: RangeInclusive<f64> = 0.0..=1.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text per event
    #[default]
    Text,
    /// One JSON object per event
    Json,
}

/// The storage that lookups in the people directory read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeopleIndex {
    /// All people in memory, about 5 GB for 100 million
    #[default]
    Memory,
    /// The data directory, which is slower
    Disk,
}
