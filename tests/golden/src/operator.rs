//! Prepares a store for the scenarios with its operator's command line.

use std::process::Command;
use std::{env, fs, io};

use enrich_lib::key::ApiKey;
use thiserror::Error;

use crate::keys::Keys;
use crate::scenario::Scenario;

/// The command line of a store's operator, for example `env ENRICH_DATA=DIR enrich`.
#[derive(Clone, Debug)]
pub struct Operator {
    program: String,
    args: Vec<String>,
}

/// A failure to prepare a store.
#[derive(Debug, Error)]
pub enum OperatorError {
    /// The command cannot be started.
    #[error("{0} can't be run")]
    Run(String, #[source] io::Error),
    /// The command failed or printed invalid UTF-8.
    #[error("{0}: {1}")]
    Failed(String, String),
    /// The temporary file for the people cannot be written or removed.
    #[error("no temporary file can be written")]
    File(#[source] io::Error),
    /// A key to revoke does not have the library's format, so its id is unknown.
    #[error("a key that has to be revoked is not of the library's format")]
    Key,
}

impl Operator {
    /// Creates an operator from a program and its first arguments. Returns `None` if the command is empty.
    pub fn new<'a>(command: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut words = command.into_iter().map(str::to_owned);
        let program = words.next()?;
        Some(Self { program, args: words.collect() })
    }

    /// Fills a new store with the data of `scenarios`. A running server sees the data after a short delay.
    pub fn prepare(&self, scenarios: &[Scenario]) -> Result<Keys, OperatorError> {
        let mut keys = Keys::default();
        for scenario in scenarios {
            self.make_workspaces(scenario)?;
            self.make_keys(scenario, &mut keys)?;
        }
        self.import_people(scenarios)?;
        for email in scenarios.iter().flat_map(|scenario| &scenario.given.opted_out) {
            self.call(&["people", "opt-out", email])?;
        }
        Ok(keys)
    }

    fn make_workspaces(&self, scenario: &Scenario) -> Result<(), OperatorError> {
        for workspace in &scenario.given.workspaces {
            let (id, quota) = (workspace.id.as_str(), workspace.quota);
            let numbers = [workspace.credits, quota.limit().into(), quota.window_seconds().into()];
            let [credits, limit, window] = numbers.map(|number| number.to_string());
            let settings = ["--credits", &credits, "--limit", &limit, "--window", &window];
            self.call(&[&["workspace", "create", id], &settings[..]].concat())?;
        }
        Ok(())
    }

    fn make_keys(&self, scenario: &Scenario, keys: &mut Keys) -> Result<(), OperatorError> {
        for given in &scenario.given.keys {
            let key = self.call(&["key", "create", given.workspace.as_str(), &given.name])?;
            if given.revoked {
                let id = ApiKey::parse(&key).ok_or(OperatorError::Key)?.digest().key_id();
                self.call(&["key", "revoke", &id.to_string()])?;
            }
            keys.insert(&scenario.name, &given.name, &key);
        }
        Ok(())
    }

    fn import_people(&self, scenarios: &[Scenario]) -> Result<(), OperatorError> {
        let people = scenarios.iter().flat_map(|scenario| &scenario.given.people);
        let rows = people.map(|person| format!("{},{}\n", person.email, person.profile.as_str()));
        let table = "email,linkedin_url\n".to_owned() + &rows.collect::<String>();
        let file = env::temp_dir().join(format!("golden-people-{}.csv", std::process::id()));
        fs::write(&file, table).map_err(OperatorError::File)?;
        let imported = self.call(&["people", "import", &file.to_string_lossy()]);
        fs::remove_file(&file).map_err(OperatorError::File)?;
        imported.map(|_| ())
    }

    /// Runs a command and returns its trimmed output.
    fn call(&self, args: &[&str]) -> Result<String, OperatorError> {
        let output = Command::new(&self.program).args(&self.args).args(args).output();
        let output = output.map_err(|error| OperatorError::Run(self.program.clone(), error))?;
        let stdout = String::from_utf8(output.stdout);
        match stdout {
            Ok(stdout) if output.status.success() => Ok(stdout.trim().to_owned()),
            _ => {
                let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(OperatorError::Failed(args.join(" "), stderr))
            }
        }
    }
}
