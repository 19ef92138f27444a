//! The certificate of `serve`, and warnings about it and its key.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use enrich_host::tls;
use enrich_vendors::provider::SettingError;
use rustls::sign::CertifiedKey;
use x509_cert::Certificate;
use x509_cert::der::{self, Decode};
use x509_cert::time::Validity;

use super::config::{Config, Tls};

/// Reads the certificate, if one is set, and returns it with a warning if it is not valid now, and one if other
/// users of the machine can read its key.
pub fn read(config: &Config) -> Result<(Option<Arc<CertifiedKey>>, Vec<String>), SettingError> {
    let Some(Tls { cert, key }) = &config.tls else { return Ok((None, Vec::new())) };
    let certified = tls::read(cert, key);
    let certified = certified.map_err(|error| SettingError::new("tls", error.to_string()))?;
    let warnings = [not_valid_now(cert, &certified), readable_by_others(key)];
    Ok((Some(certified), warnings.into_iter().flatten().collect()))
}

/// Reads when the certificate is valid.
pub fn validity(certified: &CertifiedKey) -> der::Result<Validity> {
    let certificate = certified.cert.first().map_or(&[][..], |certificate| certificate);
    Ok(Certificate::from_der(certificate)?.tbs_certificate.validity)
}

fn not_valid_now(cert: &Path, certified: &CertifiedKey) -> Option<String> {
    let cert = cert.display();
    let Validity { not_before, not_after } = match validity(certified) {
        Ok(validity) => validity,
        Err(error) => return Some(format!("cannot read the validity of {cert}: {error}")),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let is_valid = (not_before.to_unix_duration()..=not_after.to_unix_duration()).contains(&now);
    (!is_valid)
        .then(|| format!("{cert} is valid from {not_before} to {not_after}; replace it or correct the clock"))
}

fn readable_by_others(key: &Path) -> Option<String> {
    let mode = key.metadata().map(|metadata| metadata.permissions().mode() & 0o777).ok();
    mode.filter(|mode| mode & 0o077 != 0).map(|mode| {
        let key = key.display();
        format!("{key} is readable by other users (mode {mode:04o}); run `chmod 600 {key}`")
    })
}
