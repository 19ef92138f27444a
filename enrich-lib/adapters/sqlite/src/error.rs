//! What can go wrong in a store. Every message tells what to do, and none has an email or a key.

use std::io;
use std::path::PathBuf;

use enrich_lib::credit::AccountFault;
use enrich_lib::model::WorkspaceId;
use enrich_lib::refusal::PortError;
use rusqlite::ErrorCode;
use thiserror::Error;

/// A store can't do what it was asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no data directory.
    #[error("there is no data in {}", .0.display())]
    NoData(PathBuf),
    /// Another process serves this data.
    #[error("{} is already being served by another process; stop that one first, or name another data directory", .0.display())]
    Served(PathBuf),
    /// The file was written by a newer version of this program.
    #[error("{} was written by a newer version; use that version, or a copy of the file from before", .0.display())]
    NewerSchema(PathBuf),
    /// The key that hides the emails of the people directory is missing or damaged.
    #[error("{} is missing or damaged: restore it from a backup, as the people in the directory can't be found without it", .0.display())]
    PeopleKey(PathBuf),
    /// Opt-outs can't be read, so nobody is found.
    #[error(
        "who opted out can't be read from the people directory, so that nobody is found: the log says why"
    )]
    OptOuts,
    /// The accounts were moved to another store, or are on their way there.
    #[error(
        "the accounts in {} were moved to {target}, or are on their way there: nothing may change them here",
        .dir.display()
    )]
    Moved {
        /// The data directory.
        dir: PathBuf,
        /// The file that says so.
        mark: PathBuf,
        /// Where they are.
        target: String,
    },
    /// No workspace has this name.
    #[error("there is no workspace {0}")]
    UnknownWorkspace(WorkspaceId),
    /// A workspace of this name exists.
    #[error("there is already a workspace {0}")]
    WorkspaceExists(WorkspaceId),
    /// No key has this id.
    #[error("there is no key with the id {0}")]
    UnknownKey(String),
    /// The account refused the step.
    #[error(transparent)]
    Account(#[from] AccountFault),
    /// A spend did not become durable; others of the same commit have the same reason.
    #[error("the spend was not written: {0}")]
    NotWritten(String),
    /// The thread that writes has ended.
    #[error("the store has stopped writing")]
    Stopped,
    /// A file can't be read or written.
    #[error("can't use {}: {source}", .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// SQLite failed.
    #[error("the database failed: {0}")]
    Database(#[from] rusqlite::Error),
}

impl StoreError {
    /// What was to be written is refused, and would be however often it is tried.
    pub(crate) fn is_constraint(&self) -> bool {
        match self {
            Self::Account(_) => true,
            Self::Database(error) => error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation),
            _ => false,
        }
    }

    /// For `map_err`: a failure of the file at `path`.
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
