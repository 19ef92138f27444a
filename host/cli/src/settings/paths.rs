//! Paths in settings, which no shell has expanded.

use std::path::Path;

use enrich_provider::{SecretSource, SettingError, SettingErrors};

use super::config::{Config, Tls};
use super::text_source::TextSource;
use super::vendor_config::VendorConfig;
use crate::path;

/// Returns the paths that are empty or begin with `~`, from which a directory of this name would be created.
pub fn check(config: &Config) -> SettingErrors {
    let mut errors = SettingErrors::default();
    let mut add = |setting: &str, path: Option<&Path>| {
        errors
            .extend(path.and_then(|path| path::check(path).err()).map(|why| SettingError::new(setting, why)));
    };
    add("data", Some(&config.data));
    if let Some(Tls { cert, key }) = &config.tls {
        add("tls.cert", Some(cert));
        add("tls.key", Some(key));
    }
    add("windows_ca", config.windows_ca.as_deref());
    add("emails.disposable_file", config.emails.disposable_file.as_deref());
    add("database.file", config.database.as_ref().and_then(file));
    add("windows.file", config.windows.as_ref().and_then(file));
    add("people.key.file", config.people.key.as_ref().and_then(file));
    for (index, VendorConfig { file, secret, .. }) in config.vendors.iter().enumerate() {
        add(&format!("vendors.{index}.file"), file.as_deref());
        add(&format!("vendors.{index}.secret.file"), secret.as_ref().and_then(secret_file));
    }
    errors
}

fn file<T>(source: &TextSource<T>) -> Option<&Path> {
    match source {
        TextSource::Elsewhere(source) => secret_file(source),
        TextSource::Here(_) => None,
    }
}

fn secret_file(source: &SecretSource) -> Option<&Path> {
    match source {
        SecretSource::File(path) => Some(path),
        SecretSource::Env(_) => None,
    }
}
