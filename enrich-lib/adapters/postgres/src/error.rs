//! Errors of the store. Every message says what to do, and none contains an email, a key or a password.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use enrich_lib::credit::AccountError;
use enrich_lib::model::WorkspaceId;
use enrich_lib::refusal::PortError;
use thiserror::Error;

/// An error of the PostgreSQL store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database address is invalid. The message omits it because it may contain a password.
    #[error(
        "can't read the address of the database: it has to be postgres://USER:PASSWORD@HOST/DATABASE, of one host; in a \
         password, signs such as @ and / are written as %40 and %2F"
    )]
    Address,
    /// The address contains an unsupported `sslmode`.
    #[error(
        "can't read sslmode in the address of the database: it is one of disable, prefer, require and verify-full"
    )]
    SslMode,
    /// The certificates for verifying the server cannot be read.
    #[error("can't read certificates from {}: {reason}; sslrootcert has to name a PEM file", .path.display())]
    Certificates {
        /// The certificate file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Connecting to the server failed.
    #[error("can't connect to PostgreSQL: {0}; see whether it runs, and whether the address is right")]
    Unreachable(#[from] io::Error),
    /// The connection broke. The statement may or may not have been executed.
    #[error("the connection to PostgreSQL broke: {0}")]
    Broken(String),
    /// The server did not reply before the deadline. The statement may or may not have been executed.
    #[error("PostgreSQL did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// PostgreSQL rejected the statement. The statement had no effect.
    #[error("PostgreSQL refused: {message} ({code})")]
    Refused {
        /// The SQLSTATE code, five characters.
        code: String,
        /// The primary message. The detail is omitted because it may quote a row.
        message: String,
    },
    /// The schema is missing or older than this program.
    #[error(
        "the database has version {found} of its tables, and this program needs {needed}: run `enrich migrate`"
    )]
    NotMigrated {
        /// The schema version of the database; 0 if there are no tables.
        found: usize,
        /// The schema version that this program requires.
        needed: usize,
    },
    /// The schema is newer than this program.
    #[error("the database was written by a newer version of this program: use that version")]
    NewerSchema,
    /// No workspace has this name.
    #[error("there is no workspace {0}")]
    UnknownWorkspace(WorkspaceId),
    /// A workspace with this name already exists.
    #[error("there is already a workspace {0}")]
    WorkspaceExists(WorkspaceId),
    /// No key has this id.
    #[error("there is no key with the id {0}")]
    UnknownKey(String),
    /// The account rejected the operation.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The balance is undecided: another node with leased credits was asked to return them and has not replied.
    #[error("other nodes hold credits of workspace {0}, and have not answered yet: ask again")]
    Undecided(WorkspaceId),
    /// Leasing credits failed. All holds that waited for the same lease request receive this error.
    #[error("the credits were not taken: {0}")]
    NotTaken(String),
    /// The lease behind the hold has ended and its credits went back to the workspace, which has too few credits left to pay
    /// directly.
    #[error("the lease of these credits has ended, as PostgreSQL was not heard of for too long")]
    LeaseEnded,
    /// The spend was not committed.
    #[error("the spend was not written: {0}")]
    NotWritten(String),
    /// A column contains a value that this program never writes.
    #[error("the database has something unexpected in {column}: {reason}")]
    Unexpected {
        /// The column.
        column: &'static str,
        /// The reason.
        reason: String,
    },
    /// The copy conflicts with an existing workspace.
    #[error("there is already a workspace {0}, which did not come with this copy: nothing was copied")]
    NotCopied(WorkspaceId),
    /// The copy conflicts with an existing key.
    #[error("there is already a key with the id {0}, which did not come with this copy: nothing was copied")]
    KeyExists(String),
    /// Another process has continued this copy, or the workspaces in the source store have changed.
    #[error("somebody else copies the same accounts, or has changed them: run it again")]
    CopyChanged,
    /// The writer task has stopped.
    #[error("the store has stopped writing")]
    Stopped,
}

impl StoreError {
    /// Returns true if the server rejected the statement. The statement had no effect, and the connection remains usable.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Returns true if a row violates a constraint or has an out-of-range value (SQLSTATE classes 22 and 23). Retrying fails
    /// again.
    pub(crate) fn is_constraint(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code.starts_with("22") || code.starts_with("23"))
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(refusal) = error.as_db_error() {
            let (code, message) = (refusal.code().code().to_owned(), refusal.message().to_owned());
            return Self::Refused { code, message };
        }
        match error.source() {
            Some(source) => Self::Broken(format!("{error}: {source}")),
            None => Self::Broken(error.to_string()),
        }
    }
}

impl From<StoreError> for PortError {
    fn from(error: StoreError) -> Self {
        Self::new(error)
    }
}
