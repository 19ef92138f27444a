//! The checked settings of `serve`, with the vendors, stores and certificate that they name.

use std::net::SocketAddr;
use std::sync::Arc;

use enrich_node::sources::Sources;
use enrich_provider::{SecretSource, SettingError, SettingErrors};
use rustls::sign::CertifiedKey;

use super::config::Config;
use super::layers::{Layers, Merged};
use super::locations::StoreLocations;
use super::variables::{self, Unknown};
use super::{certificate, vendors};
use crate::listen::Listen;

pub struct Settings {
    pub config: Config,
    pub sources: Sources,
    pub locations: StoreLocations,
    pub certificate: Option<Arc<CertifiedKey>>,
    /// Problems that do not prevent serving, one per line.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Reads the settings and all files that they name. Errors: all mistakes.
    pub fn resolve(layers: &Layers) -> Result<Self, SettingErrors> {
        Self::check(layers, |_, _| SettingErrors::default())
    }

    /// Like [`Settings::resolve`], and checks that no environment variable is unknown. Not for a reload: a
    /// process keeps its variables.
    pub fn resolve_at_start(layers: &Layers) -> Result<Self, SettingErrors> {
        Self::check(layers, unknown_variables)
    }

    fn check(
        layers: &Layers,
        more: impl FnOnce(&Config, &Sources) -> SettingErrors,
    ) -> Result<Self, SettingErrors> {
        let (Merged { config, mut errors, places }, sources) = with_sources(layers)?;
        errors.extend(more(&config, &sources));
        let locate = |error: SettingError| places.locate(error);
        if !permits_other_machines(&config) && !errors.has("tls") && !errors.has("plaintext") {
            errors.check(check_is_local("listen", config.listen.address()).map_err(locate));
            let console = config.console.listen.as_ref().and_then(Listen::address);
            errors.check(check_is_local("console.listen", console).map_err(locate));
        }
        let locations = StoreLocations::resolve(&config);
        let locations = locations.map_err(|more| errors.extend(more.map(locate))).ok();
        let (certificate, mut warnings) =
            errors.check(certificate::read(&config).map_err(locate)).unwrap_or_default();
        warnings.extend(config.console.warning());
        match locations {
            Some(locations) if errors.is_empty() => {
                Ok(Self { config, sources, locations, certificate, warnings })
            }
            _ => Err(errors),
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
        let mut differences = self.config.fixed_differences(&other.config);
        // As loaded: the URL is often in another file.
        for (name, is_different) in [
            ("database", self.locations.database != other.locations.database),
            ("people.key", self.locations.people.key() != other.locations.people.key()),
            ("windows", self.locations.windows != other.locations.windows),
        ] {
            if is_different && !differences.iter().any(|difference| difference == name) {
                differences.push(name.to_owned());
            }
        }
        differences
    }
}

fn unknown_variables(config: &Config, sources: &Sources) -> SettingErrors {
    let secrets = sources.vendors().map(|vendor| vendor.provider.description().secret());
    let secrets = secrets.filter_map(|source| match source {
        Some(SecretSource::Env(name)) => Some(name.as_str()),
        _ => None,
    });
    let unknown = variables::unknown(config.variables().chain(secrets));
    // Others may be variables of vendors whose descriptions have mistakes.
    let is_complete = sources.list.len() == config.vendors.len();
    let certain = unknown.iter().filter(|unknown| is_complete || unknown.resembles.is_some());
    certain.map(Unknown::error).collect()
}

/// Reads and checks the settings, and opens the vendors. The mistakes are in the first value.
pub fn with_sources(layers: &Layers) -> Result<(Merged, Sources), SettingErrors> {
    let Merged { mut config, mut errors, places } = layers.merge()?;
    config.check(&mut errors);
    errors.check(config.emails.read());
    let list = vendors::open(&config.vendors, places.file(), &mut errors);
    let errors = errors.map(|error| places.locate(error));
    let sources = Sources { list, deadline: config.resolver_deadline(), cache: config.cache_policy() };
    Ok((Merged { config, errors, places }, sources))
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
