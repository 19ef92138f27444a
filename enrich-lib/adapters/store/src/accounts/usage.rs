//! Usage by day, key and outcome.

use std::collections::BTreeMap;

use enrich_lib::key::KeyId;
use enrich_lib::model::WorkspaceId;

use super::lock::rowid;
use super::transaction::{Accounts, Tx};
use crate::error::StoreError;
use crate::usage::{Day, USES_DAYS, UsageRow};
use crate::value::{Row, values};

/// The usage of workspace `$1` from day `$2` to day `$3`, in one or more rows. The primary key begins with
/// the day, so that each day is one search.
const ROWS: &str = "WITH RECURSIVE d(day) AS (
         SELECT max(day) FROM (SELECT $2 AS day UNION ALL SELECT min(day) FROM usage_day) AS first
         UNION ALL SELECT day + 1 FROM d WHERE day < $3 AND day < (SELECT max(day) FROM usage_day)
     ), u AS (
         SELECT u.day, u.key, u.outcome, u.lookups, u.credits FROM d CROSS JOIN usage_day u
         WHERE u.day = d.day AND u.workspace = $1 AND u.day <= $3 AND u.lookups > 0
         UNION ALL SELECT day, key, 'billed', lookups, credits FROM uncounted_usage
         WHERE workspace = $1 AND day >= $2 AND day <= $3
     )";

impl Accounts {
    /// Returns the usage of `workspace` from the first to the last day, both included, ordered by day, key
    /// and outcome. Free lookups of the last second may be missing.
    pub async fn usage(
        &mut self,
        workspace: &WorkspaceId,
        first: Day,
        last: Day,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let mut tx = self.read().await?;
        let workspace = rowid(&mut *tx, workspace).await?;
        let select = format!(
            "{ROWS} SELECT day, key, outcome, CAST(sum(lookups) AS BIGINT), CAST(sum(credits) AS BIGINT) FROM u
             GROUP BY day, key, outcome ORDER BY day, key, outcome"
        );
        tx.rows(&select, values![workspace, first, last], usage_row).await
    }

    /// Returns the credits that `workspace` has spent on each day up to the last one, oldest first, without days on
    /// which it spent none.
    pub async fn spent_by_day(
        &mut self,
        workspace: &WorkspaceId,
        last: Day,
    ) -> Result<Vec<(Day, u64)>, StoreError> {
        let mut tx = self.read().await?;
        let workspace = rowid(&mut *tx, workspace).await?;
        let select = format!(
            "{ROWS} SELECT day, CAST(sum(credits) AS BIGINT) FROM u WHERE outcome = 'billed' GROUP BY day ORDER BY day"
        );
        let read = |row: &mut Row| Ok((row.read()?, row.read()?));
        tx.rows(&select, values![workspace, Day::default(), last], read).await
    }
}

/// Reads the columns of [`UsageRow`].
pub(super) fn usage_row(row: &mut Row) -> Result<UsageRow, StoreError> {
    Ok(UsageRow {
        day: row.read()?,
        key: row.read()?,
        outcome: row.read()?,
        lookups: row.read()?,
        credits: row.read()?,
    })
}

/// Returns the number of lookups with each key of a workspace in the [`USES_DAYS`] days up to `today`.
pub(super) async fn uses(
    tx: &mut Tx<'_>,
    workspace: i64,
    today: Day,
) -> Result<BTreeMap<KeyId, u64>, StoreError> {
    let select = format!("{ROWS} SELECT key, CAST(sum(lookups) AS BIGINT) FROM u GROUP BY key");
    let days = values![workspace, today.minus(USES_DAYS - 1), today];
    let uses = tx.rows(&select, days, |row| Ok((row.read()?, row.read()?))).await?;
    Ok(uses.into_iter().collect())
}
