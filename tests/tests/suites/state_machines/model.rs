//! A model of an account. It derives results and balances from the state of each lookup and keeps no running totals.

use std::time::Duration;

use enrich_lib::credit::{Account, AccountError, Balance, Hold, Settlement};
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
pub(crate) const ALREADY_SPENT: Answers = &[Ok("already spent")];
pub(crate) const ENDED: Answers = &[Err(AccountError::Ended)];
const NO_HOLD: Answers = &[Err(AccountError::NoHold)];
const OTHER_HOLD: Answers = &[Err(AccountError::OtherHold)];
const OVER_HOLD: Answers = &[Err(AccountError::OverHold)];
/// The hold has ended, and the amount may exceed it as well. Either error is allowed.
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

#[derive(Clone, Debug)]
pub(crate) struct AccountModel {
    granted: u64,
    /// Credits spent by lookups that have been forgotten.
    spent_before: u64,
    /// The latest time that the account has received.
    now: Duration,
    known: [Known; LOOKUPS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    fate: Fate,
    /// When the hold expires.
    ends_at: Duration,
    forgotten_at: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
enum Fate {
    #[default]
    Unknown,
    Held(u64),
    Spending {
        held: u64,
        credits: u64,
        attempts: u32,
    },
    Spent(u64),
    /// Released, expired, or spent without success.
    Over,
}

/// A pending spend.
pub(crate) struct Spending {
    pub(crate) credits: u64,
    pub(crate) attempts: u32,
}

impl AccountModel {
    /// Creates the account of a newly opened store.
    pub(crate) fn open(granted: u64, spent: u64) -> Self {
        Self { granted, spent_before: spent, now: Duration::ZERO, known: Default::default() }
    }

    pub(crate) fn balance(&self) -> Balance {
        let held = self.known.iter().map(|known| match known.fate {
            Fate::Held(held) | Fate::Spending { held, .. } => held,
            Fate::Unknown | Fate::Spent(_) | Fate::Over => 0,
        });
        let spent = self.known.iter().map(|known| match known.fate {
            Fate::Spent(credits) => credits,
            Fate::Unknown | Fate::Held(_) | Fate::Spending { .. } | Fate::Over => 0,
        });
        let (held, spent) = (held.sum(), self.spent_before + spent.sum::<u64>());
        Balance { granted: self.granted, available: self.granted - held - spent, held, spent }
    }

    pub(crate) fn grant(&mut self, credits: u64) {
        self.granted += credits;
    }

    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(Clocks::from(now).elapsed);
        for known in &mut self.known {
            if known.ends_at <= self.now {
                match known.fate {
                    Fate::Held(_) => known.fate = Fate::Over,
                    // A pending spend does not expire. It is checked again later.
                    Fate::Spending { .. } => {
                        known.ends_at = self.now + Account::TOMBSTONE_TTL;
                        known.forgotten_at = known.ends_at + Account::TOMBSTONE_TTL;
                    }
                    Fate::Unknown | Fate::Spent(_) | Fate::Over => {}
                }
            }
            if known.forgotten_at <= self.now {
                match known.fate {
                    Fate::Spent(credits) => {
                        self.spent_before += credits;
                        *known = Known::default();
                    }
                    Fate::Over => *known = Known::default(),
                    Fate::Unknown | Fate::Held(_) | Fate::Spending { .. } => {}
                }
            }
        }
    }

    pub(crate) fn hold(&mut self, hold: &Hold) -> Answers {
        match self.known[number(hold)].fate {
            Fate::Held(held) if held == hold.credits => GRANTED,
            Fate::Held(_) => OTHER_HOLD,
            Fate::Unknown if hold.credits > self.balance().available => INSUFFICIENT,
            Fate::Unknown => {
                self.remember(hold, Fate::Held(hold.credits));
                GRANTED
            }
            Fate::Spending { .. } | Fate::Spent(_) | Fate::Over => ENDED,
        }
    }

    pub(crate) fn settle(&mut self, hold: &Hold, settlement: Settlement) -> Answers {
        match settlement {
            Settlement::Release => self.release(hold),
            Settlement::Spend(credits) => match self.begin(hold, credits) {
                BEGUN => {
                    self.commit(hold);
                    DONE
                }
                ALREADY_SPENT => DONE,
                refused => refused,
            },
        }
    }

    pub(crate) fn release(&mut self, hold: &Hold) -> Answers {
        match self.known[number(hold)].fate {
            Fate::Held(_) => self.known[number(hold)].fate = Fate::Over,
            // A tombstone for a hold that arrives after its release.
            Fate::Unknown => self.remember(hold, Fate::Over),
            Fate::Over => {}
            Fate::Spending { .. } | Fate::Spent(_) => return ENDED,
        }
        DONE
    }

    pub(crate) fn begin(&mut self, hold: &Hold, credits: u64) -> Answers {
        let fate = &mut self.known[number(hold)].fate;
        match fate {
            Fate::Unknown => NO_HOLD,
            Fate::Held(held) if credits > *held => OVER_HOLD,
            Fate::Held(held) => {
                *fate = Fate::Spending { held: *held, credits, attempts: 1 };
                BEGUN
            }
            Fate::Spending { credits: before, attempts, .. } if *before == credits => {
                *attempts += 1;
                BEGUN
            }
            Fate::Spent(before) if *before == credits => ALREADY_SPENT,
            Fate::Spending { .. } | Fate::Spent(_) | Fate::Over => ENDED_OR_OVER_HOLD,
        }
    }

    pub(crate) fn commit(&mut self, hold: &Hold) {
        let fate = &mut self.known[number(hold)].fate;
        if let Fate::Spending { credits, .. } = *fate {
            *fate = Fate::Spent(credits);
        }
    }

    pub(crate) fn abort(&mut self, hold: &Hold) {
        let fate = &mut self.known[number(hold)].fate;
        match fate {
            Fate::Spending { attempts: 1, .. } => *fate = Fate::Over,
            Fate::Spending { attempts, .. } => *attempts -= 1,
            Fate::Unknown | Fate::Held(_) | Fate::Spent(_) | Fate::Over => {}
        }
    }

    pub(crate) fn spending(&self, hold: &Hold) -> Option<Spending> {
        match self.known[number(hold)].fate {
            Fate::Spending { credits, attempts, .. } => Some(Spending { credits, attempts }),
            Fate::Unknown | Fate::Held(_) | Fate::Spent(_) | Fate::Over => None,
        }
    }

    pub(crate) fn is_unknown(&self, hold: &Hold) -> bool {
        matches!(self.known[number(hold)].fate, Fate::Unknown)
    }

    fn remember(&mut self, hold: &Hold, fate: Fate) {
        let ends_at = self.now + hold.ttl;
        let forgotten_at = ends_at + Account::TOMBSTONE_TTL;
        self.known[number(hold)] = Known { fate, ends_at, forgotten_at };
    }
}
