//! `[[vendors]]`: the vendors that a lookup queries, in this order.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::time::Duration;

use enrich_node::sources::{Source, Sources, Vendor};
use enrich_vendors::middleware::CircuitBreakerPolicy;
use enrich_vendors::provider::{
    Client, Description, Limits, Provider, ProviderError, SecretSource, SettingError,
};

use super::vendor_config::{BreakerConfig, LimitsConfig, VendorConfig};

/// Checks the settings that can be checked without reading a description.
pub fn check(vendors: &[VendorConfig], deadline_ms: u64) -> Result<(), SettingError> {
    vendors.iter().enumerate().try_for_each(|(index, vendor)| {
        vendor.check(deadline_ms).map_err(|error| error.within(&format!("vendors.{index}")))
    })
}

/// Opens the vendors: reads their descriptions and keys.
pub fn open(vendors: &[VendorConfig]) -> Result<Vec<Source>, SettingError> {
    let (mut client, mut names, mut sources) = (None, BTreeSet::new(), Vec::new());
    for (index, vendor) in vendors.iter().enumerate() {
        let (name, source) = match vendor.is_people() {
            true => (Sources::PEOPLE.to_owned(), Source::People),
            false => vendor.open(&mut client).map_err(|error| match error.file() {
                Some(_) => error, // in the description
                None => error.within(&format!("vendors.{index}")),
            })?,
        };
        if !names.insert(name.clone()) {
            let why = format!("the vendor {name} is already configured; the log identifies vendors by name");
            return Err(SettingError::new(format!("vendors.{index}.{}", vendor.source()), why));
        }
        sources.push(source);
    }
    Ok(sources)
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

    fn check(&self, deadline_ms: u64) -> Result<(), SettingError> {
        if !self.has_one_source() {
            return Err(SettingError::new("", "must have either `use` or `file`"));
        }
        if self.is_people() {
            return self.check_bare();
        }
        if let Some(limit) = self.limits.and_then(|limits| limits.deadline_ms) {
            check_range("limits.deadline_ms", limit, 1, deadline_ms)?;
        }
        let BreakerConfig { calls_min, window_calls, .. } = self.breaker.unwrap_or_default();
        check_range("breaker.calls_min", calls_min, 1, window_calls)
    }

    /// Rejects vendor settings in the section of the people directory, which is local and needs no limits.
    fn check_bare(&self) -> Result<(), SettingError> {
        let Self { name: _, file: _, secret, limits, queue, breaker } = self;
        let set = [
            ("secret", secret.is_some()),
            ("limits", limits.is_some()),
            ("queue", queue.is_some()),
            ("breaker", breaker.is_some()),
        ];
        set.iter().find(|(_, is_set)| *is_set).map_or(Ok(()), |(setting, _)| {
            Err(SettingError::new(*setting, "applies to vendors only, not to the people directory"))
        })
    }

    /// Reads the vendor's description and overrides it with the settings of this section.
    fn describe(&self) -> Result<Description, SettingError> {
        let mut description = match &self.file {
            Some(file) => {
                // A missing description is a mistake in the settings file.
                let unreadable =
                    |e| SettingError::new("file", format!("cannot read {}: {e}", file.display()));
                File::open(file).map_err(unreadable)?;
                Description::read(file)?
            }
            None => self.built_in()?,
        };
        if let Some(secret) = &self.secret {
            if description.secret().is_none() {
                return Err(SettingError::new("secret", "is not used in the requests of this vendor"));
            }
            description = description.with_secret(secret.clone())?;
        }
        if let Some(limits) = self.limits {
            let limits = limits.over(description.limits());
            description = description.with_limits(limits)?;
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
    fn open(&self, client: &mut Option<Client>) -> Result<(String, Source), SettingError> {
        let description = self.describe()?;
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
