//! Rows out of CSV or JSON Lines, gzipped or not: what it is, the first bytes tell. [`Rows`] are people, [`Table`] is
//! any file with a column of emails.
//!
//! Files come from other systems' exports, so a bad row is one rejected row, told by line and reason; what is in it
//! is not repeated.

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
pub use self::table::{BadRow, Table, TableFault, TableRow};
pub use self::text::Form;
use self::text::Text;

/// The names of the columns, or of the fields in JSON. CSV headers are compared without regard to case.
#[derive(Clone, Debug)]
pub struct Columns {
    /// The email.
    pub email: String,
    /// The URL of the LinkedIn profile.
    pub url: String,
    /// How sure the match is, from 0 to 1: 1 where there is none.
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

/// A good row.
#[derive(Clone, Debug, PartialEq)]
pub struct Person {
    /// A supported email.
    pub email: Email,
    /// The profile, in its one form.
    pub profile: ProfileUrl,
    /// From 0 to 1.
    pub confidence: f64,
}

/// Why the file as a whole can't be read.
#[derive(Debug, Error)]
pub enum FileFault {
    /// Reading failed, or the gzip is damaged.
    #[error("can't be read: {0}")]
    Unreadable(#[from] io::Error),
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// It is a workbook, an image or anything else that is not UTF-8 text: the field says what.
    #[error("the file is {0}, not CSV or JSON Lines; save it as CSV (UTF-8) and use that file")]
    NotText(&'static str),
    /// The first line is a person and not a header. It is not repeated.
    #[error("the first line has an email in it, and has to name the columns")]
    NoHeader,
    /// A column is missing.
    #[error("there is no column {missing}; the columns are {}", .present.join(", "))]
    NoColumn {
        /// The name that was looked for.
        missing: String,
        /// The names in the header.
        present: Vec<String>,
    },
}

/// Why a row is not there.
#[derive(Debug)]
pub enum RowFault {
    /// The row is bad; the next one may be good.
    Rejected {
        /// Where it starts, counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The file can't be read on.
    Unreadable(io::Error),
}

type Row = Result<Person, RowFault>;

/// The rows of a file, in order.
pub struct Rows<'a>(Box<dyn Iterator<Item = Row> + 'a>);

impl<'a> Rows<'a> {
    /// Looks at the beginning of `file` and, if it is CSV, at its header.
    pub fn read(file: impl Read + Send + 'a, columns: &Columns) -> Result<Self, FileFault> {
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

/// `start` without a byte order mark.
fn unmarked(start: &[u8]) -> &[u8] {
    start.strip_prefix(MARK).unwrap_or(start)
}

fn person(email: &str, url: &str, confidence: Option<f64>) -> Result<Person, String> {
    let email = Email::parse(email.trim()).map_err(|fault| fault.to_string())?;
    EmailPolicy::default().check(&email).map_err(|why| why.to_string())?;
    let profile = ProfileUrl::parse(url).map_err(|fault| format!("the URL is {fault}"))?;
    let confidence = confidence.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&confidence) {
        return Err("the confidence is not from 0 to 1".to_owned());
    }
    Ok(Person { email, profile, confidence })
}

fn rejected(line: u64, reason: String) -> Row {
    Err(RowFault::Rejected { line, reason })
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rows")
    }
}
