//! Rows of JSON Lines: one object per line.

use std::io::{self, BufRead, BufReader, Read};

use serde_json::Value;

use super::person::{Columns, Person, Row, RowError, person, rejected};
use super::text::unmarked;

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
        let Ok(Value::Object(row)) = serde_json::from_slice(unmarked(line)) else {
            return Err("the line is not one JSON object".to_owned());
        };
        let text = |name: &str| {
            row.get(name)
                .and_then(Value::as_str)
                .ok_or_else(|| format!("the field {name} is missing or not a string"))
        };
        let confidence = match row.get(&self.columns.confidence) {
            None | Some(Value::Null) => None,
            Some(value) => Some(value.as_f64().ok_or("the confidence is not a number")?),
        };
        person(text(&self.columns.email)?, text(&self.columns.url)?, confidence)
    }
}

impl<R: Read> Iterator for JsonLines<R> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        match self.lines.next() {
            Ok(None) => None,
            Ok(Some(line)) => Some(self.person(&line).or_else(|reason| rejected(self.lines.line, reason))),
            Err(error) => Some(Err(RowError::Unreadable(error))),
        }
    }
}

/// The lines of a text that are not blank.
pub(crate) struct Lines<R> {
    text: BufReader<R>,
    line_bytes_max: u64,
    /// The number of the line that was last read.
    pub(crate) line: u64,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(text: R, line_bytes_max: u64) -> Self {
        Self { text: BufReader::new(text), line_bytes_max, line: 0 }
    }

    /// Reads the next line. A line that is too long is truncated to one byte more than the maximum.
    pub(crate) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            let taken = self.text.by_ref().take(self.line_bytes_max + 1).read_until(b'\n', &mut line)?;
            if taken == 0 {
                return Ok(None);
            }
            self.line += 1;
            if taken as u64 > self.line_bytes_max && !line.ends_with(b"\n") {
                self.text.skip_until(b'\n')?;
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}
