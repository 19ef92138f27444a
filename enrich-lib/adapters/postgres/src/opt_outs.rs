//! Opt-outs in PostgreSQL: statements and operator commands.
//!
//! The database contains hashes under the key of one people directory. The first node or command determines the key, and all
//! others are refused with a different one: hashes under different keys cannot be compared, so that opt-outs would have no effect.

use std::fmt;

use enrich_lib::email::Email;
use enrich_store::{EmailHash, EmailHasher, KeyFingerprint, OptOut};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::column::{at, credits, parsed, time};
use crate::connect::Server;
use crate::engine::connect;
use crate::error::PostgresError;
use crate::pool::{Client, Value};

/// Maximum number of rows in one statement.
pub(crate) const CHUNK_ROWS: usize = 10_000;

/// Changes after a number, as of one moment.
pub(crate) struct Page {
    pub(crate) changes: Vec<OptOut>,
    /// The number of the last change on this page, or in the database if `is_last`.
    pub(crate) end: i64,
    /// Whether there are no changes after this page.
    pub(crate) is_last: bool,
}

impl Page {
    /// Reads the changes after the number `after`. Returns `None` if the database has lost changes since that number was read,
    /// for example in a failover.
    ///
    /// Errors: [`PostgresError::PeopleKey`] if the hashes in the database were made with another key.
    pub(crate) async fn read(
        client: &Client,
        key: &KeyFingerprint,
        after: i64,
    ) -> Result<Option<Self>, PostgresError> {
        let select = "SELECT pg_is_in_recovery(), l.people_key IS NOT DISTINCT FROM $2, l.last_change,
                 o.change, o.email_hash, o.is_withdrawn, o.at
             FROM opt_out_list l
             LEFT JOIN LATERAL (SELECT * FROM opt_out WHERE change > $1 ORDER BY change LIMIT $3) AS o ON true
             ORDER BY o.change";
        let limit = CHUNK_ROWS as i64;
        let (key, after_value) = (&key[..], after);
        let values: [(Value<'_>, Type); 3] =
            [(&after_value, Type::INT8), (&key, Type::BYTEA), (&limit, Type::INT8)];
        let rows = client.query_typed(select, &values).await?;
        let first = rows.first().ok_or_else(|| unexpected("opt_out_list", "the table is empty"))?;
        // A standby can be behind.
        if first.get(0) {
            return Err(PostgresError::ConnectionLost("the server is a read-only standby".to_owned()));
        }
        if !first.get::<_, bool>(1) {
            return Err(PostgresError::PeopleKey);
        }
        let last_change: i64 = first.get(2);
        if last_change < after {
            return Ok(None);
        }
        let rows: Vec<_> = rows.iter().filter(|row| row.get::<_, Option<i64>>(3).is_some()).collect();
        let is_last = rows.len() < CHUNK_ROWS;
        let end = if is_last { last_change } else { rows.last().map_or(after, |row| row.get(3)) };
        let changes = rows.into_iter().map(|row| opt_out(row, 4)).collect::<Result<_, _>>()?;
        Ok(Some(Self { changes, end, is_last }))
    }
}

/// A connection for operator commands about people who opted out.
pub struct OptOutAdmin {
    client: Client,
}

impl fmt::Debug for OptOutAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptOutAdmin").finish_non_exhaustive()
    }
}

impl OptOutAdmin {
    /// Connects to a database with this program's schema version.
    ///
    /// Errors: [`PostgresError::Unreachable`], [`PostgresError::NotMigrated`],
    /// [`StoreError::NewerSchema`](enrich_store::StoreError::NewerSchema).
    pub async fn open(server: &Server) -> Result<Self, PostgresError> {
        Ok(Self { client: connect(server).await? })
    }

    /// Returns whether a key for hashing emails is determined.
    pub async fn has_people_key(&mut self) -> Result<bool, PostgresError> {
        let select = "SELECT people_key IS NOT NULL FROM opt_out_list";
        Ok(self.client.query_one(select, &[]).await?.get(0))
    }

    /// Checks that the hashes in the database are made with the key of `hasher`. If no key is determined, this one is.
    ///
    /// Errors: [`PostgresError::PeopleKey`].
    pub async fn check_people_key(&mut self, hasher: &EmailHasher) -> Result<(), PostgresError> {
        let key = &hasher.fingerprint()[..];
        let update = "UPDATE opt_out_list SET people_key = $1 WHERE people_key IS NULL";
        self.client.execute(update, &[&key]).await?;
        let select = "SELECT people_key = $1 FROM opt_out_list";
        if self.client.query_one(select, &[&key]).await?.get(0) {
            Ok(())
        } else {
            Err(PostgresError::PeopleKey)
        }
    }

    /// Opts people out permanently. Returns how many of them had not opted out before.
    ///
    /// Errors: [`PostgresError::PeopleKey`], also if no key is determined.
    pub async fn suppress(&mut self, hasher: &EmailHasher, emails: &[Email]) -> Result<u64, PostgresError> {
        self.change_opt_outs(hasher, emails, false).await
    }

    /// Withdraws opt-outs. Returns how many of the people had opted out.
    ///
    /// Errors: [`PostgresError::PeopleKey`], also if no key is determined.
    pub async fn unsuppress(&mut self, hasher: &EmailHasher, emails: &[Email]) -> Result<u64, PostgresError> {
        self.change_opt_outs(hasher, emails, true).await
    }

    async fn change_opt_outs(
        &mut self,
        hasher: &EmailHasher,
        emails: &[Email],
        is_withdrawn: bool,
    ) -> Result<u64, PostgresError> {
        let hashes: Vec<_> = emails.iter().map(|email| hasher.opt_out_hash(email)).collect();
        self.write(hasher, &hashes, &vec![is_withdrawn; hashes.len()], None).await
    }

    /// Applies opt-outs of another store, unless this one has a later change of the same person.
    ///
    /// Errors: [`PostgresError::PeopleKey`], also if no key is determined.
    pub async fn merge_opt_outs(
        &mut self,
        hasher: &EmailHasher,
        changes: &[OptOut],
    ) -> Result<(), PostgresError> {
        for chunk in changes.chunks(CHUNK_ROWS) {
            let hashes: Vec<_> = chunk.iter().map(|change| change.email_hash).collect();
            let withdrawn: Vec<_> = chunk.iter().map(|change| change.is_withdrawn).collect();
            let times: Vec<_> = chunk.iter().map(|change| at(change.at)).collect();
            self.write(hasher, &hashes, &withdrawn, Some(&times)).await?;
        }
        Ok(())
    }

    async fn write(
        &mut self,
        hasher: &EmailHasher,
        hashes: &[EmailHash],
        withdrawn: &[bool],
        times: Option<&[i64]>,
    ) -> Result<u64, PostgresError> {
        let hashes: Vec<_> = hashes.iter().map(|hash| &hash[..]).collect();
        let call = "SELECT change_opt_outs($1, $2, $3, $4)";
        let key = &hasher.fingerprint()[..];
        let row = self.client.query_one(call, &[&key, &hashes, &withdrawn, &times]).await?;
        row.get::<_, Option<i64>>(0).map(credits).ok_or(PostgresError::PeopleKey)
    }

    /// Returns the last change of a person's opt-out, including a withdrawal.
    ///
    /// Errors: [`PostgresError::PeopleKey`], also if no key is determined.
    pub async fn opt_out(
        &mut self,
        hasher: &EmailHasher,
        email: &Email,
    ) -> Result<Option<OptOut>, PostgresError> {
        let select = "SELECT l.people_key IS NOT DISTINCT FROM $2, o.email_hash, o.is_withdrawn, o.at
             FROM opt_out_list l LEFT JOIN opt_out o ON o.email_hash = $1";
        let (hash, key) = (hasher.opt_out_hash(email), &hasher.fingerprint()[..]);
        let row = self.client.query_one(select, &[&&hash[..], &key]).await?;
        if !row.get::<_, bool>(0) {
            return Err(PostgresError::PeopleKey);
        }
        let is_found = row.get::<_, Option<&[u8]>>(1).is_some();
        is_found.then(|| opt_out(&row, 1)).transpose()
    }

    /// Returns the last change of each person who opted out.
    ///
    /// Errors: [`PostgresError::PeopleKey`], also if no key is determined.
    pub async fn opt_outs(&mut self, hasher: &EmailHasher) -> Result<Vec<OptOut>, PostgresError> {
        let (mut changes, mut after) = (Vec::new(), 0);
        loop {
            let page = Page::read(&self.client, hasher.fingerprint(), after).await?;
            let page = page.ok_or_else(|| unexpected("opt_out_list.last_change", "it decreased"))?;
            changes.extend(page.changes);
            after = page.end;
            if page.is_last {
                return Ok(changes);
            }
        }
    }

    /// Counts the people who opted out.
    pub async fn count_opt_outs(&mut self) -> Result<u64, PostgresError> {
        let select = "SELECT count(*) FROM opt_out WHERE NOT is_withdrawn";
        Ok(credits(self.client.query_one(select, &[]).await?.get(0)))
    }
}

/// Reads a row from this column on.
fn opt_out(row: &Row, column: usize) -> Result<OptOut, PostgresError> {
    let email_hash = parsed("opt_out.email_hash", row.get::<_, &[u8]>(column).try_into())?;
    Ok(OptOut { email_hash, is_withdrawn: row.get(column + 1), at: time(row.get(column + 2)) })
}

fn unexpected(column: &'static str, reason: &str) -> PostgresError {
    PostgresError::Unexpected { column, reason: reason.to_owned() }
}
