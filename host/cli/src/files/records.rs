//! Records of CSV (RFC 4180), each with the number of the line on which it starts.
//!
//! `csv::Reader` reports the line on which the previous record ended. That is one too low if lines end with
//! CRLF, and too low by the number of blank lines.

use std::io::{self, BufRead, BufReader, Read};

use csv::ByteRecord;
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

/// Maximum length of a row, in bytes. Without it, a missing quote makes the rest of the file one cell.
const ROW_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum number of columns, which is that of spreadsheets.
const COLUMNS_MAX: usize = 16_384;

pub(crate) struct Records<R> {
    text: BufReader<R>,
    parser: Reader,
    /// The number of the line that contains the next byte.
    line: u64,
    /// The concatenated cells of a record, and the end offset of each cell.
    cells: Vec<u8>,
    ends: Vec<usize>,
    has_failed: bool,
}

impl<R: Read> Records<R> {
    /// Creates a reader of `text`, whose first line has the number `line`.
    pub(crate) fn new(text: R, delimiter: u8, line: u64) -> Self {
        let mut parser = ReaderBuilder::new().delimiter(delimiter).build();
        // The parser drops a byte order mark from its first input, but only if all three bytes arrive
        // together. After a blank line it treats the mark as text, so the result no longer depends on chunk
        // sizes.
        parser.read_record(b"\n", &mut [0], &mut [0]);
        Self {
            text: BufReader::new(text),
            parser,
            line,
            cells: vec![0; 1024],
            ends: vec![0; 32],
            has_failed: false,
        }
    }

    /// Reads the next record into `record`. Returns the number of its first line, or `None` at the end and
    /// after an error.
    ///
    /// Errors: reading failed, or the record is too long. Nothing is read after an error.
    pub(crate) fn read(&mut self, record: &mut ByteRecord) -> io::Result<Option<u64>> {
        record.clear();
        let (mut cells_len, mut ends_len) = (0, 0);
        let (mut first_line, mut row_bytes) = (None, 0);
        if self.has_failed {
            return Ok(None);
        }
        loop {
            let input = self.text.fill_buf().inspect_err(|_| self.has_failed = true)?;
            let (result, taken, written, ended) =
                self.parser.read_record(input, &mut self.cells[cells_len..], &mut self.ends[ends_len..]);
            let taken = &input[..taken];
            if first_line.is_none()
                && let Some(start) = taken.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))
            {
                first_line = Some(self.line + count_lines(&taken[..start]));
            }
            self.line += count_lines(taken);
            let taken = taken.len();
            self.text.consume(taken);
            (cells_len, ends_len) = (cells_len + written, ends_len + ended);
            if let Some(line) = first_line {
                row_bytes += taken as u64;
                check_size(line, row_bytes, ends_len).inspect_err(|_| self.has_failed = true)?;
            }
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.cells.resize(2 * self.cells.len(), 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
                ReadRecordResult::Record => break,
                ReadRecordResult::End => return Ok(None),
            }
        }
        let mut start = 0;
        for &end in &self.ends[..ends_len] {
            record.push_field(&self.cells[start..end]);
            start = end;
        }
        Ok(first_line)
    }
}

fn check_size(line: u64, bytes: u64, columns: usize) -> io::Result<()> {
    let limit = if columns > COLUMNS_MAX {
        "has more than 16,384 columns"
    } else if bytes > ROW_BYTES_MAX {
        "is longer than 1 MiB"
    } else {
        return Ok(());
    };
    Err(io::Error::other(format!("the row in line {line} {limit}; check for a missing quote")))
}

fn count_lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}
