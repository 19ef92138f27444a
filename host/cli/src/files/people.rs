//! The people of a file.

use std::fmt;
use std::io::Read;

use super::csv::Csv;
use super::json_lines::JsonLines;
use super::person::{Columns, Row};
use super::records::Records;
use super::text::{FileError, Form, Text};

/// The rows of a file, in order.
pub struct Rows<'a>(Box<dyn Iterator<Item = Row> + 'a>);

impl<'a> Rows<'a> {
    /// Detects the format of `file` and reads the header if it is CSV.
    pub fn read(file: impl Read + Send + 'a, columns: &Columns) -> Result<Self, FileError> {
        let Text { form, bytes, line, .. } = Text::open(file)?;
        Ok(match form {
            Form::JsonLines => Self(Box::new(JsonLines::new(bytes, columns))),
            Form::Csv { delimiter } => {
                Self(Box::new(Csv::new(Records::new(bytes, delimiter, line), columns)?))
            }
        })
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        self.0.next()
    }
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rows")
    }
}
