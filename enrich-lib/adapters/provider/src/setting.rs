//! What is wrong with settings in TOML: the file, the line, the setting, and what it can be.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Why settings can't be used: where the mistake is, and what can stand there.
///
/// Never shows the line itself, nor a text in the place of something else: they could be a secret that stands where it
/// should not.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{why}", Place(self))]
pub struct SettingFault {
    file: Option<PathBuf>,
    line: Option<usize>,
    /// Its names from the outside in with dots between them, entries of an array by number: `vendors.0.limits.tries`.
    setting: String,
    why: String,
}

/// Reads settings. What is wrong is told by its line.
pub fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, SettingFault> {
    toml::from_str(text).map_err(|error| SettingFault::of(text, &error))
}

impl SettingFault {
    /// That `setting` can't be as it is: its names from the outside in, with dots between them. An entry of an array is
    /// named by its number, from 0 on; no reader sees that number, as there is [a line](SettingFault::on_its_line).
    pub fn new(setting: impl Into<String>, why: impl Into<String>) -> Self {
        Self { file: None, line: None, setting: setting.into(), why: why.into() }
    }

    /// The same fault, of settings that stand within this one.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        let setting =
            if self.setting.is_empty() { outer.to_owned() } else { format!("{outer}.{}", self.setting) };
        Self { setting, ..self }
    }

    /// The same fault with the line on which its setting stands in `text`, or else the table that it should stand in.
    #[must_use]
    pub fn on_its_line(self, text: &str) -> Self {
        let line = self.line.or_else(|| line_of(text, &self.setting));
        Self { line, ..self }
    }

    /// The same fault, in this file.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        Self { file: self.file.or_else(|| Some(path.to_owned())), ..self }
    }

    /// What the parser says. Its own picture of the line is left out.
    fn of(text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| line_at(text, span.start));
        // What is missing stands on no line.
        let is_missing = error.message().starts_with("missing");
        let written = line.and_then(|line| text.lines().nth(line - 1)).filter(|_| !is_missing);
        let setting = written.and_then(|line| line.split_once('=')).map(|(setting, _)| setting.trim());
        let told = error.message();
        let quoted =
            told.strip_prefix("invalid type: string").and_then(|rest| rest.rsplit_once(", expected"));
        let why = match quoted {
            Some((_, expected)) => format!("invalid type: a text, expected{expected}"),
            None => told.to_owned(),
        };
        Self { line, ..Self::new(setting.unwrap_or_default(), why) }
    }
}

/// Counted from 1.
fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// The line on which as much of `setting` stands as there is, if any of it is.
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

/// The file, the line and the setting, as far as they are known, in front of what is wrong there.
struct Place<'a>(&'a SettingFault);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SettingFault { file, line, setting, .. } = self.0;
        let names: Vec<_> = setting.split('.').filter(|name| name.parse::<usize>().is_err()).collect();
        let file = file.as_ref().map(|file| file.display().to_string());
        let line = line.map(|line| format!("line {line}"));
        let setting = (!setting.is_empty()).then(|| names.join("."));
        let parts: Vec<_> = [file, line, setting].into_iter().flatten().collect();
        if parts.is_empty() { Ok(()) } else { write!(f, "{}: ", parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\n[b]\nc = { d = 2,\n  e = 3 }\n[[f]]\ng = 4\n[[f]]\n[f.h]\ni = 5\n";

    #[test]
    fn a_setting_is_on_its_line_and_what_is_missing_on_that_of_its_table() {
        for (setting, line) in [
            ("a", Some(1)),
            ("b", Some(2)),
            ("b.c", Some(3)),
            ("b.c.e", Some(4)),
            ("b.x", Some(2)),
            ("f.0.g", Some(6)),
            ("f.0.x", Some(5)),
            ("f.1", Some(7)),
            ("f.1.h.i", Some(9)),
            ("x", None),
        ] {
            assert_eq!(line_of(TEXT, setting), line, "{setting}");
        }
    }

    #[test]
    fn a_fault_names_what_is_known_of_its_place() {
        let fault = SettingFault::new("h.i", "is odd").within("f.1");
        assert_eq!(fault.to_string(), "f.h.i: is odd");
        let fault = fault.on_its_line(TEXT).in_file(Path::new("x.toml")).in_file(Path::new("y.toml"));
        assert_eq!(fault.to_string(), "x.toml, line 9, f.h.i: is odd");
        assert_eq!(SettingFault::new("", "is odd").to_string(), "is odd");
    }
}
