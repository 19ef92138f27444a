//! The statements that end holds.

use std::collections::BTreeMap;

use enrich_lib::credit::{AccountError, Hold, HoldOutcome};
use enrich_lib::model::LookupId;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::batch::{Names, lookup_ids, receipts};
use crate::column::{at, bigint, credits, lookup_id};
use crate::connect::pool::{Parameter, Pool};
use crate::error::PostgresError;

/// Ends holds. Returns their number, the lookups that another one has paid for, and those that have paid.
const SETTLE: &str = "/* enrich: settle */
    SELECT ended_count, unpaid, payers FROM settle_holds($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// Ends holds, and returns what exists of their lookups afterwards, in the columns of [`READ`].
const FENCE: &str = "/* enrich: fence */
    SELECT false, lookup, workspace_id, amount, is_spent, payer FROM fence_spends($1, $2, $3, $4, $5, $6, $7)";

/// Returns the lookups that are spent, those that are still held, and a first row without a lookup.
const READ: &str = "/* enrich: read spends */
    SELECT current_setting('transaction_read_only') = 'on', NULL::bytea, '', 0::bigint, false, NULL::bytea
    UNION ALL
    SELECT false, h.lookup_id, w.id, h.credits, false, NULL::bytea
    FROM credit_hold h JOIN workspace w ON w.rowid = h.workspace WHERE h.lookup_id = ANY ($1)
    UNION ALL
    SELECT false, s.lookup_id, w.id, s.credits, true, NULL::bytea
    FROM credit_spend s JOIN workspace w ON w.rowid = s.workspace WHERE s.lookup_id = ANY ($1)";

/// A hold to end.
pub(crate) struct Settle {
    pub(crate) hold: Hold,
    /// The credits to spend. Ignored by a release.
    pub(crate) credits: u64,
    pub(crate) queued_at: Instant,
}

/// The result of a settlement: the other lookup that has paid.
pub(crate) type SettleResult = Result<Option<LookupId>, PostgresError>;

/// The arguments of a statement.
struct Arguments<'a> {
    names: Vec<&'a str>,
    numbers: Vec<i64>,
    lookups: Vec<&'a [u8]>,
    costs: Vec<i64>,
    keys: Vec<i64>,
    times: Vec<i64>,
    receipts: Vec<Option<&'a [u8]>>,
}

impl<'a> Arguments<'a> {
    fn of(batch: impl Iterator<Item = &'a Settle> + Clone) -> Self {
        let holds = || batch.clone().map(|settle| &settle.hold);
        let Names { names, numbers } = Names::of(holds());
        Self {
            names,
            numbers,
            lookups: lookup_ids(holds()),
            costs: batch.clone().map(|settle| bigint(settle.credits)).collect(),
            keys: holds().map(|hold| i64::from(hold.key.number())).collect(),
            times: holds().map(|hold| at(hold.placed_at)).collect(),
            receipts: receipts(holds()),
        }
    }

    fn values(&self) -> [(Parameter<'_>, Type); 7] {
        [
            (&self.names, Type::TEXT_ARRAY),
            (&self.lookups, Type::BYTEA_ARRAY),
            (&self.numbers, Type::INT8_ARRAY),
            (&self.costs, Type::INT8_ARRAY),
            (&self.keys, Type::INT8_ARRAY),
            (&self.times, Type::INT8_ARRAY),
            (&self.receipts, Type::BYTEA_ARRAY),
        ]
    }
}

/// Spends what the lookups of a batch hold. Returns `None` unless all of them had a hold, and otherwise the
/// lookups that did not pay, with those that have paid for their receipts.
pub(crate) async fn spend<'a>(
    pool: &Pool,
    batch: impl Iterator<Item = &'a Settle> + Clone,
) -> Result<Option<Payers>, PostgresError> {
    settle(pool, batch, false).await
}

/// Releases holds. If some did not exist, returns what is stored of the lookups. Commits asynchronously: a
/// release that a crash loses is made up for when the hold expires.
pub(crate) async fn release<'a>(
    pool: &Pool,
    batch: impl Iterator<Item = &'a Settle> + Clone,
) -> Result<Stored, PostgresError> {
    if settle(pool, batch.clone(), true).await?.is_some() {
        return Ok(Stored::default());
    }
    stored(pool, batch.map(|settle| &settle.hold)).await
}

/// Returns what is stored of lookups.
pub(crate) async fn stored<'a>(
    pool: &Pool,
    holds: impl Iterator<Item = &'a Hold>,
) -> Result<Stored, PostgresError> {
    Stored::of(&pool.read(READ, &[(&lookup_ids(holds), Type::BYTEA_ARRAY)]).await?)
}

/// Ends the holds of spends in doubt, and returns what is stored of them, as durably as a spend.
pub(crate) async fn fence<'a>(
    pool: &Pool,
    batch: impl Iterator<Item = &'a Settle> + Clone,
) -> Result<Stored, PostgresError> {
    Stored::of(&pool.query(FENCE, &Arguments::of(batch).values()).await?)
}

async fn settle<'a>(
    pool: &Pool,
    batch: impl Iterator<Item = &'a Settle> + Clone,
    is_release: bool,
) -> Result<Option<Payers>, PostgresError> {
    let arguments = Arguments::of(batch);
    let is_synchronous = !is_release;
    let mode: [(Parameter<'_>, Type); 2] = [(&is_release, Type::BOOL), (&is_synchronous, Type::BOOL)];
    let values: Vec<_> = arguments.values().into_iter().chain(mode).collect();
    let rows = pool.query(SETTLE, &values).await?;
    let ended = rows.first().filter(|row| row.get::<_, i64>(0) == arguments.lookups.len() as i64);
    let Some(ended) = ended else { return Ok(None) };
    let unpaid = ended.get::<_, Option<Vec<&[u8]>>>(1).unwrap_or_default();
    let payers = ended.get::<_, Option<Vec<Option<&[u8]>>>>(2).unwrap_or_default();
    let ids = |(lookup, payer): (&[u8], Option<&[u8]>)| {
        Ok((lookup_id(RECEIPT, lookup)?, payer.map(|payer| lookup_id(RECEIPT, payer)).transpose()?))
    };
    unpaid.into_iter().zip(payers).map(ids).collect::<Result<_, PostgresError>>().map(Some)
}

/// The lookups of a batch that did not pay, with those that have paid. `None` if the receipt is gone.
pub(crate) type Payers = BTreeMap<LookupId, Option<LookupId>>;

const RECEIPT: &str = "credit_receipt.lookup_id";

/// The stored spends and holds of lookups: the workspace and the credits of each.
#[derive(Default)]
pub(crate) struct Stored {
    spent: BTreeMap<LookupId, (String, u64)>,
    held: BTreeMap<LookupId, (String, u64)>,
    payers: BTreeMap<LookupId, LookupId>,
}

impl Stored {
    fn of(rows: &[Row]) -> Result<Self, PostgresError> {
        let mut stored = Self::default();
        for row in rows {
            let Some(lookup) = row.get::<_, Option<&[u8]>>(1) else { continue };
            let lookup = lookup_id("credit_spend.lookup_id", lookup)?;
            if let Some(payer) = row.get::<_, Option<&[u8]>>(5) {
                stored.payers.insert(lookup, lookup_id(RECEIPT, payer)?);
                continue;
            }
            let credits_of = if row.get(4) { &mut stored.spent } else { &mut stored.held };
            credits_of.insert(lookup, (row.get(2), credits(row.get(3))));
        }
        Ok(stored)
    }

    /// Returns the credits that a lookup has spent.
    pub(crate) fn spent(&self, hold: &Hold) -> Option<u64> {
        of(&self.spent, hold)
    }

    /// Returns the lookup that has paid for the receipt of a lookup.
    pub(crate) fn payer(&self, hold: &Hold) -> Option<LookupId> {
        self.payers.get(&hold.lookup_id).copied()
    }

    /// Returns the credits that a lookup holds.
    pub(crate) fn held(&self, hold: &Hold) -> Option<u64> {
        of(&self.held, hold)
    }

    /// Returns the result of a hold whose lookup is held or spent.
    pub(crate) fn held_again(&self, hold: &Hold) -> Option<Result<HoldOutcome, AccountError>> {
        if self.spent.contains_key(&hold.lookup_id) {
            return Some(Err(AccountError::Ended));
        }
        self.held.get(&hold.lookup_id)?;
        let is_repeated = self.held(hold).is_some_and(|held| hold.is_repeated(held));
        Some(if is_repeated { Ok(HoldOutcome::Granted) } else { Err(AccountError::OtherHold) })
    }
}

fn of(credits: &BTreeMap<LookupId, (String, u64)>, hold: &Hold) -> Option<u64> {
    let (workspace, credits) = credits.get(&hold.lookup_id)?;
    (workspace == hold.workspace.as_str()).then_some(*credits)
}
