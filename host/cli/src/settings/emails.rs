//! `[emails]`: which well-formed emails are looked up. All others are rejected with `unsupported_email`.

use std::collections::BTreeSet;

use enrich_lib::email::{Email, EmailPolicy};
use enrich_vendors::provider::SettingError;

use super::config::EmailsConfig;

impl EmailsConfig {
    /// Checks `providers_allowed`. Does not quote an invalid entry, which could be an email.
    pub fn check(&self) -> Result<(), SettingError> {
        let why = match &self.providers_allowed {
            Some(domains) if domains.is_empty() => {
                "must not be empty, because all lookups would be refused; omit it to allow all domains"
            }
            Some(domains) if !domains.iter().all(|domain| is_domain(domain)) => {
                "each must be one domain, such as \"gmail.com\""
            }
            _ => return Ok(()),
        };
        Err(SettingError::new("emails.providers_allowed", why))
    }

    /// Reads `disposable_file`.
    pub fn read(&mut self) -> Result<(), SettingError> {
        let Some(file) = &self.disposable_file else { return Ok(()) };
        let refused = |why| SettingError::new("emails.disposable_file", why);
        if !self.refuse_disposable {
            return Err(refused("requires `refuse_disposable = true`".to_owned()));
        }
        let text = std::fs::read_to_string(file)
            .map_err(|e| refused(format!("cannot read {}: {e}", file.display())))?;
        self.disposable_domains = read_domains(&text)
            .map_err(|line| refused(format!("{}, line {line}: must be one domain", file.display())))?;
        Ok(())
    }

    /// Returns the policy with all domains in lower case, because domains are compared in lower case.
    pub fn policy(&self) -> EmailPolicy {
        let lower = |domains: &BTreeSet<String>| domains.iter().map(|d| d.to_ascii_lowercase()).collect();
        let mut policy = EmailPolicy::default();
        policy.refuse_disposable = self.refuse_disposable;
        policy.disposable_domains = lower(&self.disposable_domains);
        policy.refuse_relays = self.refuse_relays;
        policy.refuse_roles = self.refuse_roles;
        policy.providers_allowed = self.providers_allowed.as_ref().map(lower);
        policy
    }
}

/// Parses one domain per line, and skips empty lines and comments. Errors: the number of the first invalid
/// line, without its text, which could be an email.
fn read_domains(text: &str) -> Result<BTreeSet<String>, usize> {
    let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines().map(str::trim).zip(1..);
    lines
        .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
        .map(|(line, number)| if is_domain(line) { Ok(line.to_owned()) } else { Err(number) })
        .collect()
}

/// Returns whether `text` can be the domain of a supported email.
fn is_domain(text: &str) -> bool {
    text.is_ascii()
        && text.contains('.')
        && !text.starts_with('[')
        && Email::parse(&format!("a@{text}")).is_ok_and(|email| email.domain() == text)
}
