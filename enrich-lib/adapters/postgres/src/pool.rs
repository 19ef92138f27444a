//! A connection pool on `deadpool`.
//!
//! `deadpool-postgres` does not fit: its connector can only return errors of `tokio-postgres`, which cannot express that no
//! connection was made. The writer must know that, because only then was a statement certainly not executed.
//!
//! Every call has a timeout. A call that exceeds its timeout or is cancelled may leave its connection in an unknown state,
//! so that connection is closed and never reused.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::tls::{MakeTlsConnect, NoTls};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Connection, Row, Statement};

use crate::connect::{AnyStream, Server};
use crate::error::PostgresError;

/// A statement parameter.
pub(crate) type Value<'a> = &'a (dyn ToSql + Sync);

/// A pool of connections to one database, with a maximum size.
#[derive(Clone)]
pub(crate) struct Pool {
    connections: managed::Pool<Manager>,
    timeout: Duration,
}

impl Pool {
    /// Creates a pool. The first call opens the first connection. The server also aborts statements that exceed `timeout`.
    pub(crate) fn new(server: Server, connections_max: usize, timeout: Duration) -> Self {
        let manager = Manager { server: Arc::new(server), statement_timeout: timeout };
        let builder = managed::Pool::builder(manager).max_size(connections_max);
        Self { connections: builder.build().expect("no timeouts are set"), timeout }
    }

    /// Executes one statement, prepared once per connection.
    pub(crate) async fn query(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, PostgresError> {
        let is_sent = AtomicBool::new(false);
        let rows = self.with_timeout(async {
            let mut client = self.checkout().await?;
            is_sent.store(true, Ordering::Relaxed);
            let rows = client.query_cached(sql, values).await;
            if !matches!(&rows, Err(error) if !error.is_rejection()) {
                client.release();
            }
            rows
        });
        rows.await.map_err(|error| match error {
            PostgresError::TimedOut(limit) if !is_sent.load(Ordering::Relaxed) => {
                let error = format!("no connection within {} ms", limit.as_millis());
                PostgresError::Unreachable(io::Error::new(io::ErrorKind::TimedOut, error))
            }
            error => error,
        })
    }

    /// Executes a statement that returns one row.
    pub(crate) async fn query_one(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Row, PostgresError> {
        let row = self.query(sql, values).await?.into_iter().next();
        row.ok_or_else(|| PostgresError::ConnectionLost("the reply has no row".to_owned()))
    }

    /// Checks out a connection for several statements. The connection is closed on drop unless it is returned.
    pub(crate) async fn checkout(&self) -> Result<PooledClient, PostgresError> {
        let client = self.connections.get().await;
        client.map(|client| PooledClient { client: Some(client) }).map_err(|error| match error {
            managed::PoolError::Backend(error) => error,
            other => PostgresError::ConnectionLost(other.to_string()),
        })
    }

    /// Runs `work` with the pool's timeout. The future is boxed because the state for opening a connection takes kilobytes,
    /// which would enlarge every lookup's future although few lookups query the database.
    pub(crate) fn with_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, PostgresError>>,
    ) -> impl Future<Output = Result<T, PostgresError>> {
        let (limit, work) = (self.timeout, Box::pin(work));
        async move { timeout(limit, work).await.unwrap_or(Err(PostgresError::TimedOut(limit))) }
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

impl DerefMut for PooledClient {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().expect("present until it is released")
    }
}

/// A connection and the task that drives it. Dropping the client aborts the task.
pub(crate) struct Client {
    client: tokio_postgres::Client,
    statements: HashMap<&'static str, Statement>,
    driver: JoinHandle<()>,
}

impl Client {
    /// Connects to the server. `notified` is called for every notification.
    pub(crate) async fn connect(
        server: &Server,
        statement_timeout: Duration,
        notified: impl Fn() + Send + 'static,
    ) -> Result<Self, PostgresError> {
        let stream = AnyStream(server.network.connect().await?);
        let (client, driver) = match server.tls.clone() {
            Some(mut tls) => {
                let tls = MakeTlsConnect::<AnyStream>::make_tls_connect(&mut tls.maker, &tls.name);
                let tls = tls.map_err(|e| io::Error::other(e.to_string()))?;
                let (client, connection) = server.config.connect_raw(stream, tls).await?;
                (client, tokio::spawn(drive(connection, notified)))
            }
            None => {
                let (client, connection) = server.config.connect_raw(stream, NoTls).await?;
                (client, tokio::spawn(drive(connection, notified)))
            }
        };
        let client = Self { client, statements: HashMap::new(), driver };
        client.batch_execute(&settings(statement_timeout)).await?;
        Ok(client)
    }

    /// Waits until the connection is closed.
    pub(crate) async fn closed(&mut self) {
        if !self.driver.is_finished() {
            let _ = (&mut self.driver).await;
        }
    }

    /// Executes one statement, prepared once.
    pub(crate) async fn query_cached(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, PostgresError> {
        let statement = match self.statements.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(sql).await?;
                self.statements.insert(sql, statement.clone());
                statement
            }
        };
        Ok(self.client.query(&statement, values).await?)
    }
}

/// Returns the SQL that overrides the server's session settings. An acknowledged spend is durable, functions see rows
/// committed while they waited for a lock, and abandoned statements and transactions end. JIT is off: with sequential scans
/// disabled, the cost estimate of a full scan of a small table exceeds the JIT threshold, and compiling takes 25 ms.
fn settings(statement_timeout: Duration) -> String {
    format!(
        "SET client_min_messages = 'warning';
         SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
         SET statement_timeout = {};
         SET idle_in_transaction_session_timeout = '10s';
         SET jit = off;
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
        statement_timeout.as_millis()
    )
}

async fn drive<S, T>(mut connection: Connection<S, T>, notified: impl Fn())
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(_) = message {
            notified();
        }
    }
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

struct Manager {
    server: Arc<Server>,
    statement_timeout: Duration,
}

impl managed::Manager for Manager {
    type Type = Client;
    type Error = PostgresError;

    async fn create(&self) -> Result<Client, PostgresError> {
        Client::connect(&self.server, self.statement_timeout, || {}).await
    }

    async fn recycle(&self, client: &mut Client, _: &Metrics) -> RecycleResult<PostgresError> {
        if client.is_closed() { Err(RecycleError::message("closed")) } else { Ok(()) }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
