//! The people of a file.

use std::io::Read;

use super::csv::Csv;
use super::json_lines::JsonLines;
use super::person::{Columns, Row};
use super::records::Records;
use super::text::{FileError, Form, Text};

/// The rows of a file, in order.
pub type Rows<'a> = Box<dyn Iterator<Item = Row> + 'a>;

/// Detects the format of `file` and reads the header if it is CSV.
pub fn read_people<'a>(file: impl Read + Send + 'a, columns: &Columns) -> Result<Rows<'a>, FileError> {
    let Text { form, bytes, line, .. } = Text::open(file)?;
    Ok(match form {
        Form::JsonLines => Box::new(JsonLines::new(bytes, columns)),
        Form::Csv { delimiter } => Box::new(Csv::new(Records::new(bytes, delimiter, line), columns)?),
    })
}
