//! Transactions of administrative operations.

use std::time::Duration;

use enrich_lib::model::Timestamp;

use crate::database::{Access, Database, Transaction};
use crate::error::StoreError;

/// Administrative operations on the accounts of a store. They can run while servers use the same data.
///
/// Each operation is atomic, and includes its event in the audit log. A cancelled call may or may not have
/// taken effect. Operations on a workspace that does not exist return [`StoreError::UnknownWorkspace`], and
/// changes of a deleted workspace [`StoreError::WorkspaceDeleted`].
#[derive(derive_more::Debug)]
#[debug("Accounts {{ .. }}")]
pub struct Accounts {
    pub(super) database: Box<dyn Database>,
}

/// A transaction in progress.
pub type Tx<'t> = dyn Transaction + 't;

impl Accounts {
    /// Creates the accounts of a database, which has the current schema.
    pub fn new(database: impl Database + 'static) -> Self {
        Self { database: Box::new(database) }
    }

    /// Returns false if another operation would fail or wait, because the connection has ended or still executes a
    /// cancelled one, or if its server is no longer used.
    pub fn is_current(&self) -> bool {
        self.database.is_current()
    }

    /// Returns the time by the clock of the server, which all nodes share. `None` on SQLite.
    pub async fn clock(&mut self) -> Result<Option<Timestamp>, StoreError> {
        self.database.clock().await
    }

    /// The difference between the clocks of a machine and of the server that should be reported.
    pub const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(60);

    /// Compares `now`, the clock of this machine, with that of the server. Keys, spends and events of a machine with
    /// another time can have wrong times.
    ///
    /// Errors: [`StoreError::WrongClock`] if they differ by more than `limit`, or an error of the database.
    pub async fn check_clock(
        &mut self,
        now: impl Fn() -> Timestamp,
        limit: Duration,
    ) -> Result<(), StoreError> {
        let before = now();
        let Some(server) = self.clock().await? else { return Ok(()) };
        // The reply may have taken a while.
        let ahead = before.unix_ms().saturating_sub(server.unix_ms());
        let behind = server.unix_ms().saturating_sub(now().unix_ms());
        let direction = if ahead > 0 { "ahead of" } else { "behind" };
        let difference = ahead.max(behind);
        if u128::from(difference) <= limit.as_millis() {
            return Ok(());
        }
        Err(StoreError::WrongClock { difference: difference / 1_000, direction })
    }

    /// Begins a transaction that reads.
    pub(super) async fn read(&mut self) -> Result<Box<Tx<'_>>, StoreError> {
        self.database.begin(Access::Read).await
    }
}

/// Runs `$work`, a block that returns a result, in a transaction, and commits it. Rolls it back if the block
/// fails. Repeats it once after a [`StoreError::Conflict`].
macro_rules! transact {
    ($accounts:ident, $tx:ident, $work:expr) => {{
        let mut is_repeated = false;
        loop {
            let mut transaction = $accounts.database.begin($crate::database::Access::Write).await?;
            let $tx = &mut *transaction;
            let done = $crate::accounts::transaction::typed(async { $work }).await;
            let done = match done {
                Ok(done) => transaction.commit().await.map(|()| done),
                Err(error) => {
                    drop(transaction);
                    Err(error)
                }
            };
            match done {
                Err($crate::error::StoreError::Conflict) if !is_repeated => is_repeated = true,
                done => break done,
            }
        }
    }};
}

pub(super) use transact;

/// Gives the block of [`transact!`] its type, so that it can use `?`.
pub(super) async fn typed<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    work.await
}
