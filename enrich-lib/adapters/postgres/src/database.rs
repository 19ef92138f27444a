//! The tables of a database: its numbered migrations, and whether they were made.

use std::time::Duration;

use tokio_postgres::{GenericClient, error::SqlState};

use crate::connect::Server;
use crate::error::StoreError;
use crate::pool::{Client, Pool};

/// The n-th brings a database from version n-1 to n.
const MIGRATIONS: &[&str] =
    &[include_str!("../migrations/0001_accounts.sql"), include_str!("../migrations/0002_copies.sql")];

/// Whoever migrates has this advisory lock: "enrich", in ASCII.
const LOCK: i64 = 0x65_6e_72_69_63_68;

/// A migration takes as long as it takes.
const NO_TIMEOUT: Duration = Duration::ZERO;

/// A database, to be prepared for this version of the program.
#[derive(Clone, Debug)]
pub struct Database {
    server: Server,
}

impl Database {
    /// The version of the tables that this program needs: the number of its migrations.
    pub const VERSION: usize = MIGRATIONS.len();

    /// The database at this address.
    pub fn new(server: Server) -> Self {
        Self { server }
    }

    /// Brings the tables to the version that this program needs, and makes them if there are none. Tells how many
    /// migrations it took: 0 if they were as they have to be. Two at once follow one another.
    ///
    /// Errors: [`StoreError::NewerSchema`] if a newer program was here.
    pub async fn migrate(&self) -> Result<usize, StoreError> {
        let mut client = Client::connect(&self.server, NO_TIMEOUT, || {}).await?;
        let tx = client.transaction().await?;
        tx.query_one("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
        tx.batch_execute(
            "CREATE TABLE IF NOT EXISTS migration (
                 n          integer     PRIMARY KEY,
                 applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
             )",
        )
        .await?;
        let version = version(&tx).await?;
        if version > MIGRATIONS.len() {
            return Err(StoreError::NewerSchema);
        }
        for (n, migration) in (1_i32..).zip(MIGRATIONS).skip(version) {
            tx.batch_execute(migration).await?;
            tx.execute("INSERT INTO migration (n) VALUES ($1)", &[&n]).await?;
        }
        tx.commit().await?;
        Ok(MIGRATIONS.len() - version)
    }
}

/// Whether the tables are of the version that this program needs.
pub(crate) async fn check(pool: &Pool) -> Result<(), StoreError> {
    let checked = pool.in_time(async {
        let lent = pool.lend().await?;
        let checked = check_version(&**lent).await;
        lent.give_back();
        checked
    });
    checked.await
}

/// The same, over a connection.
pub(crate) async fn check_version(client: &impl GenericClient) -> Result<(), StoreError> {
    let needed = MIGRATIONS.len();
    match version(client).await? {
        found if found < needed => Err(StoreError::NotMigrated { found, needed }),
        found if found > needed => Err(StoreError::NewerSchema),
        _ => Ok(()),
    }
}

/// The number of the last migration, 0 if there was none.
async fn version(client: &impl GenericClient) -> Result<usize, StoreError> {
    let select = "SELECT coalesce(max(n), 0) FROM migration";
    match client.query_one(select, &[]).await {
        Ok(row) => Ok(usize::try_from(row.get::<_, i32>(0)).unwrap_or(0)),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
