//! Lists of spends, and the removal of old ones.

use enrich_lib::model::{LookupId, WorkspaceId};

use super::lock::rowid;
use super::transaction::{Accounts, Tx, transact};
use crate::error::StoreError;
use crate::records::{REMOVED_MAX, SpendPage, SpendRow};
use crate::usage::Day;
use crate::value::values;

impl Accounts {
    /// Returns a page of the spends of `workspace`, by lookup id, from `first` (included) to `end`
    /// (excluded). Call it again with [`SpendPage::next`] as `first`.
    pub async fn spends(
        &mut self,
        workspace: &WorkspaceId,
        first: LookupId,
        end: LookupId,
    ) -> Result<SpendPage, StoreError> {
        let mut tx = self.read().await?;
        let workspace = rowid(&mut *tx, workspace).await?;
        let select = "SELECT lookup_id FROM credit_spend WHERE lookup_id >= $1 AND lookup_id < $2
             ORDER BY lookup_id LIMIT 1 OFFSET $3";
        let next = tx.row(select, values![&first, &end, SpendPage::SPENDS_READ_MAX]).await?;
        let next = next.map(|mut row| row.read()).transpose()?;
        let select = "SELECT s.lookup_id, s.key, s.credits, s.at, g.at
             FROM credit_spend s LEFT JOIN credit_grant g ON g.lookup_id = s.lookup_id
             WHERE s.lookup_id >= $1 AND s.lookup_id < $2 AND s.workspace = $3 ORDER BY s.lookup_id";
        let bounds = values![&first, next.as_ref().unwrap_or(&end), workspace];
        let rows = tx.rows(select, bounds, |row| {
            Ok(SpendRow {
                lookup_id: row.read()?,
                key: row.read()?,
                credits: row.read()?,
                at: row.read()?,
                refunded_at: row.read()?,
            })
        });
        Ok(SpendPage { rows: rows.await?, next })
    }

    /// Removes the oldest spends that arrived before `day`, up to [`REMOVED_MAX`], and returns their number.
    /// If it is 0, there are no more. Balances, usage and audits stay exact.
    ///
    /// A removed spend is not listed and cannot be refunded, and the store would accept another spend of its
    /// lookup. The oldest spend with a receipt and all later ones are kept.
    pub async fn remove_spends(&mut self, before: Day) -> Result<u64, StoreError> {
        transact!(self, tx, {
            let removed: LookupId = tx.value(LOCK_REMOVALS, &[]).await?;
            // First those after the removed ones, whose rows PostgreSQL would read again while another session, such as a
            // dump, keeps a snapshot. A lookup that ended late, or a copy, has added spends before them.
            let first_kept = before.first_lookup();
            let mut count = remove(tx, &removed, &first_kept, REMOVED_MAX).await?;
            if count < REMOVED_MAX {
                count += remove(tx, &LookupId::from_bytes([0; 16]), &first_kept, REMOVED_MAX - count).await?;
            }
            Ok(count)
        })
    }
}

/// Waits for a removal of old spends, and excludes others until the end of the transaction. Returns the last removed
/// lookup.
pub(super) const LOCK_REMOVALS: &str = "UPDATE removed_until SET lookup_id = lookup_id RETURNING lookup_id";

/// Removes up to `max` spends after the lookup `after` and before `first_kept`, and adds them to the sums.
async fn remove(
    tx: &mut Tx<'_>,
    after: &LookupId,
    first_kept: &LookupId,
    max: u64,
) -> Result<u64, StoreError> {
    let select = "SELECT lookup_id, count(*) OVER () FROM (
             SELECT lookup_id FROM credit_spend
             WHERE lookup_id > $3 AND lookup_id < $1
               AND lookup_id < coalesce((SELECT lookup_id FROM credit_receipt ORDER BY lookup_id LIMIT 1), $1)
             ORDER BY lookup_id LIMIT $2
         ) AS oldest ORDER BY lookup_id DESC LIMIT 1";
    let Some(mut last) = tx.row(select, values![first_kept, max, after]).await? else { return Ok(0) };
    let (last, count): (LookupId, u64) = (last.read()?, last.read()?);
    let add = "INSERT INTO removed_spends (workspace, key, lookups, credits)
         SELECT workspace, key, count(*), CAST(sum(credits) AS BIGINT) FROM credit_spend
         WHERE lookup_id > $2 AND lookup_id <= $1 GROUP BY workspace, key
         ON CONFLICT (workspace, key) DO UPDATE
         SET lookups = removed_spends.lookups + excluded.lookups, credits = removed_spends.credits + excluded.credits";
    tx.execute(add, values![&last, after]).await?;
    tx.execute("UPDATE removed_until SET lookup_id = $1 WHERE lookup_id < $1", values![&last]).await?;
    let delete = "DELETE FROM credit_spend WHERE lookup_id > $2 AND lookup_id <= $1";
    // A node whose clock is days behind may have added spends since the first statement.
    match tx.execute(delete, values![&last, after]).await? {
        deleted if deleted == count => Ok(count),
        _ => Err(StoreError::Conflict),
    }
}
