//! Mistakes in TOML settings: the file, the line, the setting and the accepted values.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mistake in the settings: its position and the accepted values.
///
/// It never contains the line itself or a text in the place of another type, as these could be a misplaced
/// secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{why}", Place(self))]
pub struct SettingError {
    file: Option<PathBuf>,
    line: Option<usize>,
    /// The variable or flag that sets the setting.
    origin: Option<String>,
    /// The path of the setting, separated by dots, with array entries by index: `vendors.0.limits.tries`.
    setting: String,
    why: String,
}

impl SettingError {
    /// Creates an error for `setting`, a path separated by dots with array entries by index, from 0. The
    /// index is not displayed, as the error has [a line](SettingError::on_its_line).
    pub fn new(setting: impl Into<String>, why: impl Into<String>) -> Self {
        Self { file: None, line: None, origin: None, setting: setting.into(), why: why.into() }
    }

    /// Prefixes the setting with the path of the outer setting `outer`.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        let names = [outer, &self.setting].into_iter().filter(|names| !names.is_empty());
        let setting = names.collect::<Vec<_>>().join(".");
        Self { setting, ..self }
    }

    /// Sets the line of the setting in `text`. If the setting is missing there, sets the line of the
    /// innermost table found.
    #[must_use]
    pub fn on_its_line(self, text: &str) -> Self {
        let line = self.line.or_else(|| line_of(text, &self.setting));
        Self { line, ..self }
    }

    /// Sets the name of the variable or flag that sets the setting, in place of a file and a line.
    #[must_use]
    pub fn with_origin(self, origin: &str) -> Self {
        Self { file: None, line: None, origin: Some(origin.to_owned()), ..self }
    }

    /// Returns the variable or flag that sets the setting, if it is not in a file.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Sets the file, unless it is already set.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        Self { file: self.file.or_else(|| Some(path.to_owned())), ..self }
    }

    /// Sets the line.
    #[must_use]
    pub(crate) fn on_line(self, line: Option<usize>) -> Self {
        Self { line, ..self }
    }

    /// Returns the file, if it is known.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the line, counted from 1, if it is known.
    pub const fn line(&self) -> Option<usize> {
        self.line
    }

    /// Returns the path of the setting, separated by dots, without the indexes of array entries.
    pub fn setting(&self) -> String {
        let names: Vec<_> = self.setting.split('.').filter(|name| name.parse::<usize>().is_err()).collect();
        names.join(".")
    }

    /// Returns what is wrong.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// Returns the line of a byte offset, counted from 1.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// Returns the line of the longest prefix of the path `setting` that exists in `text`, if any.
fn line_of(text: &str, setting: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut names = setting.split('.');
    let (mut offset, mut value) = entry(root.get_ref(), names.next()?)?;
    for name in names {
        let inner = match value {
            DeValue::Table(table) => entry(table, name),
            DeValue::Array(items) => item(name, |index| items.get(index)),
            _ => None,
        };
        let Some(inner) = inner else { break };
        (offset, value) = inner;
    }
    Some(line_at(text, offset))
}

fn entry<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<(usize, &'a DeValue<'i>)> {
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    Some((key.span().start, value.get_ref()))
}

fn item<'a, 'i: 'a>(
    name: &str,
    get: impl FnOnce(usize) -> Option<&'a Spanned<DeValue<'i>>>,
) -> Option<(usize, &'a DeValue<'i>)> {
    let value = get(name.parse().ok()?)?;
    Some((value.span().start, value.get_ref()))
}

/// Displays the file, the line and the setting, as far as they are known, as a prefix of the message.
struct Place<'a>(&'a SettingError);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SettingError { file, line, origin, setting, .. } = self.0;
        if let Some(origin) = origin {
            return write!(f, "{origin}: ");
        }
        let file = file.as_ref().map(|file| file.display().to_string());
        let line = line.map(|line| format!("line {line}"));
        let setting = (!setting.is_empty()).then(|| self.0.setting());
        let parts: Vec<_> = [file, line, setting].into_iter().flatten().collect();
        if parts.is_empty() { Ok(()) } else { write!(f, "{}: ", parts.join(", ")) }
    }
}
