//! `[emails]`: which well-formed emails are looked up. The others are `unsupported_email`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use enrich_lib::email::{Email, EmailPolicy};
use enrich_provider::SettingFault;
use serde::Deserialize;

use super::Reading;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmailsConfig {
    refuse_disposable: bool,
    /// More disposable domains, one a line.
    disposable_file: Option<PathBuf>,
    /// What is in that file: it is compared too, as it needs a restart like the rest.
    #[serde(skip)]
    disposable_domains: BTreeSet<String>,
    refuse_relays: bool,
    refuse_roles: bool,
    /// If set, only addresses at these domains are looked up.
    providers_allowed: Option<BTreeSet<String>>,
}

impl Default for EmailsConfig {
    fn default() -> Self {
        let EmailPolicy {
            refuse_disposable,
            disposable_domains,
            refuse_relays,
            refuse_roles,
            providers_allowed,
        } = EmailPolicy::default();
        Self {
            refuse_disposable,
            disposable_file: None,
            disposable_domains,
            refuse_relays,
            refuse_roles,
            providers_allowed,
        }
    }
}

impl EmailsConfig {
    /// Reads the file that is named, which is relative to the settings at `path`.
    pub fn read(&mut self, path: &Path, reading: &Reading) -> Result<(), SettingFault> {
        let Some(file) = &self.disposable_file else { return Ok(()) };
        let refused = |why| SettingFault::new("disposable_file", why);
        if !self.refuse_disposable {
            return Err(refused("can't be there while disposable emails are not refused".to_owned()));
        }
        let file = path.parent().map_or_else(|| file.clone(), |dir| dir.join(file));
        reading.begin(&file);
        let text = std::fs::read_to_string(&file)
            .map_err(|e| refused(format!("can't read {}: {e}", file.display())))?;
        self.disposable_domains = read_domains(&text)
            .map_err(|line| refused(format!("{}, line {line}: has to be one domain", file.display())))?;
        Ok(())
    }

    /// In lower case, as domains are compared.
    pub fn policy(&self) -> EmailPolicy {
        let lower = |domains: &BTreeSet<String>| domains.iter().map(|d| d.to_ascii_lowercase()).collect();
        EmailPolicy {
            refuse_disposable: self.refuse_disposable,
            disposable_domains: lower(&self.disposable_domains),
            refuse_relays: self.refuse_relays,
            refuse_roles: self.refuse_roles,
            providers_allowed: self.providers_allowed.as_ref().map(lower),
        }
    }
}

/// Up to the first line that is no domain, if there is one: it is told by its number and not repeated, as it could be
/// an email.
fn read_domains(text: &str) -> Result<BTreeSet<String>, usize> {
    let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines().map(str::trim).zip(1..);
    lines
        .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
        .map(|(line, number)| if is_domain(line) { Ok(line.to_owned()) } else { Err(number) })
        .collect()
}

/// As one stands in an email that can be supported.
fn is_domain(text: &str) -> bool {
    text.is_ascii()
        && text.contains('.')
        && !text.starts_with('[')
        && Email::parse(&format!("a@{text}")).is_ok_and(|email| email.domain() == text)
}
