//! Which key stands for which name in which scenario.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::scenario::Scenario;

/// The keys of a server, by scenario and name. As text: `SCENARIO NAME KEY` a line. `Debug` hides them.
#[derive(Clone, Default)]
pub struct Keys(BTreeMap<(String, String), String>);

/// A line that is not of the form `SCENARIO NAME KEY`.
#[derive(Debug, Error)]
#[error("line {0} is not `SCENARIO NAME KEY`")]
pub struct KeysFault(usize);

impl Keys {
    /// From now on `name` stands for `key` in `scenario`.
    pub fn insert(&mut self, scenario: &str, name: &str, key: &str) {
        self.0.insert((scenario.to_owned(), name.to_owned()), key.to_owned());
    }

    /// The keys that a scenario needs, or the name of one that is not there.
    pub(crate) fn of<'a>(&'a self, scenario: &'a Scenario) -> Result<Vec<(&'a str, &'a str)>, &'a str> {
        let find = |name: &'a str| {
            let key = self.0.get(&(scenario.name.clone(), name.to_owned()));
            key.map(|key| (name, key.as_str())).ok_or(name)
        };
        scenario.given.keys.iter().map(|given| find(&given.name)).collect()
    }
}

impl FromStr for Keys {
    type Err = KeysFault;

    fn from_str(text: &str) -> Result<Self, KeysFault> {
        let mut keys = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [scenario, name, key] => keys.insert(scenario, name, key),
                _ => return Err(KeysFault(number)),
            }
        }
        Ok(keys)
    }
}

/// Shows them: they are a test's.
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
