//! Stores in memory whose columns are too narrow.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use enrich_contract::{CreditStore, START, Store};
use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::memory::{AccountTable, WindowTable};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Windows, async_trait};
use enrich_lib::receipt::Receipt;
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Quota, Window, Workspace};

use crate::{assert_broken, next_workspace};

struct NarrowCredits {
    accounts: AccountTable,
    workspaces: AtomicU32,
    /// Cuts a value of a hold.
    cut: fn(&mut Hold),
}

async fn open(cut: fn(&mut Hold)) -> Arc<NarrowCredits> {
    let store = NarrowCredits { accounts: AccountTable::default(), workspaces: AtomicU32::default(), cut };
    store.tick(START).await;
    Arc::new(store)
}

impl NarrowCredits {
    fn cut(&self, hold: &Hold) -> Hold {
        let mut hold = hold.clone();
        (self.cut)(&mut hold);
        hold
    }
}

#[async_trait]
impl Credits for NarrowCredits {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.accounts.hold(&self.cut(hold)).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        self.accounts.settle(&self.cut(hold), settlement).await
    }

    fn keeps_receipts(&self) -> bool {
        true
    }
}

#[async_trait]
impl Store for NarrowCredits {
    async fn create_workspace(&self, _: Quota, credits: u64) -> WorkspaceId {
        let id = next_workspace(&self.workspaces);
        self.grant(&id, credits).await;
        id
    }

    async fn tick(&self, now: Timestamp) {
        self.accounts.advance(Duration::from_millis(now.unix_ms()));
    }
}

#[async_trait]
impl CreditStore for NarrowCredits {
    fn credits(&self) -> &dyn Credits {
        self
    }

    async fn grant(&self, workspace: &WorkspaceId, credits: u64) {
        self.accounts.grant(workspace, credits).unwrap();
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Balance {
        self.accounts.balance(workspace)
    }
}

#[test]
fn ids_receipts_and_amounts_that_are_cut_are_mixed_up() {
    /// Returns the last 15 bytes.
    fn end(bytes: &[u8; 16]) -> [u8; 16] {
        (u128::from_be_bytes(*bytes) << 8 >> 8).to_be_bytes()
    }
    fn cut(receipt: Receipt) -> Receipt {
        Receipt::from_bytes(end(receipt.as_bytes()))
    }
    let cut_id =
        async || open(|hold| hold.lookup_id = LookupId::from_bytes(end(hold.lookup_id.as_bytes()))).await;
    let rules = ["lookup is found by all of its id"];
    assert_broken(enrich_contract::credits_contract!(broken cut_id), "credits", &rules);
    let cut_credits = async || open(|hold| hold.credits = u64::from(hold.credits as u32)).await;
    let rules = ["large amounts are exact"];
    assert_broken(enrich_contract::credits_contract!(broken cut_credits), "credits", &rules);
    let cut_receipt = async || open(|hold| hold.receipt = hold.receipt.map(cut)).await;
    let rules = ["receipt is found by all of its bytes"];
    assert_broken(enrich_contract::receipts_contract!(broken cut_receipt), "receipts", &rules);
}

/// Counts of 16 bits, by workspaces without case.
#[derive(Default)]
struct NarrowCounts(WindowTable);

#[async_trait]
impl Windows for NarrowCounts {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let name = window.workspace().as_str().to_ascii_lowercase();
        let length_ms = window.closes_at().unix_ms() - window.opens_at().unix_ms();
        let quota = Quota::new(1, (length_ms / 1_000) as u32).unwrap();
        let workspace = Workspace::new(name.parse().unwrap(), quota).with_test(window.is_test());
        let count = self.0.count(&workspace.window(window.opens_at())).await?;
        Ok(u64::from(count as u16))
    }
}

#[test]
fn narrow_counts_are_mixed_up() {
    let open = async || (Arc::new(NarrowCounts::default()) as Arc<dyn Windows>, START);
    let rules = ["workspaces have separate windows", "concurrent requests get distinct counts"];
    assert_broken(enrich_contract::windows_contract!(broken open), "windows", &rules);
}
