//! Rows of JSON Lines: one object a line.

use std::io::{self, BufRead, BufReader, Read};

use serde_json::Value;

use super::{Columns, Person, Row, RowFault, person, rejected};

/// The longest line, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

pub(super) struct JsonLines<R> {
    text: BufReader<R>,
    line: u64,
    columns: Columns,
}

impl<R: Read> JsonLines<R> {
    pub(super) fn new(text: R, columns: &Columns) -> Self {
        Self { text: BufReader::new(text), line: 0, columns: columns.clone() }
    }

    /// The next line with something in it, and its number; a too long one is cut.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            let taken = self.text.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
            if taken == 0 {
                return Ok(None);
            }
            self.line += 1;
            if taken as u64 > LINE_BYTES_MAX && !line.ends_with(b"\n") {
                self.text.skip_until(b'\n')?;
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    fn person(&self, line: &[u8]) -> Result<Person, String> {
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err("the line is longer than 64 KiB".to_owned());
        }
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let Ok(Value::Object(row)) = serde_json::from_slice(line) else {
            return Err("the line is not one JSON object".to_owned());
        };
        let text = |name: &str| {
            row.get(name)
                .and_then(Value::as_str)
                .ok_or_else(|| format!("the field {name} is missing or no string"))
        };
        let confidence = match row.get(&self.columns.confidence) {
            None | Some(Value::Null) => None,
            Some(value) => Some(value.as_f64().ok_or("the confidence is no number")?),
        };
        person(text(&self.columns.email)?, text(&self.columns.url)?, confidence)
    }
}

impl<R: Read> Iterator for JsonLines<R> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        match self.next_line() {
            Ok(None) => None,
            Ok(Some(line)) => Some(self.person(&line).or_else(|reason| rejected(self.line, reason))),
            Err(error) => Some(Err(RowFault::Unreadable(error))),
        }
    }
}
