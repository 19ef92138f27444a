//! Files with a column of emails, for bulk lookups. Rows keep their content unchanged.

use std::fmt;
use std::io::{Chain, Read};

use csv::{ByteRecord, WriterBuilder};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use thiserror::Error;

use super::csv::Header;
use super::json_lines::Lines;
use super::records::Records;
use super::text::{FileError, Form, Text, unmarked};

/// A row with its unchanged content and its email.
#[derive(Debug)]
pub struct TableRow {
    /// The line on which the row starts, counted from 1.
    pub line: u64,
    /// The row's content: CSV cells, or a JSON object without its closing brace, so that columns can be
    /// appended.
    pub text: Vec<u8>,
    /// The email without surrounding whitespace.
    pub email: Result<String, BadRow>,
}

/// The reason why a row has no email that can be looked up. It does not quote the row's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// Machine-readable code.
    pub code: &'static str,
    /// Human-readable reason.
    pub reason: String,
}

/// An error that affects the whole file or the rest of it.
#[derive(Debug, Error)]
pub enum TableError {
    /// The file cannot be read as a table.
    #[error(transparent)]
    File(#[from] FileError),
    /// The email column is not unique.
    #[error("there are several columns {0}")]
    Twice(String),
    /// A column that would be added already exists.
    #[error("line {line}: the column {name} already exists; rename it")]
    Taken {
        /// The line.
        line: u64,
        /// The name of the column.
        name: String,
    },
    /// A quote is not closed, so the rest of the file would be one cell.
    #[error("line {line}: the quote that opens in this row is never closed")]
    OpenQuote {
        /// The line on which the row starts.
        line: u64,
    },
    /// A line exceeds the maximum length.
    #[error("line {line}: the line is longer than 1 MiB")]
    TooLong {
        /// The line.
        line: u64,
    },
}

/// The rows of a file, in order, with unchanged content.
pub struct Table<'a> {
    form: Form,
    header: Option<Vec<u8>>,
    rows: Box<dyn Iterator<Item = Result<TableRow, TableError>> + Send + 'a>,
}

impl<'a> Table<'a> {
    /// Detects the format of `file` and finds the column `email`. Fails if a column in `added` already
    /// exists.
    pub fn read(file: impl Read + Send + 'a, email: &str, added: &[String]) -> Result<Self, TableError> {
        let Text { form, prefix, line, bytes } = Text::open(file)?;
        let Form::Csv { delimiter } = form else {
            let lines = Lines::new(bytes, LINE_BYTES_MAX);
            let rows = Objects { lines, email: email.to_owned(), added: added.to_vec() };
            return Ok(Self { form, header: None, rows: Box::new(rows) });
        };
        let mut records = Records::new(bytes.chain(END), delimiter, line);
        let mut record = ByteRecord::new();
        let line = records.read(&mut record).map_err(FileError::Unreadable)?.unwrap_or(line);
        let header = Header::new(&record)?;
        let at = header.need(email)?;
        if header.count(email) > 1 {
            return Err(TableError::Twice(email.to_owned()));
        }
        if is_cut_by_end(&record) {
            return Err(TableError::OpenQuote { line });
        }
        if let Some(name) = added.iter().find(|name| header.find(name).is_some()) {
            return Err(TableError::Taken { line, name: name.clone() });
        }
        let text = [prefix, encode(&record, delimiter)].concat();
        let rows = CsvRows { records, delimiter, header, email: at, is_over: false };
        Ok(Self { form, header: Some(text), rows: Box::new(rows) })
    }

    /// Returns the format of the file.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Returns the header if the file is CSV. Columns can be appended to it.
    pub fn header(&self) -> Option<&[u8]> {
        self.header.as_deref()
    }
}

impl Iterator for Table<'_> {
    type Item = Result<TableRow, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.next()
    }
}

impl fmt::Debug for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("form", &self.form).finish_non_exhaustive()
    }
}

/// Maximum length of a line of JSON, in bytes.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum length of an email, in bytes. Longer values are not sent to the server.
const EMAIL_BYTES_MAX: usize = 1024;

fn email(text: &str) -> Result<String, BadRow> {
    match text.trim() {
        "" => Err(BadRow { code: "no_email", reason: "there is no email".to_owned() }),
        text if text.len() > EMAIL_BYTES_MAX => Err(BadRow {
            code: "invalid_email",
            reason: "the email is longer than 254 characters".to_owned(),
        }),
        text => Ok(text.to_owned()),
    }
}

fn malformed(reason: impl Into<String>) -> BadRow {
    BadRow { code: "malformed_row", reason: reason.into() }
}

/// A sentinel record that is appended to the input. If it ends up inside a cell, a quote was not closed.
const END: &[u8] = b"\n\0end of the rows\0\n";

struct CsvRows<R> {
    records: Records<Chain<R, &'static [u8]>>,
    delimiter: u8,
    header: Header,
    email: usize,
    is_over: bool,
}

impl<R> CsvRows<R> {
    fn row(&self, mut record: ByteRecord, line: u64) -> TableRow {
        let email = self.header.check(&record).map_err(malformed).and_then(|()| {
            let cell = std::str::from_utf8(&record[self.email]);
            email(cell.map_err(|_| malformed("the email is not UTF-8"))?)
        });
        // Pads short rows so that appended cells are below their column names.
        while record.len() < self.header.names.len() {
            record.push_field(b"");
        }
        TableRow { line, text: encode(&record, self.delimiter), email }
    }
}

impl<R: Read> Iterator for CsvRows<R> {
    type Item = Result<TableRow, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let mut record = ByteRecord::new();
        let next = match self.records.read(&mut record) {
            Ok(Some(_)) if record.len() == 1 && record[0] == *END.trim_ascii() => None,
            Ok(Some(line)) if is_cut_by_end(&record) => Some(Err(TableError::OpenQuote { line })),
            Ok(Some(line)) => Some(Ok(self.row(record, line))),
            Ok(None) => None,
            Err(error) => Some(Err(FileError::Unreadable(error).into())),
        };
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

fn is_cut_by_end(record: &ByteRecord) -> bool {
    record.iter().next_back().is_some_and(|cell| cell.ends_with(END))
}

/// Encodes the cells of a row, quoted where necessary, without the end of the line.
fn encode(record: &ByteRecord, delimiter: u8) -> Vec<u8> {
    let mut writer = WriterBuilder::new();
    let mut writer = writer.delimiter(delimiter).flexible(true).buffer_capacity(1024).from_writer(Vec::new());
    // Writing to a vector cannot fail.
    let mut text =
        writer.write_byte_record(record).ok().and_then(|()| writer.into_inner().ok()).unwrap_or_default();
    text.pop();
    text
}

struct Objects<R> {
    lines: Lines<R>,
    email: String,
    added: Vec<String>,
}

impl<R: Read> Objects<R> {
    fn row(&self, line: &[u8]) -> Result<TableRow, TableError> {
        let number = self.lines.line;
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err(TableError::TooLong { line: number });
        }
        let text = unmarked(line).trim_ascii();
        let fields = std::str::from_utf8(text).ok().and_then(|text| {
            let mut json = serde_json::Deserializer::from_str(text);
            let fields = json.deserialize_map(Fields { email: &self.email, added: &self.added }).ok()?;
            json.end().ok().map(|()| fields)
        });
        let Some(Found { mut emails, taken }) = fields else {
            // Kept as a string, so that the output is valid JSON Lines.
            let kept = Value::String(String::from_utf8_lossy(text).into_owned());
            let bad = malformed("the line is not one JSON object");
            let text = format!("{{\"malformed\":{kept}").into_bytes();
            return Ok(TableRow { line: number, text, email: Err(bad) });
        };
        if let Some(name) = taken {
            return Err(TableError::Taken { line: number, name });
        }
        let email = match (emails.pop(), emails.is_empty()) {
            (None | Some(Value::Null), true) => email(""),
            (Some(Value::String(text)), true) => email(&text),
            (Some(_), true) => Err(malformed(format!("the field {} is not a string", self.email))),
            (_, false) => Err(malformed(format!("there are several fields {}", self.email))),
        };
        let open = text.strip_suffix(b"}").unwrap_or(text).trim_ascii_end();
        Ok(TableRow { line: number, text: open.to_vec(), email })
    }
}

impl<R: Read> Iterator for Objects<R> {
    type Item = Result<TableRow, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.lines.next() {
            Ok(None) => None,
            Ok(Some(line)) => Some(self.row(&line)),
            Err(error) => Some(Err(FileError::Unreadable(error).into())),
        }
    }
}

/// A visitor that collects the email fields of an object and detects fields that would be added. It ignores
/// all others.
struct Fields<'a> {
    email: &'a str,
    added: &'a [String],
}

struct Found {
    emails: Vec<Value>,
    taken: Option<String>,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut found = Found { emails: Vec::new(), taken: None };
        while let Some(name) = map.next_key::<String>()? {
            if name == self.email {
                found.emails.push(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            if self.added.contains(&name) {
                found.taken = Some(name);
            }
        }
        Ok(found)
    }
}
