//! One connection.

use std::future::poll_fn;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use enrich_net::Connect;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::tls::{MakeTlsConnect, NoTls};
use tokio_postgres::{AsyncMessage, Connection};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::server::{AnyStream, Host, Server, Tls};
use crate::error::PostgresError;

/// The maximum age of a connection that is used again. Bounds how long a node uses a server that its URL no longer
/// leads to, and the memory that a server process accumulates.
const AGE_MAX: Duration = Duration::from_secs(600);

/// How often a statement that was given up is canceled. The server may be unreachable, or the statement may
/// arrive after the first request.
const CANCELS_MAX: usize = 3;

/// How long a statement has to end after each request.
const CANCEL_INTERVAL: Duration = Duration::from_millis(200);

/// How long a cancel request may take. A pooler may delay it.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection and the task that drives it. Dropping the client aborts the task.
pub(crate) struct Client {
    client: tokio_postgres::Client,
    driver: JoinHandle<()>,
    commits: Commits,
    host: Arc<Host>,
    address: Arc<dyn Connect>,
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
        let connected = server.connect(|host, address| {
            let setup = setup.clone();
            async move {
                let client = Self::open(host, address, generation).await?;
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

    async fn open(
        host: Arc<Host>,
        address: Arc<dyn Connect>,
        generation: u64,
    ) -> Result<Self, PostgresError> {
        let stream = AnyStream(address.connect().await?);
        let commits = Commits::default();
        let (client, driver) = match &host.tls {
            Some(tls) => {
                let (client, connection) = host.config.connect_raw(stream, connector(tls)?).await?;
                (client, tokio::spawn(drive(connection, commits.clone())))
            }
            None => {
                let (client, connection) = host.config.connect_raw(stream, NoTls).await?;
                (client, tokio::spawn(drive(connection, commits.clone())))
            }
        };
        Ok(Self { client, driver, commits, host, address, generation, connected_at: Instant::now() })
    }

    /// Returns true if the connection may be used again.
    pub(crate) fn is_current(&self, server: &Server) -> bool {
        !self.client.is_closed()
            && self.generation >= server.generation()
            && server.leads_to(&self.host)
            && self.connected_at.elapsed() < AGE_MAX
    }

    /// Returns true if a commit has not waited for the standbys, because another session has canceled that.
    pub(crate) fn is_local(&self) -> bool {
        self.commits.is_local.load(Ordering::Relaxed)
    }

    /// Returns what detects such commits, also while a transaction borrows this client.
    pub(crate) fn commits(&self) -> Commits {
        self.commits.clone()
    }

    /// Returns the generation of the connection.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Requests the server to end the statement in progress, and returns at once. The request can arrive late,
    /// so the connection must not be used for another statement.
    pub(crate) fn cancel(&self) {
        let (token, host, address) = (self.client.cancel_token(), self.host.clone(), self.address.clone());
        let request = async move {
            let stream = AnyStream(address.connect().await?);
            match &host.tls {
                Some(tls) => token.cancel_query_raw(stream, connector(tls)?).await?,
                None => token.cancel_query_raw(stream, NoTls).await?,
            }
            Ok::<_, PostgresError>(())
        };
        tokio::spawn(timeout(CANCEL_TIMEOUT, request));
    }

    /// Ends the statement in progress, and closes the connection. Otherwise, the statement would occupy a
    /// process of the server for as long as it waits. Gives up if the connection does not respond.
    pub(crate) async fn end(self) {
        for _ in 0..CANCELS_MAX {
            self.cancel();
            // Has a reply when the statement has ended, and fails if the connection is closed.
            if timeout(CANCEL_INTERVAL, self.client.simple_query("")).await.is_ok() {
                return;
            }
        }
    }
}

/// Detects commits that did not wait for the standbys, because another session has canceled that.
#[derive(Clone, Default)]
pub(crate) struct Commits {
    is_local: Arc<AtomicBool>,
}

impl Commits {
    /// Fails with [`PostgresError::Unconfirmed`] after such a commit, once.
    pub(crate) fn check(&self) -> Result<(), PostgresError> {
        if self.is_local.swap(false, Ordering::Relaxed) { Err(PostgresError::Unconfirmed) } else { Ok(()) }
    }
}

/// The routine of the server that warns if it stops waiting for the standbys. The message can be translated, and
/// other warnings have its code.
const SYNCHRONOUS_WAIT: &str = "SyncRepWaitForLSN";

/// A statement that fails on a standby, and on a server whose operator has set
/// `default_transaction_read_only`.
const CHECK_WRITABLE: &str = "DO $$ BEGIN
         IF current_setting('transaction_read_only')::boolean THEN RAISE read_only_sql_transaction; END IF;
     END $$";

/// The SQLSTATE code of a statement that writes in a read-only transaction.
pub(super) const READ_ONLY: &str = "25006";

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

async fn drive<S, T>(mut connection: Connection<S, T>, commits: Commits)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    // Each call on the client returns the error that ends this.
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notice(notice) = message
            && notice.routine() == Some(SYNCHRONOUS_WAIT)
        {
            commits.is_local.store(true, Ordering::Relaxed);
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

/// Returns what begins TLS on a stream.
fn connector(
    tls: &Tls,
) -> Result<<MakeRustlsConnect as MakeTlsConnect<AnyStream>>::TlsConnect, PostgresError> {
    let mut maker = tls.maker.clone();
    let connector = MakeTlsConnect::<AnyStream>::make_tls_connect(&mut maker, &tls.name);
    connector.map_err(|error| io::Error::other(error.to_string()).into())
}
