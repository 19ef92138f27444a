//! Prepaid credits (specification 8.4), as pure arithmetic.
//!
//! A lookup first *holds* its maximum price. It then *settles* the hold: it spends credits and releases the
//! rest. A hold that is not settled expires by itself. Each hold ends at most once, and this invariant always
//! holds:
//!
//! ```text
//! granted = available + held + spent
//! ```
//!
//! Both operations are idempotent by lookup id, so that a caller can repeat one whose reply was lost.
//! [`Account`] implements the arithmetic for one workspace. A hold that has ended is forgotten, but the store
//! keeps the spends: a settlement without a hold is decided by the spend of the lookup, which
//! [`Settlement::without_hold`] compares. A lookup is charged at most once.

mod account;

use std::time::Duration;

use thiserror::Error;

pub use self::account::Account;

use crate::key::KeyId;
use crate::model::{LookupId, Timestamp, WorkspaceId};
use crate::receipt::Receipt;

/// How long credits are held by default.
pub(crate) const HOLD_TTL: Duration = Duration::from_secs(30);

/// The price of a lookup by [`Outcome`](crate::lookup::Outcome). Errors are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// The price of a `found` result, in credits.
    pub found: u64,
    /// The price of a `not_found` result, in credits.
    pub not_found: u64,
}

impl Price {
    /// Returns the number of credits to hold while the result is unknown: the larger of the two prices.
    pub fn most(&self) -> u64 {
        self.found.max(self.not_found)
    }
}

impl Default for Price {
    /// Charges 1 credit for a match and nothing for a miss.
    fn default() -> Self {
        Self { found: 1, not_found: 0 }
    }
}

/// Credits held for one lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hold {
    /// The lookup. Its id identifies the hold.
    pub lookup_id: LookupId,
    /// The workspace that pays.
    pub workspace: WorkspaceId,
    /// The API key of the request. Stores record the use of credits per key.
    pub key: KeyId,
    /// The number of credits.
    pub credits: u64,
    /// The time of the request, by the node's clock.
    pub placed_at: Timestamp,
    /// How long the hold lasts unless it is settled. An account measures it on a monotonic clock.
    pub ttl: Duration,
    /// The receipt of a request with an idempotency key. Of the holds with one receipt, at most one is spent.
    pub receipt: Option<Receipt>,
}

impl Hold {
    /// Creates the hold of a lookup that arrived at the time in its id, with no key, no receipt and the `ttl`
    /// of [`Policy::default`](crate::lookup::Policy).
    pub fn new(lookup_id: LookupId, workspace: WorkspaceId, credits: u64) -> Self {
        let (key, placed_at) = (KeyId::from_number(0), lookup_id.arrived_at());
        Self { lookup_id, workspace, key, credits, placed_at, ttl: HOLD_TTL, receipt: None }
    }

    /// Returns the same hold of no credits: that of a lookup whose receipt is spent.
    #[must_use]
    pub fn without_credits(&self) -> Self {
        Self { credits: 0, ..self.clone() }
    }

    /// Returns whether a hold that took `credits` is this one, placed before.
    pub fn is_repeated(&self, credits: u64) -> bool {
        credits == self.credits || credits == 0 && self.receipt.is_some()
    }
}

/// The outcome of a hold. Exhaustive: a further outcome must break each store and each caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOutcome {
    /// The credits are held.
    Granted,
    /// The workspace has too few available credits (402).
    Insufficient(Shortage),
}

/// The reason why a workspace has too few available credits. Exhaustive: so is [`HoldOutcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Shortage {
    /// No lookup holds credits of the workspace.
    #[error("the workspace has too few credits")]
    Exhausted,
    /// Lookups in progress hold credits, and release those that they do not spend.
    #[error("the workspace has too few credits that no lookup holds")]
    Held,
}

impl Shortage {
    /// Returns the shortage of a workspace whose lookups hold `held` credits.
    pub const fn of(held: u64) -> Self {
        if held == 0 { Self::Exhausted } else { Self::Held }
    }
}

/// How a hold ends. Exhaustive: a further settlement must break each store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Spends this number of the held credits and releases the rest. A spend of zero credits is a release.
    Spend(u64),
    /// Releases all held credits.
    Release,
}

impl Settlement {
    /// Returns the settlement of a lookup that costs `credits`.
    pub fn from_credits(credits: u64) -> Self {
        if credits == 0 { Self::Release } else { Self::Spend(credits) }
    }

    /// Decides the settlement of a lookup that has no hold. `spent` is the number of credits of its spend, if
    /// the store keeps one.
    ///
    /// A repeated settlement returns `Ok` again. Fails with [`AccountError::Ended`] if the lookup was settled
    /// otherwise, and with [`AccountError::NoHold`] if it has spent nothing.
    pub fn without_hold(self, spent: Option<u64>) -> Result<(), AccountError> {
        match (self, spent) {
            (Self::Release | Self::Spend(0), None) => Ok(()),
            (Self::Spend(credits), Some(spent)) if credits == spent => Ok(()),
            (Self::Spend(_), None) => Err(AccountError::NoHold),
            (Self::Release | Self::Spend(_), Some(_)) => Err(AccountError::Ended),
        }
    }
}

/// The reason why an account refuses an operation. The cause is the caller or the timing, never the client's
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccountError {
    /// A different settlement of the lookup has completed, or a settlement is in progress.
    #[error("the hold of this lookup has already ended")]
    Ended,
    /// The lookup has no hold. It had none, or its hold was released or has expired.
    #[error("there is no hold of this lookup")]
    NoHold,
    /// The lookup already holds another number of credits.
    #[error("the lookup already holds another number of credits")]
    OtherHold,
    /// The spend exceeds the hold.
    #[error("a lookup can't spend more than it holds")]
    OverHold,
    /// An operator has withdrawn the held credits.
    #[error("the held credits were withdrawn")]
    Withdrawn,
    /// The total of granted credits would overflow.
    #[error("a workspace cannot have that many credits")]
    TooLarge,
}

/// The totals of an account, where `granted = available + held + spent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// The credits granted to the workspace.
    pub granted: u64,
    /// The credits available to new lookups.
    pub available: u64,
    /// The credits held by running lookups.
    pub held: u64,
    /// The credits spent on finished lookups.
    pub spent: u64,
}
