//! Operator commands for people and opt-outs.

use std::fmt;

use enrich_lib::email::Email;
use enrich_store::{EmailHasher, OptOut, PeopleStats};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::key::{CHECK_KEY, checked, fingerprint};
use super::opt_outs::{CHANGE, CHUNK_ROWS, DELETE_OPTED_OUT};
use crate::column::{at, credits, parsed, time};
use crate::connect::client::Client;
use crate::connect::engine::connect;
use crate::connect::server::Server;
use crate::error::PostgresError;

/// A connection for operator commands about people and opt-outs.
pub struct PeopleAdmin {
    pub(super) client: Client,
    pub(super) hasher: EmailHasher,
}

impl PeopleAdmin {
    /// Connects to a database with this program's schema version, whose hashes are made under the key of
    /// `hasher`. If it has no hashes, it has those of this key from now on.
    ///
    /// Errors: [`PostgresError::PeopleKey`], [`PostgresError::Unreachable`], [`PostgresError::NotMigrated`],
    /// [`StoreError::NewerSchema`](enrich_store::StoreError::NewerSchema).
    pub async fn open(server: &Server, hasher: EmailHasher) -> Result<Self, PostgresError> {
        let client = connect(server).await?;
        checked(client.query_one(CHECK_KEY, &[&fingerprint(&hasher)]).await?.get(0))?;
        Ok(Self { client, hasher })
    }

    /// Opts people out, and deletes their records. Returns how many of them had not opted out before.
    pub async fn opt_out(&mut self, emails: &[Email]) -> Result<u64, PostgresError> {
        self.change(&self.hashes(emails), &vec![false; emails.len()], None).await
    }

    /// Withdraws opt-outs. Returns how many of the people had opted out.
    pub async fn withdraw(&mut self, emails: &[Email]) -> Result<u64, PostgresError> {
        self.change(&self.hashes(emails), &vec![true; emails.len()], None).await
    }

    /// Applies opt-outs of another store, unless this one has a later change of the same person.
    pub async fn merge_opt_outs(&mut self, changes: &[OptOut]) -> Result<(), PostgresError> {
        for chunk in changes.chunks(CHUNK_ROWS) {
            let hashes: Vec<_> = chunk.iter().map(|change| change.email_hash.to_vec()).collect();
            let withdrawn: Vec<_> = chunk.iter().map(|change| change.is_withdrawn).collect();
            let times: Vec<_> = chunk.iter().map(|change| at(change.at)).collect();
            self.change(&hashes, &withdrawn, Some(&times)).await?;
        }
        Ok(())
    }

    fn hashes(&self, emails: &[Email]) -> Vec<Vec<u8>> {
        emails.iter().map(|email| self.hasher.opt_out_hash(email).to_vec()).collect()
    }

    async fn change(
        &self,
        hashes: &[Vec<u8>],
        withdrawn: &[bool],
        times: Option<&[i64]>,
    ) -> Result<u64, PostgresError> {
        let changed = self.execute(CHANGE, &[&hashes, &withdrawn, &times]).await?;
        // Afterwards, so that the opt-outs apply even if this takes long.
        self.execute(DELETE_OPTED_OUT, &[&Some(hashes)]).await?;
        Ok(changed)
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

    /// Returns the last change of each person who opted out, oldest first.
    pub async fn opt_outs(&self) -> Result<Vec<OptOut>, PostgresError> {
        let select = "SELECT email_hash, is_withdrawn, at FROM opt_out ORDER BY at, email_hash";
        self.client.query(select, &[]).await?.iter().map(opt_out).collect()
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

impl fmt::Debug for PeopleAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeopleAdmin").finish_non_exhaustive()
    }
}
