//! Parsing of settings in TOML. Reports every mistake, not only the first.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::setting::{SettingError, SettingErrors, line_at};
use crate::wording;

/// A value from another source than the text, such as an environment variable, which replaces a setting in
/// the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The path of the setting, separated by dots.
    pub setting: String,
    /// The value of the setting.
    pub value: toml::Value,
    /// The name of the source.
    pub origin: String,
}

/// Parses settings and returns every mistake. Wrong settings are left out of the result, so that the caller
/// can check the others too. Returns no settings after a syntax error, or when a required setting is missing
/// or wrong.
pub fn parse_toml<T: DeserializeOwned>(text: &str) -> (Option<T>, SettingErrors) {
    parse_toml_with(text, &[])
}

/// Like [`parse_toml`], with settings that replace those in the text. The first override of a setting
/// applies.
pub fn parse_toml_with<T: DeserializeOwned>(
    text: &str,
    overrides: &[Override],
) -> (Option<T>, SettingErrors) {
    // Each has a text of its own, at a place behind all others: paths are found by their place.
    let mut end = text.len();
    let texts: Vec<_> = overrides
        .iter()
        .map(|Override { setting, value, .. }| {
            let text = format!("{}{setting} = {value}", " ".repeat(end + 1));
            end = text.len();
            text
        })
        .collect();
    let (mut root, errors) = DeTable::parse_recoverable(text);
    let is_broken = !errors.is_empty();
    let mut errors: SettingErrors = errors.iter().map(|error| syntax_error(text, error)).collect();
    for text in texts.iter().rev() {
        if let Ok(table) = DeTable::parse(text) {
            merge(root.get_mut(), table.into_inner());
        }
    }
    loop {
        let error = match T::deserialize(toml::Deserializer::from(root.clone())) {
            Ok(settings) => return ((!is_broken).then_some(settings), errors),
            Err(error) => error,
        };
        let path = error.span().and_then(|span| match is_missing(&error) {
            true => path_to(root.get_ref(), &|_, table| table == span),
            false => path_to(root.get_ref(), &|name, value| holds(&name, &span) || holds(&value, &span)),
        });
        let path = path.unwrap_or_default();
        let setting = path.join(".");
        let origin = overrides.iter().find(|other| other.setting == setting).map(|other| &other.origin);
        let mistake = value_error(text, &path, &error);
        let mistake = origin.map_or(mistake.clone(), |origin| mistake.with_origin(origin));
        // After a syntax error, settings may be in the wrong table and only seem missing or unknown.
        let is_misread = is_missing(&error) || wording::is_unknown_setting(error.message());
        if !is_broken || !is_misread && !errors.has_line(mistake.line()) {
            errors.push(mistake);
        }
        if !remove(root.get_mut(), &path) {
            return (None, errors);
        }
    }
}

/// Converts a syntax error. The parser's excerpt of the line is left out, as it could show a secret.
fn syntax_error(text: &str, error: &toml::de::Error) -> SettingError {
    let line = error.span().map(|span| line_at(text, span.start));
    let written = line.and_then(|line| text.lines().nth(line - 1));
    let setting = written.and_then(|line| line.split_once('=')).map(|(setting, _)| setting.trim());
    SettingError::new(setting.unwrap_or_default(), error.message()).on_line(line)
}

/// Creates the error for a mistake in the setting at `path`.
fn value_error(text: &str, path: &[String], error: &toml::de::Error) -> SettingError {
    let path = path.join(".");
    match wording::missing(error.message()) {
        Some(name) => SettingError::new(name, "must be set").within(&path).on_its_line(text),
        None => {
            let line = error.span().filter(|span| span.start <= text.len());
            let line = line.map(|span| line_at(text, span.start));
            SettingError::new(path, wording::plain(error.message())).on_line(line)
        }
    }
}

fn is_missing(error: &toml::de::Error) -> bool {
    wording::missing(error.message()).is_some()
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Returns the path to the innermost setting for which `is_at` accepts the spans of name and value. Entries
/// of an array are named by number.
fn path_to(table: &DeTable<'_>, is_at: &impl Fn(Range<usize>, Range<usize>) -> bool) -> Option<Vec<String>> {
    table.iter().find_map(|(name, value)| {
        let within = match value.get_ref() {
            DeValue::Table(inner) => path_to(inner, is_at),
            DeValue::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
                let DeValue::Table(inner) = item.get_ref() else { return None };
                let here = || is_at(item.span(), item.span()).then(Vec::new);
                let mut path = path_to(inner, is_at).or_else(here)?;
                path.insert(0, index.to_string());
                Some(path)
            }),
            _ => None,
        };
        let here = || is_at(name.span(), value.span()).then(Vec::new);
        let mut path = within.or_else(here)?;
        path.insert(0, name.get_ref().to_string());
        Some(path)
    })
}

/// Sets the settings of `other` in `table`.
fn merge<'i>(table: &mut DeTable<'i>, other: DeTable<'i>) {
    for (name, value) in other {
        if let Some(DeValue::Table(inner)) = table.get_mut(name.get_ref().as_ref()).map(Spanned::get_mut)
            && value.get_ref().is_table()
        {
            if let DeValue::Table(other) = value.into_inner() {
                merge(inner, other);
            }
        } else {
            table.remove(name.get_ref().as_ref());
            table.insert(name, value);
        }
    }
}

/// Removes the setting at `path`. If it is an array entry itself, removes the whole array, as other entries
/// must keep their indexes.
fn remove(table: &mut DeTable<'_>, path: &[String]) -> bool {
    let Some((name, rest)) = path.split_first() else { return false };
    let inner = match (table.get_mut(name.as_str()).map(Spanned::get_mut), rest) {
        (Some(DeValue::Table(inner)), [_, ..]) => Some((inner, rest)),
        (Some(DeValue::Array(items)), [index, rest @ ..]) if !rest.is_empty() => {
            let item = index.parse().ok().and_then(|index: usize| items.get_mut(index));
            match item.map(Spanned::get_mut) {
                Some(DeValue::Table(inner)) => Some((inner, rest)),
                _ => None,
            }
        }
        _ => None,
    };
    match inner {
        Some((inner, rest)) => remove(inner, rest),
        None => table.remove(name.as_str()).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Settings {
        found: u32,
        name: String,
        is_on: bool,
        rows: Vec<Row>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Row {
        at: Option<f64>,
        kind: Option<Kind>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Memory,
        Disk,
    }

    #[test]
    fn reports_every_mistake_and_reads_the_rest() {
        let text = "fuond = 1\nname = \"x\"\nis_on = 7\n[[rows]]\nat = \"1\"\nkind = \"memroy\"\n[[rows]]\nkind = \"disk\"\nhow = 1\n";
        let (settings, errors) = parse_toml::<Settings>(text);
        assert_eq!(
            errors.to_string(),
            "line 1, fuond: unknown setting `fuond`; did you mean `found`?\n\
             line 3, is_on: expected true or false, got the number 7\n\
             line 5, rows.at: expected a number, got text\n\
             line 6, rows.kind: unknown value `memroy`; expected one of `memory`, `disk`\n\
             line 9, rows.how: unknown setting `how`; expected one of `at`, `kind`"
        );
        assert_eq!(settings.unwrap().name, "x");
    }

    #[test]
    fn overrides_replace_settings_and_are_named_in_mistakes() {
        let overrides = |value: toml::Value| {
            let setting = |setting: &str, value, origin: &str| Override {
                setting: setting.to_owned(),
                value,
                origin: origin.to_owned(),
            };
            [setting("found", 2.into(), "FOUND"), setting("name", value, "NAME")]
        };
        let text = "found = 1\nis_on = 7\n";
        let (settings, errors) = parse_toml_with::<Settings>(text, &overrides("x".into()));
        assert_eq!(errors.to_string(), "line 2, is_on: expected true or false, got the number 7");
        let settings = settings.unwrap();
        assert_eq!((settings.found, settings.name.as_str()), (2, "x"));
        let (_, errors) = parse_toml_with::<Settings>("name = \"y\"", &overrides(5.into()));
        assert_eq!(errors.to_string(), "NAME: expected text, got the number 5");
    }

    #[test]
    fn reports_syntax_errors_with_the_mistakes_on_other_lines() {
        let text = "found = 1 2\nname = 5\n[[rows\nat = 1\nkind = \"disk\"\n";
        let (settings, errors) = parse_toml::<Settings>(text);
        let lines: Vec<_> = errors.iter().map(|error| error.line().unwrap()).collect();
        assert!(settings.is_none() && lines == [1, 2, 3], "{errors}");
    }
}
