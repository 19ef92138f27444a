//! Files with a column of emails, for bulk lookups. Rows keep their content unchanged.

use std::io::Read;
use std::iter;

use csv::{ByteRecord, WriterBuilder};
use serde_json::Value;
use thiserror::Error;

use super::csv::Header;
use super::lines::{Lines, Member, members, object};
use super::records::Records;
use super::text::{FileError, Form, Text};

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
    /// A column that would be added already exists.
    #[error("line {line}: the column {name} already exists; rename it")]
    Taken {
        /// The line.
        line: u64,
        /// The name of the column.
        name: String,
    },
    /// A line exceeds the maximum length.
    #[error("line {line}: the line is longer than 1 MiB")]
    TooLong {
        /// The line.
        line: u64,
    },
}

/// The rows of a file, in order, with unchanged content.
#[derive(derive_more::Debug)]
#[debug("Table {{ form: {form:?}, .. }}")]
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
            let fields = Fields { email: email.to_owned(), added: added.to_vec() };
            let rows = Lines::new(bytes, LINE_BYTES_MAX).map(move |line| {
                let (number, line) = line.map_err(FileError::from)?;
                fields.row(number, &line)
            });
            return Ok(Self { form, header: None, rows: Box::new(rows) });
        };
        let mut records = Records::new(bytes, delimiter, line);
        let mut record = ByteRecord::new();
        let line = records.read(&mut record)?.unwrap_or(line);
        let header = Header::new(&record)?;
        let at = header.need(email)?;
        if let Some(name) = added.iter().find(|name| !matches!(header.find(name), Ok(None))) {
            return Err(TableError::Taken { line, name: name.clone() });
        }
        let text = [prefix, encode(&record, delimiter)].concat();
        let columns = Columns { delimiter, header, email: at };
        let rows = iter::from_fn(move || {
            let mut record = ByteRecord::new();
            let next = records.read(&mut record).transpose()?;
            Some(next.map(|line| columns.row(record, line)).map_err(TableError::from))
        });
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

/// The columns of CSV.
struct Columns {
    delimiter: u8,
    header: Header,
    email: usize,
}

impl Columns {
    fn row(&self, mut record: ByteRecord, line: u64) -> TableRow {
        let email = self.header.check(&record).map_err(malformed).and_then(|()| {
            let cell = std::str::from_utf8(&record[self.email]);
            email(cell.map_err(|_| malformed("the email is not UTF-8"))?)
        });
        // Pads short rows, and joins the surplus cells of others, so that appended cells are below their names.
        let columns = self.header.names.len();
        while record.len() < columns {
            record.push_field(b"");
        }
        if record.len() > columns {
            let last: ByteRecord = record.iter().skip(columns - 1).collect();
            record.truncate(columns - 1);
            record.push_field(&encode(&last, self.delimiter));
        }
        TableRow { line, text: encode(&record, self.delimiter), email }
    }
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

/// The fields of JSON Lines.
struct Fields {
    email: String,
    added: Vec<String>,
}

impl Fields {
    fn row(&self, number: u64, line: &[u8]) -> Result<TableRow, TableError> {
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err(TableError::TooLong { line: number });
        }
        let text = object(line);
        let names: Vec<_> = std::iter::once(&self.email).chain(&self.added).map(String::as_str).collect();
        let Some(members) = members(text, &names) else {
            // Kept as a string, so that the output is valid JSON Lines.
            let kept = Value::String(String::from_utf8_lossy(text).into_owned());
            let bad = malformed("the line is not one JSON object");
            let text = format!("{{\"malformed\":{kept}").into_bytes();
            return Ok(TableRow { line: number, text, email: Err(bad) });
        };
        let mut members = members.into_iter().zip(names);
        let first = members.next().expect("there is a member for each name");
        let is_taken = |member: &Member, name: &str| {
            !matches!(member, Member::Missing) || name.eq_ignore_ascii_case(&self.email)
        };
        if let Some((_, name)) = members.find(|(member, name)| is_taken(member, name)) {
            return Err(TableError::Taken { line: number, name: name.to_owned() });
        }
        let email = match first.0.into_value(first.1) {
            Ok(None) => email(""),
            Ok(Some(Value::String(text))) => email(&text),
            Ok(Some(_)) => Err(malformed(format!("the field {} is not a string", self.email))),
            Err(reason) => Err(malformed(reason)),
        };
        let open = text.strip_suffix(b"}").unwrap_or(text).trim_ascii_end();
        Ok(TableRow { line: number, text: open.to_vec(), email })
    }
}
