//! Errors of the SQLite store. No message contains an email or a key.

use std::io;
use std::path::{Path, PathBuf};

use enrich_lib::credit::AccountError;
use enrich_lib::model::Timestamp;
use enrich_lib::refusal::PortError;
use enrich_store::StoreError;
use rusqlite::{ErrorCode, ffi};
use thiserror::Error;

/// An error of the SQLite store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// An error that every store has.
    #[error(transparent)]
    Store(StoreError),
    /// The directory contains no data.
    #[error("there is no data in {}", .0.display())]
    NoData(PathBuf),
    /// Another process serves this data.
    #[error("{} is already being served by another process; stop it, or use another data directory", .0.display())]
    Served(PathBuf),
    /// Another process imports people into this directory.
    #[error("another import into {} is running", .dir.display())]
    Importing {
        /// The data directory.
        dir: PathBuf,
        /// When the import began.
        since: Timestamp,
    },
    /// A file of the directory was replaced or deleted while a process served it, or imported people into it.
    #[error(
        "{} was replaced or deleted while it was in use; changes to the old file are lost, so start the server or \
         run the command again",
        .0.display()
    )]
    Replaced(PathBuf),
    /// A database file is damaged.
    #[error("{} is damaged: {error}; restore the data directory from a backup", .path.display())]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// The first error that SQLite found.
        error: String,
    },
    /// The target of a backup or a restore contains files.
    #[error("{} is not empty; choose another directory, or move its files away", .0.display())]
    NotEmpty(PathBuf),
    /// Another process makes a backup or a restore to this target.
    #[error("another backup or restore to {} is running; wait until it has ended, or choose another directory", .0.display())]
    Copying(PathBuf),
    /// The key for hashing the emails of the people directory is missing or damaged.
    #[error("{} is missing or damaged; restore it from a backup, because no person in the directory can be found without it", .0.display())]
    PeopleKey(PathBuf),
    /// The key for hashing the emails belongs to another people directory.
    #[error(
        "{} is not the key with which the people were imported, and no opt-out would apply; restore it from a backup of \
         this directory", .0.display()
    )]
    ForeignPeopleKey(PathBuf),
    /// The people directory was made under another key than the one in the settings.
    #[error("the people directory was made with another key than `people.key`: {}", .0.display())]
    OtherPeopleKey(PathBuf),
    /// The opt-outs cannot be read. Every lookup fails until they are readable.
    #[error("cannot read the opt-out list; every lookup fails until it is readable")]
    OptOuts,
    /// The disk does not respond to a read.
    #[error("a read of the accounts does not end, so that lookups fail; check the disk")]
    Unresponsive,
    /// The accounts were moved to another store.
    #[error("the accounts in {} were moved to {target}", .dir.display())]
    Moved {
        /// The data directory.
        dir: PathBuf,
        /// The store with the accounts.
        target: String,
    },
    /// The accounts are being moved to another store, or the move was interrupted, perhaps after it was
    /// committed there.
    #[error("the accounts in {} are being moved to {target}", .dir.display())]
    Moving {
        /// The data directory.
        dir: PathBuf,
        /// The store that receives the accounts.
        target: String,
    },
    /// A file cannot be read or written.
    #[error("cannot use {}: {source}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The disk failed to store a commit, so that its outcome is unknown. A ledger stops; a restart determines the
    /// outcome.
    #[error("the disk failed to store a commit: {0}; check the disk, then restart the server")]
    SyncFailed(String),
    /// SQLite returned an error.
    #[error("the database returned an error: {error}{remedy}", error = .0, remedy = remedy(.0))]
    Database(#[from] rusqlite::Error),
}

/// Returns whether a sync failed.
pub(crate) fn is_sync_failure(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC))
}

/// Returns whether SQLite found damage in a file.
fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Returns what to do about an error of the database.
fn remedy(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        _ if is_damage(error) => {
            "; the file is damaged: find out which with `enrich check`, and restore the data directory from a backup"
        }
        Some(ErrorCode::DatabaseBusy) => {
            "; another process keeps a lock: check the disk of the server, then end other programs that have the file open"
        }
        Some(ErrorCode::DiskFull) => "; free space on the disk of the data directory, or of temporary files",
        // SQLite also returns it if a disk is too full for the file of the shared memory.
        Some(ErrorCode::SystemIoFailure) => "; check the disk and its free space",
        Some(ErrorCode::ReadOnly) => "; make the data directory and its files writable for this user",
        _ => "",
    }
}

impl SqliteError {
    /// Returns whether a retry is pointless, because an account or a database constraint rejected the write.
    pub(crate) fn is_constraint(&self) -> bool {
        match self {
            Self::Store(StoreError::Account(_)) => true,
            Self::Database(error) => error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation),
            _ => false,
        }
    }

    /// Returns whether another process kept its transaction open for too long.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Database(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy))
    }

    /// Converts SQLite's report of a damaged file to an error that names the file.
    pub(crate) fn or_damaged(self, path: &Path) -> Self {
        match self {
            Self::Database(error) if is_damage(&error) => {
                Self::Damaged { path: path.to_owned(), error: error.to_string() }
            }
            error => error,
        }
    }

    /// Converts SQLite's report of a full disk to an error that names the file.
    pub(crate) fn of_full_disk(self, path: &Path) -> Self {
        match self {
            Self::Database(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                Self::file(path)(io::ErrorKind::StorageFull.into())
            }
            error => error,
        }
    }

    /// Returns whether the ledger no longer works, or works on replaced files, so that its process must be
    /// restarted.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::SyncFailed(_) | Self::Replaced(_) | Self::Store(StoreError::Stopped))
    }

    /// Returns a closure for `map_err` that wraps an I/O error of the file at `path`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

impl From<StoreError> for SqliteError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Backend(source) => match source.downcast() {
                Ok(error) => *error,
                Err(source) => Self::Store(StoreError::Backend(source)),
            },
            error => Self::Store(error),
        }
    }
}

impl From<AccountError> for SqliteError {
    fn from(error: AccountError) -> Self {
        Self::Store(error.into())
    }
}

impl From<SqliteError> for StoreError {
    fn from(error: SqliteError) -> Self {
        match error {
            SqliteError::Store(error) => error,
            error => Self::Backend(Box::new(error)),
        }
    }
}

impl From<SqliteError> for PortError {
    fn from(error: SqliteError) -> Self {
        StoreError::from(error).into()
    }
}
