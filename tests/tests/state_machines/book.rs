//! What an account answers and how it stands: worked out from what is known of each lookup, with no totals kept.

use std::time::Duration;

use enrich_lib::credit::{Account, AccountFault, Balance, Hold, Settlement};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use proptest::prelude::*;

pub(crate) const LOOKUPS: usize = 6;

/// One shape for all answers.
pub(crate) type Answer = Result<&'static str, AccountFault>;

/// The right ones.
pub(crate) type Answers = &'static [Answer];

pub(crate) const DONE: Answers = &[Ok("done")];
pub(crate) const GRANTED: Answers = &[Ok("granted")];
pub(crate) const INSUFFICIENT: Answers = &[Ok("insufficient")];
pub(crate) const BEGUN: Answers = &[Ok("begun")];
pub(crate) const ALREADY_SPENT: Answers = &[Ok("already spent")];
pub(crate) const ENDED: Answers = &[Err(AccountFault::Ended)];
const NO_HOLD: Answers = &[Err(AccountFault::NoHold)];
const OTHER_HOLD: Answers = &[Err(AccountFault::OtherHold)];
const OVER_HOLD: Answers = &[Err(AccountFault::OverHold)];
/// Too late, and perhaps too much as well: which of the two is told does not matter.
const ENDED_OR_OVER_HOLD: Answers = &[Err(AccountFault::Ended), Err(AccountFault::OverHold)];

/// The lookups of a story and its clock. A lookup that is asked for again has the same hold.
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

    /// The hold of lookup `n`, which lives for ten seconds and some more, with so many more credits than it should have.
    pub(crate) fn hold(&mut self, n: usize, workspace: &WorkspaceId, more: u64) -> Hold {
        let placed_at = *self.placed_at[n].get_or_insert(self.now);
        Hold {
            lookup_id: LookupId::from_bytes([n as u8; 16]),
            workspace: workspace.clone(),
            credits: n as u64 % 4 + more,
            placed_at,
            expires_at: placed_at + Duration::from_secs(10 + n as u64),
        }
    }
}

/// Some lookup. One is asked about more often than the others, so that much happens to it.
pub(crate) fn lookup() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(1), 2 => 0..LOOKUPS]
}

/// The lookup that a hold is of.
pub(crate) fn number(hold: &Hold) -> usize {
    hold.lookup_id.as_bytes()[0].into()
}

#[derive(Clone, Debug)]
pub(crate) struct Book {
    granted: u64,
    /// By lookups of which nothing else is known any more.
    spent_before: u64,
    /// The latest time that the account was told.
    told: Timestamp,
    known: [Known; LOOKUPS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    fate: Fate,
    /// What it cost, if that is forgotten.
    forgotten: Option<u64>,
    /// When a hold runs out.
    ends_at: Timestamp,
    forgotten_at: Timestamp,
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
    /// Released, run out or voided.
    Over,
}

/// A spend that is under way.
pub(crate) struct Spending {
    pub(crate) credits: u64,
    pub(crate) attempts: u32,
}

impl Book {
    /// The account of a store that has just been opened.
    pub(crate) fn open(granted: u64, spent: u64) -> Self {
        Self { granted, spent_before: spent, told: Timestamp::default(), known: Default::default() }
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

    pub(crate) fn tell(&mut self, now: Timestamp) {
        self.told = self.told.max(now);
        for known in &mut self.known {
            if known.ends_at <= self.told {
                match known.fate {
                    Fate::Held(_) => known.fate = Fate::Over,
                    // What is being spent does not run out. It is looked at again later.
                    Fate::Spending { .. } => {
                        known.ends_at = self.told + Account::MEMORY;
                        known.forgotten_at = known.ends_at;
                    }
                    Fate::Unknown | Fate::Spent(_) | Fate::Over => {}
                }
            }
            if known.forgotten_at <= self.told {
                match known.fate {
                    Fate::Spent(credits) => {
                        self.spent_before += credits;
                        *known = Known { forgotten: Some(credits), ..Known::default() };
                    }
                    Fate::Over => *known = Known::default(),
                    Fate::Unknown | Fate::Held(_) | Fate::Spending { .. } => {}
                }
            }
        }
    }

    pub(crate) fn hold(&mut self, hold: &Hold) -> Answers {
        self.tell(hold.placed_at);
        match self.known[number(hold)].fate {
            Fate::Held(held) if held == hold.credits => GRANTED,
            Fate::Held(_) => OTHER_HOLD,
            Fate::Unknown if hold.expires_at <= self.told => ENDED,
            Fate::Unknown if hold.credits > self.balance().available => INSUFFICIENT,
            Fate::Unknown => {
                self.learn(hold, Fate::Held(hold.credits));
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
            // A tombstone for a hold that was overtaken; one that has run out needs none.
            Fate::Unknown if hold.expires_at > self.told => self.learn(hold, Fate::Over),
            Fate::Unknown | Fate::Over => {}
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
            Fate::Spending { held, attempts: 1, .. } => *fate = Fate::Held(*held),
            Fate::Spending { attempts, .. } => *attempts -= 1,
            Fate::Unknown | Fate::Held(_) | Fate::Spent(_) | Fate::Over => {}
        }
    }

    pub(crate) fn reopen(&mut self, hold: &Hold) {
        let Some(credits) = self.spent(hold) else { return };
        // The rest of what it held was available again.
        let fate = Fate::Spending { held: credits, credits, attempts: 1 };
        if self.is_unknown(hold) {
            self.spent_before -= credits;
            return self.learn(hold, fate);
        }
        let known = &mut self.known[number(hold)];
        known.fate = fate;
        if known.ends_at <= self.told {
            known.ends_at = known.forgotten_at;
        }
    }

    /// What the lookup of `hold` cost, if it was spent.
    pub(crate) fn spent(&self, hold: &Hold) -> Option<u64> {
        let known = self.known[number(hold)];
        if let Fate::Spent(credits) = known.fate { Some(credits) } else { known.forgotten }
    }

    pub(crate) fn void(&mut self, hold: &Hold) {
        let fate = &mut self.known[number(hold)].fate;
        if let Fate::Spending { .. } = fate {
            *fate = Fate::Over;
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

    fn learn(&mut self, hold: &Hold, fate: Fate) {
        let forgotten_at = hold.expires_at + Account::MEMORY;
        self.known[number(hold)] = Known { fate, forgotten: None, ends_at: hold.expires_at, forgotten_at };
    }
}
