//! The API keys behind the key names in scenarios.

use std::collections::BTreeMap;
use std::fmt;

use crate::request::Replacement;
use crate::scenario::Scenario;

/// A server's keys, by scenario and name. `Debug` does not print the keys.
#[derive(Clone, Default)]
pub struct Keys(BTreeMap<(String, String), String>);

impl Keys {
    /// Sets the key that `name` stands for in `scenario`.
    pub fn insert(&mut self, scenario: &str, name: &str, key: &str) {
        self.0.insert((scenario.to_owned(), name.to_owned()), key.to_owned());
    }

    /// Returns the keys of a scenario and what they replace. The error is the name of the first missing key.
    pub(crate) fn of<'a>(&self, scenario: &'a Scenario) -> Result<Vec<Replacement>, &'a str> {
        let find = |name: &'a str| {
            let key = self.0.get(&(scenario.name.clone(), name.to_owned()));
            key.map(|key| (format!("{{{name}}}").into(), key.clone().into())).ok_or(name)
        };
        scenario.given.keys.iter().map(|given| find(&given.name)).collect()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}
