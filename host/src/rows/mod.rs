//! Rows of CSV or JSON Lines files, optionally compressed with gzip. The first bytes of a file determine its format.
//!
//! [`Rows`] reads people. [`Table`] reads any file with a column of emails.
//!
//! Files are exports of other systems, so an invalid row is rejected individually and reported with its line and reason.
//! Errors never quote the row's content.

mod csv;
mod json_lines;
mod records;
mod table;
mod text;

use std::fmt;
use std::io::{self, Read};

use enrich_lib::email::{Email, EmailPolicy};
use enrich_lib::model::ProfileUrl;
use thiserror::Error;

use self::csv::Csv;
use self::json_lines::JsonLines;
use self::records::Records;
pub use self::table::{BadRow, Table, TableError, TableRow};
pub use self::text::Form;
use self::text::Text;

/// The names of the CSV columns or JSON fields. CSV headers are compared case-insensitively.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Column of the email.
    pub email: String,
    /// Column of the LinkedIn profile's URL.
    pub url: String,
    /// Column of the match confidence, from 0 to 1. A missing value means 1.
    pub confidence: String,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            email: "email".to_owned(),
            url: "linkedin_url".to_owned(),
            confidence: "confidence".to_owned(),
        }
    }
}

/// A valid row.
#[derive(Clone, Debug, PartialEq)]
pub struct Person {
    /// The email, which satisfies the default [`EmailPolicy`].
    pub email: Email,
    /// The profile in its canonical form.
    pub profile: ProfileUrl,
    /// The match confidence, from 0 to 1.
    pub confidence: f64,
}

/// An error that affects the whole file.
#[derive(Debug, Error)]
pub enum FileError {
    /// Reading failed, or the gzip data is damaged.
    #[error("can't be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The file is not UTF-8 text, but a workbook or an image, for example. The field names the type.
    #[error("the file is {0}, not CSV or JSON Lines; save it as CSV (UTF-8) and use that file")]
    NotText(&'static str),
    /// The first line contains a person instead of a header. The message does not quote it.
    #[error("the first line has an email in it, and has to name the columns")]
    NoHeader,
    /// A column is missing.
    #[error("there is no column {missing}; the columns are {}", .present.join(", "))]
    NoColumn {
        /// Name of the missing column.
        missing: String,
        /// Names in the header.
        present: Vec<String>,
    },
}

/// An error that affects a row or the rest of the file.
#[derive(Debug)]
pub enum RowError {
    /// The row is invalid. The following rows can still be read.
    Rejected {
        /// The line on which the row starts, counted from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
    /// The rest of the file cannot be read.
    Unreadable(io::Error),
}

type Row = Result<Person, RowError>;

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

/// The byte order mark.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns `start` without a byte order mark.
fn unmarked(start: &[u8]) -> &[u8] {
    start.strip_prefix(MARK).unwrap_or(start)
}

fn person(email: &str, url: &str, confidence: Option<f64>) -> Result<Person, String> {
    let email = Email::parse(email.trim()).map_err(|error| error.to_string())?;
    EmailPolicy::default().check(&email).map_err(|why| why.to_string())?;
    let profile = ProfileUrl::parse(url).map_err(|error| format!("the URL is {error}"))?;
    let confidence = confidence.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&confidence) {
        return Err("the confidence is not from 0 to 1".to_owned());
    }
    Ok(Person { email, profile, confidence })
}

fn rejected(line: u64, reason: String) -> Row {
    Err(RowError::Rejected { line, reason })
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rows")
    }
}
