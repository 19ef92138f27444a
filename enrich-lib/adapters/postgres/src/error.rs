//! Errors of the PostgreSQL store. No message contains an email, a key or a password.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use enrich_lib::credit::AccountError;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::refusal::PortError;
use enrich_store::StoreError;
use thiserror::Error;
use tokio_postgres::error::Severity;

/// An error of the PostgreSQL store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// An error that every store has.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The URL is invalid. The message omits it because it may contain a password.
    #[error(
        "the database URL is invalid; use postgres://USER:PASSWORD@HOST/DATABASE, and percent-encode special characters in the \
         password, such as %40 for @ and %2F for /"
    )]
    InvalidUrl,
    /// The URL contains an option that has no effect here.
    #[error("the option {0} in the database URL is not supported; remove it")]
    UnsupportedOption(String),
    /// An option of the URL has an invalid value. The message omits the value.
    #[error("the option {option} in the database URL is invalid; use {expected}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// Its valid values.
        expected: &'static str,
    },
    /// A file that the URL names for TLS cannot be used.
    #[error("cannot read {}: {reason}; the option {option} must name a PEM file", .path.display())]
    Certificates {
        /// The option of the URL.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Connecting to the server failed. The kind of the error is [`io::ErrorKind::ConnectionAborted`] if the server
    /// runs and refuses new connections.
    #[error("cannot connect to PostgreSQL: {0}{advice}", advice = advice(.0))]
    Unreachable(io::Error),
    /// A key could not be read.
    #[error("the key could not be read: {0}")]
    KeyNotRead(String),
    /// The connection was lost. The statement may or may not have been executed.
    #[error("the connection to PostgreSQL was lost: {0}")]
    ConnectionLost(String),
    /// The server did not reply within the timeout. The statement may or may not have been executed.
    #[error("PostgreSQL did not reply within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The statement was executed, but a cancel request may have ended the wait of its commit for the standbys.
    #[error(
        "PostgreSQL replied after the statement was canceled; its commit may not have waited for a standby"
    )]
    Canceled,
    /// The change of a command or page is stored on the primary, but its commit did not wait for the standbys.
    #[error(
        "the change is stored, but another session canceled its wait for a standby of PostgreSQL; a failover can lose it"
    )]
    Unconfirmed,
    /// PostgreSQL ended the connection with an error of severity FATAL or PANIC. The statement may or may not
    /// have been executed: a PANIC can follow the commit, which the server then executes when it restarts.
    #[error("PostgreSQL ended the connection: {message} ({code}){remedy}", remedy = remedy(.code))]
    Ended {
        /// The SQLSTATE code, five characters.
        code: String,
        /// The primary message.
        message: String,
    },
    /// PostgreSQL rejected the statement.
    #[error("PostgreSQL rejected the statement: {message} ({code})")]
    Rejected {
        /// The SQLSTATE code, five characters.
        code: String,
        /// The primary message. The detail is omitted because it may quote a row.
        message: String,
    },
    /// The schema is missing or older than this program.
    #[error(
        "the database has schema version {found}, but this program requires version {needed}; run `enrich migrate`"
    )]
    NotMigrated {
        /// The schema version of the database; 0 if there are no tables.
        found: usize,
        /// The schema version that this program requires.
        needed: usize,
    },
    /// The database cannot contain all text.
    #[error(
        "the encoding of the database is {0}; create it with ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0"
    )]
    Encoding(String),
    /// The node could not read which keys have changed, or has not done so for seconds. See
    /// [`Ledger::check`](enrich_store::Ledger::check).
    #[error("the changes of API keys could not be read: {0}")]
    KeysOutdated(String),
    /// A statement of lookups has failed for seconds. See [`Ledger::check`](enrich_store::Ledger::check).
    #[error("the statements of lookups have failed for {} s: {reason}", .age.as_secs())]
    Failing {
        /// The time since the first failure was recorded.
        age: Duration,
        /// The last error.
        reason: String,
    },
    /// Another session has locked the balance of the workspace.
    #[error("another session of PostgreSQL has locked the balance of workspace {0}; end its transaction")]
    Locked(WorkspaceId),
    /// The statement of the hold failed.
    #[error("the credits were not held: {0}")]
    NotHeld(String),
    /// The statement of the release failed. The hold expires.
    #[error("the hold was not released, and expires: {0}")]
    NotReleased(String),
    /// A column contains a value that this program never writes.
    #[error("unexpected value in column {column}: {reason}")]
    Unexpected {
        /// The column.
        column: &'static str,
        /// The reason.
        reason: String,
    },
    /// The hashes of emails in the database were made under another key.
    #[error("the people and opt-outs in the database were made under another `people.key`")]
    PeopleKey,
    /// Other sessions have locked this number of records of people who opted out. An import deletes them when it
    /// commits. The opt-outs apply.
    #[error(
        "other sessions, such as an import, have locked records of these people ({0}); repeat the command after they have ended, \
         to delete what they have left"
    )]
    RecordsLocked(u64),
    /// Another session imports people.
    #[error("another import into this database is running")]
    Importing {
        /// When the import began, if this user may see that.
        since: Option<Timestamp>,
    },
    /// The statement that finds people failed.
    #[error("the people and opt-outs could not be read: {0}")]
    PeopleNotRead(String),
}

/// Returns what to do about a failed attempt to connect, unless the error of the server says it.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionAborted => "",
        _ => "; check that it runs and that the database URL is correct",
    }
}

/// Returns what to do about an error that ends a connection.
fn remedy(code: &str) -> &'static str {
    match code {
        "53300" => "; raise the limit on connections, or end other sessions", // too_many_connections
        _ => "",
    }
}

/// The SQLSTATE codes of errors after which a statement certainly had no effect, or their first characters. The
/// server has aborted the transaction and reports an error of severity ERROR. After any other error, for
/// example one of a pooler, the outcome is unknown.
const WITHOUT_EFFECT: [&str; 9] = [
    "22",    // data exception
    "23",    // integrity constraint violation
    "25006", // read_only_sql_transaction
    "40001", // serialization_failure
    "40P01", // deadlock_detected
    "42",    // access rule violation, or an object that does not exist
    "53",    // insufficient resources, such as a full disk
    "55P03", // lock_not_available
    "57014", // query_canceled
];

impl PostgresError {
    /// Returns whether the server runs and refuses new connections, because it has too many, or starts or stops.
    pub(crate) fn refuses_connections(&self) -> bool {
        matches!(self, Self::Ended { code, .. } if code.starts_with("53") || code.starts_with("57P"))
    }

    /// Returns true if the statement certainly had no effect.
    pub fn had_no_effect(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Rejected { code, .. } => WITHOUT_EFFECT.iter().any(|prefix| code.starts_with(prefix)),
            _ => false,
        }
    }

    /// Returns true if the statement would fail again: the server rejected it, or has people of another key.
    pub(crate) fn is_rejection(&self) -> bool {
        match self {
            Self::PeopleKey => true,
            Self::Rejected { code, .. } => code != "57014" && !self.is_failover(), // query_canceled
            _ => false,
        }
    }

    /// Returns true if the statement failed because of its connection: the connection was lost, did not
    /// reply, or its server is read-only, starts or stops. The same statement may succeed on a new
    /// connection.
    pub(crate) fn is_failover(&self) -> bool {
        match self {
            Self::ConnectionLost(_) | Self::Ended { .. } | Self::TimedOut(_) => true,
            Self::Rejected { code, .. } => is_failover(code),
            _ => false,
        }
    }

    /// Returns true if the statement waited too long for a lock. It had no effect.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self, Self::Rejected { code, .. } if code == "55P03") // lock_not_available
    }

    /// Returns true if the statement conflicted with another transaction. It had no effect, and succeeds if
    /// it is repeated.
    pub(crate) fn is_conflict(&self) -> bool {
        // serialization_failure, deadlock_detected
        matches!(self, Self::Rejected { code, .. } if code == "40001" || code == "40P01")
    }

    /// Returns true if there is a row with the same key. The statement had no effect.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self, Self::Rejected { code, .. } if code == "23505") // unique_violation
    }

    /// Returns true if a row violates a constraint or has an out-of-range value (SQLSTATE classes 22 and 23).
    /// Retrying fails again.
    pub(crate) fn is_constraint(&self) -> bool {
        matches!(self, Self::Rejected { code, .. } if code.starts_with("22") || code.starts_with("23"))
    }
}

/// Returns true for these SQLSTATE codes: class 08, lost connections; class 25, read-only and broken
/// transactions; 57P01 to 57P05, a server that starts or stops; 26000, a prepared statement that is unknown
/// because a proxy replaced the server.
fn is_failover(code: &str) -> bool {
    ["08", "25", "57P0", "26000"].iter().any(|prefix| code.starts_with(prefix))
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(rejection) = error.as_db_error() {
            let (code, message) = (rejection.code().code().to_owned(), rejection.message().to_owned());
            // A pooler may omit the severity that is not translated.
            let is_error = match rejection.parsed_severity() {
                Some(severity) => severity == Severity::Error,
                None => rejection.severity() == "ERROR",
            };
            return if is_error { Self::Rejected { code, message } } else { Self::Ended { code, message } };
        }
        match error.source() {
            Some(source) => Self::ConnectionLost(format!("{error}: {source}")),
            None => Self::ConnectionLost(error.to_string()),
        }
    }
}

/// The message contains the error, so the error is not a source.
impl From<io::Error> for PostgresError {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error)
    }
}

impl From<AccountError> for PostgresError {
    fn from(error: AccountError) -> Self {
        Self::Store(error.into())
    }
}

impl From<PostgresError> for StoreError {
    fn from(error: PostgresError) -> Self {
        match error {
            PostgresError::Store(error) => error,
            error => Self::Backend(Box::new(error)),
        }
    }
}

impl From<PostgresError> for PortError {
    fn from(error: PostgresError) -> Self {
        StoreError::from(error).into()
    }
}
