//! The sources of settings: the file, environment variables that override it, and flags that override both.

use std::env;
use std::path::{Path, PathBuf};

use enrich_provider::{Override, SettingError, SettingErrors, parse_toml_with};
use serde_json::Value;
use toml::Value as Toml;

use super::config::Config;
use super::paths;
use super::schema::{Node, settings};
use super::text_source::TextSource;
use super::variables;

/// The settings file that is read by default, if it exists.
const DEFAULT_FILE: &str = "/etc/enrich/enrich.toml";

/// Where settings are read from. A reload reads them again.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    pub file: Option<PathBuf>,
    /// The flags and their settings, such as `--listen` and `listen`.
    flags: Vec<Override>,
}

/// The merged settings and their places.
pub struct Merged {
    pub config: Config,
    /// The mistakes, which have no places yet.
    pub errors: SettingErrors,
    pub places: Places,
}

/// The places of settings, for messages.
pub struct Places {
    /// The settings file and its text.
    file: Option<(PathBuf, String)>,
    overrides: Vec<Override>,
}

impl Layers {
    /// Reads the settings file of `--config` or ENRICH_CONFIG, or else the default one.
    pub fn new(file: Option<PathBuf>) -> Self {
        let default = || Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists());
        Self { file: file.or_else(default), flags: Vec::new() }
    }

    /// Overrides a setting, if the flag has a value.
    #[must_use]
    pub fn flag(mut self, flag: &str, setting: &str, value: Option<&str>) -> Self {
        self.flags.extend(value.map(|value| Override {
            setting: setting.to_owned(),
            value: Toml::String(value.to_owned()),
            origin: flag.to_owned(),
        }));
        self
    }

    /// Reads and merges the settings without checking them. Errors: the settings cannot be parsed.
    pub fn merge(&self) -> Result<Merged, SettingErrors> {
        let file = self.file.as_ref().map(|path| {
            let text = std::fs::read_to_string(path)
                .map_err(|error| SettingError::new("", format!("cannot read {}: {error}", path.display())))?;
            Ok::<_, SettingError>((path.clone(), text))
        });
        let file = file.transpose()?;
        let mut overrides = self.flags.clone();
        let flags = overrides.len();
        let mut empty = Vec::new();
        for (setting, node) in settings() {
            let name = variables::name(&setting);
            let is_flag = overrides[..flags].iter().any(|flag| flag.setting == setting);
            match env::var(&name) {
                _ if is_flag => {}
                // It could stand for the default or for no value, and often is a variable of a script that is not set.
                Ok(text) if text.is_empty() => {
                    empty.push(
                        SettingError::new(&setting, "is empty; set a value, or unset it").with_origin(&name),
                    );
                }
                Ok(text) => overrides.push(Override { value: parse(node, text), setting, origin: name }),
                Err(_) => {}
            }
        }
        if !empty.is_empty() {
            return Err(empty.into_iter().collect());
        }
        let text = file.as_ref().map_or("", |(_, text)| text.as_str());
        let (config, mut errors) = parse_toml_with::<Config>(text, &overrides);
        let places = Places { file, overrides };
        let Some(mut config) = config else { return Err(errors.map(|error| places.locate(error))) };
        errors.extend(paths::check(&config));
        places.resolve_paths(&mut config);
        Ok(Merged { config, errors, places })
    }
}

/// Converts the text of a variable to the type of the setting. A text of another type stays a text, which is
/// then reported.
fn parse(node: Node<'_>, text: String) -> Toml {
    if node.permits("string") {
        return Toml::String(text);
    }
    if node.permits("array") {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        return Toml::Array(items.map(|item| Toml::String(item.to_owned())).collect());
    }
    let value = match text.parse::<Value>() {
        Ok(Value::Bool(is_on)) if node.permits("boolean") => Some(Toml::Boolean(is_on)),
        Ok(Value::Number(number)) if node.permits("integer") => number.as_i64().map(Toml::Integer),
        Ok(Value::Number(number)) if node.permits("number") => number.as_f64().map(Toml::Float),
        _ => None,
    };
    value.unwrap_or(Toml::String(text))
}

impl Places {
    /// Adds the place of a setting to its error: the flag, the variable, or the file and the line.
    pub fn locate(&self, error: SettingError) -> SettingError {
        let setting = error.setting();
        match (&self.file, self.origin(&setting)) {
            (_, Some(origin)) => error.with_origin(origin),
            (Some((path, text)), None) => error.on_its_line(text).in_file(path),
            (None, None) => error,
        }
    }

    /// Returns the flag or variable that sets a setting or a part of it.
    fn origin(&self, setting: &str) -> Option<&str> {
        let is_part = |part: &str| {
            part.strip_prefix(setting).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.overrides.iter().find(|other| is_part(&other.setting)).map(|other| other.origin.as_str())
    }

    /// Returns a path relative to the settings file, if it is in the file.
    pub fn resolve(&self, setting: &str, path: &Path) -> PathBuf {
        match &self.file {
            Some((file, text)) if self.origin(setting).is_none() && is_set(text, setting) => {
                file.parent().map_or_else(|| path.to_owned(), |dir| dir.join(path))
            }
            _ => path.to_owned(),
        }
    }

    /// Returns the directory that paths of `[[vendors]]` are relative to, as the path of a file in it.
    pub fn file(&self) -> &Path {
        self.file.as_ref().map_or(Path::new(""), |(file, _)| file)
    }

    fn resolve_paths(&self, config: &mut Config) {
        config.data = self.resolve("data", &config.data);
        if let Some(tls) = &mut config.tls {
            tls.cert = self.resolve("tls.cert", &tls.cert);
            tls.key = self.resolve("tls.key", &tls.key);
        }
        for (setting, path) in [
            ("windows_ca", &mut config.windows_ca),
            ("emails.disposable_file", &mut config.emails.disposable_file),
        ] {
            *path = path.take().map(|path| self.resolve(setting, &path));
        }
        let urls = [&mut config.database, &mut config.windows].into_iter().flatten();
        let sources = urls.filter_map(TextSource::elsewhere);
        for source in sources.chain(config.people.key.as_mut().and_then(TextSource::elsewhere)) {
            *source = source.clone().relative_to(self.file());
        }
    }
}

/// Returns whether the file sets `setting`, so that its path is not the default.
fn is_set(text: &str, setting: &str) -> bool {
    let table = text.parse::<toml::Table>().ok();
    let mut names = setting.split('.');
    let first = table.as_ref().and_then(|table| table.get(names.next()?));
    names.try_fold(first, |value, name| Some(value?.get(name))).flatten().is_some()
}
