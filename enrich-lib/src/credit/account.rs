//! The credits of one workspace and the states of its holds.

use std::time::Duration;

use super::entries::Entries;
use super::expiry_queue::ExpiryQueue;
use super::{AccountError, Balance, Hold, HoldOutcome, Settlement};
use crate::model::{LookupId, whole_ms};

/// The credits of one workspace.
#[derive(Clone, Debug, Default)]
pub struct Account {
    granted: u64,
    spent: u64,
    /// The latest time passed to this account.
    now_ms: u64,
    /// `None` while no lookup is tracked. Most accounts are in this state, which keeps them small.
    lookups: Option<Box<Lookups>>,
}

/// The lookups that an account tracks.
#[derive(Clone, Debug, Default)]
struct Lookups {
    /// The sum of the credits that they hold.
    held: u64,
    entries: Entries<Entry>,
    /// Each lookup is in one of two queues: in `expiring` until its hold expires, then in `tombstones` until it is forgotten.
    expiring: ExpiryQueue,
    tombstones: ExpiryQueue,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    credits: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// A spend is in progress, with this number of attempts to make it durable. The hold cannot expire meanwhile.
    Spending {
        credits: u64,
        attempts: u32,
    },
    Spent(u64),
    /// Released, expired, or spent without success. A tombstone for a late hold or a late spend.
    Ended,
}

/// The outcome of [`Account::begin_spend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendStart {
    /// The caller must make the spend durable, and then call [`Account::commit_spend`] or [`Account::abort_spend`].
    Begun,
    /// The same spend was committed before. The caller has nothing left to do.
    AlreadySpent,
}

impl Account {
    /// How long an ended hold is remembered after its expiry, so that a repeated settlement returns the result of the first.
    pub const TOMBSTONE_TTL: Duration = Duration::from_secs(30);

    /// Creates an account with these totals and no holds, as read from a store.
    ///
    /// Fails with [`AccountError::OverHold`] if `spent` exceeds `granted`.
    pub fn new(granted: u64, spent: u64) -> Result<Self, AccountError> {
        if spent > granted {
            return Err(AccountError::OverHold);
        }
        Ok(Self { granted, spent, ..Self::default() })
    }

    /// Returns the current totals.
    pub fn balance(&self) -> Balance {
        Balance { granted: self.granted, available: self.available(), held: self.held(), spent: self.spent }
    }

    fn available(&self) -> u64 {
        self.granted - self.held() - self.spent
    }

    fn held(&self) -> u64 {
        self.lookups.as_ref().map_or(0, |lookups| lookups.held)
    }

    /// Grants `credits`. Fails with [`AccountError::TooLarge`] and then grants nothing.
    pub fn grant(&mut self, credits: u64) -> Result<(), AccountError> {
        self.granted = self.granted.checked_add(credits).ok_or(AccountError::TooLarge)?;
        Ok(())
    }

    /// Removes up to `credits_max` available credits and returns the number removed. The granted total decreases by this
    /// number.
    pub fn withdraw(&mut self, credits_max: u64) -> u64 {
        let credits = self.available().min(credits_max);
        self.granted -= credits;
        credits
    }

    /// Returns `true` if the lookup's hold is tracked or its end is still remembered.
    pub fn tracks(&self, lookup_id: LookupId) -> bool {
        self.lookups.as_ref().is_some_and(|lookups| lookups.entries.get(lookup_id).is_some())
    }

    /// Returns `true` if no hold is tracked and no ended hold is remembered.
    pub fn is_at_rest(&self) -> bool {
        self.lookups.is_none()
    }

    /// Returns the time at which [`Account::advance`] next has work to do, if any.
    pub fn next_due(&self) -> Option<Duration> {
        let lookups = self.lookups.as_ref()?;
        let due_ms =
            [&lookups.expiring, &lookups.tombstones].into_iter().filter_map(ExpiryQueue::next_due).min();
        due_ms.map(Duration::from_millis)
    }

    /// Holds credits. A repeated call with the same hold returns the same outcome.
    ///
    /// The hold expires [`Hold::ttl`] after the account's current time. Fails with [`AccountError::OtherHold`] if the lookup
    /// holds another number of credits, and with [`AccountError::Ended`] if the hold was settled or has expired.
    pub fn hold(&mut self, hold: &Hold) -> Result<HoldOutcome, AccountError> {
        if let Some((known, _)) = self.find(hold.lookup_id) {
            return match known.state {
                State::Held if known.credits == hold.credits => Ok(HoldOutcome::Granted),
                State::Held => Err(AccountError::OtherHold),
                State::Spending { .. } | State::Spent(_) | State::Ended => Err(AccountError::Ended),
            };
        }
        if hold.credits > self.available() {
            return Ok(HoldOutcome::Insufficient);
        }
        self.remember(hold, hold.credits, State::Held);
        Ok(HoldOutcome::Granted)
    }

    /// Settles `hold`. A repeated call with the same settlement returns the same result.
    ///
    /// Fails with the errors of [`Account::release`] and [`Account::begin_spend`].
    pub fn settle(&mut self, hold: &Hold, settlement: Settlement) -> Result<(), AccountError> {
        match settlement {
            Settlement::Release => self.release(hold),
            Settlement::Spend(credits) => {
                if self.begin_spend(hold, credits)? == SpendStart::Begun {
                    self.commit_spend(hold.lookup_id);
                }
                Ok(())
            }
        }
    }

    /// Releases all credits of `hold`. A release that arrives before its hold leaves a tombstone.
    ///
    /// Fails with [`AccountError::Ended`] if the hold was spent or a spend is in progress.
    pub fn release(&mut self, hold: &Hold) -> Result<(), AccountError> {
        match self.find(hold.lookup_id) {
            Some((entry, held)) => match entry.state {
                State::Held => {
                    *held -= entry.credits;
                    entry.state = State::Ended;
                    Ok(())
                }
                State::Ended => Ok(()),
                State::Spending { .. } | State::Spent(_) => Err(AccountError::Ended),
            },
            None => {
                self.remember(hold, hold.credits, State::Ended);
                Ok(())
            }
        }
    }

    /// Begins a spend. Durable stores settle a spend in two steps, of which this is the first. Until the second step, the
    /// hold can neither expire nor be released.
    ///
    /// Fails with [`AccountError::NoHold`], with [`AccountError::OverHold`], or with [`AccountError::Ended`] if the hold was
    /// released, has expired, or was spent with another number of credits.
    pub fn begin_spend(&mut self, hold: &Hold, credits: u64) -> Result<SpendStart, AccountError> {
        let (entry, _) = self.find(hold.lookup_id).ok_or(AccountError::NoHold)?;
        if credits > entry.credits {
            return Err(AccountError::OverHold);
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
            State::Spending { .. } | State::Spent(_) | State::Ended => Err(AccountError::Ended),
        }
    }

    /// Commits a spend that has become durable (second step). Does nothing if no spend is in progress.
    pub fn commit_spend(&mut self, lookup_id: LookupId) {
        if let Some((entry, held)) = self.find(lookup_id)
            && let State::Spending { credits, .. } = entry.state
        {
            entry.state = State::Spent(credits);
            *held -= entry.credits;
            self.spent += credits;
        }
    }

    /// Aborts one attempt to make a spend durable (second step). After the last attempt, the hold has ended, and its credits
    /// are available again: a spend that failed cannot succeed later.
    pub fn abort_spend(&mut self, lookup_id: LookupId) {
        if let Some((entry, held)) = self.find(lookup_id)
            && let State::Spending { attempts, .. } = &mut entry.state
        {
            *attempts -= 1;
            if *attempts == 0 {
                entry.state = State::Ended;
                *held -= entry.credits;
            }
        }
    }

    /// Advances the account to `now`: overdue holds expire, and ended holds are eventually forgotten. `now` is the time since
    /// an arbitrary origin, on a monotonic clock. An earlier time than the account's is ignored.
    pub fn advance(&mut self, now: Duration) {
        let now_ms = whole_ms(now);
        if now_ms <= self.now_ms {
            return;
        }
        self.now_ms = now_ms;
        if let Some(lookups) = &mut self.lookups {
            lookups.advance(now_ms);
            if lookups.entries.is_empty() {
                self.lookups = None;
            }
        }
    }

    /// Returns the lookup's entry and the sum of all held credits.
    fn find(&mut self, lookup_id: LookupId) -> Option<(&mut Entry, &mut u64)> {
        let Lookups { entries, held, .. } = &mut **self.lookups.as_mut()?;
        Some((entries.get_mut(lookup_id)?, held))
    }

    fn remember(&mut self, hold: &Hold, credits: u64, state: State) {
        let entry = Entry { credits, state };
        let lookups = self.lookups.get_or_insert_default();
        lookups.held += entry.held();
        lookups.entries.insert(hold.lookup_id, entry);
        lookups.expiring.push(self.now_ms.saturating_add(whole_ms(hold.ttl)), hold.lookup_id);
    }
}

impl Lookups {
    fn advance(&mut self, now_ms: u64) {
        // A spend in progress is left as it is and checked again at this time.
        let later = |due_ms: u64| due_ms.saturating_add(whole_ms(Account::TOMBSTONE_TTL));
        let again_at = later(now_ms);
        while let Some((due, id)) = self.expiring.pop_due(now_ms) {
            let Some(entry) = self.entries.get_mut(id) else { continue };
            match entry.state {
                State::Spending { .. } => self.tombstones.push(again_at, id),
                State::Held => {
                    self.held -= entry.credits;
                    entry.state = State::Ended;
                    self.tombstones.push(later(due), id);
                }
                State::Spent(_) | State::Ended => self.tombstones.push(later(due), id),
            }
        }
        let mut spending = Vec::new();
        while let Some((_, id)) = self.tombstones.pop_due(now_ms) {
            match self.entries.get(id) {
                Some(Entry { state: State::Spending { .. }, .. }) => spending.push(id),
                _ => self.held -= self.entries.remove(id).map_or(0, |entry| entry.held()),
            }
        }
        // Pushed last, because `again_at` is due at once at the largest time.
        spending.into_iter().for_each(|id| self.tombstones.push(again_at, id));
        self.expiring.shrink();
        self.tombstones.shrink();
    }
}

impl Entry {
    /// Returns the number of credits still held.
    fn held(&self) -> u64 {
        match self.state {
            State::Held | State::Spending { .. } => self.credits,
            State::Spent(_) | State::Ended => 0,
        }
    }
}
