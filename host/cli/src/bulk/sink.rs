//! The output of `enrich bulk`: stdout, or a file that a later run can resume.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use enrich_files::TableRow;

use super::answer::{Answer, Columns};
use super::done::{Done, Retries};
use super::input::Input;
use super::journal::Journal;
use crate::failure::Failure;
use crate::output;
use crate::private_file::{self, MODE, beside, sync_directory};

pub struct Sink {
    columns: Columns,
    target: Target,
}

enum Target {
    Stdout(io::Stdout),
    File { path: PathBuf, file: File, journal: Journal, is_synced: bool },
}

impl Sink {
    /// Creates a sink for stdout and writes the header.
    pub fn stdout(columns: Columns, header: Option<&[u8]>) -> Result<Self, Failure> {
        let mut sink = Self { columns, target: Target::Stdout(io::stdout()) };
        if let Some(header) = header {
            sink.write(&[header, &sink.columns.header_end()].concat())?;
        }
        Ok(sink)
    }

    /// Opens the file at `path` to append to its rows. Consumes these rows from `input`, and fails if they differ.
    pub fn file(
        path: &Path,
        force: bool,
        columns: Columns,
        input: &mut Input,
        retries: Retries,
    ) -> Result<(Self, Done), Failure> {
        let failed = |e: io::Error| Failure::file("write", path, e);
        let is_new = force || !path.exists();
        let mut file = open(path, &input.path)?;
        if is_new {
            // A journal without its OUT belongs to another run.
            file.set_len(0).map_err(failed)?;
            let _ = fs::remove_file(Journal::path(path));
        }
        let (mut done, header) = Done::read(path, &file, &columns, input, retries)?;
        file.set_len(done.bytes).map_err(failed)?;
        if done.bytes == 0 {
            // An existing file may have a less restrictive mode.
            file.set_permissions(fs::Permissions::from_mode(MODE)).map_err(failed)?;
        }
        file.write_all(&header).map_err(failed)?;
        let mut ahead = Journal::read(path).map_err(|e| Failure::file("read", &Journal::path(path), e))?;
        ahead.retain(|(_, answer)| !retries.include(answer));
        let journal = Journal::create(path, ahead.iter().map(|(email, answer)| (email.as_str(), answer)))
            .map_err(|e| Failure::file("write", &Journal::path(path), e))?;
        done.ahead = ahead.iter().map(|(email, _)| email.clone()).collect();
        done.answers.extend(ahead);
        // Removes the unused copy of a run that was killed while it wrote the copy.
        let _ = fs::canonicalize(path).and_then(|out| fs::remove_file(beside(&out, COPY_END)));
        let target = Target::File { path: path.to_owned(), file, journal, is_synced: false };
        let mut sink = Self { columns, target };
        sink.sync()?;
        sync_directory(path);
        Ok((sink, done))
    }

    /// Returns the text of an output row.
    pub fn row(&self, row: &TableRow, answer: &Answer) -> Vec<u8> {
        [row.text.as_slice(), &self.columns.row_end(&row.text, answer)].concat()
    }

    pub fn write(&mut self, text: &[u8]) -> Result<(), Failure> {
        match &mut self.target {
            Target::Stdout(stdout) => stdout.write_all(text).and_then(|()| stdout.flush()).map_err(|e| {
                output::unwritable(&e).advise("with -o OUT, answers that were paid for are kept")
            }),
            Target::File { path, file, is_synced, .. } => {
                *is_synced = false;
                file.write_all(text).map_err(|e| Failure::file("write", path, e).advise(CONTINUES))
            }
        }
    }

    /// Adds an answer that waits for an earlier row to the journal. Does nothing for stdout.
    pub fn keep(&mut self, email: &str, answer: &Answer) -> Result<(), Failure> {
        let Target::File { path, journal, is_synced, .. } = &mut self.target else { return Ok(()) };
        *is_synced = false;
        journal.add(email, answer).map_err(|e| Failure::file("write", &Journal::path(path), e))
    }

    /// Returns whether the journal is long enough to be rewritten.
    pub fn is_journal_long(&self) -> bool {
        matches!(&self.target, Target::File { journal, .. } if journal.is_long())
    }

    pub fn keep_anew<'a>(
        &mut self,
        answers: impl IntoIterator<Item = (&'a str, &'a Answer)>,
    ) -> Result<(), Failure> {
        // Answers that the new journal omits must already be durable in OUT.
        self.sync()?;
        let Target::File { path, journal, .. } = &mut self.target else { return Ok(()) };
        let new = Journal::create(path, answers);
        *journal = new.map_err(|e| Failure::file("write", &Journal::path(path), e))?;
        Ok(())
    }

    /// Replaces answers in OUT. `answers` must be sorted by position.
    ///
    /// Writes a copy of OUT and renames it over OUT, so that OUT is complete at any time.
    pub fn replace(&mut self, answers: &[(Range<u64>, Answer)]) -> Result<(), Failure> {
        let Target::File { path, file, .. } = &mut self.target else { return Ok(()) };
        if answers.is_empty() {
            return Ok(());
        }
        let failed = |e: io::Error| Failure::file("rewrite", path, e).advise(CONTINUES);
        // A rename would replace a symlink instead of the file it points to.
        let out = fs::canonicalize(&path).map_err(failed)?;
        let copy = beside(&out, COPY_END);
        *file = write_copy(file, &copy, &self.columns, answers)
            .and_then(|file| fs::rename(&copy, &out).map(|()| file))
            .inspect_err(|_| drop(fs::remove_file(&copy)))
            .map_err(failed)?;
        sync_directory(&out);
        Ok(())
    }

    /// Makes all written rows and journal entries durable.
    pub fn sync(&mut self) -> Result<(), Failure> {
        let Target::File { path, file, journal, is_synced } = &mut self.target else { return Ok(()) };
        if !*is_synced {
            file.sync_data().and_then(|()| journal.sync()).map_err(|e| Failure::file("write", path, e))?;
            *is_synced = true;
        }
        Ok(())
    }

    /// Syncs the output and removes the journal. Call this when no answer waits for an earlier row.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.sync()?;
        let Target::File { path, journal, .. } = &self.target else { return Ok(()) };
        journal.remove().map_err(|e| Failure::file("remove", &Journal::path(path), e))
    }

    pub fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout(_))
    }
}

const CONTINUES: &str = "the same command goes on where this stopped";

/// Suffix of the copy that replaces OUT.
const COPY_END: &str = ".rewrite";

/// Copies `out` to `path` and replaces `answers`. Returns the copy, which is durable and locked like OUT.
fn write_copy(
    out: &File,
    path: &Path,
    columns: &Columns,
    answers: &[(Range<u64>, Answer)],
) -> io::Result<File> {
    let copy = private_file::create(path)?;
    copy.lock()?;
    let meta = out.metadata()?;
    // Only root can change the owner of a file. For any other user, the copy keeps the current owner.
    let _ = fchown(&copy, Some(meta.uid()), Some(meta.gid()));
    copy.set_permissions(meta.permissions())?;

    let (mut old, mut new) = (BufReader::new(out), BufWriter::new(&copy));
    old.rewind()?;
    let mut at = 0;
    for (bytes, answer) in answers {
        io::copy(&mut old.by_ref().take(bytes.start - at), &mut new)?;
        // An empty text is sufficient here: a row with an email is never the empty object `{}`.
        new.write_all(&columns.row_end(b"", answer))?;
        old.seek_relative((bytes.end - bytes.start) as i64)?;
        at = bytes.end;
    }
    io::copy(&mut old, &mut new)?;
    new.flush()?;
    drop(new);
    copy.sync_all()?;
    Ok(copy)
}

/// Opens OUT and locks it for this process.
fn open(path: &Path, input: &Path) -> Result<File, Failure> {
    let failed = |e: io::Error| Failure::file("write", path, e);
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create(true).mode(MODE).open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        let failure = Failure::new(format!("{} is no regular file", path.display()));
        return Err(failure.advise("without -o, the rows go to stdout"));
    }
    let is_same = |other: Metadata| (other.dev(), other.ino()) == (meta.dev(), meta.ino());
    if fs::metadata(input).is_ok_and(is_same) {
        return Err(Failure::new("FILE and OUT are the same file").advise("-o names another"));
    }
    match file.try_lock() {
        // The previous holder of the lock may have replaced the file.
        Ok(()) if fs::metadata(path).is_ok_and(is_same) => Ok(file),
        Ok(()) | Err(TryLockError::WouldBlock) => {
            Err(Failure::new(format!("another run is writing {}", path.display())))
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}
