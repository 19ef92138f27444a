//! Rows of CSV (RFC 4180).

use std::io::{self, Read};

use csv::{ByteRecord, ErrorKind, Position, Reader, ReaderBuilder};

use super::{Columns, FileFault, Person, Row, RowFault, person, rejected};

pub(super) struct Csv<R> {
    reader: Reader<R>,
    record: ByteRecord,
    columns: usize,
    email: usize,
    url: usize,
    confidence: Option<usize>,
}

impl<R: Read> Csv<R> {
    pub(super) fn new(text: R, columns: &Columns) -> Result<Self, FileFault> {
        let mut reader = ReaderBuilder::new().flexible(true).from_reader(text);
        let header = reader.byte_headers().map_err(|e| FileFault::Unreadable(into_io(e)))?.clone();
        let names: Vec<_> =
            header.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
        if names.iter().any(|name| name.contains('@')) {
            return Err(FileFault::NoHeader);
        }
        let find = |name: &str| {
            names.iter().position(|n| n.trim_start_matches('\u{feff}').eq_ignore_ascii_case(name))
        };
        let need = |name: &str| {
            find(name).ok_or_else(|| FileFault::NoColumn { missing: name.to_owned(), present: names.clone() })
        };
        let (email, url, confidence) =
            (need(&columns.email)?, need(&columns.url)?, find(&columns.confidence));
        Ok(Self { reader, record: ByteRecord::new(), columns: names.len(), email, url, confidence })
    }

    fn person(&self) -> Result<Person, String> {
        if self.record.len() != self.columns {
            let (has, needs) = (self.record.len(), self.columns);
            return Err(format!("the row has {has} columns and the header {needs}: is a quote missing?"));
        }
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

/// Byte records of any length are asked for, so what is left to fail is reading.
fn into_io(error: csv::Error) -> io::Error {
    match error.into_kind() {
        ErrorKind::Io(error) => error,
        _ => io::Error::new(io::ErrorKind::InvalidData, "not CSV"),
    }
}
