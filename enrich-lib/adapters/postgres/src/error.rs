//! What can go wrong in a store. Every message tells what to do, and none has an email, a key or a password.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use enrich_lib::credit::AccountFault;
use enrich_lib::model::WorkspaceId;
use enrich_lib::refusal::PortError;
use thiserror::Error;

/// A store can't do what it was asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The address of the database is none. It is not repeated here, as it may have a password.
    #[error(
        "can't read the address of the database: it has to be postgres://USER:PASSWORD@HOST/DATABASE, of one host; in a \
         password, signs such as @ and / are written as %40 and %2F"
    )]
    Address,
    /// The address says something about TLS that is not offered.
    #[error(
        "can't read sslmode in the address of the database: it is one of disable, prefer, require and verify-full"
    )]
    SslMode,
    /// There are no certificates to verify the server by.
    #[error("can't read certificates from {}: {reason}; sslrootcert has to name a PEM file", .path.display())]
    Certificates {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// There is no connection to the server.
    #[error("can't connect to PostgreSQL: {0}; see whether it runs, and whether the address is right")]
    Unreachable(#[from] io::Error),
    /// The connection broke: whether the statement was executed is not known.
    #[error("the connection to PostgreSQL broke: {0}")]
    Broken(String),
    /// There was no answer in time: whether the statement was executed is not known.
    #[error("PostgreSQL did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// PostgreSQL refused the statement, and did nothing.
    #[error("PostgreSQL refused: {message} ({code})")]
    Refused {
        /// The five characters of SQLSTATE.
        code: String,
        /// What it says, without its details: they may quote a row.
        message: String,
    },
    /// The database was not prepared, or by an older version.
    #[error(
        "the database has version {found} of its tables, and this program needs {needed}: run `enrich migrate`"
    )]
    NotMigrated {
        /// The version of the tables; 0 if there are none.
        found: usize,
        /// The version that is needed.
        needed: usize,
    },
    /// The database was written by a newer version of this program.
    #[error("the database was written by a newer version of this program: use that version")]
    NewerSchema,
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
    /// The credits may be there: another node that has some was asked to give them back, and has not answered.
    #[error("other nodes hold credits of workspace {0}, and have not answered yet: ask again")]
    Undecided(WorkspaceId),
    /// Credits could not be taken; other holds that waited have the same reason.
    #[error("the credits were not taken: {0}")]
    NotTaken(String),
    /// The lease that the hold was placed under has ended: its credits are the workspace's again, and it has too few left to
    /// pay directly.
    #[error("the lease of these credits has ended, as PostgreSQL was not heard of for too long")]
    LeaseEnded,
    /// A spend did not become durable.
    #[error("the spend was not written: {0}")]
    NotWritten(String),
    /// A column has what this program never writes.
    #[error("the database has something unexpected in {column}: {reason}")]
    Unexpected {
        /// Which column.
        column: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A copy would mix with a workspace that is here.
    #[error("there is already a workspace {0}, which did not come with this copy: nothing was copied")]
    NotCopied(WorkspaceId),
    /// A copy would mix with a key that is here.
    #[error("there is already a key with the id {0}, which did not come with this copy: nothing was copied")]
    KeyExists(String),
    /// The copy is not where it was left.
    #[error("somebody else copies the same accounts, or has changed them: run it again")]
    CopyChanged,
    /// The task that writes has ended.
    #[error("the store has stopped writing")]
    Stopped,
}

impl StoreError {
    /// True if this is an answer of the server: then the statement did nothing, and the connection is as good as before.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// True if a row broke a rule of the tables, or can't be counted: it will not be taken when it is sent again.
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
