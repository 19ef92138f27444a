//! A session of PostgreSQL.

use std::error::Error;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

/// A session, which ends on drop.
pub(crate) struct Session {
    client: Client,
    runtime: Runtime,
}

impl Session {
    /// Opens a session.
    pub(crate) fn open(database: &str) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
            tokio::spawn(connection);
            Ok::<_, tokio_postgres::Error>(client)
        })?;
        Ok(Self { client, runtime })
    }

    /// Opens a session that holds a snapshot, as `pg_dump` and long queries do: rows that are deleted
    /// meanwhile remain.
    pub(crate) fn with_snapshot(database: &str) -> Result<Self, Box<dyn Error>> {
        let session = Self::open(database)?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
        session.runtime.block_on(session.client.batch_execute(begin))?;
        Ok(session)
    }

    /// Returns the only value of a query.
    pub(crate) fn number(&self, query: &str) -> Result<i64, Box<dyn Error>> {
        Ok(self.runtime.block_on(self.client.query_one(query, &[]))?.get(0))
    }
}
