//! The credits of one workspace, and what becomes of its holds.

use std::time::Duration;

use super::agenda::Agenda;
use super::entries::Entries;
use super::{AccountFault, Balance, Hold, Holding, Settlement};
use crate::model::{LookupId, Timestamp};

/// The credits of one workspace.
#[derive(Clone, Debug, Default)]
pub struct Account {
    granted: u64,
    spent: u64,
    /// The latest moment that this account was told of.
    now: Timestamp,
    /// None at rest: most accounts are, and are small then.
    lookups: Option<Box<Lookups>>,
}

/// The lookups that an account knows.
#[derive(Clone, Debug, Default)]
struct Lookups {
    /// What all of them hold.
    held: u64,
    entries: Entries<Entry>,
    /// Each is in one of the two, by the time at which its hold runs out, and then by that at which it is forgotten.
    running: Agenda,
    run_out: Agenda,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    credits: u64,
    state: State,
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
        Balance { granted: self.granted, available: self.available(), held: self.held(), spent: self.spent }
    }

    fn available(&self) -> u64 {
        self.granted - self.held() - self.spent
    }

    fn held(&self) -> u64 {
        self.lookups.as_ref().map_or(0, |lookups| lookups.held)
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
        self.lookups.as_ref().is_some_and(|lookups| lookups.entries.get(lookup_id).is_some())
    }

    /// True if a spend of this lookup's hold was begun, and neither committed nor aborted nor voided yet.
    pub fn is_spending(&self, lookup_id: LookupId) -> bool {
        let entry = self.lookups.as_ref().and_then(|lookups| lookups.entries.get(lookup_id));
        entry.is_some_and(|entry| matches!(entry.state, State::Spending { .. }))
    }

    /// True if no lookup's hold is here, and no end of one is remembered.
    pub fn is_at_rest(&self) -> bool {
        self.lookups.is_none()
    }

    /// When [`Account::advance`] has something to do next, if ever.
    pub fn next_due(&self) -> Option<Timestamp> {
        let lookups = self.lookups.as_ref()?;
        [&lookups.running, &lookups.run_out].into_iter().filter_map(Agenda::next_due).min()
    }

    /// Sets `hold` aside. Asked again with the same hold, it answers the same.
    ///
    /// Errors: [`AccountFault::OtherHold`]; [`AccountFault::Ended`] if it was settled, released or ran out before.
    pub fn hold(&mut self, hold: &Hold) -> Result<Holding, AccountFault> {
        self.pass(hold.placed_at);
        if let Some((known, _)) = self.find(hold) {
            return match known.state {
                State::Held if known.credits == hold.credits => Ok(Holding::Granted),
                State::Held => Err(AccountFault::OtherHold),
                State::Spending { .. } | State::Spent(_) | State::Over => Err(AccountFault::Ended),
            };
        }
        if hold.expires_at <= self.now {
            return Err(AccountFault::Ended);
        }
        if hold.credits > self.available() {
            return Ok(Holding::Insufficient);
        }
        self.remember(hold, hold.credits, State::Held);
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
        match self.find(hold) {
            Some((entry, held)) => match entry.state {
                State::Held => {
                    *held -= entry.credits;
                    entry.state = State::Over;
                    Ok(())
                }
                State::Over => Ok(()),
                State::Spending { .. } | State::Spent(_) => Err(AccountFault::Ended),
            },
            None => {
                if hold.expires_at > self.now {
                    self.remember(hold, hold.credits, State::Over);
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
        let (entry, _) = self.find(hold).ok_or(AccountFault::NoHold)?;
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
        if let Some((entry, held)) = self.find(hold)
            && let State::Spending { credits, .. } = entry.state
        {
            entry.state = State::Spent(credits);
            *held -= entry.credits;
            self.spent += credits;
        }
    }

    /// Second half: this attempt to make the spend of `hold` durable failed. When none is left under way, the
    /// credits are held as before, past their time for [`Account::MEMORY`] at most.
    pub fn abort_spend(&mut self, hold: &Hold) {
        if let Some((entry, _)) = self.find(hold)
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
        match self.find(hold) {
            Some((entry, held)) if entry.state == State::Spent(credits) => {
                *entry = Entry { credits, state };
                *held += credits;
            }
            Some(_) => return,
            None => self.remember(hold, credits, state),
        }
        self.spent -= credits;
    }

    /// The spend of `hold` was durable, nobody was told of it, and it was durably taken back. Its credits are available
    /// again, and the hold has ended.
    pub fn void_spend(&mut self, hold: &Hold) {
        if let Some((entry, held)) = self.find(hold)
            && let State::Spending { .. } = entry.state
        {
            entry.state = State::Over;
            *held -= entry.credits;
        }
    }

    /// Tells the account that it is `now`: holds past their time expire, and ended ones are forgotten in the end. A clock
    /// that was set back takes all deadlines with it; if by [`Account::MEMORY`] or less, it is waited for.
    pub fn advance(&mut self, now: Timestamp) {
        let back = Duration::from_millis(self.now.unix_ms().saturating_sub(now.unix_ms()));
        if back > Self::MEMORY {
            self.now = now;
            if let Some(lookups) = &mut self.lookups {
                lookups.running.set_back(back);
                lookups.run_out.set_back(back);
            }
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
        if let Some(lookups) = &mut self.lookups {
            lookups.pass(self.now);
            if lookups.entries.is_empty() {
                self.lookups = None;
            }
        }
    }

    /// What is known of the lookup, and what all of them hold.
    fn find(&mut self, hold: &Hold) -> Option<(&mut Entry, &mut u64)> {
        let Lookups { entries, held, .. } = &mut **self.lookups.as_mut()?;
        Some((entries.get_mut(hold.lookup_id)?, held))
    }

    fn remember(&mut self, hold: &Hold, credits: u64, state: State) {
        let entry = Entry { credits, state };
        let lookups = self.lookups.get_or_insert_default();
        lookups.held += entry.held();
        lookups.entries.insert(hold.lookup_id, entry);
        lookups.running.push(hold.expires_at, hold.lookup_id);
    }
}

impl Lookups {
    fn pass(&mut self, now: Timestamp) {
        // A spend that is under way is left alone, and looked at again then.
        let again_at = now + Account::MEMORY;
        while let Some((due, id)) = self.running.pop_due(now) {
            let Some(entry) = self.entries.get_mut(id) else { continue };
            match entry.state {
                State::Spending { .. } => self.run_out.push(again_at, id),
                State::Held => {
                    self.held -= entry.credits;
                    entry.state = State::Over;
                    self.run_out.push(due + Account::MEMORY, id);
                }
                State::Spent(_) | State::Over => self.run_out.push(due + Account::MEMORY, id),
            }
        }
        while let Some((_, id)) = self.run_out.pop_due(now) {
            match self.entries.get(id) {
                Some(Entry { state: State::Spending { .. }, .. }) if now < again_at => {
                    self.run_out.push(again_at, id)
                }
                _ => self.held -= self.entries.remove(id).map_or(0, |entry| entry.held()),
            }
        }
        self.running.give_back();
        self.run_out.give_back();
    }
}

impl Entry {
    /// What it still holds.
    fn held(&self) -> u64 {
        match self.state {
            State::Held | State::Spending { .. } => self.credits,
            State::Spent(_) | State::Over => 0,
        }
    }
}
