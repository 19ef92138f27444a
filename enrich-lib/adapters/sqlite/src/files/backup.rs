//! Backups of a data directory, and their restoration.
//!
//! Both copy one directory to another that does not exist or is empty. The copy is made in a directory beside
//! the target, verified, synced and then renamed, so that a target with files is complete. A target that exists
//! can be a mount point, which cannot be replaced: the copy is then made in it, and its files are moved up.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};

use super::database::{self, Schema};
use super::dir::{DataDir, FILES, LOCK, ServeLock, write_private};
use super::moved::MARKER;
use super::verify::{self, open_unchanged};
use super::wal;
use crate::error::SqliteError;

/// The directory of a copy in an existing target.
const INSIDE: &str = "copy.partial";

/// The directory that the tools of ext4 create in each file system.
const LOST_AND_FOUND: &str = "lost+found";

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupFile {
    /// Its name in the backup and in the data directory.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

impl DataDir {
    /// Copies the directory to `target`, which must be missing or empty, except for `lost+found`. Another
    /// process can serve the directory meanwhile.
    ///
    /// Each database is copied as of one moment, and checked after it is written. Sessions and unused links of
    /// users are not copied. The copies need no write-ahead log. All files are readable only by their owner and
    /// are durable when the function returns. To restore a backup, open it and call this function with a new data
    /// directory as the target.
    ///
    /// Errors: [`SqliteError::NotEmpty`]; [`SqliteError::Copying`]; [`SqliteError::PeopleKey`] and
    /// [`SqliteError::ForeignPeopleKey`] if there are people without their key;
    /// [`SqliteError::Damaged`] if a copy is damaged, which includes a file without the tables of its kind.
    pub fn copy_to(&self, target: &Path) -> Result<Vec<BackupFile>, SqliteError> {
        let staging = Staging::create(target)?;
        let names = self.copy_files(&staging.path)?;
        let files = names.iter().map(|name| {
            let path = staging.path.join(name);
            let synced = File::open(&path).and_then(|file| {
                file.sync_all()?;
                file.metadata()
            });
            let bytes = synced.map_err(SqliteError::file(&path))?.len();
            Ok(BackupFile { name: (*name).to_owned(), bytes })
        });
        let files = files.collect::<Result<Vec<_>, SqliteError>>()?;
        staging.finish(target, &names)?;
        Ok(files)
    }

    /// Copies all files that exist, except new people, and checks that the key is that of the people. Returns their
    /// names, of which the last is that of the accounts, if there are any. The marker of a move is copied after them,
    /// so that a move that begins meanwhile is in the copy.
    fn copy_files(&self, staging: &Path) -> Result<Vec<&'static str>, SqliteError> {
        let mut names = Vec::new();
        self.check_people_not_lost()?;
        let has_people = self.has_people();
        if has_people {
            self.read_key()?;
            self.copy_file("people.key", staging)?;
            names.push("people.key");
        }
        let has_accounts = self.accounts().is_file() || wal::has_frames(&self.accounts());
        let databases =
            [("people.db", Schema::People, has_people), ("accounts.db", Schema::Accounts, has_accounts)];
        for (name, schema, _) in databases.into_iter().filter(|(.., exists)| *exists) {
            copy_database(&self.path().join(name), &staging.join(name), schema)?;
            names.push(name);
        }
        if has_people {
            DataDir::create(staging)?.check_key(true).map_err(|error| match error {
                SqliteError::ForeignPeopleKey(_) => SqliteError::ForeignPeopleKey(self.people_key()),
                error => error,
            })?;
        }
        if self.path().join(MARKER).is_file() {
            self.copy_file(MARKER, staging)?;
            names.insert(0, MARKER);
        }
        Ok(names)
    }

    fn copy_file(&self, name: &str, staging: &Path) -> Result<(), SqliteError> {
        let (from, to) = (self.path().join(name), staging.join(name));
        let content = fs::read(&from).map_err(SqliteError::file(from))?;
        write_private(&to, &content).map_err(SqliteError::file(to))
    }
}

/// Copies a database as of one moment and checks the copy.
fn copy_database(from: &Path, to: &Path, schema: Schema) -> Result<(), SqliteError> {
    database::check_has_pages(from)?;
    write_private(to, b"").map_err(SqliteError::file(to))?;
    let copied =
        copy_pages(from, to).and_then(|()| verify::check(to)).and_then(|()| finish_copy(from, to, schema));
    copied.map_err(|error| match error {
        SqliteError::Damaged { error, .. } => SqliteError::Damaged { path: from.to_owned(), error },
        error => error.of_full_disk(to).or_damaged(from),
    })
}

fn copy_pages(from: &Path, to: &Path) -> Result<(), SqliteError> {
    let (source, mut copy) = (open_unchanged(from)?, open_unchanged(to)?);
    // The caller syncs the finished file.
    copy.pragma_update(None, "synchronous", "OFF")?;
    let backup = Backup::new(&source, &mut copy)?;
    let mut attempts = 0;
    // All pages in one step, so that a commit of another process does not restart the copy.
    while backup.step(-1)? != StepResult::Done {
        // Another process holds an exclusive lock, for example to recover the write-ahead log.
        if !database::retry(attempts) {
            return Err(database::busy("another process holds a lock on the file"));
        }
        attempts += 1;
    }
    Ok(())
}

/// Makes the copy one file, which can be read on a medium without write access. Fails if the tables are not those of
/// the schema.
fn finish_copy(from: &Path, to: &Path, schema: Schema) -> Result<(), SqliteError> {
    let copy = open_unchanged(to)?;
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    database::check_tables(&copy, from, schema)?;
    if schema == Schema::Accounts {
        // A restored backup must not make sessions valid that have ended since. Deleted rows are overwritten.
        copy.pragma_update(None, "secure_delete", true)?;
        copy.execute_batch("DELETE FROM member_session; DELETE FROM member_link")?;
    }
    Ok(())
}

/// The directory in which the copy is made. It is removed when it is dropped unfinished.
struct Staging {
    path: PathBuf,
    /// Whether it is in the target, and not beside it.
    is_inside: bool,
    is_finished: bool,
    /// In the directory. Another copy to the target fails while it is locked.
    _lock: ServeLock,
}

impl Staging {
    /// Checks that the target is missing or empty, and creates and locks the directory. Removes the files that a
    /// killed process left in it.
    fn create(target: &Path) -> Result<Self, SqliteError> {
        let is_inside = target.is_dir();
        let path = if is_inside {
            target.join(INSIDE)
        } else {
            let mut name = target.file_name().unwrap_or_default().to_owned();
            name.push(".partial");
            target.with_file_name(name)
        };
        check_is_free(target, is_inside)?;
        let locked = DataDir::create(&path)?.lock().and_then(|lock| lock.check().map(|()| lock));
        let lock = locked.map_err(|error| match error {
            SqliteError::Served(_) | SqliteError::Replaced(_) => SqliteError::Copying(target.to_owned()),
            // The other copy has renamed the directory since this one opened it.
            SqliteError::File { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                SqliteError::Copying(target.to_owned())
            }
            error => error,
        })?;
        let staging = Self { path, is_inside, is_finished: false, _lock: lock };
        check_is_free(target, is_inside)?; // another copy can have ended before the lock
        clear(&staging.path).map_err(SqliteError::file(&staging.path))?;
        Ok(staging)
    }

    /// Makes the files durable in the target. The last one appears last.
    fn finish(mut self, target: &Path, names: &[&str]) -> Result<(), SqliteError> {
        let sync = |path: &Path| File::open(path)?.sync_all();
        let mut finish = || {
            sync(&self.path)?;
            if self.is_inside {
                names.iter().try_for_each(|name| fs::rename(self.path.join(name), target.join(name)))?;
                self.is_finished = true;
                let _ = remove(&self.path); // fails if another copy opens it, which then removes it
                return sync(target);
            }
            fs::rename(&self.path, target)?;
            self.is_finished = true;
            // Not earlier: another copy could lock the directory before it has its final name.
            fs::remove_file(target.join(LOCK))?;
            sync(target)?;
            let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
            sync(parent.unwrap_or(Path::new(".")))
        };
        finish().map_err(SqliteError::file(target))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = remove(&self.path); // the next copy removes the files
        }
    }
}

/// Checks that the target of a copy is missing, or a directory without files.
fn check_is_free(target: &Path, is_directory: bool) -> Result<(), SqliteError> {
    match target.is_dir() {
        false if target.exists() => Err(SqliteError::file(target)(io::ErrorKind::NotADirectory.into())),
        true if !is_directory || !is_empty(target).map_err(SqliteError::file(target))? => {
            Err(SqliteError::NotEmpty(target.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Removes a directory that contains only files of a data directory.
fn remove(directory: &Path) -> io::Result<()> {
    let cleared = clear(directory);
    fs::remove_file(directory.join(LOCK))?;
    cleared?;
    fs::remove_dir(directory)
}

/// Removes the files of a data directory, except its lock. Fails if other files remain.
fn clear(directory: &Path) -> io::Result<()> {
    let names = FILES.into_iter().chain(["accounts.db-journal", "people.db-journal"]);
    for name in names.filter(|name| *name != LOCK) {
        match fs::remove_file(directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let has_others = fs::read_dir(directory)?.any(|entry| entry.is_ok_and(|entry| entry.file_name() != LOCK));
    if has_others { Err(io::ErrorKind::DirectoryNotEmpty.into()) } else { Ok(()) }
}

/// Returns whether a directory has no files but those of a new file system and of a copy that was killed.
fn is_empty(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if name != LOST_AND_FOUND && name != INSIDE {
            return Ok(false);
        }
    }
    Ok(true)
}
