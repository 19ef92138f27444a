//! Returns credits to workspaces: those of expired holds, and the rest of settlements. Counts spends, and
//! deletes old receipts. Every node does this for all nodes.
//!
//! No statement waits for a row that another node has locked: it is left to the next run. All statements begin
//! at the first row that an earlier run has left, or where it has ended, because rows that were deleted since a
//! snapshot of another session remain, and would all be read again. Once a minute they begin at the first row,
//! in case a clock was wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_lib::model::Timestamp;
use enrich_lib::receipt::RECEIPT_TTL;
use enrich_store::StoreError;
use enrich_store::sync::Mutex;
use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;

use crate::column::{at, bigint};
use crate::connect::pool::{Parameter, Pool};
use crate::error::PostgresError;

/// The time after which a statement is not repeated.
const RUN_TIME_MAX: Duration = Duration::from_millis(200);

/// How long a hold waits for other sessions that are ending expired holds. They take some milliseconds, but a spend
/// that waits for a standby keeps its hold for longer.
const ENDING_TIME_MAX: Duration = Duration::from_millis(50);

/// The pause before rows are read again that were locked.
const LOCKED_PAUSE: Duration = Duration::from_millis(5);

/// The time after which a tick waits for a workspace that was locked in each run. Nodes lock a busy balance most of
/// the time, each for some milliseconds.
const LOCKED_TIME_AWAITED: Duration = Duration::from_secs(2);

/// The time after which a workspace that was locked in each run is an error.
const LOCKED_TIME_MAX: Duration = Duration::from_secs(10);

/// How far before the last run a statement begins. A statement takes much less.
const OVERLAP: Duration = Duration::from_secs(60);

/// The interval between two runs that begin at the first row.
const FULL_INTERVAL: Duration = Duration::from_secs(60);

/// Returns the workspaces that have credits in expired holds: many have expired, or another session is ending them.
const EXPIRED: &str = "/* enrich: workspaces with expired holds */
    WITH expired AS MATERIALIZED (
        SELECT DISTINCT h.workspace FROM credit_hold h WHERE h.credits > 0
        AND h.expires_at > $2 AND h.expires_at <= (extract(epoch FROM now()) * 1000)::bigint
    )
    SELECT w.id FROM expired e JOIN workspace w ON w.rowid = e.workspace WHERE w.id = ANY ($1)";

/// The statements of all nodes.
pub(crate) struct Sweep {
    expire: Step,
    restore: Step,
    count: Step,
    end_receipts: Step,
    /// The workspaces that were locked in each run since a time.
    locked: Mutex<BTreeMap<String, Instant>>,
}

/// A statement that handles rows after the time `$1`, at most `$2` of them. It returns whether it has left
/// none, and the time.
struct Step {
    sql: &'static str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The server's time before which the last complete run left no row, in milliseconds since the Unix epoch.
    done_ms: Option<i64>,
    /// When the last run that began at the first row was started.
    full_at: Option<Instant>,
}

impl Default for Sweep {
    fn default() -> Self {
        let step = |sql| Step { sql, state: Mutex::default() };
        Self {
            expire: step("/* enrich: expire */ SELECT is_done, time_ms FROM expire_holds($1, $2)"),
            restore: step(
                "/* enrich: return credits */ SELECT is_done, time_ms, locked FROM return_credits($1, $2, $3)",
            ),
            count: step("/* enrich: count spends */ SELECT is_done, time_ms FROM count_spends($1, $2)"),
            end_receipts: step(
                "/* enrich: end receipts */ SELECT is_done, time_ms FROM end_receipts($1, $2, $3, $4)",
            ),
            locked: Mutex::default(),
        }
    }
}

impl Sweep {
    /// Executes all statements. `now` is the node's time.
    pub(crate) async fn run(&self, pool: &Pool, now: Timestamp) -> Result<(), PostgresError> {
        self.return_credits(pool, &BTreeSet::new()).await?;
        self.end_receipts.run(pool, &[RECEIPT_TTL.as_millis() as i64, at(now)]).await?;
        self.count.run(pool, &[]).await?;
        Ok(())
    }

    /// Ends expired holds. Returns those of the `short` workspaces that have some left.
    async fn end_holds(
        &self,
        pool: &Pool,
        short: &BTreeSet<&str>,
    ) -> Result<BTreeSet<String>, PostgresError> {
        let (started_at, names) = (Instant::now(), short.iter().collect::<Vec<_>>());
        let mut since = i64::MAX;
        loop {
            // The first run may have begun at the first row.
            since = since.min(self.expire.run(pool, &[]).await?);
            if short.is_empty() {
                return Ok(BTreeSet::new());
            }
            let values: [(Parameter<'_>, Type); 2] = [(&names, Type::TEXT_ARRAY), (&since, Type::INT8)];
            let rows = pool.query(EXPIRED, &values).await?;
            if rows.is_empty() || started_at.elapsed() >= ENDING_TIME_MAX {
                return Ok(rows.iter().map(|row| row.get(0)).collect());
            }
            sleep(LOCKED_PAUSE).await;
        }
    }

    /// Returns credits to workspaces, and waits for the locks of `short` ones: another node holds them for some
    /// milliseconds. Returns those to which some may be left: they have expired holds, they are locked, or the time
    /// did not suffice to read all rows. Accesses no table of statistics.
    pub(crate) async fn return_credits(
        &self,
        pool: &Pool,
        short: &BTreeSet<&str>,
    ) -> Result<BTreeSet<String>, PostgresError> {
        // Those that it does not return have no credits in expired holds when the rows are read below.
        let expired = self.end_holds(pool, short).await?;
        let started_at = Instant::now();
        let (since, rows_max) = (self.restore.begin(started_at), bigint(pool.sizes.rows as u64));
        // The workspaces that were locked in the last complete run.
        let mut left = None;
        let (mut locked, mut done_ms) = (BTreeSet::<String>::new(), i64::MAX);
        while started_at.elapsed() < RUN_TIME_MAX {
            let left_out: Vec<_> = locked.iter().collect();
            let values: [(Parameter<'_>, Type); 3] =
                [(&since, Type::INT8), (&rows_max, Type::INT8), (&left_out, Type::TEXT_ARRAY)];
            let rows = pool.query(self.restore.sql, &values).await?;
            let Some(row) = rows.first() else { continue };
            done_ms = done_ms.min(row.get(1));
            locked.extend(row.get::<_, Vec<String>>(2));
            if row.get(0) {
                self.restore.state.lock().done_ms = Some(done_ms);
                let is_awaited = self.is_awaited(&locked, short, started_at);
                (left, locked, done_ms) = (Some(locked), BTreeSet::new(), i64::MAX);
                if !is_awaited {
                    break;
                }
                sleep(LOCKED_PAUSE).await;
            }
        }
        // `locked` is that of a run that was not complete.
        let is_left = |name: &str| {
            expired.contains(name)
                || locked.contains(name)
                || left.as_ref().is_none_or(|left| left.contains(name))
        };
        Ok(short.iter().filter(|name| is_left(name)).map(|name| (*name).to_owned()).collect())
    }

    /// Records the workspaces that a run has left. Returns whether it must wait for one of them.
    fn is_awaited(&self, locked: &BTreeSet<String>, short: &BTreeSet<&str>, now: Instant) -> bool {
        let mut since = self.locked.lock();
        since.retain(|name, _| locked.contains(name));
        for name in locked {
            since.entry(name.clone()).or_insert(now);
        }
        since.iter().any(|(name, since)| match short.is_empty() {
            true => (LOCKED_TIME_AWAITED..LOCKED_TIME_MAX).contains(&now.duration_since(*since)),
            false => short.contains(name.as_str()),
        })
    }

    /// Fails if a workspace was locked in each run for [`LOCKED_TIME_MAX`].
    pub(crate) fn check(&self) -> Result<(), PostgresError> {
        let locked = self.locked.lock();
        match locked.iter().find(|(_, since)| since.elapsed() >= LOCKED_TIME_MAX) {
            Some((name, since)) => {
                Err(StoreError::NotReturned { workspace: name.clone(), age: since.elapsed() }.into())
            }
            None => Ok(()),
        }
    }
}

impl Step {
    /// Repeats the statement, with `more` parameters from `$3` on, until there is nothing left, but not for much longer
    /// than [`RUN_TIME_MAX`]. Returns the time after which the run began.
    async fn run(&self, pool: &Pool, more: &[i64]) -> Result<i64, PostgresError> {
        let started_at = Instant::now();
        let since = self.begin(started_at);
        let values = [&[since, bigint(pool.sizes.rows as u64)], more].concat();
        let values: Vec<(Parameter<'_>, Type)> =
            values.iter().map(|value| (value as Parameter<'_>, Type::INT8)).collect();
        while started_at.elapsed() < RUN_TIME_MAX {
            let rows = pool.query(self.sql, &values).await?;
            if let Some(row) = rows.first().filter(|row| row.get(0)) {
                self.state.lock().done_ms = Some(row.get(1));
                break;
            }
        }
        Ok(since)
    }

    /// Returns the time after which the run begins.
    fn begin(&self, now: Instant) -> i64 {
        let mut state = self.state.lock();
        if state.full_at.is_some_and(|full_at| now.duration_since(full_at) < FULL_INTERVAL) {
            return state.done_ms.map_or(i64::MIN, |done_ms| done_ms - OVERLAP.as_millis() as i64);
        }
        state.full_at = Some(now);
        i64::MIN
    }
}
