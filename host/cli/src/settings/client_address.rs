//! `client_address` and `trusted_proxies`: the client's address.

use std::net::IpAddr;

use enrich_host::ClientAddress;
use enrich_vendors::provider::SettingError;
use ipnet::IpNet;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The source of the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAddressSource {
    Peer,
    Forwarded,
    XForwardedFor,
}

impl ClientAddressSource {
    /// Returns the setting of the server. `proxies` are trusted.
    pub fn resolve(self, proxies: &[IpNet]) -> ClientAddress {
        match self {
            Self::Peer => ClientAddress::Peer,
            Self::Forwarded => ClientAddress::Forwarded(proxies.to_owned()),
            Self::XForwardedFor => ClientAddress::XForwardedFor(proxies.to_owned()),
        }
    }

    /// Checks that `proxies` are set if and only if their header is read.
    pub fn check(self, proxies: &[IpNet]) -> Result<(), SettingError> {
        let reads_header = matches!(self, Self::Forwarded | Self::XForwardedFor);
        let (setting, why) = match (reads_header, proxies.is_empty()) {
            (true, true) => (
                "client_address",
                "needs `trusted_proxies`, such as [\"10.0.0.0/8\"]; other clients could forge the header",
            ),
            (false, false) => (
                "trusted_proxies",
                "needs client_address = \"forwarded\" or \"x-forwarded-for\", the header that the proxies set",
            ),
            _ => return Ok(()),
        };
        Err(SettingError::new(setting, why))
    }
}

pub fn deserialize<'de, D: Deserializer<'de>>(networks: D) -> Result<Vec<IpNet>, D::Error> {
    let parse = |text: String| {
        network(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} must be an address or a network, such as \"10.0.0.0/8\" or \"fd00::/8\", without bits after its prefix"
            ))
        })
    };
    Vec::<String>::deserialize(networks)?.into_iter().map(parse).collect()
}

/// Reads a network, or an address alone.
fn network(text: &str) -> Option<IpNet> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()?;
    (network == network.trunc()).then_some(network)
}
