//! The checked settings of `serve`, with the vendors, stores and certificate that they name.

use std::net::SocketAddr;
use std::sync::Arc;

use enrich_node::sources::Sources;
use enrich_vendors::provider::{SecretSource, SettingError};
use rustls::sign::CertifiedKey;
use toml::Table;

use super::config::Config;
use super::layers::{self, Layers, Merged};
use super::locations::StoreLocations;
use super::{certificate, variables, vendors};
use crate::listen::Listen;

pub struct Settings {
    pub config: Config,
    table: Table,
    pub sources: Sources,
    pub locations: StoreLocations,
    pub certificate: Option<Arc<CertifiedKey>>,
    /// Problems that do not prevent serving, one per line.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Reads the settings and all files that they name.
    pub fn resolve(layers: &Layers) -> Result<Self, SettingError> {
        let (Merged { config, table, places }, sources) = with_sources(layers)?;
        let locate = |error: SettingError| places.locate(error);
        if !permits_other_machines(&config) {
            check_is_local("listen", config.listen.address()).map_err(locate)?;
            let console = config.console.listen.as_ref().and_then(Listen::address);
            check_is_local("console.listen", console).map_err(locate)?;
        }
        let locations = StoreLocations::resolve(&config).map_err(locate)?;
        let (certificate, mut warnings) = certificate::read(&config).map_err(locate)?;
        warnings.extend(config.console.warnings(&config.listen));
        Ok(Self { config, table, sources, locations, certificate, warnings })
    }

    /// Like [`Settings::resolve`], and checks that no environment variable is unknown. Not for a reload: a
    /// process keeps its variables.
    pub fn resolve_at_start(layers: &Layers) -> Result<Self, SettingError> {
        let settings = Self::resolve(layers)?;
        let secrets = settings.sources.vendors().map(|vendor| vendor.provider.description().secret());
        let secrets = secrets.filter_map(|source| match source {
            Some(SecretSource::Env(name)) => Some(name.as_str()),
            _ => None,
        });
        match variables::unknown(settings.config.variables().chain(secrets)).first() {
            Some(unknown) => Err(unknown.error()),
            None => Ok(settings),
        }
    }

    /// Checks the address of a passed socket, as [`Settings::resolve`] checks other addresses. `setting`
    /// names the socket.
    pub fn check_passed(&self, setting: &str, address: SocketAddr) -> Result<(), SettingError> {
        if permits_other_machines(&self.config) { Ok(()) } else { check_is_local(setting, Some(address)) }
    }

    pub fn log_warnings(&self) {
        self.warnings.iter().for_each(|warning| tracing::warn!(target: "enrich::serve", "{warning}"));
    }

    /// Returns the names of the settings that differ from `other` and need a restart.
    pub fn fixed_differences(&self, other: &Self) -> Vec<String> {
        let mut differences = layers::differences(&other.table, &self.table);
        // As loaded: the URL is often in another file.
        for (name, is_different) in [
            ("database", self.locations.database != other.locations.database),
            ("people.key", self.locations.people.key() != other.locations.people.key()),
            ("windows", self.locations.windows != other.locations.windows),
            (
                "emails.disposable_file",
                self.config.emails.disposable_domains != other.config.emails.disposable_domains,
            ),
            ("tls", self.config.tls.is_some() != other.config.tls.is_some()),
        ] {
            if is_different && !differences.iter().any(|difference| difference == name) {
                differences.push(name.to_owned());
            }
        }
        differences
    }
}

/// Reads and checks the settings, and opens the vendors.
pub fn with_sources(layers: &Layers) -> Result<(Merged, Sources), SettingError> {
    let Merged { mut config, table, places } = layers.merge()?;
    let list =
        config.check().and_then(|()| config.emails.read()).and_then(|()| vendors::open(&config.vendors));
    let list = list.map_err(|error| places.locate(error))?;
    let sources = Sources { list, deadline: config.resolver_deadline(), cache: config.cache_policy() };
    Ok((Merged { config, table, places }, sources))
}

/// Returns whether other machines can connect without revealing secrets, or the operator permits it.
fn permits_other_machines(config: &Config) -> bool {
    config.tls.is_some() || config.plaintext
}

/// Checks that an address without TLS receives no secrets from other machines.
fn check_is_local(setting: &str, listen: Option<SocketAddr>) -> Result<(), SettingError> {
    let Some(listen) = listen.filter(|listen| !listen.ip().is_loopback()) else { return Ok(()) };
    let secrets = if setting == "listen" { "keys and emails" } else { "passwords and keys" };
    let why = format!(
        "{listen} would receive {secrets} unencrypted from other machines; set `tls`, or `plaintext` if a proxy in front \
         terminates TLS"
    );
    Err(SettingError::new(setting, why))
}
