//! Rows of JSON Lines: one object per line.

use std::io::Read;

use serde_json::Value;

use super::lines::{Lines, Member, members, object};
use super::person::{Columns, Person, Row, RowError, person, rejected};

/// Maximum length of a line, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

pub(crate) struct JsonLines<R> {
    lines: Lines<R>,
    columns: Columns,
}

impl<R: Read> JsonLines<R> {
    pub(crate) fn new(text: R, columns: &Columns) -> Self {
        Self { lines: Lines::new(text, LINE_BYTES_MAX), columns: columns.clone() }
    }

    fn person(&self, line: &[u8]) -> Result<Person, String> {
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err("the line is longer than 64 KiB".to_owned());
        }
        let names = [&self.columns.email, &self.columns.url, &self.columns.confidence].map(String::as_str);
        let members = members(object(line), &names).ok_or("the line is not one JSON object")?;
        if self.columns.needs_confidence() && matches!(members[2], Member::Missing) {
            return Err(format!("the field {} is missing", names[2]));
        }
        let mut values = members.into_iter().zip(names).map(|(member, name)| member.into_value(name));
        let mut next = || values.next().transpose().map(Option::flatten);
        let text = |value, name| match value {
            Some(Value::String(text)) => Ok(text),
            _ => Err(format!("the field {name} is missing or not a string")),
        };
        let (email, url) = (text(next()?, names[0])?, text(next()?, names[1])?);
        let confidence = next()?.map(|value| value.as_f64().ok_or("the confidence is not a number"));
        person(&email, &url, confidence.transpose()?)
    }
}

impl<R: Read> Iterator for JsonLines<R> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        match self.lines.next() {
            Ok(None) => None,
            Ok(Some(line)) => Some(self.person(&line).or_else(|reason| rejected(self.lines.line, reason))),
            Err(error) => Some(Err(RowError::Unreadable(error.into()))),
        }
    }
}
