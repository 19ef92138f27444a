//! The port to an SQL engine, for the statements that SQLite and PostgreSQL share.
//!
//! Statements have parameters `$1`, `$2` and so on. A column is a number, a text or bytes (see [`Value`]).

use async_trait::async_trait;
use enrich_lib::model::Timestamp;

use crate::error::StoreError;
use crate::value::{FromValue, Row, Value};

/// A connection to an SQL engine.
#[async_trait]
pub trait Database: Send {
    /// Begins a transaction.
    async fn begin(&mut self, access: Access) -> Result<Box<dyn Transaction + '_>, StoreError>;

    /// Returns false if the connection has ended or still executes a statement, or if its server is no longer used.
    fn is_current(&self) -> bool {
        true
    }

    /// Returns the time by the clock of the server. `None` if the engine has no other clock than the caller.
    async fn clock(&mut self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    /// Returns what the engine finds wrong with its files and its schema, one sentence each.
    async fn faults(&mut self) -> Result<Vec<String>, StoreError>;
}

/// Whether a transaction reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads one snapshot.
    Read,
    /// Reads one snapshot of whole tables, without a limit on the time.
    Scan,
    /// Writes. Each statement sees the changes of all transactions that were committed before it.
    Write,
    /// Writes whole tables, without a limit on the time.
    Load,
}

impl Access {
    /// Returns whether a transaction with this access writes.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Load)
    }

    /// Returns whether a transaction with this access has no limit on the time.
    pub const fn is_unlimited(self) -> bool {
        matches!(self, Self::Scan | Self::Load)
    }
}

/// A transaction. Dropping it rolls it back.
#[async_trait]
pub trait Transaction: Send {
    /// Executes a statement and returns its rows.
    async fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError>;

    /// Executes a statement and returns the number of changed rows.
    async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError>;

    /// Returns the query of the credits that can be withdrawn from the locked workspace `$1`. Until the commit,
    /// no lookup can hold or spend them.
    fn available(&self) -> &'static str;

    /// Commits the transaction. An error leaves the outcome open, unless it is [`StoreError::Conflict`].
    async fn commit(self: Box<Self>) -> Result<(), StoreError>;
}

impl dyn Transaction + '_ {
    /// Executes a statement that returns at most one row.
    pub async fn row(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Option<Row>, StoreError> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    /// Executes a statement that returns one row, and reads its first column.
    pub async fn value<T: FromValue>(&mut self, sql: &str, values: &[Value<'_>]) -> Result<T, StoreError> {
        self.row(sql, values).await?.unwrap_or_default().read()
    }

    /// Returns whether a query has a row.
    pub async fn exists(&mut self, sql: &str, values: &[Value<'_>]) -> Result<bool, StoreError> {
        Ok(self.row(sql, values).await?.is_some())
    }

    /// Executes a query and reads its rows.
    pub async fn rows<T>(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
        read: impl Fn(&mut Row) -> Result<T, StoreError> + Send,
    ) -> Result<Vec<T>, StoreError> {
        self.query(sql, values).await?.iter_mut().map(read).collect()
    }
}
