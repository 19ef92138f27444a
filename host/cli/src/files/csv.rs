//! Rows of CSV (RFC 4180).

use std::io::Read;

use csv::ByteRecord;

use super::person::{Columns, Person, Row, RowError, person, rejected};
use super::records::Records;
use super::text::FileError;
use crate::output::counted;

pub(crate) struct Csv<R> {
    records: Records<R>,
    record: ByteRecord,
    header: Header,
    email: usize,
    url: usize,
    confidence: Option<usize>,
}

impl<R: Read> Csv<R> {
    pub(crate) fn new(mut records: Records<R>, columns: &Columns) -> Result<Self, FileError> {
        let mut record = ByteRecord::new();
        records.read(&mut record)?;
        let header = Header::new(&record)?;
        let (email, url) = (header.need(&columns.email)?, header.need(&columns.url)?);
        let confidence = if columns.needs_confidence() {
            Some(header.need(&columns.confidence)?)
        } else {
            header.find(&columns.confidence)?
        };
        Ok(Self { records, record, header, email, url, confidence })
    }

    fn person(&self) -> Result<Person, String> {
        self.header.check(&self.record)?;
        let cell =
            |at: usize| std::str::from_utf8(&self.record[at]).map_err(|_| "the row is not UTF-8".to_owned());
        let confidence = match self.confidence.map(cell).transpose()?.map(str::trim) {
            None | Some("") => None,
            Some(text) => Some(text.parse().map_err(|_| "the confidence is not a number".to_owned())?),
        };
        let last = self.record.len() - 1;
        // A decimal fraction that is cut is not higher.
        let is_missing = self.confidence == Some(last) && confidence.is_none();
        if self.records.is_unterminated() && (is_missing || [self.email, self.url].contains(&last)) {
            return Err(
                "the last line has no line break: it may be cut; add one if it is complete".to_owned()
            );
        }
        person(cell(self.email)?, cell(self.url)?, confidence)
    }
}

impl<R: Read> Iterator for Csv<R> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        match self.records.read(&mut self.record) {
            Ok(None) => None,
            Ok(Some(line)) => Some(self.person().or_else(|reason| rejected(line, reason))),
            Err(error) => Some(Err(RowError::Unreadable(error))),
        }
    }
}

/// The names of the columns.
pub(crate) struct Header {
    pub(crate) names: Vec<String>,
}

impl Header {
    pub(crate) fn new(record: &ByteRecord) -> Result<Self, FileError> {
        let names: Vec<_> =
            record.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
        if names.iter().any(|name| name.contains('@')) {
            return Err(FileError::NoHeader);
        }
        Ok(Self { names })
    }

    pub(crate) fn find(&self, name: &str) -> Result<Option<usize>, FileError> {
        let mut named = (0..self.names.len()).filter(|at| self.names[*at].eq_ignore_ascii_case(name));
        match (named.next(), named.next()) {
            (_, Some(_)) => Err(FileError::SeveralColumns(name.to_owned())),
            (found, None) => Ok(found),
        }
    }

    pub(crate) fn need(&self, name: &str) -> Result<usize, FileError> {
        let missing = || FileError::NoColumn { missing: name.to_owned(), present: self.names.clone() };
        self.find(name)?.ok_or_else(missing)
    }

    /// Checks that a row has as many columns as the header.
    pub(crate) fn check(&self, record: &ByteRecord) -> Result<(), String> {
        let (has, needs) = (record.len(), self.names.len());
        if has == needs {
            return Ok(());
        }
        let has = counted(has as u64, "column");
        Err(format!("the row has {has}, the header has {needs}; check for a missing quote"))
    }
}
