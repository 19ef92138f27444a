//! The commands of blocks that cannot run: their subcommands, flags, packages and paths.

use std::collections::BTreeSet;
use std::process::Command;

use clap::error::ErrorKind;
use serde_json::Value;

use super::page::Page;
use crate::enrich::repository;

/// The mistakes of a command line that leaves values out.
const LEFT_OUT: [ErrorKind; 4] = [
    ErrorKind::MissingRequiredArgument,
    ErrorKind::InvalidValue,
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ErrorKind::MissingSubcommand,
];

/// The targets of the workspace.
pub struct Usage {
    packages: BTreeSet<String>,
    /// Binaries, examples and test targets.
    targets: BTreeSet<String>,
}

impl Usage {
    pub fn new() -> Self {
        let args = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
        let output = Command::new(env!("CARGO")).args(args).current_dir(repository()).output().unwrap();
        let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
        let targets = packages.iter().flat_map(|package| package["targets"].as_array().unwrap());
        Self { packages: packages.iter().map(name).collect(), targets: targets.map(name).collect() }
    }

    /// Checks the commands of a script.
    ///
    /// Errors: the mistakes.
    pub fn check(&self, page: &Page, script: &str) -> Result<(), String> {
        let mut errors = Vec::new();
        for line in script.replace("\\\n", " ").lines() {
            let words: Vec<_> = shlex::Shlex::new(line).collect();
            for command in words.split(|word| matches!(word.as_str(), "&&" | "||" | "|" | ";" | "&")) {
                if let Err(why) = self.check_command(page, command) {
                    errors.push(format!("`{}`: {why}", line.trim()));
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
    }

    /// Checks the subcommands and flags of a command in running text, which may leave values out.
    pub fn check_mention(&self, command: &str) -> Result<(), String> {
        let words: Vec<_> = shlex::Shlex::new(command).collect();
        match words.first().map(String::as_str) {
            Some("enrich") => check_enrich(&words, &LEFT_OUT),
            Some("cargo") => self.check_cargo(&words),
            _ => Ok(()),
        }
    }

    fn check_command(&self, page: &Page, command: &[String]) -> Result<(), String> {
        let is_prefix = |word: &String| word == "time" || (word.contains('=') && !word.starts_with('-'));
        let mut command: Vec<_> = command.iter().skip_while(|word| is_prefix(word)).cloned().collect();
        if let Some(end) = command.iter().position(|word| word.starts_with('>')) {
            command.truncate(end);
        }
        let compose = ["docker", "compose", "run", "--rm"].map(str::to_owned);
        match command.first().map(String::as_str) {
            Some("enrich") => check_enrich(&command, &[]),
            Some("cargo") => self.check_cargo(&command),
            Some("docker") if command.starts_with(&compose) => check_enrich(&command[compose.len()..], &[]),
            Some(program) => self.check_program(page, program),
            None => Ok(()),
        }
    }

    /// Checks the names of packages and targets, and the arguments after `--` for the program `enrich`.
    fn check_cargo(&self, command: &[String]) -> Result<(), String> {
        let end = command.iter().position(|word| word == "--").unwrap_or(command.len());
        let (cargo, args) = command.split_at(end);
        for pair in cargo.windows(2) {
            let known = match pair[0].as_str() {
                "-p" => &self.packages,
                "--bin" | "--example" | "--test" => &self.targets,
                _ => continue,
            };
            if !known.contains(&pair[1]) {
                return Err(format!("the workspace has no {}", pair[1]));
            }
        }
        // The default of `cargo run`.
        let is_enrich = cargo.get(1).is_some_and(|word| word == "run")
            && !cargo.iter().any(|word| ["--bin", "--example"].contains(&word.as_str()));
        if is_enrich && !args.is_empty() { check_enrich(args, &[]) } else { Ok(()) }
    }

    /// Checks that a program of the repository exists.
    fn check_program(&self, page: &Page, program: &str) -> Result<(), String> {
        let root = repository();
        let here = root.join(&page.path);
        let is_there = match program.strip_prefix("target/release/") {
            Some(name) => self.targets.contains(name),
            None => root.join(program).exists() || here.parent().unwrap().join(program).exists(),
        };
        let is_ours = program.contains('/') && !program.starts_with('/');
        if is_there || !is_ours { Ok(()) } else { Err(format!("there is no {program}")) }
    }
}

/// Parses a command line, whose first word is the program. Accepts values that are only placeholders, and the
/// `permitted` mistakes.
fn check_enrich(words: &[String], permitted: &[ErrorKind]) -> Result<(), String> {
    let is_permitted = |error: &clap::Error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::ValueValidation => true,
        kind => permitted.contains(&kind),
    };
    match ::enrich::command().try_get_matches_from(words) {
        Err(error) if !is_permitted(&error) => Err(error.to_string()),
        _ => Ok(()),
    }
}
