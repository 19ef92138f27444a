//! The accounts of a PostgreSQL server as a database for [`Accounts`]. Nodes can serve them meanwhile.
//!
//! Statements are unnamed, so that they pass a pooler in transaction mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::model::Timestamp;
use enrich_store::StoreError;
use enrich_store::accounts::Accounts;
use enrich_store::database::{Access, Database, Transaction};
use enrich_store::records::missing_trigger;
use enrich_store::value::{Row, Value, values};
use tokio::time::timeout;
use tokio_postgres::IsolationLevel;
use tokio_postgres::types::{ToSql, Type};

use super::client::{Client, Commits, command_settings};
use super::schema;
use super::server::Server;
use crate::column::time;
use crate::error::PostgresError;

/// The connection timeout of operator commands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The statement timeout of operator commands, including waiting for row locks.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for a page. Less than the time of a request, so that a request does not leave a statement behind.
const PAGE_STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a page waits for a row that another transaction has locked, which keeps a connection from others.
const PAGE_LOCK_TIMEOUT: &str = "SET lock_timeout = '2s'";

/// The triggers that keep the ledger tables and the audit log append-only, and those by which grants change balances
/// and nodes notice changes of keys and quotas.
const TRIGGERS: [&str; 7] = [
    "credit_grant_append_only",
    "credit_spend_append_only",
    "credit_spend_kept",
    "audit_event_append_only",
    "workspace_granted",
    "workspace_revised",
    "api_key_revised",
];

/// The constraint that prevents a negative balance.
const CONSTRAINT: &str = "balance_not_negative";

/// Opens the accounts of a database with this program's schema version.
///
/// Errors: [`PostgresError::Unreachable`], [`PostgresError::NotMigrated`], [`StoreError::NewerSchema`].
pub async fn accounts(server: &Server) -> Result<Accounts, PostgresError> {
    Ok(Accounts::new(Engine::new(connect(server).await?, server)))
}

/// Opens the accounts of a database for a server of pages, which gives up before its client does.
///
/// Errors: as [`accounts`].
pub async fn accounts_for_pages(server: &Server) -> Result<Accounts, PostgresError> {
    let settings = format!("{}; {PAGE_LOCK_TIMEOUT}", command_settings(PAGE_STATEMENT_TIMEOUT));
    Ok(Accounts::new(Engine::new(connect_with(server, &settings).await?, server)))
}

/// Opens a connection for operator commands to a database with this program's schema version.
pub(crate) async fn connect(server: &Server) -> Result<Client, PostgresError> {
    connect_with(server, &command_settings(STATEMENT_TIMEOUT)).await
}

async fn connect_with(server: &Server, settings: &str) -> Result<Client, PostgresError> {
    let client = timeout(CONNECT_TIMEOUT, Client::connect(server, settings)).await;
    let client = client.unwrap_or(Err(PostgresError::TimedOut(CONNECT_TIMEOUT)))?;
    schema::check_version(&client).await?;
    Ok(client)
}

struct Engine {
    client: Client,
    server: Server,
    calls: Calls,
}

impl Engine {
    fn new(client: Client, server: &Server) -> Self {
        Self { client, server: server.clone(), calls: Calls::default() }
    }
}

/// Whether a statement is in progress. If the future of a call is dropped, its statement continues, and this stays
/// true. A commit that waits for a standby has no timeout.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicBool>);

impl Calls {
    async fn during<T>(
        &self,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, StoreError> {
        self.0.store(true, Ordering::Relaxed);
        let done = call.await;
        self.0.store(false, Ordering::Relaxed);
        done.map_err(error)
    }
}

#[async_trait]
impl Database for Engine {
    async fn begin(&mut self, access: Access) -> Result<Box<dyn Transaction + '_>, StoreError> {
        let (commits, calls, is_write) = (self.client.commits(), self.calls.clone(), access.is_write());
        let level = if is_write { IsolationLevel::ReadCommitted } else { IsolationLevel::RepeatableRead };
        let transaction = self.client.build_transaction().isolation_level(level);
        // An explicit READ WRITE would permit changes on an old primary that is read-only by default.
        let transaction = if is_write { transaction } else { transaction.read_only(true) };
        let transaction = calls.during(transaction.start()).await?;
        if access.is_unlimited() {
            calls.during(transaction.batch_execute("SET LOCAL statement_timeout = 0")).await?;
        }
        Ok(Box::new(Open { transaction, commits, calls }))
    }

    fn is_current(&self) -> bool {
        !self.calls.0.load(Ordering::Relaxed) && self.client.is_current(&self.server)
    }

    async fn clock(&mut self) -> Result<Option<Timestamp>, StoreError> {
        let select = "SELECT (extract(epoch FROM now()) * 1000)::bigint";
        let row = self.calls.during(self.client.query_typed(select, &[])).await?;
        Ok(row.first().map(|row| time(row.get(0))))
    }

    /// Returns the triggers and constraints that are missing.
    async fn faults(&mut self) -> Result<Vec<String>, StoreError> {
        let (mut tx, mut faults) = (self.begin(Access::Scan).await?, Vec::new());
        for trigger in TRIGGERS {
            let select = "SELECT 1 FROM pg_trigger
                 WHERE tgname = $1 AND tgenabled IN ('O', 'A') AND pg_table_is_visible(tgrelid)";
            if !tx.exists(select, values![trigger]).await? {
                faults.push(missing_trigger(trigger));
            }
        }
        let select = "SELECT 1 FROM pg_constraint
             WHERE conname = $1 AND convalidated AND pg_table_is_visible(conrelid)";
        if !tx.exists(select, values![CONSTRAINT]).await? {
            faults.push(format!("the constraint {CONSTRAINT} is missing; a balance can become negative"));
        }
        Ok(faults)
    }
}

/// A transaction in progress.
struct Open<'a> {
    transaction: tokio_postgres::Transaction<'a>,
    commits: Commits,
    calls: Calls,
}

#[async_trait]
impl Transaction for Open<'_> {
    async fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        let values: Vec<_> = values.iter().map(parameter).collect();
        let rows = self.calls.during(self.transaction.query_typed(sql, &values)).await?;
        rows.iter().map(row).collect()
    }

    async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        let values: Vec<_> = values.iter().map(parameter).collect();
        self.calls.during(self.transaction.execute_typed(sql, &values)).await
    }

    fn available(&self) -> &'static str {
        "SELECT available FROM balance WHERE workspace = $1 FOR UPDATE"
    }

    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        let Self { transaction, commits, calls } = *self;
        calls.during(transaction.commit()).await?;
        Ok(commits.check()?)
    }
}

fn error(error: tokio_postgres::Error) -> StoreError {
    let error = PostgresError::from(error);
    if error.is_conflict() { StoreError::Conflict } else { error.into() }
}

/// Returns a parameter with its type. The server infers the type of a null.
fn parameter<'a>(value: &'a Value<'_>) -> (&'a (dyn ToSql + Sync), Type) {
    match value {
        Value::Null => (&None::<&str>, Type::UNKNOWN),
        Value::Int(number) => (number, Type::INT8),
        Value::Text(text) => (text, Type::TEXT),
        Value::OwnedText(text) => (text, Type::TEXT),
        Value::Bytes(bytes) => (bytes, Type::BYTEA),
        Value::OwnedBytes(bytes) => (bytes, Type::BYTEA),
    }
}

fn row(row: &tokio_postgres::Row) -> Result<Row, StoreError> {
    let columns = row.columns().iter().enumerate();
    let values = columns.map(|(n, column)| match *column.type_() {
        Type::BOOL => read::<bool>(row, n, |is_true| Value::Int(is_true.into())),
        Type::INT4 => read::<i32>(row, n, |number| Value::Int(number.into())),
        Type::INT8 => read(row, n, Value::Int),
        Type::BYTEA => read(row, n, Value::OwnedBytes),
        _ => read(row, n, Value::OwnedText),
    });
    values.collect::<Result<_, _>>().map(Row::new)
}

fn read<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a tokio_postgres::Row,
    column: usize,
    value: impl FnOnce(T) -> Value<'static>,
) -> Result<Value<'static>, StoreError> {
    let read = row.try_get::<_, Option<T>>(column).map_err(error)?;
    Ok(read.map_or(Value::Null, value))
}
