//! The sources of settings: the defaults, the file, environment variables and flags. Each overrides those
//! before it.

use std::env::{self, VarError};
use std::fs;
use std::path::{Path, PathBuf};

use enrich_vendors::provider::{SettingError, parse_table, read_table};
use toml::{Table, Value};

use super::config::Config;
use super::example;
use crate::path;

/// The settings file that is read by default, if it exists.
const DEFAULT_FILE: &str = "/etc/enrich/enrich.toml";

/// The settings that are paths, besides those of vendors.
const PATHS: [&str; 8] = [
    "data",
    "tls.cert",
    "tls.key",
    "windows_ca",
    "emails.disposable_file",
    "database.file",
    "windows.file",
    "people.key.file",
];

/// The settings that a reload applies.
const RELOADED: [&str; 5] = ["tls.cert", "tls.key", "resolver.deadline_ms", "cache", "vendors"];

/// Where settings are read from. A reload reads them again.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    pub file: Option<PathBuf>,
    flags: Vec<Flag>,
}

#[derive(Clone, Debug)]
struct Flag {
    name: &'static str,
    setting: &'static str,
    value: String,
}

/// The merged settings and their places.
pub struct Merged {
    pub config: Config,
    /// The same settings as tables.
    pub table: Table,
    pub places: Places,
}

/// The places of settings, for messages.
#[derive(Default)]
pub struct Places {
    /// The settings file and its text.
    file: Option<(PathBuf, String)>,
    /// The settings that variables and flags set, and their names.
    origins: Vec<(String, String)>,
}

impl Layers {
    /// Reads the settings file of `--config` or ENRICH_CONFIG, or else the default one.
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { file: file.or_else(default_file), flags: Vec::new() }
    }

    /// Overrides a setting, if the flag has a value.
    #[must_use]
    pub fn flag(mut self, name: &'static str, setting: &'static str, value: Option<&str>) -> Self {
        self.flags.extend(value.map(|value| Flag { name, setting, value: value.to_owned() }));
        self
    }

    /// Reads and merges the settings without the checks that concern several of them.
    pub fn merge(&self) -> Result<Merged, SettingError> {
        let mut places = Places::default();
        let table = self.tables(&mut places).map_err(|error| places.locate(error))?;
        let config = read_table(table.clone()).map_err(|error| places.locate(error))?;
        Ok(Merged { config, table, places })
    }

    fn tables(&self, places: &mut Places) -> Result<Table, SettingError> {
        let mut table = example::defaults()?;
        // The default file can appear after the start.
        if let Some(file) = &self.file.clone().or_else(default_file) {
            let text = fs::read_to_string(file)
                .map_err(|error| SettingError::new("", format!("cannot read {}: {error}", file.display())))?;
            let (_, text) = places.file.insert((file.clone(), text));
            let mut settings = parse_table(text)?;
            resolve_paths(&mut settings, file.parent().unwrap_or(Path::new("")))?;
            merge(&mut table, settings);
        }
        for setting in example::settings() {
            let (origin, text) = match self.flags.iter().find(|flag| flag.setting == setting.path) {
                Some(Flag { name, value, .. }) => ((*name).to_owned(), Some(value.clone())),
                None => match env::var(setting.variable()) {
                    Err(VarError::NotPresent) => continue,
                    text => (setting.variable(), text.ok()),
                },
            };
            places.origins.push((setting.path.clone(), origin));
            let Some(text) = text else {
                return Err(SettingError::new(setting.path, "is not UTF-8"));
            };
            // It could stand for the default or for no value, and often is a variable of a script that is not
            // set.
            if text.is_empty() {
                return Err(SettingError::new(setting.path, "is empty; set a value, or unset it"));
            }
            if PATHS.contains(&setting.path.as_str()) {
                check_path(&setting.path, &text)?;
            }
            set(&mut table, &setting.path, setting.parse(text));
        }
        let has_flag = |setting| self.flags.iter().any(|flag| flag.setting == setting);
        if has_flag("data") && has_flag("database") {
            return Err(SettingError::new("data", "excludes --database; the accounts are in one of them"));
        }
        // The flag takes precedence over a database in the environment or the file.
        if has_flag("data") {
            table.remove("database");
        }
        Ok(table)
    }
}

/// Returns the default settings file, if it may exist: then it is read, and its error reported.
fn default_file() -> Option<PathBuf> {
    Some(PathBuf::from(DEFAULT_FILE)).filter(|file| !matches!(file.try_exists(), Ok(false)))
}

/// Checks the paths in a settings file, and makes them relative to its directory.
fn resolve_paths(settings: &mut Table, dir: &Path) -> Result<(), SettingError> {
    fn resolve(table: &mut Table, setting: &str, dir: &Path) -> Result<(), SettingError> {
        let (name, rest) = setting.split_once('.').unwrap_or((setting, ""));
        match table.get_mut(name) {
            Some(Value::String(path)) if rest.is_empty() => {
                check_path(setting, path)?;
                *path = dir.join(&*path).to_string_lossy().into_owned();
                Ok(())
            }
            Some(Value::Table(table)) => resolve(table, rest, dir).map_err(|error| error.within(name)),
            _ => Ok(()),
        }
    }
    PATHS.iter().try_for_each(|setting| resolve(settings, setting, dir))?;
    let vendors = settings.get_mut("vendors").and_then(Value::as_array_mut).into_iter().flatten();
    for (index, vendor) in
        vendors.enumerate().filter_map(|(index, vendor)| Some((index, vendor.as_table_mut()?)))
    {
        let resolved = ["file", "secret.file"].iter().try_for_each(|setting| resolve(vendor, setting, dir));
        resolved.map_err(|error| error.within(&format!("vendors.{index}")))?;
    }
    Ok(())
}

fn check_path(setting: &str, path: &str) -> Result<(), SettingError> {
    path::check(Path::new(path)).map_err(|why| SettingError::new(setting, why))
}

/// Sets the settings of `other` in `table`.
fn merge(table: &mut Table, other: Table) {
    for (name, value) in other {
        match (table.get_mut(&name), value) {
            (Some(Value::Table(inner)), Value::Table(other)) => merge(inner, other),
            (_, value) => drop(table.insert(name, value)),
        }
    }
}

/// Sets the setting with this path.
fn set(table: &mut Table, setting: &str, value: Value) {
    let Some((name, rest)) = setting.split_once('.') else {
        table.insert(setting.to_owned(), value);
        return;
    };
    let inner = table.entry(name).or_insert_with(|| Table::new().into());
    if let Value::Table(inner) = inner {
        set(inner, rest, value);
    }
}

/// Returns the settings that differ and that a reload does not apply.
pub fn differences(before: &Table, after: &Table) -> Vec<String> {
    let settings = example::settings().into_iter().map(|setting| setting.path);
    let fixed = settings.filter(|path| !RELOADED.iter().any(|reloaded| is_part(path, reloaded)));
    fixed.filter(|path| get(before, path) != get(after, path)).collect()
}

fn get<'a>(table: &'a Table, setting: &str) -> Option<&'a Value> {
    let mut names = setting.split('.');
    let first = table.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}

/// Returns whether a setting is `whole` or in it.
fn is_part(setting: &str, whole: &str) -> bool {
    setting.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Places {
    /// Adds the place of a setting to its error: the flag, the variable, or the file and the line.
    pub fn locate(&self, error: SettingError) -> SettingError {
        let setting = error.setting();
        // The error can concern a table of which a variable sets a part.
        let origin = self.origins.iter().find(|(part, _)| is_part(part, &setting));
        match (&self.file, origin) {
            (_, Some((_, origin))) => error.with_origin(origin),
            (Some((path, text)), _) => error.on_its_line(text).in_file(path),
            _ => error,
        }
    }
}
