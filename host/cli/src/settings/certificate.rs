//! The certificate of `serve`, and a warning about its key.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use enrich_host::tls;
use enrich_vendors::provider::SettingError;
use rustls::sign::CertifiedKey;

use super::config::{Config, Tls};

/// Reads the certificate, if one is set, and returns it with a warning if other users of the machine can read
/// its key.
pub fn read(config: &Config) -> Result<(Option<Arc<CertifiedKey>>, Vec<String>), SettingError> {
    let Some(Tls { cert, key }) = &config.tls else { return Ok((None, Vec::new())) };
    let certified = tls::read(cert, key);
    let certified = certified.map_err(|error| SettingError::new("tls", error.to_string()))?;
    Ok((Some(certified), readable_by_others(key).into_iter().collect()))
}

fn readable_by_others(key: &Path) -> Option<String> {
    let mode = key.metadata().map(|metadata| metadata.permissions().mode() & 0o777).ok();
    mode.filter(|mode| mode & 0o077 != 0).map(|mode| {
        let key = key.display();
        format!("{key} is readable by other users (mode {mode:04o}); run `chmod 600 {key}`")
    })
}
