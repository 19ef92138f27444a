//! The API keys behind the key names in scenarios.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::scenario::Scenario;

/// A server's keys, by scenario and name.
///
/// The text format has one `SCENARIO NAME KEY` per line. `Debug` does not print the keys.
#[derive(Clone, Default)]
pub struct Keys(BTreeMap<(String, String), String>);

/// A line that does not have the form `SCENARIO NAME KEY`.
#[derive(Debug, Error)]
#[error("line {0} is not `SCENARIO NAME KEY`")]
pub struct KeysError(usize);

impl Keys {
    /// Sets the key that `name` stands for in `scenario`.
    pub fn insert(&mut self, scenario: &str, name: &str, key: &str) {
        self.0.insert((scenario.to_owned(), name.to_owned()), key.to_owned());
    }

    /// Returns the names and keys of a scenario. The error is the name of the first missing key.
    pub(crate) fn of<'a>(&'a self, scenario: &'a Scenario) -> Result<Vec<(&'a str, &'a str)>, &'a str> {
        let find = |name: &'a str| {
            let key = self.0.get(&(scenario.name.clone(), name.to_owned()));
            key.map(|key| (name, key.as_str())).ok_or(name)
        };
        scenario.given.keys.iter().map(|given| find(&given.name)).collect()
    }
}

impl FromStr for Keys {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<Self, KeysError> {
        let mut keys = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [scenario, name, key] => keys.insert(scenario, name, key),
                _ => return Err(KeysError(number)),
            }
        }
        Ok(keys)
    }
}

/// Prints the keys in plain text, which is acceptable for test keys.
impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|((scenario, name), key)| writeln!(f, "{scenario} {name} {key}"))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}
