//! The people of a file.

use std::io::Read;

use serde_json::Value;

use super::csv::Csv;
use super::lines::{Lines, Member, members, object};
use super::person::{Columns, Person, Row, RowError, person, rejected};
use super::records::Records;
use super::text::{FileError, Form, Text};

/// Maximum length of a line of JSON, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// The rows of a file, in order.
pub type Rows<'a> = Box<dyn Iterator<Item = Row> + 'a>;

/// Detects the format of `file` and reads the header if it is CSV.
pub fn read_people<'a>(file: impl Read + Send + 'a, columns: &Columns) -> Result<Rows<'a>, FileError> {
    let Text { form, bytes, line, .. } = Text::open(file)?;
    Ok(match form {
        Form::JsonLines => {
            let columns = columns.clone();
            Box::new(Lines::new(bytes, LINE_BYTES_MAX).map(move |line| {
                let (number, line) = line.map_err(|error| RowError::Unreadable(error.into()))?;
                json_person(&line, &columns).or_else(|reason| rejected(number, reason))
            }))
        }
        Form::Csv { delimiter } => Box::new(Csv::new(Records::new(bytes, delimiter, line), columns)?),
    })
}

fn json_person(line: &[u8], columns: &Columns) -> Result<Person, String> {
    if line.len() as u64 > LINE_BYTES_MAX {
        return Err("the line is longer than 64 KiB".to_owned());
    }
    let names = [&columns.email, &columns.url, &columns.confidence].map(String::as_str);
    let members = members(object(line), &names).ok_or("the line is not one JSON object")?;
    if columns.needs_confidence() && matches!(members[2], Member::Missing) {
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
