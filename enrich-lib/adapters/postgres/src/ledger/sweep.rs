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
const EXPIRE: &str = "/* enrich: expire */
    WITH due AS (
        SELECT h.lookup_id FROM credit_hold h
        WHERE h.expires_at > $1 AND h.expires_at <= (extract(epoch FROM now()) * 1000)::bigint
        ORDER BY h.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
    ), ended AS (
        DELETE FROM credit_hold h USING due d WHERE h.lookup_id = d.lookup_id
        RETURNING h.workspace, h.credits
    ), counted AS (
        INSERT INTO settlement (settled_at, workspace, day, key, lookups, credits, rest)
        SELECT (extract(epoch FROM now()) * 1000)::bigint, e.workspace, 0, 0, 0, 0, sum(e.credits)
        FROM ended e GROUP BY e.workspace
    )
    SELECT count(*), (extract(epoch FROM now()) * 1000)::bigint, set_config('synchronous_commit', 'off', true) FROM ended";

/// Adds settlements to the usage, and returns their rest to the workspaces. `$1` is exclusive.
const FOLD: &str = "/* enrich: fold */
    WITH due AS (
        SELECT t.settled_at, t.id, t.workspace, t.rest FROM settlement t
        WHERE t.settled_at > $1 AND (SELECT set_config('lock_timeout', '250ms', true)) <> ''
        ORDER BY t.settled_at LIMIT $2 FOR UPDATE SKIP LOCKED
    ), free AS (
        SELECT b.workspace FROM balance b WHERE b.workspace IN (SELECT d.workspace FROM due d WHERE d.rest > 0)
        ORDER BY b.workspace FOR UPDATE SKIP LOCKED
    ), taken AS (
        DELETE FROM settlement t USING due d
        WHERE t.settled_at = d.settled_at AND t.id = d.id AND (d.rest = 0 OR d.workspace IN (SELECT f.workspace FROM free f))
        RETURNING t.*
    ), returned AS (
        UPDATE balance b SET available = b.available + r.rest, version = b.version + 1
        FROM (SELECT t.workspace, sum(t.rest)::bigint AS rest FROM taken t GROUP BY t.workspace HAVING sum(t.rest) > 0) AS r
        WHERE b.workspace = r.workspace
    ), counted AS (
        INSERT INTO usage_day AS u (day, workspace, key, outcome, lookups, credits)
        SELECT t.day, t.workspace, t.key, 'billed', sum(t.lookups), sum(t.credits) FROM taken t WHERE t.lookups > 0
        GROUP BY t.day, t.workspace, t.key ORDER BY t.day, t.workspace, t.key
        ON CONFLICT (day, workspace, key, outcome)
        DO UPDATE SET lookups = u.lookups + excluded.lookups, credits = u.credits + excluded.credits
    )
    SELECT (SELECT count(*) FROM due), (SELECT count(*) FROM taken), (extract(epoch FROM now()) * 1000)::bigint,
        set_config('synchronous_commit', 'off', true)";

/// Deletes the receipts that have ended. `$1` is exclusive.
const END_RECEIPTS: &str = "/* enrich: end receipts */
    WITH due AS (
        SELECT r.workspace, r.receipt FROM credit_receipt r
        WHERE r.at > $1 AND r.at <= (extract(epoch FROM now()) * 1000)::bigint - $3
        ORDER BY r.at LIMIT $2 FOR UPDATE SKIP LOCKED
    ), ended AS (
        DELETE FROM credit_receipt r USING due d WHERE r.workspace = d.workspace AND r.receipt = d.receipt
    )
    SELECT count(*), (extract(epoch FROM now()) * 1000)::bigint - $3, set_config('synchronous_commit', 'off', true)
    FROM due";

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
