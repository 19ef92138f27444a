//! A test fixture: one workspace of a store, with short methods to hold and settle its credits.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyId;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::receipt::Receipt;
use enrich_lib::window::Quota;

use crate::{CreditStore, START};

/// The store returned an error. Error messages differ between stores, so they are not compared.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused;

/// Available, held and spent credits of a workspace.
pub type Totals = (u64, u64, u64);

/// One workspace of a store.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fixture<S> {
    /// The store.
    pub store: Arc<S>,
    /// The workspace.
    pub workspace: WorkspaceId,
}

/// Flips the lowest bit of one byte.
pub(crate) fn with_bit_flipped(mut id: [u8; 16], byte: usize) -> [u8; 16] {
    id[byte] ^= 1;
    id
}

/// The time from placing a hold to its expiry in these tests.
pub const HOLD_TTL: Duration = Duration::from_secs(60);

impl<S: CreditStore> Fixture<S> {
    /// Creates a workspace with these credits.
    pub async fn open(store: Arc<S>, credits: u64) -> Self {
        let workspace = store.create_workspace(Quota::default(), credits).await;
        Self { store, workspace }
    }

    /// Returns the hold of the `n`-th lookup without placing it. The clock of its node is [`HOLD_TTL`] ahead, or behind
    /// if `n` is even.
    pub fn lookup(&self, n: u32, credits: u64) -> Hold {
        let mut random = [0; 10];
        random[6..].copy_from_slice(&n.to_be_bytes());
        let mut hold = Hold::new(LookupId::new(START, random), self.workspace.clone(), credits);
        hold.key = KeyId::from_number(1);
        hold.placed_at = if n.is_multiple_of(2) { START - HOLD_TTL } else { START + HOLD_TTL };
        hold.ttl = HOLD_TTL;
        hold
    }

    /// Returns the hold of the `n`-th lookup, whose request has the `r`-th receipt, without placing it.
    pub fn keyed(&self, n: u32, credits: u64, r: u8) -> Hold {
        let mut hold = self.lookup(n, credits);
        hold.receipt = Some(Receipt::from_bytes([r; 16]));
        hold
    }

    /// Places a hold.
    pub async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, Refused> {
        let result = self.store.credits().hold(hold).await.map_err(|_| Refused);
        self.check().await;
        result
    }

    /// Places the hold of the `n`-th lookup. Panics unless it is granted.
    pub async fn place(&self, n: u32, credits: u64) -> Hold {
        let hold = self.lookup(n, credits);
        assert_eq!(self.hold(&hold).await, Ok(HoldOutcome::Granted));
        hold
    }

    /// Spends credits of a hold whose receipt no other lookup has paid for.
    pub async fn spend(&self, hold: &Hold, credits: u64) -> Result<(), Refused> {
        self.settle(hold, Settlement::Spend(credits)).await.map(|payer| assert_eq!(payer, None))
    }

    /// Releases a hold.
    pub async fn release(&self, hold: &Hold) -> Result<(), Refused> {
        self.settle(hold, Settlement::Release).await.map(|payer| assert_eq!(payer, None))
    }

    /// Settles a hold, and returns the other lookup that has paid.
    pub async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, Refused> {
        let result = self.store.credits().settle(hold, settlement).await.map_err(|_| Refused);
        self.check().await;
        result
    }

    /// Grants credits to the workspace.
    pub async fn grant(&self, credits: u64) {
        self.store.grant(&self.workspace, credits).await;
        self.tick(START).await;
    }

    /// Advances the store's clock.
    pub async fn tick(&self, now: Timestamp) {
        self.store.tick(now).await;
        self.check().await;
    }

    /// Returns the workspace's credits.
    pub async fn totals(&self) -> Totals {
        let balance = self.store.balance(&self.workspace).await;
        (balance.available, balance.held, balance.spent)
    }

    /// Checks that `granted = available + held + spent`.
    async fn check(&self) {
        let balance = self.store.balance(&self.workspace).await;
        assert_eq!(balance.granted, balance.available + balance.held + balance.spent, "{balance:?}");
    }
}
