//! Returns credits to workspaces: those of expired holds, and the rest of settlements. Counts spends, and
//! deletes old receipts. Every node does this for all nodes.
//!
//! No statement waits for a lock of another session: what others have locked is left to the next run. All
//! statements begin where an earlier run has ended, because rows that were deleted since a snapshot of
//! another session remain, and would all be read again. Once a minute they begin at the first row, in case a
//! clock was wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use enrich_lib::receipt::RECEIPT_TTL;
use enrich_store::sync::Mutex;
use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;

use crate::column::bigint;
use crate::connect::pool::{Parameter, Pool};
use crate::error::PostgresError;

/// The time after which a statement is not repeated.
const RUN_TIME_MAX: Duration = Duration::from_millis(200);

/// The pause before a statement is repeated whose rows are those of locked workspaces.
const LOCKED_PAUSE: Duration = Duration::from_millis(5);

/// The time after which rows that are left are an error. Sessions that lock a balance for a moment leave some.
const LEFT_TIME_MAX: Duration = Duration::from_secs(10);

/// How far before the last run a statement begins. A statement takes much less.
const OVERLAP: Duration = Duration::from_secs(60);

/// The interval between two runs that begin at the first row.
const FULL_INTERVAL: Duration = Duration::from_secs(60);

/// The statements of all nodes.
pub(crate) struct Sweep {
    expire: Step,
    restore: Step,
    count: Step,
    end_receipts: Step,
}

/// A statement that handles rows after the time `$1`, at most `$2` of them. It returns whether it has left
/// none but those of locked workspaces, the time, and the names of these workspaces.
struct Step {
    sql: &'static str,
    /// The further parameter.
    age_ms: Option<i64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The server's time of the last statement that left no row, in milliseconds since the Unix epoch.
    done_ms: Option<i64>,
    /// When the last run that began at the first row was started.
    full_at: Option<Instant>,
    /// The end of the first run that left rows since one that left none, and the locked workspaces.
    left: Option<(Instant, String)>,
}

impl Default for Sweep {
    fn default() -> Self {
        let step = |sql| Step { sql, age_ms: None, state: Mutex::default() };
        let end_receipts = step(
            "/* enrich: end receipts */ SELECT is_done, time_ms, '{}'::text[] FROM end_receipts($1, $2, $3)",
        );
        Self {
            expire: step(
                "/* enrich: expire */ SELECT is_done, time_ms, '{}'::text[] FROM expire_holds($1, $2)",
            ),
            restore: step(
                "/* enrich: return credits */ SELECT is_done, time_ms, locked FROM return_credits($1, $2)",
            ),
            count: step(
                "/* enrich: count spends */ SELECT is_done, time_ms, '{}'::text[] FROM count_spends($1, $2)",
            ),
            end_receipts: Step { age_ms: Some(RECEIPT_TTL.as_millis() as i64), ..end_receipts },
        }
    }
}

impl Sweep {
    /// Executes all statements.
    pub(crate) async fn run(&self, pool: &Pool) -> Result<(), PostgresError> {
        self.return_credits(pool, &BTreeSet::new()).await?;
        self.end_receipts.run(pool).await?;
        self.count.run(pool).await
    }

    /// Returns credits to workspaces, and waits for locks of the `short` ones. Accesses no table of
    /// statistics.
    pub(crate) async fn return_credits(
        &self,
        pool: &Pool,
        short: &BTreeSet<&str>,
    ) -> Result<(), PostgresError> {
        self.expire.run(pool).await?;
        self.restore.run_for(pool, short).await
    }

    /// Fails if a statement has left rows for [`LEFT_TIME_MAX`].
    pub(crate) fn check(&self) -> Result<(), PostgresError> {
        let steps = [&self.expire, &self.restore, &self.count, &self.end_receipts];
        steps.into_iter().try_for_each(Step::check)
    }
}

impl Step {
    /// Repeats the statement until nothing is left but rows of locked workspaces, and not for much longer than
    /// [`RUN_TIME_MAX`].
    async fn run(&self, pool: &Pool) -> Result<(), PostgresError> {
        self.run_for(pool, &BTreeSet::new()).await
    }

    /// Repeats the statement also while one of the `short` workspaces is locked: another node holds the lock
    /// for some milliseconds.
    async fn run_for(&self, pool: &Pool, short: &BTreeSet<&str>) -> Result<(), PostgresError> {
        let started_at = Instant::now();
        let since = self.begin(started_at);
        let values = [Some(since), Some(bigint(pool.sizes.rows as u64)), self.age_ms];
        let values: Vec<(Parameter<'_>, Type)> =
            values.iter().flatten().map(|value| (value as Parameter<'_>, Type::INT8)).collect();
        let mut locked = String::new();
        while started_at.elapsed() < RUN_TIME_MAX {
            let rows = pool.query(self.sql, &values).await?;
            let Some(row) = rows.first().filter(|row| row.get(0)) else { continue };
            let names: Vec<&str> = row.get(2);
            if names.is_empty() {
                let mut state = self.state.lock();
                (state.done_ms, state.left) = (Some(row.get(1)), None);
                return Ok(());
            }
            locked = names.join(", ");
            if !names.iter().any(|name| short.contains(name)) {
                break;
            }
            sleep(LOCKED_PAUSE).await;
        }
        self.state.lock().left.get_or_insert_with(|| (Instant::now(), String::new())).1 = locked;
        Ok(())
    }

    fn check(&self) -> Result<(), PostgresError> {
        match &self.state.lock().left {
            Some((since, locked)) if since.elapsed() >= LEFT_TIME_MAX => {
                Err(PostgresError::Left { age: since.elapsed(), locked: locked.clone() })
            }
            _ => Ok(()),
        }
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
