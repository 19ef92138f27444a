//! A model of an account. It derives results and balances from the state of each lookup and keeps no running
//! totals.

use std::time::Duration;

use enrich_lib::credit::{AccountError, Balance, Hold, Settlement};
use enrich_lib::key::KeyId;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_store::Clocks;
use proptest::prelude::*;

pub(crate) const LOOKUPS: usize = 6;

/// The result of any operation on an account.
pub(crate) type Answer = Result<&'static str, AccountError>;

/// The results that are allowed.
pub(crate) type Answers = &'static [Answer];

pub(crate) const DONE: Answers = &[Ok("done")];
pub(crate) const GRANTED: Answers = &[Ok("granted")];
pub(crate) const INSUFFICIENT: Answers = &[Ok("insufficient")];
pub(crate) const BEGUN: Answers = &[Ok("begun")];
pub(crate) const ENDED: Answers = &[Err(AccountError::Ended)];
pub(crate) const NO_HOLD: Answers = &[Err(AccountError::NoHold)];
const OTHER_HOLD: Answers = &[Err(AccountError::OtherHold)];
const OVER_HOLD: Answers = &[Err(AccountError::OverHold)];
/// Another spend is in progress, and the amount may exceed the hold as well. Either error is allowed.
const ENDED_OR_OVER_HOLD: Answers = &[Err(AccountError::Ended), Err(AccountError::OverHold)];

/// The lookups of a test case and its clock. A repeated lookup has the same hold.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    pub(crate) now: Timestamp,
    placed_at: [Option<Timestamp>; LOOKUPS],
}

impl Lookups {
    pub(crate) fn from(now: Timestamp) -> Self {
        Self { now, placed_at: [None; LOOKUPS] }
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// Returns the hold of lookup `n`, which lasts for `10 + n` seconds.
    ///
    /// `more` credits are added to its normal amount.
    pub(crate) fn hold(&mut self, n: usize, workspace: &WorkspaceId, more: u64) -> Hold {
        let placed_at = *self.placed_at[n].get_or_insert(self.now);
        Hold {
            lookup_id: LookupId::from_bytes([n as u8; 16]),
            workspace: workspace.clone(),
            key: KeyId::from_number(1),
            credits: n as u64 % 4 + more,
            placed_at,
            ttl: Duration::from_secs(10 + n as u64),
        }
    }
}

/// Generates a lookup number. Lookup 1 is more frequent, so that it goes through many steps.
pub(crate) fn lookup() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(1), 2 => 0..LOOKUPS]
}

/// Returns the lookup number of a hold.
pub(crate) fn number(hold: &Hold) -> usize {
    hold.lookup_id.as_bytes()[0].into()
}

/// Returns the result of a settlement without a hold. `spent` is the spend of the lookup.
pub(crate) fn settle_without_hold(settlement: Settlement, spent: Option<u64>) -> Answers {
    let credits = match settlement {
        Settlement::Release => 0,
        Settlement::Spend(credits) => credits,
    };
    match spent {
        None if credits == 0 => DONE,
        None => NO_HOLD,
        Some(spent) if spent == credits => DONE,
        Some(_) => ENDED,
    }
}

#[derive(Clone, Debug)]
pub(crate) struct AccountModel {
    granted: u64,
    spent: u64,
    /// The latest time that the account has received.
    now: Duration,
    holds: [Held; LOOKUPS],
}

#[derive(Clone, Copy, Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Until(Duration, u64),
    Spending {
        held: u64,
        credits: u64,
        attempts: u32,
    },
}

/// A pending spend.
pub(crate) struct Spending {
    pub(crate) credits: u64,
    pub(crate) attempts: u32,
}

impl AccountModel {
    /// Creates the account of a newly opened store.
    pub(crate) fn open(granted: u64, spent: u64) -> Self {
        Self { granted, spent, now: Duration::ZERO, holds: Default::default() }
    }

    pub(crate) fn balance(&self) -> Balance {
        let held = self.holds.iter().map(|hold| match hold {
            Held::Nothing => 0,
            Held::Until(_, held) | Held::Spending { held, .. } => *held,
        });
        let (granted, held, spent) = (self.granted, held.sum(), self.spent);
        Balance { granted, available: granted - held - spent, held, spent }
    }

    pub(crate) fn grant(&mut self, credits: u64) {
        self.granted += credits;
    }

    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(Clocks::from(now).elapsed);
        for hold in &mut self.holds {
            // A pending spend does not expire.
            if matches!(hold, Held::Until(ends_at, _) if *ends_at <= self.now) {
                *hold = Held::Nothing;
            }
        }
    }

    pub(crate) fn hold(&mut self, hold: &Hold) -> Answers {
        match self.holds[number(hold)] {
            Held::Until(_, held) if held == hold.credits => GRANTED,
            Held::Until(..) => OTHER_HOLD,
            Held::Spending { .. } => ENDED,
            Held::Nothing if hold.credits > self.balance().available => INSUFFICIENT,
            Held::Nothing => {
                self.holds[number(hold)] = Held::Until(self.now + hold.ttl, hold.credits);
                GRANTED
            }
        }
    }

    pub(crate) fn settle(&mut self, hold: &Hold, settlement: Settlement) -> Answers {
        match settlement {
            Settlement::Release | Settlement::Spend(0) => self.release(hold),
            Settlement::Spend(credits) => match self.begin(hold, credits) {
                BEGUN => {
                    self.commit(hold);
                    DONE
                }
                refused => refused,
            },
        }
    }

    pub(crate) fn release(&mut self, hold: &Hold) -> Answers {
        match self.holds[number(hold)] {
            Held::Nothing => return NO_HOLD,
            Held::Spending { .. } => return ENDED,
            Held::Until(..) => self.holds[number(hold)] = Held::Nothing,
        }
        DONE
    }

    pub(crate) fn begin(&mut self, hold: &Hold, credits: u64) -> Answers {
        let current = &mut self.holds[number(hold)];
        match current {
            Held::Nothing => NO_HOLD,
            Held::Until(_, held) if credits > *held => OVER_HOLD,
            Held::Until(_, held) => {
                *current = Held::Spending { held: *held, credits, attempts: 1 };
                BEGUN
            }
            Held::Spending { credits: before, attempts, .. } if *before == credits => {
                *attempts += 1;
                BEGUN
            }
            Held::Spending { .. } => ENDED_OR_OVER_HOLD,
        }
    }

    pub(crate) fn commit(&mut self, hold: &Hold) {
        if let Some(Spending { credits, .. }) = self.spending(hold) {
            self.holds[number(hold)] = Held::Nothing;
            self.spent += credits;
        }
    }

    pub(crate) fn abort(&mut self, hold: &Hold) {
        match &mut self.holds[number(hold)] {
            Held::Spending { attempts, .. } if *attempts > 1 => *attempts -= 1,
            current @ Held::Spending { .. } => *current = Held::Nothing,
            Held::Nothing | Held::Until(..) => {}
        }
    }

    pub(crate) fn spending(&self, hold: &Hold) -> Option<Spending> {
        match self.holds[number(hold)] {
            Held::Spending { credits, attempts, .. } => Some(Spending { credits, attempts }),
            Held::Nothing | Held::Until(..) => None,
        }
    }

    pub(crate) fn has_hold(&self, hold: &Hold) -> bool {
        !matches!(self.holds[number(hold)], Held::Nothing)
    }
}
