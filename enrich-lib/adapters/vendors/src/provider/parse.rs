//! Parsing of settings in TOML. Reports one mistake.

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use toml::{Table, Value};

use super::setting::{SettingError, line_at};
use super::wording;

/// Parses settings. An error has its line.
pub(crate) fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, SettingError> {
    read_table(parse_table(text)?).map_err(|error| error.on_its_line(text))
}

/// Parses a table, whose values [`read_table`] reads. The parser's excerpt of a wrong line is left out, as it
/// could show a secret.
pub fn parse_table(text: &str) -> Result<Table, SettingError> {
    text.parse::<Table>().map_err(|error| {
        let line = error.span().map(|span| line_at(text, span.start));
        let written = line.and_then(|line| text.lines().nth(line - 1)?.split_once('='));
        SettingError::new(written.map_or("", |(name, _)| name.trim()), error.message()).on_line(line)
    })
}

/// Reads the settings of a table. An error has no place yet.
pub fn read_table<T: DeserializeOwned>(table: Table) -> Result<T, SettingError> {
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
        let (path, message) = (setting(error.path()), error.inner().message());
        match wording::missing(message) {
            Some(name) => SettingError::new(name, "must be set").within(&path),
            None => SettingError::new(path, wording::plain(message)),
        }
    })
}

/// Returns a path separated by dots, with entries of an array by index.
fn setting(path: &Path) -> String {
    let names = path.iter().filter_map(|segment| match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Seq { index } => Some(index.to_string()),
        _ => None,
    });
    names.collect::<Vec<_>>().join(".")
}
