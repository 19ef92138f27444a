//! `log_client_address` and `trusted_proxies`: the client's address in the log.

use enrich_host::{ClientAddress, Network};
use enrich_provider::{SettingError, SettingErrors};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The source of the client's address in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAddressSource {
    #[default]
    Off,
    Peer,
    Forwarded,
    XForwardedFor,
}
impl ClientAddressSource {
    /// Returns the setting of the server. `proxies` are trusted.
    pub fn resolve(self, proxies: &[Network]) -> ClientAddress {
        match self {
            Self::Off => ClientAddress::Off,
            Self::Peer => ClientAddress::Peer,
            Self::Forwarded => ClientAddress::Forwarded(proxies.to_owned()),
            Self::XForwardedFor => ClientAddress::XForwardedFor(proxies.to_owned()),
        }
    }

    /// Checks that `proxies` are set if and only if their header is read.
    pub fn check(self, proxies: &[Network], errors: &mut SettingErrors) {
        let reads_header = matches!(self, Self::Forwarded | Self::XForwardedFor);
        if reads_header && proxies.is_empty() {
            let why =
                "needs `trusted_proxies`, such as [\"10.0.0.0/8\"]; other clients could forge the header";
            errors.push(SettingError::new("log_client_address", why));
        }
        if !reads_header && !proxies.is_empty() {
            let why = "needs log_client_address = \"forwarded\" or \"x-forwarded-for\", the header that the proxies set";
            errors.push(SettingError::new("trusted_proxies", why));
        }
    }
}

pub fn deserialize<'de, D: Deserializer<'de>>(networks: D) -> Result<Vec<Network>, D::Error> {
    let parse = |text: String| text.parse().map_err(|error| D::Error::custom(format!("{text:?} {error}")));
    Vec::<String>::deserialize(networks)?.into_iter().map(parse).collect()
}

pub fn serialize<S: Serializer>(networks: &[Network], serializer: S) -> Result<S::Ok, S::Error> {
    // Only compared.
    serializer.collect_seq(networks.iter().map(|network| format!("{network:?}")))
}
