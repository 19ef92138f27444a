//! The port `Credits` on the gateway's own tables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::{AccountError, Balance, Hold, HoldOutcome, Settlement, Shortage};
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_lib::ports::{Credits, async_trait};
use enrich_lib::receipt::RECEIPT_TTL;
use enrich_lib::refusal::PortError;
use enrich_lib::window::Quota;
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::database::{Database, Failure, bytea, int8, text};

/// How long to wait before a spend without a known outcome is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// How many holds and receipts expire in one transaction. One that takes too long would fail each time.
const EXPIRED_MAX: u64 = 1_000;

/// The time of the database, in milliseconds: one clock for all nodes. A subquery, which a statement runs once.
const NOW: &str = "(SELECT CAST(1000 * date_part('epoch', clock_timestamp()) AS BIGINT))";

/// Prepaid credits. Every transaction locks the row of its receipt first, then that of its lookup, and then that
/// of its workspace.
#[derive(Debug)]
pub struct CreditTable(pub Arc<Database>);

#[async_trait]
impl Credits for CreditTable {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let (lookup, workspace) = (hold.lookup_id.to_string(), hold.workspace.as_str());
        let ttl = i64::try_from(hold.ttl.as_millis()).unwrap_or(i64::MAX);
        let outcome = self.0.transaction(async |client| {
            let credits = if payer(client, hold).await?.is_some() { 0 } else { signed(hold.credits) };
            let row = [text(&lookup), text(&workspace), int8(&credits), int8(&ttl)];
            let insert =
                format!("INSERT INTO hold VALUES ($1, $2, $3, {NOW} + $4) ON CONFLICT (lookup) DO NOTHING");
            if client.execute_typed(&insert, &row).await? == 0 {
                let held = "SELECT credits FROM hold WHERE lookup = $1 AND workspace = $2";
                let held = client.query_typed_opt(held, &row[..2]).await?;
                let is_same = held.is_some_and(|held| hold.is_repeated(unsigned(held.get(0))));
                return Ok(is_same.then_some(HoldOutcome::Granted));
            }
            let take =
                "UPDATE account SET available = available - $2 WHERE workspace = $1 AND available >= $2";
            if client.execute_typed(take, &row[1..3]).await? == 1 {
                return Ok(Some(HoldOutcome::Granted));
            }
            client.execute_typed("DELETE FROM hold WHERE lookup = $1", &row[..1]).await?;
            let held = "SELECT 1 FROM hold WHERE workspace = $1 AND credits > 0 LIMIT 1";
            let is_held = client.query_typed_opt(held, &row[1..2]).await?.is_some();
            let shortage = if is_held { Shortage::Held } else { Shortage::Exhausted };
            Ok(Some(HoldOutcome::Insufficient(shortage)))
        });
        outcome.await.map_err(PortError::new)?.ok_or_else(|| PortError::new(AccountError::OtherHold))
    }

    /// Repeats a spend until its outcome is known: an error promises that nothing will be spent.
    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        let mut is_in_doubt = false;
        loop {
            match self.settle_once(hold, settlement).await {
                Ok(settled) => return settled.map_err(PortError::new),
                Err(Failure::Refused(error)) if !is_in_doubt => return Err(PortError::new(error)),
                Err(error) if settlement == Settlement::Release => return Err(PortError::new(error)),
                Err(_) => is_in_doubt = true,
            }
            sleep(PAUSE).await;
        }
    }

    fn keeps_receipts(&self) -> bool {
        true
    }
}

impl CreditTable {
    async fn settle_once(
        &self,
        hold: &Hold,
        settlement: Settlement,
    ) -> Result<Result<Option<LookupId>, AccountError>, Failure> {
        let (lookup, workspace) = (hold.lookup_id.to_string(), hold.workspace.as_str());
        let credits = match settlement {
            Settlement::Spend(credits) => signed(credits),
            Settlement::Release => 0,
        };
        self.0.transaction(async |client| {
            let paid = if credits > 0 { claim(client, hold).await? } else { None };
            let cost = if paid.is_some() { 0 } else { credits };
            let row = [text(&lookup), text(&workspace), int8(&cost)];
            let delete = "DELETE FROM hold WHERE lookup = $1 AND workspace = $2 AND credits >= $3 RETURNING credits";
            let held = client.query_typed_opt(delete, &row).await?.map(|held| held.get::<_, i64>(0));
            let insert = "INSERT INTO spend VALUES ($1, $2, $3) ON CONFLICT (lookup) DO NOTHING";
            let is_spent = held.is_some() && cost > 0 && client.execute_typed(insert, &row).await? == 1;
            if let Some(held) = held {
                let rest = if is_spent { held - cost } else { held };
                give_back(client, workspace, rest).await?;
                if is_spent || credits == 0 {
                    return Ok(Ok(None));
                }
            }
            let spent = "SELECT credits FROM spend WHERE lookup = $1 AND workspace = $2";
            let spent = client.query_typed_opt(spent, &row[..2]).await?.map(|spent| unsigned(spent.get(0)));
            if spent.is_none() {
                if paid.is_some() {
                    return Ok(Ok(paid));
                }
                let unclaim = "DELETE FROM receipt WHERE lookup = $1 AND workspace = $2";
                client.execute_typed(unclaim, &row[..2]).await?;
            }
            let too_small = "SELECT credits FROM hold WHERE lookup = $1 AND workspace = $2 AND credits < $3";
            if client.query_typed_opt(too_small, &row).await?.is_some() {
                return Ok(Err(AccountError::OverHold));
            }
            Ok(settlement.without_hold(spent).map(|()| None))
        }).await
    }

    /// Gives back the holds that have expired, and deletes old receipts. The gateway calls it every second.
    pub async fn expire(&self) -> Result<(), Failure> {
        while self.expire_some().await? {}
        Ok(())
    }

    /// Returns `true` if there may be more.
    async fn expire_some(&self) -> Result<bool, Failure> {
        let ttl = i64::try_from(RECEIPT_TTL.as_millis()).unwrap_or(i64::MAX);
        self.0
            .transaction(async |client| {
                let delete = format!(
                    "DELETE FROM receipt WHERE lookup IN
                         (SELECT lookup FROM receipt WHERE placed_at <= {NOW} - $1 LIMIT {EXPIRED_MAX})"
                );
                let receipts = client.execute_typed(&delete, &[int8(&ttl)]).await?;
                let delete = format!(
                    "DELETE FROM hold WHERE lookup IN
                         (SELECT lookup FROM hold WHERE expires_at <= {NOW} LIMIT {EXPIRED_MAX})
                     RETURNING workspace, credits"
                );
                let holds = client.query_typed(&delete, &[]).await?;
                // In the order of the workspaces, so that two nodes do not wait for each other.
                let mut expired = BTreeMap::<String, i64>::new();
                for hold in &holds {
                    *expired.entry(hold.get(0)).or_default() += hold.get::<_, i64>(1);
                }
                for (workspace, credits) in expired {
                    give_back(client, &workspace, credits).await?;
                }
                Ok(receipts.max(holds.len() as u64) >= EXPIRED_MAX)
            })
            .await
    }

    /// Creates a workspace with a limit, or grants credits to it.
    pub async fn grant(&self, workspace: &WorkspaceId, quota: Quota, credits: u64) -> Result<(), Failure> {
        let (id, credits) = (workspace.as_str(), signed(credits));
        let (requests, seconds) = (i64::from(quota.limit()), i64::from(quota.window_seconds()));
        let insert = "INSERT INTO account VALUES ($1, $2, $3, $4, $4) ON CONFLICT (workspace)
                      DO UPDATE SET granted = account.granted + $4, available = account.available + $4";
        let row = [text(&id), int8(&requests), int8(&seconds), int8(&credits)];
        self.0.transaction(async |client| Ok(client.execute_typed(insert, &row).await.map(drop)?)).await
    }

    /// Returns the credits of a workspace.
    pub async fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, Failure> {
        let id = workspace.as_str();
        self.0
            .transaction(async |client| {
                let row = client.query_typed_one(BALANCE, &[text(&id)]).await?;
                let [granted, available, held, spent] = [0, 1, 2, 3].map(|column| unsigned(row.get(column)));
                Ok(Balance { granted, available, held, spent })
            })
            .await
    }
}

/// The balance of a workspace.
pub const BALANCE: &str = "SELECT granted, available,
    (SELECT CAST(coalesce(sum(credits), 0) AS BIGINT) FROM hold WHERE hold.workspace = account.workspace),
    (SELECT CAST(coalesce(sum(credits), 0) AS BIGINT) FROM spend WHERE spend.workspace = account.workspace)
    FROM account WHERE workspace = $1";

/// Returns the lookup that has paid for the receipt of a hold.
async fn payer(client: &Client, hold: &Hold) -> Result<Option<LookupId>, Failure> {
    let (workspace, Some(receipt)) = (hold.workspace.as_str(), &hold.receipt) else { return Ok(None) };
    let receipt = &receipt.as_bytes()[..];
    let select = "SELECT lookup FROM receipt WHERE workspace = $1 AND receipt = $2";
    let row = client.query_typed_opt(select, &[text(&workspace), bytea(&receipt)]).await?;
    Ok(row.and_then(|row| row.get::<_, String>(0).parse().ok()))
}

/// Inserts the receipt of a hold, or returns the lookup that has paid for it. Waits for a concurrent settlement
/// with the same receipt.
async fn claim(client: &Client, hold: &Hold) -> Result<Option<LookupId>, Failure> {
    let Some(receipt) = &hold.receipt else { return Ok(None) };
    let receipt = &receipt.as_bytes()[..];
    let (workspace, lookup) = (hold.workspace.as_str(), hold.lookup_id.to_string());
    let row = [text(&workspace), bytea(&receipt), text(&lookup)];
    let insert = format!("INSERT INTO receipt VALUES ($1, $2, $3, {NOW}) ON CONFLICT DO NOTHING");
    if client.execute_typed(&insert, &row).await? == 1 { Ok(None) } else { payer(client, hold).await }
}

async fn give_back(client: &Client, workspace: &str, credits: i64) -> Result<(), Failure> {
    let sql = "UPDATE account SET available = available + $2 WHERE workspace = $1";
    client.execute_typed(sql, &[text(&workspace), int8(&credits)]).await?;
    Ok(())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
