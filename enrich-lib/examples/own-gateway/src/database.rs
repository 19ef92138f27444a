//! Connections to the gateway's own PostgreSQL, and transactions on them.

use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Socket};

/// The tables, which the gateway's migrations create.
pub const SCHEMA: &str = include_str!("schema.sql");

const CONNECTIONS_MAX: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Begins a transaction. A disconnected client must not keep rows locked, or wait for those of others. A commit must be
/// durable, whatever the default of the server is. `LOCAL` settings work through a pooler.
const BEGIN: &str = "BEGIN;
    SET LOCAL idle_in_transaction_session_timeout = '5s';
    SET LOCAL lock_timeout = '1s';
    SET LOCAL statement_timeout = '1900ms';
    SET LOCAL synchronous_commit = on";

/// Opens a connection, for example with [`connect_to`].
pub type Connect =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Connection, Failure>> + Send>> + Send + Sync>;

/// An argument of a statement, with its type. Statements have no names, so that they work through a pooler.
pub type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

/// Returns a number as an argument.
pub fn int8(number: &i64) -> Argument<'_> {
    (number, Type::INT8)
}

/// Returns a text as an argument.
pub fn text<T: ToSql + Sync>(text: &T) -> Argument<'_> {
    (text, Type::TEXT)
}

/// Returns bytes as an argument.
pub fn bytea<'a>(bytes: &'a &[u8]) -> Argument<'a> {
    (bytes, Type::BYTEA)
}

/// A pool of connections.
pub struct Database {
    connect: Connect,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

/// A client and the task of its connection, which ends with it.
#[derive(Debug)]
pub struct Connection {
    client: Client,
    _task: JoinSet<()>,
}

/// Why a transaction has no result.
#[derive(Debug, Error)]
pub enum Failure {
    /// The server has refused a statement, and has rolled the transaction back.
    #[error("the database refused a statement")]
    Refused(#[source] tokio_postgres::Error),
    /// The connection broke, or the server did not reply in time. The transaction may have been committed.
    #[error("the database does not reply")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(_) => Self::Refused(error),
            None => Self::Unknown(error.into()),
        }
    }
}

impl Connection {
    /// Creates a connection from what tokio-postgres returns.
    pub fn new<S>(client: Client, connection: tokio_postgres::Connection<S, NoTlsStream>) -> Self
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let mut task = JoinSet::new();
        // An error is also that of the statement in progress.
        task.spawn(async move { drop(connection.await) });
        Self { client, _task: task }
    }
}

/// Returns a function that connects to this URL, without TLS.
pub fn connect_to(url: String) -> Connect {
    Box::new(move || {
        let url = url.clone();
        Box::pin(async move {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
            Ok(Connection::new::<Socket>(client, connection))
        })
    })
}

impl Database {
    /// Creates an empty pool.
    pub fn new(connect: Connect) -> Self {
        Self { connect, idle: Mutex::default(), permits: Semaphore::new(CONNECTIONS_MAX) }
    }

    /// Runs a transaction, and commits it unless `work` fails. A connection that failed, or whose transaction
    /// was dropped, is closed, and the server rolls the transaction back.
    pub async fn transaction<T>(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let transaction = async {
            let _permit = self.permits.acquire().await.map_err(|closed| Failure::Unknown(closed.into()))?;
            let connection = match self.take() {
                Some(connection) => connection,
                None => (self.connect)().await?,
            };
            connection.client.batch_execute(BEGIN).await?;
            let result = work(&connection.client).await?;
            // Also an error of the server, which may have committed before it ends the connection.
            connection
                .client
                .batch_execute("COMMIT")
                .await
                .map_err(|error| Failure::Unknown(error.into()))?;
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok(result)
        };
        timeout(TIMEOUT, transaction).await.unwrap_or_else(|late| Err(Failure::Unknown(late.into())))
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| !connection.client.is_closed());
        idle.pop()
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}
