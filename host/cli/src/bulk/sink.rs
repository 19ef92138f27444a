//! The output of `enrich bulk`: stdout, or a file that a later run can resume.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::files::TableRow;

use super::columns::Columns;
use super::input::Input;
use super::journal::Journal;
use super::previous_run::{PreviousRun, RetryPolicy};
use super::row_result::RowResult;
use crate::failure::Failure;
use crate::output;
use crate::private_file::{self, MODE, sync_directory, with_name_suffix};

/// The destination of the output rows.
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
        output::check_is_open().map_err(|error| unwritable(&error))?;
        let mut sink = Self { columns, target: Target::Stdout(io::stdout()) };
        if let Some(header) = header {
            sink.write(&[header, &sink.columns.header_end()].concat())?;
        }
        Ok(sink)
    }

    /// Opens the file at `path` to append to its rows. Consumes these rows from `input`, and fails if they
    /// differ.
    pub fn file(
        path: &Path,
        force: bool,
        columns: Columns,
        input: &mut Input,
        retries: RetryPolicy,
    ) -> Result<(Self, PreviousRun), Failure> {
        let write_error = |e: io::Error| Failure::file("write", path, e);
        let is_new = force || !path.exists();
        let mut file = open(path, &input.path)?;
        if is_new {
            // A journal without its OUT belongs to another run.
            file.set_len(0).map_err(write_error)?;
            let _ = fs::remove_file(Journal::path(path));
        }
        let (mut previous, header) = PreviousRun::read(path, &file, &columns, input, retries)?;
        file.set_len(previous.bytes).map_err(write_error)?;
        if previous.bytes == 0 {
            // An existing file may have a less restrictive mode.
            file.set_permissions(fs::Permissions::from_mode(MODE)).map_err(write_error)?;
        }
        file.write_all(&header).map_err(write_error)?;
        let journaled = Journal::read(path).map_err(|e| Failure::file("read", &Journal::path(path), e))?;
        let journaled: Vec<_> =
            journaled.into_iter().filter(|(_, result)| !retries.includes(result)).collect();
        let journal = Journal::create(path, journaled.iter().map(|(email, result)| (email.as_str(), result)))
            .map_err(|e| Failure::file("write", &Journal::path(path), e))?;
        previous.journaled = journaled.iter().map(|(email, _)| email.clone()).collect();
        previous.results.extend(journaled);
        // Removes the unused copy of a run that was killed while it wrote the copy.
        let _ = fs::canonicalize(path).and_then(|out| fs::remove_file(with_name_suffix(&out, COPY_SUFFIX)));
        let target = Target::File { path: path.to_owned(), file, journal, is_synced: false };
        let mut sink = Self { columns, target };
        sink.sync()?;
        sync_directory(path);
        Ok((sink, previous))
    }

    /// Returns the text of an output row.
    pub fn row(&self, row: &TableRow, result: &RowResult) -> Vec<u8> {
        [row.text.as_slice(), &self.columns.row_end(&row.text, result)].concat()
    }

    /// Writes complete rows.
    pub fn write(&mut self, text: &[u8]) -> Result<(), Failure> {
        match &mut self.target {
            Target::Stdout(stdout) => {
                stdout.write_all(text).and_then(|()| stdout.flush()).map_err(|e| unwritable(&e))
            }
            Target::File { path, file, is_synced, .. } => {
                *is_synced = false;
                file.write_all(text).map_err(|e| Failure::file("write", path, e).advise(RESUME_ADVICE))
            }
        }
    }

    /// Adds a result that waits for an earlier row to the journal. Does nothing for stdout.
    pub fn journal(&mut self, email: &str, result: &RowResult) -> Result<(), Failure> {
        let Target::File { path, journal, is_synced, .. } = &mut self.target else { return Ok(()) };
        *is_synced = false;
        journal.append(email, result).map_err(|e| Failure::file("write", &Journal::path(path), e))
    }

    /// Returns whether the journal is so long that it must be rewritten.
    pub fn journal_needs_rewrite(&self) -> bool {
        matches!(&self.target, Target::File { journal, .. } if journal.needs_rewrite())
    }

    /// Replaces the journal with one of these results.
    pub fn rewrite_journal<'a>(
        &mut self,
        results: impl IntoIterator<Item = (&'a str, &'a RowResult)>,
    ) -> Result<(), Failure> {
        // Results that the new journal omits must already be durable in OUT.
        self.sync()?;
        let Target::File { path, journal, .. } = &mut self.target else { return Ok(()) };
        let new = Journal::create(path, results);
        *journal = new.map_err(|e| Failure::file("write", &Journal::path(path), e))?;
        Ok(())
    }

    /// Replaces results in OUT. `results` must be sorted by position.
    ///
    /// Writes a copy of OUT and renames it over OUT, so that OUT is complete at any time.
    pub fn replace(&mut self, results: &[(Range<u64>, RowResult)]) -> Result<(), Failure> {
        let Target::File { path, file, .. } = &mut self.target else { return Ok(()) };
        if results.is_empty() {
            return Ok(());
        }
        let rewrite_error = |e: io::Error| Failure::file("rewrite", path, e).advise(RESUME_ADVICE);
        // A rename would replace a symlink instead of the file it points to.
        let out = fs::canonicalize(&path).map_err(rewrite_error)?;
        let copy = with_name_suffix(&out, COPY_SUFFIX);
        *file = write_copy(file, &copy, &self.columns, results)
            .and_then(|file| fs::rename(&copy, &out).map(|()| file))
            .inspect_err(|_| drop(fs::remove_file(&copy)))
            .map_err(rewrite_error)?;
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

    /// Syncs the output and removes the journal. Call this when no result waits for an earlier row.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.sync()?;
        let Target::File { path, journal, .. } = &self.target else { return Ok(()) };
        journal.remove().map_err(|e| Failure::file("remove", &Journal::path(path), e))
    }

    pub fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout(_))
    }
}

fn unwritable(error: &io::Error) -> Failure {
    output::unwritable(error).advise("use -o OUT to keep results that are paid for")
}

/// The advice of a run that stopped early and can be resumed.
pub const RESUME_ADVICE: &str = "run the same command again to resume";

/// Suffix of the copy that replaces OUT.
const COPY_SUFFIX: &str = ".rewrite";

/// Copies `out` to `path` and replaces `results`. Returns the copy, which is durable and locked like OUT.
fn write_copy(
    out: &File,
    path: &Path,
    columns: &Columns,
    results: &[(Range<u64>, RowResult)],
) -> io::Result<File> {
    let copy = private_file::create(path)?;
    copy.lock()?;
    let meta = out.metadata()?;
    // Only root can change the owner of a file. For any other user, the copy keeps the current owner.
    let _ = fchown(&copy, Some(meta.uid()), Some(meta.gid()));
    copy.set_permissions(meta.permissions())?;

    let (mut old, mut new) = (BufReader::new(out), BufWriter::new(&copy));
    old.rewind()?;
    let mut offset = 0;
    for (position, result) in results {
        io::copy(&mut old.by_ref().take(position.start - offset), &mut new)?;
        // An empty text is sufficient here: a row with an email is never the empty object `{}`.
        new.write_all(&columns.row_end(b"", result))?;
        old.seek_relative((position.end - position.start) as i64)?;
        offset = position.end;
    }
    io::copy(&mut old, &mut new)?;
    new.flush()?;
    drop(new);
    copy.sync_all()?;
    Ok(copy)
}

/// Opens OUT and locks it for this process.
fn open(path: &Path, input: &Path) -> Result<File, Failure> {
    let write_error = |e: io::Error| Failure::file("write", path, e);
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create(true).mode(MODE).open(path).map_err(write_error)?;
    let meta = file.metadata().map_err(write_error)?;
    if !meta.is_file() {
        let failure = Failure::new(format!("{} is not a regular file", path.display()));
        return Err(failure.advise("omit -o to write the rows to stdout"));
    }
    let is_same = |other: Metadata| (other.dev(), other.ino()) == (meta.dev(), meta.ino());
    if fs::metadata(input).is_ok_and(is_same) {
        return Err(Failure::new("FILE and OUT are the same file").advise("choose another file with -o"));
    }
    match file.try_lock() {
        // The previous holder of the lock may have replaced the file.
        Ok(()) if fs::metadata(path).is_ok_and(is_same) => Ok(file),
        Ok(()) | Err(TryLockError::WouldBlock) => {
            let failure = Failure::new(format!("another run is writing {}", path.display()));
            Err(failure.advise("wait for it to finish, or choose another file with -o"))
        }
        Err(TryLockError::Error(error)) => Err(write_error(error)),
    }
}
