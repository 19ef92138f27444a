//! The journal of paid answers that are not in OUT yet, because an earlier row has no answer.
//!
//! The journal is a file beside OUT with one JSON object per line. Incomplete lines are ignored.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use crate::private_file::{self, beside};

/// Size at which the journal is rewritten without the answers that are already in OUT.
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
    email: std::borrow::Cow<'a, str>,
    answer: std::borrow::Cow<'a, Answer>,
}

impl Journal {
    pub fn path(out: &Path) -> PathBuf {
        beside(out, ".journal")
    }

    /// Reads the answers that an earlier run left, with their emails.
    pub fn read(out: &Path) -> io::Result<Vec<(String, Answer)>> {
        let text = match fs::read(Self::path(out)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        let entries = text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        Ok(entries.map(|Entry { email, answer }| (email.into_owned(), answer.into_owned())).collect())
    }

    /// Creates a journal of these answers and atomically replaces the previous one.
    pub fn create<'a>(
        out: &Path,
        answers: impl IntoIterator<Item = (&'a str, &'a Answer)>,
    ) -> io::Result<Self> {
        let path = Self::path(out);
        let new = beside(&path, ".new");
        let file = private_file::create(&new)?;
        let mut journal = Self { path, file, bytes: 0, bytes_max: BYTES_MAX, is_synced: true };
        for (email, answer) in answers {
            journal.add(email, answer)?;
        }
        journal.sync()?;
        fs::rename(&new, &journal.path)?;
        journal.bytes_max = BYTES_MAX.max(2 * journal.bytes);
        Ok(journal)
    }

    pub fn add(&mut self, email: &str, answer: &Answer) -> io::Result<()> {
        use std::borrow::Cow::Borrowed;
        let mut line = serde_json::to_vec(&Entry { email: Borrowed(email), answer: Borrowed(answer) })?;
        line.push(b'\n');
        self.bytes += line.len() as u64;
        self.is_synced = false;
        self.file.write_all(&line)
    }

    pub fn is_long(&self) -> bool {
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
