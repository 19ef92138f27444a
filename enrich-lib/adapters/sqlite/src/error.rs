//! Errors of a store. Every message says what to do, and none contains an email or a key.

use std::io;
use std::path::PathBuf;

use enrich_lib::credit::AccountError;
use enrich_lib::model::WorkspaceId;
use enrich_lib::refusal::PortError;
use rusqlite::ErrorCode;
use thiserror::Error;

/// An error of a store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory contains no data.
    #[error("there is no data in {}", .0.display())]
    NoData(PathBuf),
    /// Another process serves this data.
    #[error("{} is already being served by another process; stop that one first, or name another data directory", .0.display())]
    Served(PathBuf),
    /// The file was written by a newer version of this program.
    #[error("{} was written by a newer version; use that version, or a copy of the file from before", .0.display())]
    NewerSchema(PathBuf),
    /// The key for hashing the emails of the people directory is missing or damaged.
    #[error("{} is missing or damaged: restore it from a backup, as the people in the directory can't be found without it", .0.display())]
    PeopleKey(PathBuf),
    /// The opt-outs cannot be read. Every lookup fails until they are readable.
    #[error(
        "who opted out can't be read from the people directory, so that nobody is found: the log says why"
    )]
    OptOuts,
    /// The accounts were moved to another store, or the move is in progress.
    #[error(
        "the accounts in {} were moved to {target}, or are on their way there: nothing may change them here",
        .dir.display()
    )]
    Moved {
        /// The data directory.
        dir: PathBuf,
        /// The file that records the move.
        mark: PathBuf,
        /// The store with the accounts.
        target: String,
    },
    /// The workspace does not exist.
    #[error("there is no workspace {0}")]
    UnknownWorkspace(WorkspaceId),
    /// The workspace already exists.
    #[error("there is already a workspace {0}")]
    WorkspaceExists(WorkspaceId),
    /// The key does not exist.
    #[error("there is no key with the id {0}")]
    UnknownKey(String),
    /// The account rejected the operation.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The spend could not be made durable. Other spends of the same commit fail with the same reason.
    #[error("the spend was not written: {0}")]
    NotWritten(String),
    /// The writer has ended.
    #[error("the store has stopped writing")]
    Stopped,
    /// A file cannot be read or written.
    #[error("can't use {}: {source}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// SQLite returned an error.
    #[error("the database failed: {0}")]
    Database(#[from] rusqlite::Error),
}

impl StoreError {
    /// Returns whether a retry is pointless, because an account or a database constraint rejected the write.
    pub(crate) fn is_constraint(&self) -> bool {
        match self {
            Self::Account(_) => true,
            Self::Database(error) => error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation),
            _ => false,
        }
    }

    /// Returns a closure for `map_err` that wraps an I/O error of the file at `path`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

impl From<StoreError> for PortError {
    fn from(error: StoreError) -> Self {
        Self::new(error)
    }
}
