//! A connection pool.
//!
//! Connecting belongs to the pool: a task opens its connections at the start, and replaces each that fails.
//! Callers wait for a connection until their timeout, and one that gives up does not interrupt connecting. An
//! error of connecting is [`PostgresError::Unreachable`], because then a statement was certainly not sent.
//!
//! Every call has a timeout. The pool then requests the server to cancel the statement, and waits for a reply
//! for a quarter of the timeout more:
//!
//! | then | the statement | error |
//! |---|---|---|
//! | the server reports that it has canceled the statement | had no effect | [`PostgresError::Rejected`] |
//! | the server replies with a result | is in doubt: a commit that waits for a standby ends with it | [`PostgresError::Canceled`] |
//! | the server does not reply | is in doubt, and its connection is lost | [`PostgresError::TimedOut`] |
//!
//! A connection is used again only after its statement had a reply and was not canceled. Another one is opened
//! when the server has ended the statement, so that the pool has no more connections than its size.
//!
//! After a failover, the connections that are open lead to a server that is gone or read-only. The first that
//! fails therefore ends the *generation* of connections, in all pools of the node, and idle connections of
//! that generation are closed before their next use. Calls that may be repeated are then repeated once, on a
//! new connection. A statement that was only slow is no failover.
//!
//! A statement that conflicts with another transaction had no effect, so every call repeats it once.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use enrich_store::Backoff;
use enrich_store::sync::Mutex;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, error::SqlState};

use super::client::{Client, READ_ONLY};
use super::server::Server;
use crate::error::PostgresError;

/// A statement parameter.
pub(crate) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// The pause after a failed attempt to connect. Short, because a node serves again within 5 s after a server
/// accepts writes.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));

/// The maximum sizes of statements. A test lowers those of a ledger, so that few rows reach each boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sizes {
    /// Keys, holds, settlements or people. Bounds the latency of a statement, and the time for which it locks
    /// workspaces.
    pub batch: usize,
    /// Rows of usage, and rows that a sweep handles.
    pub rows: usize,
    /// Changed keys that a node clears one by one. If there are more, it clears all keys.
    pub changed_keys: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { batch: 512, rows: 1_000, changed_keys: 1_000 }
    }
}

/// A pool of connections to one database, with a fixed size. Its task ends when the last clone is dropped.
#[derive(Clone, derive_more::Debug)]
#[debug("Pool {{ timeout: {timeout:?}, .. }}")]
pub(crate) struct Pool {
    server: Server,
    /// Limits each call.
    pub(crate) timeout: Duration,
    pub(crate) sizes: Sizes,
    slots: Arc<Slots>,
    /// Requests a replacement of a connection, after the statement that it may still execute.
    replace: mpsc::UnboundedSender<Option<Client>>,
}

/// The connections that are not in use.
struct Slots {
    idle: Mutex<VecDeque<Client>>,
    /// Has a permit for each of them.
    available: Semaphore,
    /// Why the last attempt to connect failed.
    failure: Mutex<Option<(io::ErrorKind, String)>>,
}

impl Pool {
    /// Creates a pool, and begins to open its connections. `timeout` limits each call.
    pub(crate) fn new(server: Server, connections: usize, timeout: Duration, sizes: Sizes) -> Self {
        let (idle, available) = (Mutex::default(), Semaphore::new(0));
        let slots = Arc::new(Slots { idle, available, failure: Mutex::default() });
        let (replace, requests) = mpsc::unbounded_channel();
        for _ in 0..connections {
            let _ = replace.send(None);
        }
        tokio::spawn(keep(server.clone(), slots.clone(), requests));
        Self { server, timeout, sizes, slots, replace }
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

    /// The future is boxed because the state of a statement would enlarge every lookup's future although few
    /// lookups query the database.
    async fn execute_once(
        &self,
        sql: &'static str,
        values: &[(Parameter<'_>, Type)],
        check: impl Fn(Vec<Row>) -> Result<Vec<Row>, PostgresError>,
    ) -> Result<Vec<Row>, PostgresError> {
        let cancel_at = Instant::now() + self.timeout;
        let deadline = cancel_at + self.timeout / 4;
        Box::pin(async move {
            let connection = timeout_at(cancel_at, self.checkout()).await;
            let mut connection = connection.map_err(|_| self.no_connection())?;
            let (rows, is_canceled) = connection.query(sql, values, cancel_at, deadline).await;
            let rows = rows.and_then(check);
            match &rows {
                Err(error) if error.is_failover() => self.server.end_generation(connection.generation()),
                _ if !is_canceled => connection.release(),
                _ => {}
            }
            rows
        })
        .await
    }

    /// Waits for a connection.
    async fn checkout(&self) -> Connection<'_> {
        loop {
            self.slots.available.acquire().await.expect("the semaphore is never closed").forget();
            let client = self.slots.idle.lock().pop_front().expect("there is one for each permit");
            let connection = Connection { client: Some(client), pool: self, is_over: true };
            if connection.client().is_current(&self.server) {
                return connection;
            }
        }
    }

    fn no_connection(&self) -> PostgresError {
        let failure = self.slots.failure.lock().clone();
        let (kind, failure) = failure.unwrap_or_else(|| {
            (io::ErrorKind::TimedOut, format!("no connection within {} ms", self.timeout.as_millis()))
        });
        PostgresError::Unreachable(io::Error::new(kind, failure))
    }
}

/// The first column of a statement for [`Pool::read`]:
/// `SELECT current_setting('transaction_read_only') = 'on'`.
const IS_READ_ONLY: usize = 0;

/// A connection checked out of the pool, which replaces it on drop unless it was released.
struct Connection<'a> {
    client: Option<Client>,
    pool: &'a Pool,
    /// False while the server may execute a statement.
    is_over: bool,
}

impl Connection<'_> {
    fn client(&self) -> &Client {
        self.client.as_ref().expect("present until it is released")
    }

    fn generation(&self) -> u64 {
        self.client().generation()
    }

    /// Executes a statement. Returns also whether it was canceled, which is requested at `cancel_at`. Another
    /// session can also cancel the wait of its commit for the standbys.
    async fn query(
        &mut self,
        sql: &'static str,
        values: &[(Parameter<'_>, Type)],
        cancel_at: Instant,
        deadline: Instant,
    ) -> (Result<Vec<Row>, PostgresError>, bool) {
        self.is_over = false;
        let (client, limit) =
            (self.client.as_ref().expect("present until it is released"), self.pool.timeout);
        let mut reply = std::pin::pin!(client.query_typed(sql, values));
        let first = timeout_at(cancel_at, &mut reply).await;
        let is_canceled = first.is_err();
        let reply = match first {
            Ok(reply) => Ok(reply),
            Err(_) => {
                client.cancel();
                timeout_at(deadline, reply).await
            }
        };
        let rows = match reply {
            Err(_) => return (Err(PostgresError::TimedOut(limit)), true),
            Ok(Ok(_)) if is_canceled || client.is_local() => Err(PostgresError::Canceled),
            Ok(Err(error)) if is_canceled && error.code() == Some(&SqlState::QUERY_CANCELED) => {
                let message = format!("it was canceled after {} ms", limit.as_millis());
                Err(PostgresError::Rejected { code: SqlState::QUERY_CANCELED.code().to_owned(), message })
            }
            Ok(rows) => rows.map_err(PostgresError::from),
        };
        // After a lost connection, the server may still execute the statement.
        self.is_over = !matches!(rows, Err(PostgresError::ConnectionLost(_)));
        (rows, is_canceled || client.is_local())
    }

    /// Returns the connection to the pool for reuse.
    fn release(mut self) {
        if let Some(client) = self.client.take() {
            self.pool.slots.add(client);
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            // The task runs as long as there is a pool.
            let _ = self.pool.replace.send(Some(client).filter(|_| !self.is_over));
        }
    }
}

impl Slots {
    fn add(&self, client: Client) {
        self.idle.lock().push_back(client);
        self.available.add_permits(1);
    }
}

/// Opens the connections of a pool as they are requested.
async fn keep(server: Server, slots: Arc<Slots>, mut requests: mpsc::UnboundedReceiver<Option<Client>>) {
    let mut replaced = FuturesUnordered::new();
    loop {
        tokio::select! { biased;
            Some(client) = replaced.next() => slots.add(client),
            request = requests.recv() => match request {
                Some(given_up) => replaced.push(replacement(&server, &slots, given_up)),
                None => return,
            },
        }
    }
}

/// Ends the statement of a connection that was given up, and opens another connection.
async fn replacement(server: &Server, slots: &Slots, given_up: Option<Client>) -> Client {
    if let Some(client) = given_up {
        client.end().await;
    }
    let mut backoff = BACKOFF;
    loop {
        let connected = {
            let _turn = server.turn().await;
            let connected = Client::connect(server, "").await;
            server.set_failing(connected.is_err());
            connected
        };
        match connected {
            Ok(client) => {
                *slots.failure.lock() = None;
                return client;
            }
            Err(error) => {
                let kind = match error.refuses_connections() {
                    true => io::ErrorKind::ConnectionAborted,
                    false => io::ErrorKind::TimedOut,
                };
                let failure = match error {
                    PostgresError::Unreachable(error) => error.to_string(),
                    error => error.to_string(),
                };
                *slots.failure.lock() = Some((kind, failure));
                sleep(backoff.next_pause()).await;
            }
        }
    }
}
