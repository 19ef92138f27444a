//! Schema migrations and the schema version check.
//!
//! A node accepts the schema version of its program and the next one, so that a migration needs no downtime:
//! `enrich migrate` runs first, then the nodes are replaced one after the other. Two rules follow from this:
//!
//! * A release adds at most one migration.
//! * The program of the previous release works with the new schema. A migration adds tables, nullable
//!   columns, columns with defaults, indexes, and functions with new names. It keeps the names, types and
//!   meanings that the previous program uses, and the release after that may remove them. It holds no lock
//!   for longer than a lookup may wait.

use std::time::Duration;

use enrich_store::StoreError;
use tokio_postgres::{Row, error::SqlState};

use super::client::{Client, command_settings};
use super::pool::Pool;
use super::server::Server;
use crate::error::PostgresError;

/// The n-th migration upgrades the schema from version n-1 to n. A test compares the released ones with their
/// digests.
const MIGRATIONS: &[&str] = &[concat!(
    include_str!("../../migrations/0001/accounts.sql"),
    include_str!("../../migrations/0001/copies.sql"),
    include_str!("../../migrations/0001/console.sql"),
    include_str!("../../migrations/0001/people.sql"),
    include_str!("../../migrations/0001/lookups.sql"),
    include_str!("../../migrations/0001/views.sql"),
)];

const VERSION: &str = "/* enrich: schema version */ SELECT coalesce(max(n), 0) FROM migration";

/// The advisory lock held during a migration: "enrich" in ASCII.
const LOCK: i64 = 0x65_6e_72_69_63_68;

/// Migrations run without a timeout.
const NO_TIMEOUT: Duration = Duration::ZERO;

/// The schema of a database, and its migrations.
#[derive(Clone, Debug)]
pub struct Schema {
    server: Server,
}

impl Schema {
    /// The schema version that this program requires, which is the number of migrations.
    pub const VERSION: usize = MIGRATIONS.len();

    /// Creates a handle for the schema of the database at this address. Does not connect.
    pub fn new(server: Server) -> Self {
        Self { server }
    }

    /// Returns the version of the schema, if this program can serve it.
    ///
    /// Errors: [`PostgresError::NotMigrated`] if it is older than this program, or missing, and
    /// [`StoreError::NewerSchema`] if it is newer than the next version.
    pub async fn check(&self) -> Result<usize, PostgresError> {
        let client = Client::connect(&self.server, &command_settings(NO_TIMEOUT)).await?;
        check_version(&client).await
    }

    /// Upgrades the schema to the version that this program requires, and creates it in an empty database.
    /// Returns the version before, which is 0 for an empty database. Changes nothing if the schema has this
    /// version or the next one. Concurrent calls are serialized by an advisory lock. New tables are in the first
    /// schema of the search path.
    ///
    /// Errors: [`StoreError::NewerSchema`] if this program cannot serve the schema, and
    /// [`PostgresError::Encoding`].
    pub async fn migrate(&self) -> Result<usize, PostgresError> {
        let mut client = Client::connect(&self.server, &command_settings(NO_TIMEOUT)).await?;
        let encoding: String = client.query_one("SHOW server_encoding", &[]).await?.get(0);
        // With SQL_ASCII, the server converts nothing.
        if encoding != "UTF8" && encoding != "SQL_ASCII" {
            return Err(PostgresError::Encoding(encoding));
        }
        let tx = client.transaction().await?;
        tx.query_one("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
        // In any schema of the search path, by the name that other programs use the least. IF NOT EXISTS checks the
        // first schema only, and requires the right to create there.
        let find = "SELECT to_regclass('credit_spend') IS NULL";
        if tx.query_one(find, &[]).await?.get(0) {
            tx.batch_execute(
                "CREATE TABLE IF NOT EXISTS migration (
                     n          integer     PRIMARY KEY,
                     applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
                 )",
            )
            .await?;
        }
        let version = version(tx.query_typed(VERSION, &[]).await)?;
        if version > MIGRATIONS.len() + 1 {
            return Err(newer_schema());
        }
        for (n, migration) in (1_i32..).zip(MIGRATIONS).skip(version) {
            tx.batch_execute(migration).await?;
            tx.execute("INSERT INTO migration (n) VALUES ($1)", &[&n]).await?;
        }
        tx.commit().await?;
        client.commits().check()?;
        Ok(version)
    }
}

/// Checks that this program can serve the schema.
pub(crate) async fn check(pool: &Pool) -> Result<(), PostgresError> {
    check_found(version(pool.query(VERSION, &[]).await)?).map(drop)
}

/// Checks that this program can serve the schema, on an existing connection, which may lead to a pooler. Returns
/// the version.
pub(crate) async fn check_version(client: &Client) -> Result<usize, PostgresError> {
    check_found(version(client.query_typed(VERSION, &[]).await)?)
}

fn check_found(found: usize) -> Result<usize, PostgresError> {
    let needed = MIGRATIONS.len();
    match found {
        found if found < needed => Err(PostgresError::NotMigrated { found, needed }),
        found if found > needed + 1 => Err(newer_schema()),
        found => Ok(found),
    }
}

fn newer_schema() -> PostgresError {
    StoreError::NewerSchema("the database".to_owned()).into()
}

/// Returns the number of the last migration, or 0 if there is none.
fn version(rows: Result<Vec<Row>, impl Into<PostgresError>>) -> Result<usize, PostgresError> {
    match rows.map_err(Into::into) {
        Ok(rows) => Ok(rows.first().map_or(0, |row| usize::try_from(row.get::<_, i32>(0)).unwrap_or(0))),
        Err(PostgresError::Rejected { code, .. }) if code == SqlState::UNDEFINED_TABLE.code() => Ok(0),
        Err(error) => Err(error),
    }
}
