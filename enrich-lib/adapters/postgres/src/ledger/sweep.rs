//! Returns credits to workspaces: those of expired holds, and the rest of settlements. Deletes old receipts. Every
//! node does this for all nodes.
//!
//! No statement waits for a lock of another session: what others have locked is left to the next run. All
//! statements begin where an earlier run has ended, because rows that were deleted since a snapshot of
//! another session remain, and would all be read again. Once a minute they begin at the first row, in case a
//! clock was wrong.

use std::time::Duration;

use enrich_lib::receipt::RECEIPT_TTL;
use enrich_store::sync::Mutex;
use tokio::time::Instant;
use tokio_postgres::types::Type;

use crate::connect::pool::{Parameter, Pool};
use crate::error::PostgresError;

/// The maximum number of rows in one statement.
const ROWS_MAX: i64 = 1_000;

/// The time after which a run sends no further statement.
const RUN_TIME_MAX: Duration = Duration::from_millis(200);

/// How far before the last run a statement begins. A statement takes much less.
const OVERLAP: Duration = Duration::from_secs(60);

/// The interval between two runs that begin at the first row.
const FULL_INTERVAL: Duration = Duration::from_secs(60);

/// Ends holds whose time has passed. `$1` is exclusive.
const EXPIRE: &str = "/* enrich: expire */ SELECT ended_count, time_ms FROM expire_holds($1, $2)";

/// Adds settlements to the usage, and returns their rest to the workspaces. `$1` is exclusive.
const FOLD: &str = "/* enrich: fold */ SELECT due_count, taken_count, time_ms FROM fold_settlements($1, $2)";

/// Deletes the receipts that have ended. `$1` is exclusive.
const END_RECEIPTS: &str = "/* enrich: end receipts */
    SELECT ended_count, time_ms FROM end_receipts($1, $2, $3)";

/// Where the next run begins.
#[derive(Default)]
pub(crate) struct Sweep(Mutex<State>);

#[derive(Default)]
struct State {
    expired: Watermark,
    folded: Watermark,
    receipts: Watermark,
    /// When the last run that began at the first row was started.
    full_at: Option<Instant>,
}

/// The server's time of the last statement that left no row, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Default)]
struct Watermark(Option<i64>);

impl Watermark {
    /// Returns the time after which a statement begins.
    fn since(self) -> i64 {
        self.0.map_or(i64::MIN, |now_ms| now_ms - OVERLAP.as_millis() as i64)
    }
}

impl Sweep {
    /// Runs until there is nothing left, but not for much longer than [`RUN_TIME_MAX`].
    pub(crate) async fn run(&self, pool: &Pool) -> Result<(), PostgresError> {
        let started_at = Instant::now();
        let [expired, folded, receipts] = self.begin(started_at);
        while !self.expire(pool, expired).await? && started_at.elapsed() < RUN_TIME_MAX {}
        while !self.fold(pool, folded).await? && started_at.elapsed() < RUN_TIME_MAX {}
        while !self.end_receipts(pool, receipts).await? && started_at.elapsed() < RUN_TIME_MAX {}
        Ok(())
    }

    /// Returns where the run begins.
    fn begin(&self, now: Instant) -> [Watermark; 3] {
        let mut state = self.0.lock();
        if state.full_at.is_some_and(|full_at| now.duration_since(full_at) < FULL_INTERVAL) {
            return [state.expired, state.folded, state.receipts];
        }
        state.full_at = Some(now);
        [Watermark(None); 3]
    }

    /// Ends expired holds. Returns whether none is left.
    async fn expire(&self, pool: &Pool, begin: Watermark) -> Result<bool, PostgresError> {
        let rows = pool.query(EXPIRE, &[(&begin.since(), Type::INT8), (&ROWS_MAX, Type::INT8)]).await?;
        let is_done = rows.first().is_none_or(|row| row.get::<_, i64>(0) < ROWS_MAX);
        if is_done {
            self.0.lock().expired = Watermark(rows.first().map(|row| row.get(1)));
        }
        Ok(is_done)
    }

    /// Deletes receipts that have ended. Returns whether none is left.
    async fn end_receipts(&self, pool: &Pool, begin: Watermark) -> Result<bool, PostgresError> {
        let (since, ttl_ms) = (begin.since(), RECEIPT_TTL.as_millis() as i64);
        let values: [(Parameter<'_>, Type); 3] =
            [(&since, Type::INT8), (&ROWS_MAX, Type::INT8), (&ttl_ms, Type::INT8)];
        let rows = pool.query(END_RECEIPTS, &values).await?;
        let is_done = rows.first().is_none_or(|row| row.get::<_, i64>(0) < ROWS_MAX);
        if is_done {
            self.0.lock().receipts = Watermark(rows.first().map(|row| row.get(1)));
        }
        Ok(is_done)
    }

    /// Folds settlements. Returns whether none is left.
    async fn fold(&self, pool: &Pool, begin: Watermark) -> Result<bool, PostgresError> {
        let rows = pool.query(FOLD, &[(&begin.since(), Type::INT8), (&ROWS_MAX, Type::INT8)]).await?;
        let Some(row) = rows.first() else { return Ok(true) };
        let (due, taken): (i64, i64) = (row.get(0), row.get(1));
        if taken == due && due < ROWS_MAX {
            self.0.lock().folded = Watermark(Some(row.get(2)));
            return Ok(true);
        }
        Ok(false)
    }
}
