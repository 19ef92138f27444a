//! Rows of CSV (RFC 4180).

use std::io::{self, Read};

use csv::{ByteRecord, ErrorKind, Position, Reader, ReaderBuilder};

use super::{Columns, FileFault, Person, Row, RowFault, person, rejected};

pub(super) struct Csv<R> {
    reader: Reader<R>,
    record: ByteRecord,
    header: Header,
    email: usize,
    url: usize,
    confidence: Option<usize>,
}

impl<R: Read> Csv<R> {
    pub(super) fn new(text: R, columns: &Columns) -> Result<Self, FileFault> {
        let mut reader = ReaderBuilder::new().flexible(true).from_reader(text);
        let header = Header::read(&mut reader)?;
        let (email, url, confidence) =
            (header.need(&columns.email)?, header.need(&columns.url)?, header.find(&columns.confidence));
        Ok(Self { reader, record: ByteRecord::new(), header, email, url, confidence })
    }

    fn person(&self) -> Result<Person, String> {
        self.header.check(&self.record)?;
        let cell =
            |at: usize| std::str::from_utf8(&self.record[at]).map_err(|_| "the row is not UTF-8".to_owned());
        let confidence = match self.confidence.map(cell).transpose()?.map(str::trim) {
            None | Some("") => None,
            Some(text) => Some(text.parse().map_err(|_| "the confidence is no number".to_owned())?),
        };
        person(cell(self.email)?, cell(self.url)?, confidence)
    }
}

impl<R: Read> Iterator for Csv<R> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => None,
            Ok(true) => {
                let line = self.record.position().map_or(0, Position::line);
                Some(self.person().or_else(|reason| rejected(line, reason)))
            }
            Err(error) => Some(Err(RowFault::Unreadable(into_io(error)))),
        }
    }
}

/// The names of the columns.
pub(super) struct Header {
    pub(super) names: Vec<String>,
}

impl Header {
    pub(super) fn read<R: Read>(reader: &mut Reader<R>) -> Result<Self, FileFault> {
        let header = reader.byte_headers().map_err(|e| FileFault::Unreadable(into_io(e)))?;
        let names: Vec<_> =
            header.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
        if names.iter().any(|name| name.contains('@')) {
            return Err(FileFault::NoHeader);
        }
        Ok(Self { names })
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| is_named(n, name))
    }

    pub(super) fn need(&self, name: &str) -> Result<usize, FileFault> {
        let missing = || FileFault::NoColumn { missing: name.to_owned(), present: self.names.clone() };
        self.find(name).ok_or_else(missing)
    }

    /// How many columns have this name.
    pub(super) fn count(&self, name: &str) -> usize {
        self.names.iter().filter(|n| is_named(n, name)).count()
    }

    /// Whether a row has as many columns.
    pub(super) fn check(&self, record: &ByteRecord) -> Result<(), String> {
        let (has, needs) = (record.len(), self.names.len());
        if has == needs {
            return Ok(());
        }
        Err(format!("the row has {has} columns and the header {needs}: is a quote missing?"))
    }
}

fn is_named(column: &str, name: &str) -> bool {
    column.trim_start_matches('\u{feff}').eq_ignore_ascii_case(name)
}

/// Byte records of any length are asked for, so what is left to fail is reading.
pub(super) fn into_io(error: csv::Error) -> io::Error {
    match error.into_kind() {
        ErrorKind::Io(error) => error,
        _ => io::Error::new(io::ErrorKind::InvalidData, "not CSV"),
    }
}
