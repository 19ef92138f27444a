//! Imports of people: rows are sent with binary COPY to a temporary table, which is merged in the same
//! transaction. Lookups find the people as they were before, until the commit.
//!
//! The merge skips people who opted out before. At its end, the transaction locks the opt-outs against changes
//! and deletes the records of people who opted out meanwhile. An opt-out that waits for this lock deletes the
//! record itself. A record that the merge has locked remains if the import fails afterwards. The opt-out fails with
//! this reason, and deletes the record when it is repeated.

use std::pin::Pin;

use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_store::{EmailHasher, Imported, RefusedRemoval, RemovalLimit};
use tokio_postgres::Transaction;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;

use super::admin::PeopleAdmin;
use super::opt_outs::{DELETE_OPTED_OUT, LOCK, TRY_LOCK};
use crate::column::{credits, time};
use crate::connect::client::Commits;
use crate::error::PostgresError;

/// Returns when the other import began. Null: the session belongs to another user.
const LOCKED_SINCE: &str = "SELECT (extract(epoch FROM a.xact_start) * 1000)::bigint
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND a.datname = current_database()
        AND l.database = a.datid AND l.classid = ($1::bigint >> 32)::oid AND l.objid = ($1::bigint & 4294967295)::oid";

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

/// Counts the people, and those who are not in the import.
const COUNT_OTHERS: &str = "SELECT count(*), count(*) FILTER (WHERE i.email_hash IS NULL)
    FROM person p LEFT JOIN (SELECT DISTINCT email_hash FROM imported) AS i USING (email_hash)";

const DELETE_OTHERS: &str =
    "DELETE FROM person p WHERE NOT EXISTS (SELECT FROM imported i WHERE i.email_hash = p.email_hash)";

/// The planner has no statistics of new rows. Opt-outs wait for the lock until the commit, so it comes last.
const HOLD_OPT_OUTS: &str = "ANALYZE person; LOCK TABLE opt_out IN SHARE MODE";

/// An import in progress. Add rows with [`Import::add`], then call [`Import::finish`]. Dropping it imports
/// nothing.
#[derive(derive_more::Debug)]
#[debug("Import {{ rows: {rows:?}, .. }}")]
pub struct Import<'a> {
    tx: Transaction<'a>,
    commits: Commits,
    writer: Pin<Box<BinaryCopyInWriter>>,
    hasher: &'a EmailHasher,
    rows: i64,
}

impl PeopleAdmin {
    /// Starts an import.
    ///
    /// Errors: [`PostgresError::Importing`] if there is another one.
    pub async fn import(&mut self) -> Result<Import<'_>, PostgresError> {
        self.store_key().await?;
        let commits = self.client.commits();
        let tx = self.client.transaction().await?;
        if !tx.query_one(TRY_LOCK, &[&LOCK]).await?.get::<_, bool>(0) {
            let row = tx.query_opt(LOCKED_SINCE, &[&LOCK]).await?;
            let since = row.and_then(|row| row.get::<_, Option<i64>>(0)).map(time);
            return Err(PostgresError::Importing { since });
        }
        tx.batch_execute(BEGIN).await?;
        let types = [Type::INT8, Type::FLOAT8, Type::BYTEA, Type::TEXT];
        let writer = Box::pin(BinaryCopyInWriter::new(tx.copy_in(COPY).await?, &types));
        Ok(Import { tx, commits, writer, hasher: &self.hasher, rows: 0 })
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

    /// Merges the rows with the people, and commits. With `removal`, removes all other people. If there are more
    /// than its limit, changes nothing.
    pub async fn finish(self, removal: Option<RemovalLimit>) -> Result<Imported, PostgresError> {
        self.finish_if(removal, || true).await
    }

    /// Finishes the import, but keeps all other people if `may_remove` returns `false`. It is called at most once, when
    /// all rows are merged.
    pub async fn finish_if(
        mut self,
        removal: Option<RemovalLimit>,
        may_remove: impl FnOnce() -> bool,
    ) -> Result<Imported, PostgresError> {
        self.writer.as_mut().finish().await?;
        self.tx.batch_execute("ANALYZE imported").await?;
        if let Some(limit) = removal {
            let row = self.tx.query_one(COUNT_OTHERS, &[]).await?;
            let [of, people] = [0, 1].map(|column| credits(row.get(column)));
            if !limit.allows(people, of) {
                // Otherwise, the same people would be a smaller share the next time.
                self.tx.rollback().await?;
                return Ok(Imported { refused: Some(RefusedRemoval { people, of }), ..Imported::default() });
            }
        }
        let changed = self.tx.execute(MERGE, &[]).await?;
        let removes = removal.is_some() && may_remove();
        let removed = if removes { self.tx.execute(DELETE_OTHERS, &[]).await? } else { 0 };
        // Opt-outs wait only for the records of people who opted out since the first time.
        let all = None::<Vec<Vec<u8>>>;
        self.tx.execute(DELETE_OPTED_OUT, &[&all]).await?;
        self.tx.batch_execute(HOLD_OPT_OUTS).await?;
        self.tx.execute(DELETE_OPTED_OUT, &[&all]).await?;
        self.tx.commit().await?;
        self.commits.check()?;
        Ok(Imported { changed, unchanged: self.rows.unsigned_abs() - changed, removed, refused: None })
    }
}
