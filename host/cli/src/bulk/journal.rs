//! The journal of results that are not in OUT yet, because an earlier row has no result. They are paid for
//! and must not be lost.
//!
//! The journal is a file beside OUT with one JSON object per line. Incomplete lines are ignored.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::row_result::RowResult;
use crate::private_file::{self, with_name_suffix};

/// Size at which the journal is rewritten without the results that are already in OUT.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

pub struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    is_synced: bool,
}

#[derive(Deserialize, Serialize)]
struct Entry<'a> {
    email: Cow<'a, str>,
    result: Cow<'a, RowResult>,
}

impl Journal {
    /// Returns the path of the journal of OUT.
    pub fn path(out: &Path) -> PathBuf {
        with_name_suffix(out, ".journal")
    }

    /// Reads the results of an earlier run, with their emails.
    pub fn read(out: &Path) -> io::Result<Vec<(String, RowResult)>> {
        let text = match fs::read(Self::path(out)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        let entries = text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        Ok(entries.map(|Entry { email, result }| (email.into_owned(), result.into_owned())).collect())
    }

    /// Creates a journal of these results and atomically replaces the previous one.
    pub fn create<'a>(
        out: &Path,
        results: impl IntoIterator<Item = (&'a str, &'a RowResult)>,
    ) -> io::Result<Self> {
        let path = Self::path(out);
        let new = with_name_suffix(&path, ".new");
        let file = private_file::create(&new)?;
        let mut journal = Self { path, file, bytes: 0, bytes_max: BYTES_MAX, is_synced: true };
        for (email, result) in results {
            journal.append(email, result)?;
        }
        journal.sync()?;
        fs::rename(&new, &journal.path)?;
        journal.bytes_max = BYTES_MAX.max(2 * journal.bytes);
        Ok(journal)
    }

    pub fn append(&mut self, email: &str, result: &RowResult) -> io::Result<()> {
        let mut line =
            serde_json::to_vec(&Entry { email: Cow::Borrowed(email), result: Cow::Borrowed(result) })?;
        line.push(b'\n');
        self.bytes += line.len() as u64;
        self.is_synced = false;
        self.file.write_all(&line)
    }

    pub fn needs_rewrite(&self) -> bool {
        self.bytes > self.bytes_max
    }

    pub fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            self.file.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }

    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}
