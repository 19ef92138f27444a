//! The rows that an earlier run wrote to OUT. The last row may be truncated.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::files::TableRow;

use super::columns::Columns;
use super::input::Input;
use super::row_result::{RowResult, email_key, temporary};
use super::run_id::OUT_ADVICE;
use crate::failure::Failure;

/// The errors of an earlier run that this run looks up again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RetryPolicy {
    /// Only errors that may disappear with another attempt.
    Temporary,
    AllErrors,
}

impl RetryPolicy {
    pub fn includes(self, result: &RowResult) -> bool {
        temporary::includes(&result.status) || (self == Self::AllErrors && result.is_error())
    }
}

/// The results of earlier runs.
#[derive(Default)]
pub struct PreviousRun {
    /// The number of rows in OUT by status, up to the first one to look up again.
    pub statuses: BTreeMap<String, u64>,
    /// Results by the [`email_key`] of their row.
    pub results: HashMap<String, RowResult>,
    /// The number of rows in OUT with these results.
    pub kept: u64,
    /// The number of rows in OUT to look up again.
    pub failed_rows: u64,
    /// Their errors, by the [`email_key`] of their row.
    pub failed: HashMap<String, RowResult>,
    /// The rows to write again: in OUT, the first one to look up again and all after it, and then a truncated row.
    /// They are already consumed from the input.
    pub rows: VecDeque<TableRow>,
    /// The number of `rows` that OUT has completely.
    pub rewritten: u64,
    /// Length of OUT without `rows`, in bytes.
    pub bytes: u64,
}

impl PreviousRun {
    /// Reads OUT and the corresponding input rows. Also returns the header, if it must be written first.
    /// Fails if OUT and the input differ.
    pub fn read(
        path: &Path,
        file: &File,
        columns: &Columns,
        input: &mut Input,
        retries: RetryPolicy,
    ) -> Result<(Self, Vec<u8>), Failure> {
        let mut out = Out { path, input: &input.path.clone(), text: BufReader::new(file) };
        let mut run = Self::default();
        if let Some(header) = input.header() {
            let header = [header, &columns.header_end()].concat();
            let start = out.read_up_to(header.len())?;
            if start != header {
                return if header.starts_with(&start) {
                    Ok((run, header))
                } else {
                    Err(out.mismatch("its header"))
                };
            }
            run.bytes = header.len() as u64;
        }
        while !out.is_at_end()? {
            let Some(row) = input.next() else { return Err(out.mismatch("the number of rows")) };
            let row = row?;
            let Some((result, bytes)) = out.read_row(&row, columns)? else {
                run.rows.push_back(row);
                break;
            };
            let key = row.email.as_ref().ok().map(|email| email_key(email));
            match key {
                Some(key) if retries.includes(&result) => {
                    run.failed_rows += 1;
                    run.failed.insert(key, result.clone());
                }
                key => {
                    run.kept += 1;
                    run.results.extend(key.map(|key| (key, result.clone())));
                }
            }
            if run.failed.is_empty() {
                run.bytes += bytes;
                *run.statuses.entry(result.status).or_default() += 1;
            } else {
                run.rewritten += 1;
                run.rows.push_back(row);
            }
        }
        Ok((run, Vec::new()))
    }
}

/// A reader of OUT.
struct Out<'a> {
    path: &'a Path,
    input: &'a Path,
    text: BufReader<&'a File>,
}

impl Out<'_> {
    /// Reads the result of `row`. Returns it with the length of the whole row in bytes, or `None` if the row
    /// is truncated.
    fn read_row(&mut self, row: &TableRow, columns: &Columns) -> Result<Option<(RowResult, u64)>, Failure> {
        let start = self.read_up_to(row.text.len())?;
        let mut end = Vec::new();
        self.text.read_until(b'\n', &mut end).map_err(|e| self.read_error(e))?;
        if !end.ends_with(b"\n") {
            // A power loss may leave zero bytes in place of the rest.
            end.truncate(end.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
            let is_end = start == row.text && columns.is_truncated_row_end(&row.text, &end);
            let is_truncated = is_truncated(&row.text, &start) && (end.is_empty() || is_end);
            return if is_truncated { Ok(None) } else { Err(self.mismatch("its last row")) };
        }
        let result = columns.parse_row_end(&row.text, &end).filter(|_| start == row.text);
        let result = result.ok_or_else(|| self.mismatch(&format!("the row for line {}", row.line)))?;
        Ok(Some((result, (start.len() + end.len()) as u64)))
    }

    fn is_at_end(&mut self) -> Result<bool, Failure> {
        Ok(self.text.fill_buf().map_err(|e| Failure::file("read", self.path, e))?.is_empty())
    }

    /// Reads this number of bytes, or fewer at the end of the file.
    fn read_up_to(&mut self, bytes: usize) -> Result<Vec<u8>, Failure> {
        let mut text = Vec::new();
        self.text.by_ref().take(bytes as u64).read_to_end(&mut text).map_err(|e| self.read_error(e))?;
        Ok(text)
    }

    fn read_error(&self, error: io::Error) -> Failure {
        Failure::file("read", self.path, error)
    }

    fn mismatch(&self, part: &str) -> Failure {
        let (path, input) = (self.path.display(), self.input.display());
        Failure::new(format!("{path} is not the output for {input}: {part} differs")).advise(OUT_ADVICE)
    }
}

/// Returns whether `start` is a prefix of `text`, possibly followed by zero bytes.
fn is_truncated(text: &[u8], start: &[u8]) -> bool {
    let common = text.iter().zip(start).take_while(|(a, b)| a == b).count();
    start[common..].iter().all(|&byte| byte == 0)
}
