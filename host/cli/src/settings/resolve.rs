//! The settings of `serve`, merged from the file, the flags and the environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use enrich_node::sources::Sources;
use enrich_provider::{SecretSource, SettingError, SettingErrors};
use rustls::sign::CertifiedKey;

use super::certificate;
use super::console::ConsoleConfig;
use super::file::{Config, File, Tls};
use super::locations::StoreLocations;
use super::url_source::UrlSource;
use super::variables::{self, Unknown};
use crate::args::ServeArgs;
use crate::listen::Listen;
use crate::values::{DATA, LISTEN};

pub struct Settings {
    pub config: Config,
    pub sources: Sources,
    pub listen: Listen,
    pub console: ConsoleConfig,
    pub data: PathBuf,
    pub locations: StoreLocations,
    pub certificate: Option<Arc<CertifiedKey>>,
    /// Problems that do not prevent serving, one per line.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Reads the settings file and all files that it names, and records each in `reading`. Errors: all mistakes.
    pub fn resolve(args: &ServeArgs) -> Result<Self, SettingErrors> {
        let path = args.store.data.file.config.as_deref();
        let file = path.map(File::read).transpose()?;
        let (read, mut errors) = match &file {
            Some(file) => Config::read(file, |config| merge(args, config)),
            None => {
                let mut config = Config::default();
                merge(args, &mut config);
                let sources = Sources::people(config.resolver_deadline());
                (Some((config, sources)), SettingErrors::default())
            }
        };
        let Some((config, sources)) = read else { return Err(errors) };
        let locate = |error: SettingError| match &file {
            Some(file) if !overrides(args, &error.setting()) => file.locate(error),
            _ => error,
        };
        let listen = config.listen.clone().unwrap_or(Listen::Address(LISTEN));
        if !permits_other_machines(&config) && !errors.has("tls") && !errors.has("plaintext") {
            errors.check(check_is_local("listen", listen.address()).map_err(locate));
            let console = config.console.listen.as_ref().and_then(Listen::address);
            errors.check(check_is_local("console.listen", console).map_err(locate));
        }
        let console = ConsoleConfig {
            url: args.console_url.clone().or(config.console.url.clone()),
            ..config.console.clone()
        };
        let locations = StoreLocations::resolve(&config);
        let locations = locations.map_err(|more| errors.extend(more.map(locate))).ok();
        let (certificate, mut warnings) =
            errors.check(certificate::read(&config).map_err(locate)).unwrap_or_default();
        warnings.extend(console.warning());
        let data = config.data.clone().unwrap_or_else(|| DATA.into());
        match locations {
            Some(locations) if errors.is_empty() => {
                Ok(Self { config, sources, listen, console, data, locations, certificate, warnings })
            }
            _ => Err(errors),
        }
    }

    /// Like [`Settings::resolve`], and checks that no environment variable is unknown. Not for a reload: a process keeps its variables.
    pub fn resolve_at_start(args: &ServeArgs) -> Result<Self, SettingErrors> {
        let settings = Self::resolve(args)?;
        let secrets = settings.sources.vendors().map(|vendor| vendor.provider.description().secret());
        let secrets = secrets.filter_map(|source| match source {
            Some(SecretSource::Env(name)) => Some(name.as_str()),
            _ => None,
        });
        let unknown = variables::unknown(settings.config.variables().chain(secrets));
        let errors: SettingErrors = unknown.iter().map(Unknown::error).collect();
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }

    /// Checks the address of a passed socket, as [`Settings::resolve`] checks other addresses. `setting` names the socket.
    pub fn check_passed(&self, setting: &str, address: SocketAddr) -> Result<(), SettingError> {
        if permits_other_machines(&self.config) { Ok(()) } else { check_is_local(setting, Some(address)) }
    }

    pub fn log_warnings(&self) {
        self.warnings.iter().for_each(|warning| tracing::warn!(target: "enrich::serve", "{warning}"));
    }

    /// Returns the names of the settings that differ from `other` and need a restart.
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let differences = [
            ("listen", self.listen != other.listen),
            ("data", self.data != other.data),
            ("tls", self.config.tls.is_some() != other.config.tls.is_some()),
            // As loaded: the URL is often in another file.
            ("database", self.locations.database != other.locations.database),
            ("windows", self.locations.windows != other.locations.windows),
        ];
        let differences = differences.into_iter().filter(|(_, is_different)| *is_different);
        differences.map(|(name, _)| name).chain(self.config.fixed_differences(&other.config)).collect()
    }
}

/// Reads the settings file, if there is one, and overrides its settings. Neither checks them nor reads other files.
pub fn merged(args: &ServeArgs) -> Result<Config, SettingErrors> {
    let mut config = match &args.store.data.file.config {
        None => Config::default(),
        Some(path) => {
            let file = File::read(path)?;
            let (config, errors) = Config::parse(&file);
            let located = || errors.clone().map(|error| file.locate(error));
            config.filter(|_| errors.is_empty()).ok_or_else(located)?
        }
    };
    merge(args, &mut config);
    Ok(config)
}

/// Overrides the file's settings with flags and environment variables.
fn merge(args: &ServeArgs, file: &mut Config) {
    file.listen = args.listen.clone().or(file.listen.take());
    file.data = args.store.data.data.clone().or(file.data.take());
    file.console.listen = args.console_listen.clone().or(file.console.listen.take());
    file.admin.listen = args.admin_listen.clone().or(file.admin.listen.take());
    file.workers = args.workers.or(file.workers);
    file.log_format = args.log_format.unwrap_or(file.log_format);
    file.plaintext |= args.plaintext;
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        file.tls = Some(Tls { cert: cert.clone(), key: key.clone() });
    }
    file.database = args.store.database.clone().map(UrlSource::Here).or(file.database.take());
    file.windows = args.windows.clone().map(UrlSource::Here).or(file.windows.take());
    file.windows_ca = args.windows_ca.clone().or(file.windows_ca.take());
    file.price.found = args.price_found.unwrap_or(file.price.found);
    file.price.not_found = args.price_not_found.unwrap_or(file.price.not_found);
    file.people.confidence_min = args.confidence_min.unwrap_or(file.people.confidence_min);
    file.people.index = args.people_index.unwrap_or(file.people.index);
    file.resolver.deadline_ms = args.deadline_ms.unwrap_or(file.resolver.deadline_ms);
}

/// Returns whether a flag or an environment variable overrides the setting, so that a mistake in it is not in the file.
fn overrides(args: &ServeArgs, setting: &str) -> bool {
    match setting {
        "listen" => args.listen.is_some(),
        "console.listen" => args.console_listen.is_some(),
        "admin.listen" => args.admin_listen.is_some(),
        "database" => args.store.database.is_some(),
        "windows" => args.windows.is_some(),
        "windows_ca" => args.windows_ca.is_some(),
        "tls" => args.tls_cert.is_some(),
        _ => false,
    }
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
        "{listen} would receive {secrets} unencrypted from other machines; set --tls-cert and --tls-key, or --plaintext if a \
         proxy in front terminates TLS"
    );
    Err(SettingError::new(setting, why))
}
