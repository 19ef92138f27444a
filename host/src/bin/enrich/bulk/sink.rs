//! Where rows go: stdout, or a file that the next run can go on with.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use enrich_host::rows::TableRow;

use super::answer::{Answer, Columns};
use super::done::Done;
use super::input::Input;
use super::journal::Journal;
use crate::failure::Failure;
use crate::output;

/// Only this user reads it: it has people's data.
pub const MODE: u32 = 0o600;

pub struct Sink {
    columns: Columns,
    target: Target,
}

enum Target {
    Stdout(io::Stdout),
    File { path: PathBuf, file: File, journal: Journal, is_synced: bool },
}

impl Sink {
    /// Stdout, which begins with the header.
    pub fn stdout(columns: Columns, header: Option<&[u8]>) -> Result<Self, Failure> {
        let mut sink = Self { columns, target: Target::Stdout(io::stdout()) };
        if let Some(header) = header {
            sink.write(&[header, &sink.columns.header_end()].concat())?;
        }
        Ok(sink)
    }

    /// `path`, after the rows that are in it. They are taken from `input`, and have to agree with it.
    pub fn file(
        path: &Path,
        force: bool,
        columns: Columns,
        input: &mut Input,
    ) -> Result<(Self, Done), Failure> {
        let failed = |e: io::Error| Failure::file("write", path, e);
        let is_new = force || !path.exists();
        let mut file = open(path, &input.path)?;
        if is_new {
            // A journal that has lost its OUT is of another run.
            file.set_len(0).map_err(failed)?;
            let _ = fs::remove_file(Journal::path(path));
        }
        let (mut done, header) = Done::read(path, &file, &columns, input)?;
        file.set_len(done.bytes).map_err(failed)?;
        if done.bytes == 0 {
            // It was made for something else.
            file.set_permissions(fs::Permissions::from_mode(MODE)).map_err(failed)?;
        }
        file.write_all(&header).map_err(failed)?;
        let ahead = Journal::read(path).map_err(|e| Failure::file("read", &Journal::path(path), e))?;
        let journal = Journal::create(path, ahead.iter().map(|(email, answer)| (email.as_str(), answer)))
            .map_err(|e| Failure::file("write", &Journal::path(path), e))?;
        done.ahead = ahead.iter().map(|(email, _)| email.clone()).collect();
        done.answers.extend(ahead);
        let target = Target::File { path: path.to_owned(), file, journal, is_synced: false };
        let mut sink = Self { columns, target };
        sink.sync()?;
        sync_directory(path);
        Ok((sink, done))
    }

    /// The whole text of a row.
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
                file.write_all(text).map_err(|e| {
                    Failure::file("write", path, e).advise("the same command goes on where this stopped")
                })
            }
        }
    }

    /// Keeps an answer that has to wait for an earlier row.
    pub fn keep(&mut self, email: &str, answer: &Answer) -> Result<(), Failure> {
        let Target::File { path, journal, is_synced, .. } = &mut self.target else { return Ok(()) };
        *is_synced = false;
        journal.add(email, answer).map_err(|e| Failure::file("write", &Journal::path(path), e))
    }

    /// Whether the answers that still wait should be kept anew.
    pub fn is_journal_long(&self) -> bool {
        matches!(&self.target, Target::File { journal, .. } if journal.is_long())
    }

    pub fn keep_anew<'a>(
        &mut self,
        answers: impl IntoIterator<Item = (&'a str, &'a Answer)>,
    ) -> Result<(), Failure> {
        // What the new journal leaves out has to be in OUT for good.
        self.sync()?;
        let Target::File { path, journal, .. } = &mut self.target else { return Ok(()) };
        let new = Journal::create(path, answers);
        *journal = new.map_err(|e| Failure::file("write", &Journal::path(path), e))?;
        Ok(())
    }

    /// What was written survives a loss of power.
    pub fn sync(&mut self) -> Result<(), Failure> {
        let Target::File { path, file, journal, is_synced } = &mut self.target else { return Ok(()) };
        if !*is_synced {
            file.sync_data().and_then(|()| journal.sync()).map_err(|e| Failure::file("write", path, e))?;
            *is_synced = true;
        }
        Ok(())
    }

    /// After the last row: nothing waits for an earlier one any more.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.sync()?;
        let Target::File { path, journal, .. } = &self.target else { return Ok(()) };
        journal.remove().map_err(|e| Failure::file("remove", &Journal::path(path), e))
    }

    pub fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout(_))
    }
}

/// Opens OUT, for this process alone.
fn open(path: &Path, input: &Path) -> Result<File, Failure> {
    let failed = |e: io::Error| Failure::file("write", path, e);
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create(true).mode(MODE).open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        let failure = Failure::new(format!("{} is no regular file", path.display()));
        return Err(failure.advise("without -o, the rows go to stdout"));
    }
    if fs::metadata(input).is_ok_and(|input| (input.dev(), input.ino()) == (meta.dev(), meta.ino())) {
        return Err(Failure::new("FILE and OUT are the same file").advise("-o names another"));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Failure::new(format!("another run is writing {}", path.display())));
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    Ok(file)
}

/// A file that is new is in its directory for good. Where a directory can't be synced, there is nothing to do.
fn sync_directory(path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
}
