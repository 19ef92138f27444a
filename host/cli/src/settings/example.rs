//! `example.toml`: all settings with their manual and their defaults. A setting in a comment has no default, or
//! is off by default.

use enrich_vendors::provider::{SettingError, parse_table};
use toml::{Table, Value};

/// The start of the names of variables.
pub const PREFIX: &str = "ENRICH_";

pub const EXAMPLE: &str = include_str!("example.toml");

/// A setting that a variable can set.
pub struct Setting {
    /// Its path, separated by dots.
    pub path: String,
    /// Its default, or an example in a comment.
    value: Value,
    is_default: bool,
}

/// Returns the defaults.
pub fn defaults() -> Result<Table, SettingError> {
    parse_table(EXAMPLE)
}

/// Returns the settings in their order. Those of vendors, which are the last, have no variables.
pub fn settings() -> Vec<Setting> {
    let (mut table, mut found) = (String::new(), Vec::new());
    for line in EXAMPLE.lines().take_while(|line| !line.contains("[[vendors]]")) {
        let text = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = text.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            table = format!("{name}.");
        } else if let Some((name, _)) = text.split_once(" = ")
            && let Some(value) = text.parse::<Table>().ok().and_then(|mut line| line.remove(name))
        {
            found.push(Setting { path: format!("{table}{name}"), value, is_default: text == line });
        }
    }
    found
}

impl Setting {
    /// Returns the variable of the setting: `ENRICH_PRICE_FOUND` for `price.found`.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.path.replace('.', "_").to_uppercase())
    }

    /// Converts the text of a variable to the type of the setting. A text of another type stays a text, which
    /// is then reported.
    pub fn parse(&self, text: String) -> Value {
        let value = match &self.value {
            Value::Array(_) => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::Array(items.map(Value::from).collect()))
            }
            Value::Integer(_) => text.parse().ok().map(Value::Integer),
            Value::Float(_) => text.parse().ok().map(Value::Float),
            Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
            _ => None,
        };
        value.unwrap_or(Value::String(text))
    }
}

/// Returns the variables with their settings and defaults, one per row.
pub fn variable_rows() -> Vec<[String; 3]> {
    let row = |setting: Setting| {
        let default = if setting.is_default { setting.value.to_string() } else { String::new() };
        [setting.variable(), setting.path, default]
    };
    settings().into_iter().map(row).collect()
}
