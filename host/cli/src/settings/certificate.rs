//! The certificate of `serve`, and warnings about it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use enrich_host::tls;
use enrich_provider::SettingError;
use rustls::sign::CertifiedKey;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::time::Validity;

use super::config::{Config, Tls};

/// Reads the certificate, if one is set, and returns it with warnings about its files.
pub fn read(config: &Config) -> Result<(Option<Arc<CertifiedKey>>, Vec<String>), SettingError> {
    let Some(Tls { cert, key }) = &config.tls else { return Ok((None, Vec::new())) };
    let certified = tls::read(cert, key);
    let certified = certified.map_err(|error| SettingError::new("tls", error.to_string()))?;
    let warnings = warnings(cert, key, &certified, SystemTime::now());
    Ok((Some(certified), warnings))
}

/// Returns the time when a certificate expires, since the Unix epoch.
pub fn expires_at(certified: &CertifiedKey) -> Option<Duration> {
    Some(validity(certified)?.not_after.to_unix_duration())
}

/// Returns a warning about the validity of a certificate at `now`, without its name.
pub fn validity_of(certified: &CertifiedKey, now: SystemTime) -> Option<String> {
    validity_warning(&validity(certified)?, now)
}

/// Returns the validity of the server's own certificate, the first of its chain.
fn validity(certified: &CertifiedKey) -> Option<Validity> {
    let leaf = Certificate::from_der(certified.cert.first()?).ok()?;
    Some(leaf.tbs_certificate.validity)
}

/// Returns warnings about a certificate and key that are usable, one line each: a certificate that is not
/// valid at `now` or expires soon, a key that other users of the machine can read.
fn warnings(cert: &Path, key: &Path, certified: &CertifiedKey, now: SystemTime) -> Vec<String> {
    let validity = validity_of(certified, now).map(|warning| format!("{} {warning}", cert.display()));
    let mode = key.metadata().map(|metadata| metadata.permissions().mode() & 0o777).ok();
    let readable = mode.filter(|mode| mode & 0o077 != 0).map(|mode| {
        let key = key.display();
        format!("{key} is readable by other users (mode {mode:04o}); run `chmod 600 {key}`")
    });
    validity.into_iter().chain(readable).collect()
}

/// How long before its end a certificate is reported.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);

fn validity_warning(validity: &Validity, now: SystemTime) -> Option<String> {
    let Validity { not_before, not_after } = validity;
    if now > not_after.to_system_time() {
        return Some(format!(
            "expired at {}; clients reject it until it is renewed",
            not_after.to_date_time()
        ));
    }
    if now < not_before.to_system_time() {
        let start = not_before.to_date_time();
        return Some(format!(
            "is not valid before {start}; check the certificate and the clock of this machine"
        ));
    }
    let is_near = now + EXPIRES_SOON > not_after.to_system_time();
    is_near.then(|| format!("expires at {}; renew it, and reload it with SIGHUP", not_after.to_date_time()))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use x509_cert::time::Time;

    use super::*;

    const DAY: u64 = 86_400;

    /// Returns the warning on a day, for a certificate that is valid from day 100 to day 200.
    fn warning_on(day: u64) -> Option<String> {
        let time = |day: u64| Time::try_from(UNIX_EPOCH + Duration::from_secs(day * DAY)).unwrap();
        let validity = Validity { not_before: time(100), not_after: time(200) };
        validity_warning(&validity, UNIX_EPOCH + Duration::from_secs(day * DAY))
    }

    #[test]
    fn warns_14_days_before_a_certificate_expires() {
        assert_eq!(warning_on(186), None);
        let soon = "expires at 1970-07-20T00:00:00Z; renew it, and reload it with SIGHUP";
        assert_eq!(warning_on(187).as_deref(), Some(soon));
        assert!(warning_on(201).unwrap().starts_with("expired at 1970-07-20"));
        assert!(warning_on(99).unwrap().starts_with("is not valid before 1970-04-11"));
    }
}
