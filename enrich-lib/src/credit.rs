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

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::mem;
use std::time::Duration;

use thiserror::Error;

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

/// The credits of one workspace.
#[derive(Clone, Debug, Default)]
pub struct Account {
    granted: u64,
    spent: u64,
    held: u64,
    /// The latest moment that this account was told of.
    now: Timestamp,
    /// By an id that begins with the time: what is asked for is at one end of the map, and what is forgotten at the other.
    entries: BTreeMap<LookupId, Entry>,
    /// When each entry is next looked at: to expire if it is still held, to be forgotten if it has ended.
    agenda: BTreeMap<Timestamp, Vec<LookupId>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    credits: u64,
    state: State,
    forget_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// So many attempts to make the spend durable are under way: the hold can't expire under them.
    Spending {
        credits: u64,
        attempts: u32,
    },
    Spent(u64),
    /// Released, or expired: a tombstone, found by a late hold or a late spend.
    Over,
}

/// What [`Account::begin_spend`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendStart {
    /// The spend has to be made durable. Then one of [`Account::commit_spend`], [`Account::abort_spend`] and
    /// [`Account::void_spend`] has to be called.
    Begun,
    /// The same spend has been committed before: nothing is left to do.
    AlreadySpent,
}

impl Account {
    /// How long an ended hold is remembered after its expiry, so that a repeated settlement finds its first.
    pub const MEMORY: Duration = Duration::from_secs(30);

    /// An account with these totals and no holds, as a store reads it back.
    ///
    /// Errors: [`AccountFault::OverHold`] if more was spent than granted.
    pub fn new(granted: u64, spent: u64) -> Result<Self, AccountFault> {
        if spent > granted {
            return Err(AccountFault::OverHold);
        }
        Ok(Self { granted, spent, ..Self::default() })
    }

    /// The totals at this moment.
    pub fn balance(&self) -> Balance {
        Balance { granted: self.granted, available: self.available(), held: self.held, spent: self.spent }
    }

    fn available(&self) -> u64 {
        self.granted - self.held - self.spent
    }

    /// Gives the workspace `credits` more. Errors: [`AccountFault::TooLarge`], and nothing is given.
    pub fn grant(&mut self, credits: u64) -> Result<(), AccountFault> {
        self.granted = self.granted.checked_add(credits).ok_or(AccountFault::TooLarge)?;
        Ok(())
    }

    /// Takes up to `credits_max` available credits out of the account, and tells how many: what was granted is less by so
    /// many.
    pub fn withdraw(&mut self, credits_max: u64) -> u64 {
        let credits = self.available().min(credits_max);
        self.granted -= credits;
        credits
    }

    /// True if this lookup's hold is here, or how it ended is still remembered.
    pub fn knows(&self, lookup_id: LookupId) -> bool {
        self.entries.contains_key(&lookup_id)
    }

    /// True if a spend of this lookup's hold was begun, and neither committed nor aborted nor voided yet.
    pub fn is_spending(&self, lookup_id: LookupId) -> bool {
        let entry = self.entries.get(&lookup_id);
        entry.is_some_and(|entry| matches!(entry.state, State::Spending { .. }))
    }

    /// True if no lookup's hold is here, and no end of one is remembered.
    pub fn is_at_rest(&self) -> bool {
        self.entries.is_empty()
    }

    /// When [`Account::advance`] has something to do next, if ever.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.agenda.first_key_value().map(|(due, _)| *due)
    }

    /// Sets `hold` aside. Asked again with the same hold, it answers the same.
    ///
    /// Errors: [`AccountFault::OtherHold`]; [`AccountFault::Ended`] if it was settled, released or ran out before.
    pub fn hold(&mut self, hold: &Hold) -> Result<Holding, AccountFault> {
        self.pass(hold.placed_at);
        let available = self.available();
        let vacant = match self.entries.entry(hold.lookup_id) {
            btree_map::Entry::Vacant(vacant) => vacant,
            btree_map::Entry::Occupied(known) => {
                return match known.get().state {
                    State::Held if known.get().credits == hold.credits => Ok(Holding::Granted),
                    State::Held => Err(AccountFault::OtherHold),
                    State::Spending { .. } | State::Spent(_) | State::Over => Err(AccountFault::Ended),
                };
            }
        };
        if hold.expires_at <= self.now {
            return Err(AccountFault::Ended);
        }
        if hold.credits > available {
            return Ok(Holding::Insufficient);
        }
        vacant.insert(Entry::new(hold, State::Held));
        self.agenda.entry(hold.expires_at).or_default().push(hold.lookup_id);
        self.held += hold.credits;
        Ok(Holding::Granted)
    }

    /// Ends `hold`. Asked again with the same settlement, it answers the same.
    ///
    /// Errors: those of [`Account::release`] and [`Account::begin_spend`].
    pub fn settle(&mut self, hold: &Hold, settlement: Settlement) -> Result<(), AccountFault> {
        match settlement {
            Settlement::Release => self.release(hold),
            Settlement::Spend(credits) => {
                if self.begin_spend(hold, credits)? == SpendStart::Begun {
                    self.commit_spend(hold);
                }
                Ok(())
            }
        }
    }

    /// Makes all of `hold` available again. A release that overtakes its hold leaves a tombstone for it.
    ///
    /// Errors: [`AccountFault::Ended`] if it was spent, or is about to be.
    pub fn release(&mut self, hold: &Hold) -> Result<(), AccountFault> {
        match self.entries.get_mut(&hold.lookup_id) {
            Some(entry) => match entry.state {
                State::Held => {
                    self.held -= entry.credits;
                    entry.state = State::Over;
                    Ok(())
                }
                State::Over => Ok(()),
                State::Spending { .. } | State::Spent(_) => Err(AccountFault::Ended),
            },
            None => {
                if hold.expires_at > self.now {
                    self.remember(hold, State::Over);
                }
                Ok(())
            }
        }
    }

    /// First half of a spend in a store with a disk: from here on the hold can neither expire nor be released.
    ///
    /// Errors: [`AccountFault::NoHold`], [`AccountFault::OverHold`]; [`AccountFault::Ended`] if it was released, ran out, or
    /// other credits were spent of it.
    pub fn begin_spend(&mut self, hold: &Hold, credits: u64) -> Result<SpendStart, AccountFault> {
        let entry = self.entries.get_mut(&hold.lookup_id).ok_or(AccountFault::NoHold)?;
        if credits > entry.credits {
            return Err(AccountFault::OverHold);
        }
        match &mut entry.state {
            State::Held => {
                entry.state = State::Spending { credits, attempts: 1 };
                Ok(SpendStart::Begun)
            }
            State::Spending { credits: before, attempts } if *before == credits => {
                *attempts += 1;
                Ok(SpendStart::Begun)
            }
            State::Spent(before) if *before == credits => Ok(SpendStart::AlreadySpent),
            State::Spending { .. } | State::Spent(_) | State::Over => Err(AccountFault::Ended),
        }
    }

    /// Second half: the spend of `hold` is durable. Without a spend under way it does nothing.
    pub fn commit_spend(&mut self, hold: &Hold) {
        if let Some(entry) = self.entries.get_mut(&hold.lookup_id)
            && let State::Spending { credits, .. } = entry.state
        {
            entry.state = State::Spent(credits);
            self.held -= entry.credits;
            self.spent += credits;
        }
    }

    /// Second half: this attempt to make the spend of `hold` durable failed. When none is left under way, the
    /// credits are held as before, past their time for [`Account::MEMORY`] at most.
    pub fn abort_spend(&mut self, hold: &Hold) {
        if let Some(entry) = self.entries.get_mut(&hold.lookup_id)
            && let State::Spending { attempts, .. } = &mut entry.state
        {
            *attempts -= 1;
            if *attempts == 0 {
                entry.state = State::Held;
            }
        }
    }

    /// The spend of `credits` of `hold` is durable, but nobody took the answer: it is under way again, to be voided. If it
    /// was forgotten meanwhile, it is remembered anew.
    pub fn reopen_spend(&mut self, hold: &Hold, credits: u64) {
        let state = State::Spending { credits, attempts: 1 };
        match self.entries.get_mut(&hold.lookup_id) {
            Some(entry) if entry.state == State::Spent(credits) => {
                *entry = Entry { credits, state, ..*entry }
            }
            Some(_) => return,
            None => self.remember(&Hold { credits, ..hold.clone() }, state),
        }
        self.spent -= credits;
        self.held += credits;
    }

    /// The spend of `hold` was durable, nobody was told of it, and it was durably taken back. Its credits are available
    /// again, and the hold has ended.
    pub fn void_spend(&mut self, hold: &Hold) {
        if let Some(entry) = self.entries.get_mut(&hold.lookup_id)
            && let State::Spending { .. } = entry.state
        {
            entry.state = State::Over;
            self.held -= entry.credits;
        }
    }

    /// Tells the account that it is `now`: holds past their time expire, and ended ones are forgotten in the end. A clock
    /// that was set back takes all deadlines with it; if by [`Account::MEMORY`] or less, it is waited for.
    pub fn advance(&mut self, now: Timestamp) {
        let back = Duration::from_millis(self.now.unix_ms().saturating_sub(now.unix_ms()));
        if back > Self::MEMORY {
            self.now = now;
            for (due, ids) in mem::take(&mut self.agenda) {
                self.agenda.entry(due - back).or_default().extend(ids);
            }
            self.entries.values_mut().for_each(|entry| entry.forget_at = entry.forget_at - back);
        }
        self.pass(now);
    }

    /// Tells the account that it was `now` at some time before: it has missed what [`Account::advance`] would have told it.
    pub fn catch_up(&mut self, now: Timestamp) {
        if now > self.now {
            self.pass(now);
        }
    }

    /// Time goes on. It can't be a hold that sets it back: that one may just be late.
    fn pass(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        while let Some(due) = self.agenda.first_entry()
            && *due.key() <= self.now
        {
            due.remove().into_iter().for_each(|id| self.look_at(id));
        }
    }

    /// The time has come to expire a hold, or to forget one that has ended.
    fn look_at(&mut self, id: LookupId) {
        let btree_map::Entry::Occupied(mut known) = self.entries.entry(id) else { return };
        let entry = known.get_mut();
        match entry.state {
            State::Spending { .. } => entry.forget_at = self.now + Self::MEMORY,
            State::Held => {
                self.held -= entry.credits;
                entry.state = State::Over;
            }
            State::Spent(_) | State::Over => {}
        }
        if entry.forget_at > self.now {
            self.agenda.entry(entry.forget_at).or_default().push(id);
        } else {
            known.remove();
        }
    }

    fn remember(&mut self, hold: &Hold, state: State) {
        self.entries.insert(hold.lookup_id, Entry::new(hold, state));
        self.agenda.entry(hold.expires_at).or_default().push(hold.lookup_id);
    }
}

impl Entry {
    fn new(hold: &Hold, state: State) -> Self {
        Self { credits: hold.credits, state, forget_at: hold.expires_at + Account::MEMORY }
    }
}
