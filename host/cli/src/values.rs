//! Values of settings, and their defaults.

use std::time::Duration;

/// The address of the web application that `serve --sample` starts by default.
pub const SAMPLE_CONSOLE: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8081);

/// The data directory by default.
pub const DATA: &str = "./enrich-data";

/// The longest deadline of a resolver. It leaves enough time for the lookup to end before its hold expires.
pub const RESOLVER_DEADLINE_MAX: Duration = Duration::from_secs(20);

pub fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
