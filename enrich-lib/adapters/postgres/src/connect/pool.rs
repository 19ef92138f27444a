//! A connection pool on `deadpool`.
//!
//! `deadpool-postgres` does not fit: its connector can only return errors of `tokio-postgres`, which cannot
//! express that no connection was made. The writer must know that, because only then was a statement
//! certainly not executed.
//!
//! Every call has a timeout. A call that exceeds its timeout or is cancelled may leave its connection in an
//! unknown state, so that connection is closed and never reused.
//!
//! After a failover, the connections that are open lead to a server that is gone or read-only. The first that
//! fails therefore ends the *generation* of connections, in all pools of the node, and idle connections of
//! that generation are closed before their next use. Calls that may be repeated are then repeated once, on a
//! new connection.
//!
//! A statement that conflicts with another transaction had no effect, so every call repeats it once.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::tls::{MakeTlsConnect, NoTls};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Connection, Row};

use super::server::{AnyStream, Host, Server};
use crate::error::PostgresError;

/// A statement parameter.
pub(crate) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// The maximum age of a pooled connection. Bounds how long a node uses a server that its URL no longer leads
/// to, and the memory that a server process accumulates.
const AGE_MAX: Duration = Duration::from_secs(600);

/// A pool of connections to one database, with a maximum size.
#[derive(Clone)]
pub(crate) struct Pool {
    connections: managed::Pool<Manager>,
    timeout: Duration,
}

impl Pool {
    /// Creates a pool. The first call opens the first connection. `timeout` limits each call.
    pub(crate) fn new(server: Server, connections_max: usize, timeout: Duration) -> Self {
        let manager = Manager(Arc::new(server));
        let builder = managed::Pool::builder(manager).max_size(connections_max);
        Self { connections: builder.build().expect("no timeouts are set"), timeout }
    }

    /// Executes one statement, which is one transaction. It is not prepared, so that a pooler may execute it
    /// on any connection.
    ///
    /// Errors: [`PostgresError::Unreachable`] only if the statement was certainly not sent.
    pub(crate) async fn query(
        &self,
        sql: &'static str,
        values: &[(Parameter<'_>, Type)],
    ) -> Result<Vec<Row>, PostgresError> {
        self.execute(sql, values, Ok).await
    }

    /// Executes an idempotent statement. Repeats it once if its connection fails, on a new one.
    pub(crate) async fn query_idempotent(
        &self,
        sql: &'static str,
        values: &[(Parameter<'_>, Type)],
    ) -> Result<Vec<Row>, PostgresError> {
        match self.query(sql, values).await {
            Err(error) if error.is_failover() => self.query(sql, values).await,
            rows => rows,
        }
    }

    /// Executes a statement that reads and returns at least one row. The column [`IS_READ_ONLY`] is true on a
    /// standby, which may lack the last transactions. Repeats it once on a new connection.
    pub(crate) async fn read(
        &self,
        sql: &'static str,
        values: &[(Parameter<'_>, Type)],
    ) -> Result<Vec<Row>, PostgresError> {
        let check = |rows: Vec<Row>| match rows.first() {
            Some(row) if !row.get::<_, bool>(IS_READ_ONLY) => Ok(rows),
            _ => Err(PostgresError::Rejected {
                code: READ_ONLY.to_owned(),
                message: "the server is read-only".to_owned(),
            }),
        };
        match self.execute(sql, values, check).await {
            Err(error) if error.is_failover() => self.execute(sql, values, check).await,
            rows => rows,
        }
    }

    /// Executes a statement. Repeats it once if it conflicts with another transaction.
    async fn execute(
        &self,
        sql: &'static str,
        values: &[(Parameter<'_>, Type)],
        check: impl Fn(Vec<Row>) -> Result<Vec<Row>, PostgresError>,
    ) -> Result<Vec<Row>, PostgresError> {
        match self.execute_once(sql, values, &check).await {
            Err(error) if error.is_conflict() => self.execute_once(sql, values, &check).await,
            rows => rows,
        }
    }

    async fn execute_once(
        &self,
        sql: &'static str,
        values: &[(Parameter<'_>, Type)],
        check: impl Fn(Vec<Row>) -> Result<Vec<Row>, PostgresError>,
    ) -> Result<Vec<Row>, PostgresError> {
        // The generation of the connection, once there is one.
        let used = AtomicU64::new(NOT_SENT);
        let rows = self.with_timeout(async {
            let client = self.checkout().await.map_err(unreachable)?;
            used.store(client.generation, Ordering::Relaxed);
            let rows = client.query_typed(sql, values).await.map_err(PostgresError::from).and_then(check);
            if !matches!(&rows, Err(error) if !error.is_rejection()) {
                client.release();
            }
            rows
        });
        let rows = rows.await;
        match (rows, used.into_inner()) {
            (Err(PostgresError::TimedOut(limit)), NOT_SENT) => {
                let error = format!("no connection within {} ms", limit.as_millis());
                Err(PostgresError::Unreachable(io::Error::new(io::ErrorKind::TimedOut, error)))
            }
            (Err(error), generation) if error.is_failover() => {
                self.connections.manager().0.end_generation(generation);
                Err(error)
            }
            (rows, _) => rows,
        }
    }

    /// Checks out a connection for several statements. The connection is closed on drop unless it is
    /// returned.
    pub(crate) async fn checkout(&self) -> Result<PooledClient, PostgresError> {
        let client = self.connections.get().await;
        client.map(|client| PooledClient { client: Some(client) }).map_err(|error| match error {
            managed::PoolError::Backend(error) => error,
            other => PostgresError::ConnectionLost(other.to_string()),
        })
    }

    /// Runs `work` with the pool's timeout. The future is boxed because the state for opening a connection
    /// takes kilobytes, which would enlarge every lookup's future although few lookups query the database.
    pub(crate) fn with_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, PostgresError>>,
    ) -> impl Future<Output = Result<T, PostgresError>> {
        let (limit, work) = (self.timeout, Box::pin(work));
        async move { timeout(limit, work).await.unwrap_or(Err(PostgresError::TimedOut(limit))) }
    }
}

/// The generation of no connection.
const NOT_SENT: u64 = u64::MAX;

/// Converts an error of connecting, after which a statement was certainly not executed.
fn unreachable(error: PostgresError) -> PostgresError {
    match error {
        PostgresError::Unreachable(_) => error,
        error => PostgresError::Unreachable(io::Error::other(error)),
    }
}

/// A connection checked out of the pool.
pub(crate) struct PooledClient {
    client: Option<managed::Object<Manager>>,
}

impl PooledClient {
    /// Returns the connection to the pool for reuse. No statement may be in progress.
    pub(crate) fn release(mut self) {
        self.client.take();
    }
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(managed::Object::take(client));
        }
    }
}

impl Deref for PooledClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("present until it is released")
    }
}

/// A connection and the task that drives it. Dropping the client aborts the task.
pub(crate) struct Client {
    client: tokio_postgres::Client,
    driver: JoinHandle<()>,
    generation: u64,
    connected_at: Instant,
}

impl Client {
    /// Connects to the first server that accepts writes, and executes `settings`.
    ///
    /// The nodes have no settings, because a pooler in transaction mode would apply them to the connections
    /// of others.
    pub(crate) async fn connect(server: &Server, settings: &str) -> Result<Self, PostgresError> {
        let (generation, setup) = (server.generation(), format!("{CHECK_WRITABLE}; {settings}"));
        let connected = server.connect(|host, stream| {
            let setup = setup.clone();
            async move {
                let client = Self::open(&host, stream, generation).await?;
                client.batch_execute(&setup).await?;
                Ok(client)
            }
        });
        connected.await.map_err(|error| match error {
            PostgresError::Rejected { code, .. } if code == READ_ONLY => {
                PostgresError::Unreachable(io::Error::other("the server is a standby or read-only"))
            }
            error => error,
        })
    }

    async fn open(host: &Host, stream: AnyStream, generation: u64) -> Result<Self, PostgresError> {
        let (client, driver) = match host.tls.clone() {
            Some(mut tls) => {
                let tls = MakeTlsConnect::<AnyStream>::make_tls_connect(&mut tls.maker, &tls.name);
                let tls = tls.map_err(|e| io::Error::other(e.to_string()))?;
                let (client, connection) = host.config.connect_raw(stream, tls).await?;
                (client, tokio::spawn(drive(connection)))
            }
            None => {
                let (client, connection) = host.config.connect_raw(stream, NoTls).await?;
                (client, tokio::spawn(drive(connection)))
            }
        };
        Ok(Self { client, driver, generation, connected_at: Instant::now() })
    }

    /// Returns true if the connection may be used again by a pool.
    fn is_current(&self, server: &Server) -> bool {
        !self.client.is_closed()
            && self.generation >= server.generation()
            && self.connected_at.elapsed() < AGE_MAX
    }
}

/// A statement that fails on a standby, and on a server whose operator has set
/// `default_transaction_read_only`.
const CHECK_WRITABLE: &str = "DO $$ BEGIN
         IF current_setting('transaction_read_only')::boolean THEN RAISE read_only_sql_transaction; END IF;
     END $$";

/// The first column of a statement for [`Pool::read`]:
/// `SELECT current_setting('transaction_read_only') = 'on'`.
const IS_READ_ONLY: usize = 0;

/// The SQLSTATE code of a statement that writes in a read-only transaction.
const READ_ONLY: &str = "25006";

/// Returns the session settings of a command, which override those of the server. Functions see rows
/// committed while they waited for a lock, and abandoned statements and transactions end. JIT is off, because
/// compiling takes 25 ms.
pub(crate) fn command_settings(statement_timeout: Duration) -> String {
    format!(
        "SET client_min_messages = 'warning';
         SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
         SET statement_timeout = {};
         SET idle_in_transaction_session_timeout = '10s';
         SET jit = off;
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
        statement_timeout.as_millis()
    )
}

async fn drive<S, T>(connection: Connection<S, T>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let _ = connection.await; // each call on the client returns its error
}

impl Deref for Client {
    type Target = tokio_postgres::Client;

    fn deref(&self) -> &tokio_postgres::Client {
        &self.client
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut tokio_postgres::Client {
        &mut self.client
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Otherwise, the task would wait for a reply that may never arrive.
        self.driver.abort();
    }
}

struct Manager(Arc<Server>);

impl managed::Manager for Manager {
    type Type = Client;
    type Error = PostgresError;

    async fn create(&self) -> Result<Client, PostgresError> {
        Client::connect(&self.0, "").await
    }

    async fn recycle(&self, client: &mut Client, _: &Metrics) -> RecycleResult<PostgresError> {
        if client.is_current(&self.0) { Ok(()) } else { Err(RecycleError::message("outdated")) }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
