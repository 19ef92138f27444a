//! Environment variables that begin with `ENRICH_` and set nothing, such as a misspelt one.

use std::env;

use enrich_vendors::provider::{Description, SecretSource, SettingError, nearest};

use super::example::{self, PREFIX};

/// Variables that are not settings: the settings file, the log's filter, and the key and server of clients.
const OTHERS: [&str; 4] = ["ENRICH_CONFIG", "ENRICH_LOG", "ENRICH_KEY", "ENRICH_URL"];

/// A variable that nothing reads.
pub struct Unknown {
    name: String,
    /// The known variable that was probably meant.
    pub resembles: Option<String>,
}

impl Unknown {
    pub fn error(&self) -> SettingError {
        let why = match &self.resembles {
            Some(known) => format!("unknown variable; did you mean {known}?"),
            None => "unknown variable; `enrich config example --variables` lists all".to_owned(),
        };
        SettingError::new(&self.name, why)
    }
}

/// Returns the unknown variables of this process. `named` are those that the settings name, for example for a
/// vendor's key.
pub fn unknown<'a>(named: impl Iterator<Item = &'a str>) -> Vec<Unknown> {
    let variables = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    let mut unknown: Vec<_> = variables
        .filter(|(name, value)| name.starts_with(PREFIX) && !is_of_kubernetes(name, value))
        .map(|(name, _)| name)
        .collect();
    if unknown.is_empty() {
        return Vec::new();
    }
    let settings = example::settings().into_iter().map(|setting| setting.variable());
    let known = settings.chain(OTHERS.map(str::to_owned)).collect::<Vec<_>>();
    let named: Vec<_> = named.map(str::to_owned).chain(of_vendors()).collect();
    unknown.retain(|name| !known.contains(name) && !named.contains(name));
    let names = || known.iter().map(|name| &name[PREFIX.len()..]);
    let resembles =
        |name: &str| nearest(&name[PREFIX.len()..], names()).map(|known| format!("{PREFIX}{known}"));
    unknown.into_iter().map(|name| Unknown { resembles: resembles(&name), name }).collect()
}

/// Returns the variables with the keys of built-in vendors.
fn of_vendors() -> impl Iterator<Item = String> {
    let secret = |name| Description::built_in(name)?.secret().cloned();
    Description::built_in_names().filter_map(secret).filter_map(|source| match source {
        SecretSource::Env(name) => Some(name),
        SecretSource::File(_) => None,
    })
}

/// Returns whether Kubernetes sets the variable, as it does for each service of the namespace whose name
/// begins with `enrich`.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].iter().any(|part| name.contains(part))
        || name.ends_with("_PORT") && value.contains("://")
}
