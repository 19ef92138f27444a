//! Operator commands for people and opt-outs.

use enrich_lib::email::Email;
use enrich_store::{EmailHasher, OptOut, PeopleStats};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::key::{CHECK_KEY, HAS_KEY, checked, fingerprint};
use super::opt_outs::{CHANGE, CHUNK_ROWS, COUNT_OPTED_OUT, DELETE_OPTED_OUT};
use crate::column::{credits, parsed, time};
use crate::connect::client::Client;
use crate::connect::engine::connect;
use crate::connect::server::Server;
use crate::error::PostgresError;

/// A connection for operator commands about people and opt-outs.
#[derive(derive_more::Debug)]
#[debug("PeopleAdmin {{ .. }}")]
pub struct PeopleAdmin {
    pub(super) client: Client,
    pub(super) hasher: EmailHasher,
}

impl PeopleAdmin {
    /// Connects to a database with this program's schema version, whose hashes are made under the key of
    /// `hasher`. If it has none, it has those of this key from the first import or opt-out on.
    ///
    /// Errors: [`PostgresError::PeopleKey`], [`PostgresError::Unreachable`], [`PostgresError::NotMigrated`],
    /// [`StoreError::NewerSchema`](enrich_store::StoreError::NewerSchema).
    pub async fn open(server: &Server, hasher: EmailHasher) -> Result<Self, PostgresError> {
        let client = connect(server).await?;
        let has_key = client.query_opt(HAS_KEY, &[&fingerprint(&hasher)]).await?;
        checked(has_key.is_none_or(|row| row.get(0)))?;
        Ok(Self { client, hasher })
    }

    /// Stores the key of the hashes that are written next.
    pub(super) async fn store_key(&self) -> Result<(), PostgresError> {
        checked(self.client.query_one(CHECK_KEY, &[&fingerprint(&self.hasher)]).await?.get(0))?;
        self.client.commits().check()
    }

    /// Opts people out, and deletes their records. Returns how many of them had not opted out before.
    ///
    /// Errors: [`PostgresError::RecordsLocked`] if an import keeps it from deleting all records. The opt-outs apply
    /// nevertheless.
    pub async fn opt_out(&mut self, emails: &[Email]) -> Result<u64, PostgresError> {
        self.store_key().await?;
        let hashes = self.hashes(emails);
        let changed = self.execute(CHANGE, &[&hashes, &false]).await?;
        // Afterwards, so that the opt-outs apply even if this takes long.
        self.delete_opted_out(&hashes).await?;
        self.client.commits().check()?;
        Ok(changed)
    }

    /// Withdraws opt-outs. Returns how many of the people had opted out.
    pub async fn withdraw(&mut self, emails: &[Email]) -> Result<u64, PostgresError> {
        let hashes = self.hashes(emails);
        // An opt-out that was interrupted has left the record.
        self.delete_opted_out(&hashes).await?;
        let changed = self.execute(CHANGE, &[&hashes, &true]).await?;
        self.client.commits().check()?;
        Ok(changed)
    }

    async fn delete_opted_out(&self, hashes: &[Vec<u8>]) -> Result<(), PostgresError> {
        let mut left = 0;
        for chunk in hashes.chunks(CHUNK_ROWS) {
            self.execute(DELETE_OPTED_OUT, &[&Some(chunk)]).await?;
            left += credits(self.client.query_one(COUNT_OPTED_OUT, &[&Some(chunk)]).await?.get(0));
        }
        if left > 0 { Err(PostgresError::RecordsLocked(left)) } else { Ok(()) }
    }

    fn hashes(&self, emails: &[Email]) -> Vec<Vec<u8>> {
        emails.iter().map(|email| self.hasher.opt_out_hash(email).to_vec()).collect()
    }

    /// Executes a statement. Repeats it once if it conflicts with another transaction.
    async fn execute(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<u64, PostgresError> {
        match self.client.execute(sql, values).await.map_err(PostgresError::from) {
            Err(error) if error.is_conflict() => Ok(self.client.execute(sql, values).await?),
            changed => changed,
        }
    }

    /// Returns the last change of a person's opt-out, including a withdrawal.
    pub async fn opt_out_of(&self, email: &Email) -> Result<Option<OptOut>, PostgresError> {
        let select = "SELECT email_hash, is_withdrawn, at FROM opt_out WHERE email_hash = $1";
        let hash = self.hasher.opt_out_hash(email);
        self.client.query_opt(select, &[&&hash[..]]).await?.as_ref().map(opt_out).transpose()
    }

    /// Counts the people and the opt-outs. Reads all of them.
    pub async fn stats(&mut self, confidence_min: f64) -> Result<PeopleStats, PostgresError> {
        let tx = self.client.transaction().await?;
        tx.batch_execute("SET LOCAL statement_timeout = 0").await?;
        let select = "SELECT count(*), count(*) FILTER (WHERE confidence < $1),
                 (SELECT count(*) FROM opt_out WHERE NOT is_withdrawn) FROM person";
        let row = tx.query_one(select, &[&confidence_min]).await?;
        let [people, untrusted, opt_outs] = [0, 1, 2].map(|column| credits(row.get(column)));
        Ok(PeopleStats { people, untrusted, opt_outs })
    }
}

fn opt_out(row: &Row) -> Result<OptOut, PostgresError> {
    let email_hash = parsed("opt_out.email_hash", row.get::<_, &[u8]>(0).try_into())?;
    Ok(OptOut { email_hash, is_withdrawn: row.get(1), at: time(row.get(2)) })
}
