//! The commands of blocks that cannot run: their subcommands, flags, packages and paths.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::process::Command;

use serde_json::Value;

use super::page::Page;
use crate::enrich::repository;

/// Returns whether what follows a dash makes a value: standard input, or a negative number.
fn is_value(after_dash: &str) -> bool {
    after_dash.bytes().all(|c| c.is_ascii_digit())
}

/// The help of `enrich` and the targets of the workspace.
pub struct Usage {
    helps: BTreeMap<Vec<String>, String>,
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
        Self {
            helps: BTreeMap::new(),
            packages: packages.iter().map(name).collect(),
            targets: targets.map(name).collect(),
        }
    }

    /// Returns the help of a command, or `None` if there is no such command.
    pub fn help(&mut self, path: &[String]) -> Option<String> {
        if !self.helps.contains_key(path) {
            let mut command = ::enrich::command();
            command.build();
            for name in path {
                command = command.find_subcommand(name)?.clone();
            }
            self.helps.insert(path.to_owned(), command.render_long_help().to_string());
        }
        self.helps.get(path).cloned()
    }

    /// Checks the commands of a script.
    ///
    /// Errors: the mistakes.
    pub fn check(&mut self, page: &Page, script: &str) -> Result<(), String> {
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
    pub fn check_mention(&mut self, command: &str) -> Result<(), String> {
        let words: Vec<_> = shlex::Shlex::new(command).collect();
        match words.first().map(String::as_str) {
            Some("enrich") => self.check_flags(&words[1..]).map(drop),
            Some("cargo") => self.check_cargo(&words),
            _ => Ok(()),
        }
    }

    fn check_command(&mut self, page: &Page, command: &[String]) -> Result<(), String> {
        let is_prefix = |word: &String| word == "time" || (word.contains('=') && !word.starts_with('-'));
        let mut command: Vec<_> = command.iter().skip_while(|word| is_prefix(word)).cloned().collect();
        if let Some(end) = command.iter().position(|word| word.starts_with('>')) {
            command.truncate(end);
        }
        match command.first().map(String::as_str) {
            Some("enrich") => self.check_enrich(&command[1..]),
            Some("cargo") => self.check_cargo(&command),
            Some("docker")
                if command[1..].starts_with(&["compose", "run", "--rm", "node1"].map(str::to_owned)) =>
            {
                self.check_enrich(&command[5..])
            }
            Some(program) => self.check_program(page, program),
            None => Ok(()),
        }
    }

    fn check_enrich(&mut self, args: &[String]) -> Result<(), String> {
        let (values, expected) = self.check_flags(args)?;
        if expected.contains(&values) {
            Ok(())
        } else {
            Err(format!("{values} values, but it takes {expected:?}"))
        }
    }

    /// Checks the subcommands and flags. Returns the number of other values, and the numbers that the command
    /// takes.
    fn check_flags(&mut self, args: &[String]) -> Result<(usize, RangeInclusive<usize>), String> {
        let (mut path, mut values) = (Vec::new(), 0);
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let help = self.help(&path).ok_or(format!("there is no command {}", path.join(" ")))?;
            if let Some(flag) = word.strip_prefix('-').filter(|flag| !is_value(flag)) {
                let takes_value = flag_takes_value(&help, &format!("-{flag}"))?;
                if takes_value {
                    words.next().ok_or(format!("{word} has no value"))?;
                }
            } else if has_subcommands(&help) {
                path.push(word.clone());
            } else {
                values += 1;
            }
        }
        let help = self.help(&path).ok_or(format!("there is no command {}", path.join(" ")))?;
        Ok((values, positionals(&help)))
    }

    /// Checks the names of packages and targets, and the arguments after `--` for the program `enrich`.
    fn check_cargo(&mut self, command: &[String]) -> Result<(), String> {
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
        if is_enrich { self.check_enrich(args.get(1..).unwrap_or_default()) } else { Ok(()) }
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

/// Returns whether the flag takes a value.
///
/// Errors: the command has no such flag.
fn flag_takes_value(help: &str, flag: &str) -> Result<bool, String> {
    let names = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let is_named = |line: &&str| line.split([' ', ',']).take(3).any(|word| word == flag);
    let line = names.into_iter().find(is_named).ok_or(format!("there is no flag {flag}"))?;
    let after = line.split_once(flag).unwrap().1;
    Ok(after.split("  ").next().unwrap().contains('<'))
}

fn has_subcommands(help: &str) -> bool {
    help.lines().any(|line| line.starts_with("Usage: ") && line.ends_with("<COMMAND>"))
}

/// Returns the least and the largest number of values that a command takes besides its flags.
fn positionals(help: &str) -> RangeInclusive<usize> {
    let usage = help.lines().find(|line| line.starts_with("Usage: ")).unwrap();
    let words: Vec<_> = usage.split(' ').collect();
    // A group of flags, one of which is required, is written `<--disable|--enable>`.
    let is_flag = |word: &str| word.starts_with("<--") || word.contains('|');
    let is_value =
        |pair: &[&str]| pair[1].starts_with('<') && !pair[0].starts_with("--") && !is_flag(pair[1]);
    if has_subcommands(help) {
        return 0..=0;
    }
    let required = words.windows(2).filter(|pair| is_value(pair)).count();
    let optional = words.iter().filter(|word| word.starts_with('[') && **word != "[OPTIONS]").count();
    required..=required + optional
}
