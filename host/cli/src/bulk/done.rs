//! The rows that an earlier run left in OUT. The last row may be cut off.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use enrich_files::TableRow;

use super::answer::{Answer, Columns, temporary};
use super::input::Input;
use super::key;
use crate::failure::Failure;

/// Which errors a run looks up again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Retries {
    /// Only errors that may disappear with another attempt.
    Temporary,
    All,
}

impl Retries {
    pub fn include(self, answer: &Answer) -> bool {
        temporary::includes(&answer.status) || (self == Self::All && answer.is_error())
    }
}

#[derive(Default)]
pub struct Done {
    /// The number of rows in OUT by status, without `failed`.
    pub statuses: BTreeMap<String, u64>,
    /// Answers by the [`key`] of their email.
    pub answers: HashMap<String, Answer>,
    /// The keys of answers that are in the journal but not in OUT yet.
    pub ahead: Vec<String>,
    /// The rows in OUT to look up again.
    pub failed: Vec<FailedRow>,
    /// The row whose answer was cut off. It is already consumed from the input.
    pub next: Option<TableRow>,
    /// Length of OUT without the row that was cut off, in bytes.
    pub bytes: u64,
}

/// A row in OUT with an error.
pub struct FailedRow {
    pub email: String,
    pub status: String,
    /// The byte range of its answer in OUT.
    pub at: Range<u64>,
}

impl Done {
    /// Reads OUT and the corresponding input rows. Also returns the header, if it must be written first. Fails if OUT and
    /// the input differ.
    pub fn read(
        path: &Path,
        file: &File,
        columns: &Columns,
        input: &mut Input,
        retries: Retries,
    ) -> Result<(Self, Vec<u8>), Failure> {
        let mut out = Out { path, input: &input.path.clone(), text: BufReader::new(file) };
        let mut done = Self::default();
        if let Some(header) = input.header() {
            let header = [header, &columns.header_end()].concat();
            let start = out.take(header.len())?;
            if start != header {
                return if header.starts_with(&start) {
                    Ok((done, header))
                } else {
                    Err(out.differs("its header"))
                };
            }
            done.bytes = header.len() as u64;
        }
        while !out.is_over()? {
            let Some(row) = input.next() else { return Err(out.differs("the number of rows")) };
            let row = row?;
            let Some((answer, bytes)) = out.take_row(&row, columns)? else {
                done.next = Some(row);
                break;
            };
            let answer_start = done.bytes + row.text.len() as u64;
            done.bytes += bytes;
            match row.email {
                Ok(email) if retries.include(&answer) => {
                    done.failed.push(FailedRow { email, status: answer.status, at: answer_start..done.bytes })
                }
                email => done.add(email.ok(), answer),
            }
        }
        Ok((done, Vec::new()))
    }

    fn add(&mut self, email: Option<String>, answer: Answer) {
        *self.statuses.entry(answer.status.clone()).or_default() += 1;
        if let Some(email) = email {
            self.answers.insert(key(&email), answer);
        }
    }
}

struct Out<'a> {
    path: &'a Path,
    input: &'a Path,
    text: BufReader<&'a File>,
}

impl Out<'_> {
    /// Reads the answer to `row`. Returns it with the length of the whole row in bytes, or `None` if the row was cut off.
    fn take_row(&mut self, row: &TableRow, columns: &Columns) -> Result<Option<(Answer, u64)>, Failure> {
        let start = self.take(row.text.len())?;
        let mut end = Vec::new();
        self.text.read_until(b'\n', &mut end).map_err(|e| self.failed(e))?;
        if !end.ends_with(b"\n") {
            return if is_cut_off(&row.text, &start) { Ok(None) } else { Err(self.differs("its last row")) };
        }
        let answer = columns.read_row_end(&row.text, &end).filter(|_| start == row.text);
        let answer = answer.ok_or_else(|| self.differs(&format!("the row for line {}", row.line)))?;
        Ok(Some((answer, (start.len() + end.len()) as u64)))
    }

    fn is_over(&mut self) -> Result<bool, Failure> {
        Ok(self.text.fill_buf().map_err(|e| Failure::file("read", self.path, e))?.is_empty())
    }

    fn take(&mut self, bytes: usize) -> Result<Vec<u8>, Failure> {
        let mut text = Vec::new();
        self.text.by_ref().take(bytes as u64).read_to_end(&mut text).map_err(|e| self.failed(e))?;
        Ok(text)
    }

    fn failed(&self, error: io::Error) -> Failure {
        Failure::file("read", self.path, error)
    }

    fn differs(&self, where_: &str) -> Failure {
        let (path, input) = (self.path.display(), self.input.display());
        Failure::new(format!("{path} is not the output for {input}: {where_} differs"))
            .advise("-o names another file; --force starts this one anew, and what is in it is lost")
    }
}

/// Returns whether `start` is a prefix of `text`, possibly followed by zero bytes, which a power loss may leave in place of
/// the rest.
fn is_cut_off(text: &[u8], start: &[u8]) -> bool {
    let agreed = text.iter().zip(start).take_while(|(a, b)| a == b).count();
    start[agreed..].iter().all(|&byte| byte == 0)
}
