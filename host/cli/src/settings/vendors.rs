//! `[[vendors]]`: the vendors that a lookup queries, in this order.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use enrich_middleware::CircuitBreakerPolicy;
use enrich_node::sources::{Source, Sources, Vendor};
use enrich_provider::{
    Client, Description, Limits, Provider, ProviderError, SecretSource, SettingError, SettingErrors,
};

use super::vendor_config::{BreakerConfig, LimitsConfig, VendorConfig};

/// Checks the settings that can be checked without reading a description.
pub fn check(vendors: &[VendorConfig], deadline_ms: u64, errors: &mut SettingErrors) {
    for (index, vendor) in vendors.iter().enumerate() {
        errors.extend(vendor.check(deadline_ms).map(|error| error.within(&format!("vendors.{index}"))));
    }
}

/// Opens the vendors of the settings file at `path`: reads their descriptions and keys. Omits vendors with
/// mistakes and adds the mistakes to `errors`.
pub fn open(vendors: &[VendorConfig], path: &Path, errors: &mut SettingErrors) -> Vec<Source> {
    let mut client = None;
    let mut names = BTreeSet::new();
    let mut sources = Vec::new();
    for (index, vendor) in vendors.iter().enumerate().filter(|(_, vendor)| vendor.has_one_source()) {
        let here = |error: SettingError| error.within(&format!("vendors.{index}"));
        let opened = match vendor.is_people() {
            true => Ok((Sources::PEOPLE.to_owned(), Source::People)),
            false => vendor.open(path, &mut client),
        };
        match opened {
            Ok((name, source)) if names.insert(name.clone()) => sources.push(source),
            Ok((name, _)) => {
                let why =
                    format!("the vendor {name} is already configured; the log identifies vendors by name");
                errors.push(here(SettingError::new(vendor.source(), why)));
            }
            Err(Mistake::Here(more)) => errors.extend(more.map(here)),
            Err(Mistake::InDescription(more)) => errors.extend(more),
        }
    }
    sources
}

/// A mistake and the file that contains it.
enum Mistake {
    Here(SettingErrors),
    /// Mistakes in a description, with its path and line numbers.
    InDescription(SettingErrors),
}

impl From<SettingError> for Mistake {
    fn from(error: SettingError) -> Self {
        Self::Here(error.into())
    }
}

impl VendorConfig {
    /// Returns the environment variable with the key, if the section names one.
    pub fn variable(&self) -> Option<&str> {
        match &self.secret {
            Some(SecretSource::Env(name)) => Some(name),
            _ => None,
        }
    }

    pub fn is_people(&self) -> bool {
        self.name.as_deref() == Some(Sources::PEOPLE)
    }

    /// Returns the name of the setting that identifies the vendor.
    fn source(&self) -> &'static str {
        if self.file.is_some() { "file" } else { "use" }
    }

    fn has_one_source(&self) -> bool {
        self.name.is_some() != self.file.is_some()
    }

    fn check(&self, deadline_ms: u64) -> SettingErrors {
        let mut errors = SettingErrors::default();
        if !self.has_one_source() {
            errors.push(SettingError::new("", "must have either `use` or `file`"));
        } else if self.is_people() {
            self.check_bare(&mut errors);
        } else {
            if let Some(limit) = self.limits.and_then(|limits| limits.deadline_ms) {
                errors.check(check_range("limits.deadline_ms", limit, 1, deadline_ms));
            }
            self.breaker.unwrap_or_default().check(&mut errors);
        }
        errors
    }

    /// Rejects vendor settings in the section of the people directory, which is local and needs no limits.
    fn check_bare(&self, errors: &mut SettingErrors) {
        let Self { name: _, file: _, secret, limits, queue, breaker } = self;
        for (setting, is_there) in [
            ("secret", secret.is_some()),
            ("limits", limits.is_some()),
            ("queue", queue.is_some()),
            ("breaker", breaker.is_some()),
        ] {
            if is_there {
                errors
                    .push(SettingError::new(setting, "applies to vendors only, not to the people directory"));
            }
        }
    }

    /// Reads the vendor's description and overrides it with the settings of this section.
    fn describe(&self, path: &Path) -> Result<Description, Mistake> {
        let mut description = match &self.file {
            Some(file) => {
                let file = path.parent().map_or_else(|| file.clone(), |dir| dir.join(file));
                // A missing description is a mistake in the settings file.
                let unreadable =
                    |e| SettingError::new("file", format!("cannot read {}: {e}", file.display()));
                File::open(&file).map_err(unreadable)?;
                Description::read(&file).map_err(Mistake::InDescription)?
            }
            None => self.built_in()?,
        };
        if let Some(secret) = &self.secret {
            if description.secret().is_none() {
                return Err(SettingError::new("secret", "is not used in the requests of this vendor").into());
            }
            description = description.with_secret(secret.clone().relative_to(path))?;
        }
        if let Some(limits) = self.limits {
            description = {
                let limits = limits.over(description.limits());
                description.with_limits(limits).map_err(Mistake::Here)?
            };
        }
        Ok(description)
    }

    fn built_in(&self) -> Result<Description, SettingError> {
        let name = self.name.as_deref().unwrap_or_default();
        Description::built_in(name).ok_or_else(|| {
            let names: Vec<_> = Description::built_in_names().collect();
            let why = format!(
                "must be {}, {}; use `file` for a custom description",
                Sources::PEOPLE,
                names.join(", ")
            );
            SettingError::new("use", why)
        })
    }

    /// Opens the vendor and returns it with its name. The first call creates the client, which all vendors
    /// share.
    fn open(&self, path: &Path, client: &mut Option<Client>) -> Result<(String, Source), Mistake> {
        let description = self.describe(path)?;
        let client = match client {
            Some(client) => client,
            None => client.insert(Client::new().map_err(|e| SettingError::new("", e.to_string()))?),
        };
        let provider = Provider::new(description, client.clone()).map_err(|error| self.unusable(&error))?;
        let mut vendor = Vendor::new(provider);
        vendor.policy.queue_max = self.queue.unwrap_or(vendor.policy.queue_max);
        vendor.policy.breaker = self.breaker.unwrap_or_default().policy();
        Ok((vendor.name().to_owned(), Source::Vendor(vendor)))
    }

    fn unusable(&self, error: &ProviderError) -> SettingError {
        let setting = if self.secret.is_some() { "secret" } else { self.source() };
        SettingError::new(setting, error.to_string())
    }
}

impl LimitsConfig {
    fn over(self, limits: Limits) -> Limits {
        Limits {
            deadline_ms: self.deadline_ms.unwrap_or(limits.deadline_ms),
            concurrency: self.concurrency.unwrap_or(limits.concurrency),
            tries: self.tries.unwrap_or(limits.tries),
        }
    }
}

impl BreakerConfig {
    fn check(&self, errors: &mut SettingErrors) {
        errors.check(check_range("breaker.calls_min", self.calls_min, 1, self.window_calls));
    }

    fn policy(self) -> CircuitBreakerPolicy {
        let Self { window_calls, calls_min, failure_rate, pause_ms, probes } = self;
        CircuitBreakerPolicy {
            window_calls,
            calls_min,
            failure_rate,
            pause: Duration::from_millis(pause_ms),
            probes,
        }
    }
}

/// Checks that a number is from `min` to `max`, inclusive, which other settings determine.
fn check_range<T: Copy + PartialOrd + Display>(
    setting: &str,
    number: T,
    min: T,
    max: T,
) -> Result<(), SettingError> {
    if (min..=max).contains(&number) {
        return Ok(());
    }
    Err(SettingError::new(setting, format!("must be from {min} to {max}")))
}
