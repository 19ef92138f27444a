//! Prepaid credits (specification 8.4), as pure arithmetic.
//!
//! A lookup first *holds* what it may cost, then *settles*: it spends some of the hold, or releases it. A hold
//! that nobody settles expires by itself. Each hold ends at most once, and at every moment
//!
//! ```text
//! granted = available + held + spent
//! ```
//!
//! Both steps are idempotent by lookup id, so a caller that lost an answer asks again. [`Account`] is the
//! arithmetic of one workspace and the model that every store is tested against.

mod account;
mod agenda;
mod entries;

use thiserror::Error;

pub use self::account::{Account, SpendStart};

use crate::model::{LookupId, Timestamp, WorkspaceId};

/// What a lookup costs, in credits, by its result. Errors are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// The price of a `found`, in credits.
    pub found: u64,
    /// The price of a `not_found`, in credits.
    pub not_found: u64,
}

impl Price {
    /// What is held while the result is unknown: the larger of the two.
    pub fn most(&self) -> u64 {
        self.found.max(self.not_found)
    }
}

impl Default for Price {
    /// Matches are billed, misses are free.
    fn default() -> Self {
        Self { found: 1, not_found: 0 }
    }
}

/// Credits set aside for one lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The lookup that they are set aside for: the hold's identity.
    pub lookup_id: LookupId,
    /// Whose credits they are.
    pub workspace: WorkspaceId,
    /// How many.
    pub credits: u64,
    /// When they were asked for.
    pub placed_at: Timestamp,
    /// When the hold ends if nobody settles it.
    pub expires_at: Timestamp,
}

/// The answer to a request for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// The credits are set aside.
    Granted,
    /// The workspace has too few available credits (402).
    Insufficient,
}

/// How a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// So many of the held credits are spent, the rest is available again.
    Spend(u64),
    /// All of the held credits are available again.
    Release,
}

impl Settlement {
    /// The settlement of a lookup that costs `credits`.
    pub fn of(credits: u64) -> Self {
        if credits == 0 { Self::Release } else { Self::Spend(credits) }
    }
}

/// Why an account refuses a step. All of them are faults of a caller or of time, none is a person's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AccountFault {
    /// The lookup's hold was settled another way, or ran out.
    #[error("the hold of this lookup has already ended")]
    Ended,
    /// There is no hold of this lookup.
    #[error("there is no hold of this lookup")]
    NoHold,
    /// The same lookup asked for another number of credits before.
    #[error("the lookup already holds another number of credits")]
    OtherHold,
    /// More was to be spent than was held.
    #[error("a lookup can't spend more than it holds")]
    OverHold,
    /// The number of credits is too large to count.
    #[error("an account can't be granted that many credits")]
    TooLarge,
}

/// The totals of an account. `granted = available + held + spent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// All credits that the workspace was ever given.
    pub granted: u64,
    /// What new lookups can hold.
    pub available: u64,
    /// What running lookups hold.
    pub held: u64,
    /// What finished lookups cost.
    pub spent: u64,
}
