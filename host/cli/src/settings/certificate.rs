//! The certificate of `serve`, and warnings about it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use enrich_host::tls;
use enrich_provider::SettingError;
use rustls::sign::CertifiedKey;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::time::Validity;

use super::file::{Config, Tls};
use super::reading::Reading;

/// Reads the certificate, if one is set, and returns it with warnings about its files.
pub fn read(
    config: &Config,
    reading: &Reading,
) -> Result<(Option<Arc<CertifiedKey>>, Vec<String>), SettingError> {
    let Some(Tls { cert, key }) = &config.tls else { return Ok((None, Vec::new())) };
    let certified = tls::read(cert, key, |file| reading.begin(file));
    let certified = certified.map_err(|error| SettingError::new("tls", error.to_string()))?;
    let warnings = warnings(cert, key, &certified, SystemTime::now());
    Ok((Some(certified), warnings))
}

/// Returns warnings about a certificate and key that are usable, one line each: a certificate that is not valid at `now`, a key
/// that other users of the machine can read.
fn warnings(cert: &Path, key: &Path, certified: &CertifiedKey, now: SystemTime) -> Vec<String> {
    let leaf = certified.cert.first().and_then(|leaf| Certificate::from_der(leaf).ok());
    let validity = leaf.and_then(|leaf| validity_warning(&leaf.tbs_certificate.validity, now));
    let validity = validity.map(|warning| format!("{} {warning}", cert.display()));
    let mode = key.metadata().map(|metadata| metadata.permissions().mode() & 0o777).ok();
    let readable = mode.filter(|mode| mode & 0o077 != 0).map(|mode| {
        let key = key.display();
        format!("{key} is readable by other users (mode {mode:04o}); run `chmod 600 {key}`")
    });
    validity.into_iter().chain(readable).collect()
}

fn validity_warning(validity: &Validity, now: SystemTime) -> Option<String> {
    let Validity { not_before, not_after } = validity;
    if now > not_after.to_system_time() {
        return Some(format!(
            "expired at {}; clients reject it until it is renewed",
            not_after.to_date_time()
        ));
    }
    (now < not_before.to_system_time()).then(|| {
        let start = not_before.to_date_time();
        format!("is not valid before {start}; check the certificate and the clock of this machine")
    })
}
