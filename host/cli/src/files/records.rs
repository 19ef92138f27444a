//! Records of CSV (RFC 4180), each with the number of the line on which it starts.
//!
//! The crate `csv` accepts a quote that is never closed, which makes the rest of a file one cell, and text after
//! a closing quote, which is how a stray quote usually ends. Both are errors here. A quote in an unquoted cell is
//! text.

use std::io::{BufRead, BufReader, Read};

use csv::ByteRecord;

use super::text::FileError;

/// Maximum length of a row, in bytes.
const ROW_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of columns, which is that of spreadsheets.
const COLUMNS_MAX: usize = 16_384;

pub(crate) struct Records<R> {
    text: BufReader<R>,
    delimiter: u8,
    lines: LineCounter,
    cell: Vec<u8>,
    is_over: bool,
}

/// The position in a cell.
#[derive(Clone, Copy)]
enum State {
    Start,
    Unquoted,
    Quoted,
    /// After a quote in a quoted cell, which closes the cell or is the first of two.
    Quote,
}

impl<R: Read> Records<R> {
    /// Creates a reader of `text`, whose first line has the number `line`.
    pub(crate) fn new(text: R, delimiter: u8, line: u64) -> Self {
        let lines = LineCounter { line, is_after_return: false };
        Self { text: BufReader::new(text), delimiter, lines, cell: Vec::new(), is_over: false }
    }

    /// Reads the next record into `record`. Returns the number of its first line, or `None` at the end and
    /// after an error. Skips rows whose cells are all blank.
    pub(crate) fn read(&mut self, record: &mut ByteRecord) -> Result<Option<u64>, FileError> {
        while !self.is_over {
            let line = self.lines.line;
            self.read_any(record).inspect_err(|_| self.is_over = true)?;
            if record.iter().any(|cell| !cell.trim_ascii().is_empty()) {
                return Ok(Some(line));
            }
        }
        record.clear();
        Ok(None)
    }

    /// Returns whether the last record that was read ends without a line break.
    pub(crate) fn is_unterminated(&self) -> bool {
        self.is_over
    }

    /// Reads the next record, which may be blank.
    fn read_any(&mut self, record: &mut ByteRecord) -> Result<(), FileError> {
        record.clear();
        let (row, mut row_bytes, mut state) = (self.lines.line, 0, State::Start);
        loop {
            let input = self.text.fill_buf()?;
            let Some(&byte) = input.first() else {
                self.is_over = true;
                if let State::Quoted = state {
                    return Err(FileError::OpenQuote { row });
                }
                break;
            };
            let line = self.lines.line;
            let text = text_len(input, state, self.delimiter);
            self.cell.extend_from_slice(&input[..text]);
            let taken = text.max(1);
            self.lines.count(&input[..taken]);
            self.text.consume(taken);
            row_bytes += taken;
            state = match (state, byte) {
                (State::Start, _) if text > 0 => State::Unquoted,
                (_, _) if text > 0 => state,
                (State::Start, b'"') => State::Quoted,
                (State::Quoted, _) => State::Quote,
                (State::Quote, b'"') => {
                    self.cell.push(b'"');
                    State::Quoted
                }
                (_, b'\r' | b'\n') => break,
                (_, byte) if byte == self.delimiter => {
                    self.end_cell(record);
                    State::Start
                }
                (_, _) => return Err(FileError::TextAfterQuote { row, line }),
            };
            if row_bytes > ROW_BYTES_MAX {
                return Err(FileError::TooLong { row, limit: "is longer than 1 MiB" });
            }
            if record.len() >= COLUMNS_MAX {
                return Err(FileError::TooLong { row, limit: "has more than 16,384 columns" });
            }
        }
        self.end_cell(record);
        Ok(())
    }

    fn end_cell(&mut self, record: &mut ByteRecord) {
        record.push_field(&self.cell);
        self.cell.clear();
    }
}

/// Returns the length of the text at the start of `input`, before a byte with another meaning in this state.
fn text_len(input: &[u8], state: State, delimiter: u8) -> usize {
    let end =
        |is_end: &dyn Fn(u8) -> bool| input.iter().position(|byte| is_end(*byte)).unwrap_or(input.len());
    match state {
        State::Start if input.starts_with(b"\"") => 0,
        State::Start | State::Unquoted => end(&|byte| byte == delimiter || matches!(byte, b'\r' | b'\n')),
        State::Quoted => end(&|byte| byte == b'"'),
        State::Quote => 0,
    }
}

/// Counts lines that end with LF, CRLF or CR.
struct LineCounter {
    /// The number of the line that contains the next byte.
    line: u64,
    is_after_return: bool,
}

impl LineCounter {
    fn count(&mut self, text: &[u8]) {
        for byte in text {
            self.line += u64::from(*byte == b'\r' || *byte == b'\n' && !self.is_after_return);
            self.is_after_return = *byte == b'\r';
        }
    }
}
