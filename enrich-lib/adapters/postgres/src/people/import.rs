//! Imports of people: rows are sent with binary COPY to a temporary table, which is merged in the same
//! transaction. Lookups find the people as they were before, until the commit.

use std::fmt;
use std::pin::Pin;

use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_store::{EmailHasher, Imported};
use tokio_postgres::Transaction;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;

use super::admin::{DELETE_OPTED_OUT, PeopleAdmin};
use crate::error::PostgresError;

/// `n` is the number of the row.
const BEGIN: &str = "SET LOCAL statement_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0;
    SET LOCAL work_mem = '64MB';
    CREATE TEMP TABLE imported (n bigint, confidence float8, email_hash bytea, profile text) ON COMMIT DROP";

const COPY: &str = "COPY imported (n, confidence, email_hash, profile) FROM STDIN BINARY";

/// The last row of a person wins. Skips people who opted out, and rows that change nothing. In the order of
/// the hashes, which the index of a large table needs.
const MERGE: &str = "INSERT INTO person AS p (confidence, email_hash, profile)
    SELECT i.confidence, i.email_hash, i.profile
    FROM (SELECT DISTINCT ON (email_hash) * FROM imported ORDER BY email_hash, n DESC) AS i
    WHERE NOT EXISTS (
        SELECT FROM opt_out o
        WHERE NOT o.is_withdrawn AND substring(o.email_hash FOR 8) = substring(i.email_hash FOR 8)
    )
    ON CONFLICT (email_hash) DO UPDATE SET confidence = excluded.confidence, profile = excluded.profile
    WHERE p.confidence <> excluded.confidence OR p.profile <> excluded.profile";

const DELETE_OTHERS: &str =
    "DELETE FROM person p WHERE NOT EXISTS (SELECT FROM imported i WHERE i.email_hash = p.email_hash)";

/// An import in progress. Add rows with [`Import::add`], then call [`Import::finish`]. Dropping it imports
/// nothing.
pub struct Import<'a> {
    tx: Transaction<'a>,
    writer: Pin<Box<BinaryCopyInWriter>>,
    hasher: &'a EmailHasher,
    rows: i64,
}

impl PeopleAdmin {
    /// Starts an import.
    pub async fn import(&mut self) -> Result<Import<'_>, PostgresError> {
        let tx = self.client.transaction().await?;
        tx.batch_execute(BEGIN).await?;
        let types = [Type::INT8, Type::FLOAT8, Type::BYTEA, Type::TEXT];
        let writer = Box::pin(BinaryCopyInWriter::new(tx.copy_in(COPY).await?, &types));
        Ok(Import { tx, writer, hasher: &self.hasher, rows: 0 })
    }

    /// Deletes what an import has added of people who opted out meanwhile, and updates the planner's
    /// statistics. Call it after an import.
    pub async fn clean(&mut self) -> Result<(), PostgresError> {
        let tx = self.client.transaction().await?;
        tx.batch_execute("SET LOCAL statement_timeout = 0").await?;
        tx.execute(DELETE_OPTED_OUT, &[&None::<Vec<Vec<u8>>>]).await?;
        tx.batch_execute("ANALYZE person").await?;
        Ok(tx.commit().await?)
    }
}

impl Import<'_> {
    /// Adds a person. `confidence`, from 0 to 1, is the certainty of the match. If a person is added more
    /// than once, the last row wins.
    pub async fn add(
        &mut self,
        email: &Email,
        profile: &ProfileUrl,
        confidence: f64,
    ) -> Result<(), PostgresError> {
        let hash = self.hasher.hash(email);
        self.rows += 1;
        Ok(self.writer.as_mut().write(&[&self.rows, &confidence, &&hash[..], &profile.name()]).await?)
    }

    /// Merges the rows with the people, and commits. With `replaces`, removes all other people.
    pub async fn finish(mut self, replaces: bool) -> Result<Imported, PostgresError> {
        self.writer.as_mut().finish().await?;
        self.tx.batch_execute("ANALYZE imported").await?;
        let removed = if replaces { self.tx.execute(DELETE_OTHERS, &[]).await? } else { 0 };
        let changed = self.tx.execute(MERGE, &[]).await?;
        self.tx.commit().await?;
        Ok(Imported { changed, unchanged: self.rows.unsigned_abs() - changed, removed })
    }
}

impl fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import").field("rows", &self.rows).finish_non_exhaustive()
    }
}
