//! The credits of one workspace and its holds.
//!
//! An account forgets a hold when it ends. The spends in the store are the memory: see
//! [`Settlement::without_hold`].

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::{AccountError, Balance, Hold, HoldOutcome, Shortage};
use crate::model::{LookupId, whole_ms};

/// The credits of one workspace.
#[derive(Clone, Debug, Default)]
pub struct Account {
    granted: u64,
    spent: u64,
    /// The latest time passed to this account.
    now_ms: u64,
    /// `None` while the account is at rest. Most accounts are, which keeps them small.
    holds: Option<Box<Holds>>,
}

/// The holds of an account.
#[derive(Clone, Debug, Default)]
struct Holds {
    /// The sum of their credits.
    held: u64,
    by_lookup: FxHashMap<LookupId, TrackedHold>,
    /// A lower bound of the times at which they expire. Meaningless without holds.
    next_expiry_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct TrackedHold {
    credits: u64,
    expires_at_ms: u64,
    /// The spend in progress. The hold cannot expire or be released meanwhile.
    spend: Option<PendingSpend>,
}

#[derive(Clone, Copy, Debug)]
struct PendingSpend {
    credits: u64,
    /// The number of attempts in progress to make it durable.
    attempts: u32,
}

impl Account {
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
        let Self { granted, spent, .. } = *self;
        let held = self.held().min(granted.saturating_sub(spent));
        Balance { granted, available: self.available(), held, spent }
    }

    fn available(&self) -> u64 {
        self.granted.saturating_sub(self.held() + self.spent)
    }

    fn held(&self) -> u64 {
        self.holds.as_ref().map_or(0, |holds| holds.held)
    }

    /// Grants `credits`. Fails with [`AccountError::TooLarge`] and then grants nothing.
    pub fn grant(&mut self, credits: u64) -> Result<(), AccountError> {
        self.granted = self.granted.checked_add(credits).ok_or(AccountError::TooLarge)?;
        Ok(())
    }

    /// Sets the granted total to that of the store, where an operator has changed it. It is at least the spent
    /// total. If it is less than the spent and the held credits, holds that no longer fit cannot be spent.
    pub fn set_granted(&mut self, granted: u64) {
        self.granted = granted;
    }

    /// Returns `true` if the lookup has a hold.
    pub fn tracks(&self, lookup_id: LookupId) -> bool {
        self.holds.as_ref().is_some_and(|holds| holds.by_lookup.contains_key(&lookup_id))
    }

    /// Returns `true` if there was no hold at the last [`Account::advance`], and there is none since then.
    pub fn is_at_rest(&self) -> bool {
        self.holds.is_none()
    }

    /// Holds credits. A repeated call with the same hold returns the same outcome, until the hold ends.
    ///
    /// The hold expires [`Hold::ttl`] after the account's current time. Fails with
    /// [`AccountError::OtherHold`] if the lookup holds another number of credits, and with
    /// [`AccountError::Ended`] if a spend of the hold is in progress.
    pub fn hold(&mut self, hold: &Hold) -> Result<HoldOutcome, AccountError> {
        match self.holds.as_ref().and_then(|holds| holds.by_lookup.get(&hold.lookup_id)) {
            Some(TrackedHold { spend: Some(_), .. }) => return Err(AccountError::Ended),
            Some(known) if hold.is_repeated(known.credits) => return Ok(HoldOutcome::Granted),
            Some(_) => return Err(AccountError::OtherHold),
            None => {}
        }
        if hold.credits > self.available() {
            return Ok(HoldOutcome::Insufficient(Shortage::of(self.held())));
        }
        self.holds.get_or_insert_default().add(hold, self.now_ms);
        Ok(HoldOutcome::Granted)
    }

    /// Releases all credits of `hold`.
    ///
    /// Fails with [`AccountError::NoHold`], or with [`AccountError::Ended`] if a spend is in progress.
    pub fn release(&mut self, hold: &Hold) -> Result<(), AccountError> {
        let holds = self.holds.as_mut().ok_or(AccountError::NoHold)?;
        match holds.by_lookup.get(&hold.lookup_id).ok_or(AccountError::NoHold)?.spend {
            Some(_) => Err(AccountError::Ended),
            None => {
                holds.end(hold.lookup_id);
                Ok(())
            }
        }
    }

    /// Begins a spend. Durable stores settle a spend in two steps, of which this is the first. Until the
    /// second step, the hold can neither expire nor be released.
    ///
    /// Fails with [`AccountError::NoHold`], with [`AccountError::OverHold`], or with [`AccountError::Ended`]
    /// if a spend of another number of credits is in progress. Fails with [`AccountError::Withdrawn`], which ends
    /// the hold, if the credits are no longer granted.
    pub fn begin_spend(&mut self, hold: &Hold, credits: u64) -> Result<(), AccountError> {
        let holds = self.holds.as_mut().ok_or(AccountError::NoHold)?;
        let known = holds.by_lookup.get_mut(&hold.lookup_id).ok_or(AccountError::NoHold)?;
        if credits > known.credits {
            return Err(AccountError::OverHold);
        }
        if known.spend.is_none() && self.spent + credits > self.granted {
            holds.end(hold.lookup_id);
            return Err(AccountError::Withdrawn);
        }
        let spend = known.spend.get_or_insert(PendingSpend { credits, attempts: 0 });
        if spend.credits != credits {
            return Err(AccountError::Ended);
        }
        spend.attempts += 1;
        Ok(())
    }

    /// Commits a spend that has become durable (second step). Does nothing if no spend is in progress.
    pub fn commit_spend(&mut self, lookup_id: LookupId) {
        if let Some(holds) = &mut self.holds
            && let Some(&mut PendingSpend { credits, .. }) = holds.pending_spend(lookup_id)
        {
            holds.end(lookup_id);
            self.spent += credits;
        }
    }

    /// Aborts one attempt to make a spend durable (second step). After the last attempt, the hold has ended,
    /// and its credits are available again: a spend that failed cannot succeed later.
    pub fn abort_spend(&mut self, lookup_id: LookupId) {
        if let Some(holds) = &mut self.holds
            && let Some(PendingSpend { attempts, .. }) = holds.pending_spend(lookup_id)
        {
            *attempts -= 1;
            if *attempts == 0 {
                holds.end(lookup_id);
            }
        }
    }

    /// Advances the account to `now`, so that overdue holds expire. `now` is the time since an arbitrary
    /// origin, on a monotonic clock. An earlier time than the account's is ignored.
    pub fn advance(&mut self, now: Duration) {
        let now_ms = whole_ms(now);
        if now_ms <= self.now_ms {
            return;
        }
        self.now_ms = now_ms;
        if let Some(holds) = &mut self.holds {
            holds.advance(now_ms);
            if holds.by_lookup.is_empty() {
                self.holds = None;
            }
        }
    }
}

impl Holds {
    fn add(&mut self, hold: &Hold, now_ms: u64) {
        let expires_at_ms = now_ms.saturating_add(whole_ms(hold.ttl));
        self.next_expiry_ms =
            if self.by_lookup.is_empty() { expires_at_ms } else { self.next_expiry_ms.min(expires_at_ms) };
        self.held += hold.credits;
        let tracked = TrackedHold { credits: hold.credits, expires_at_ms, spend: None };
        self.by_lookup.insert(hold.lookup_id, tracked);
    }

    fn pending_spend(&mut self, id: LookupId) -> Option<&mut PendingSpend> {
        self.by_lookup.get_mut(&id)?.spend.as_mut()
    }

    fn end(&mut self, id: LookupId) {
        if let Some(TrackedHold { credits, .. }) = self.by_lookup.remove(&id) {
            self.held -= credits;
        }
    }

    fn advance(&mut self, now_ms: u64) {
        if self.next_expiry_ms <= now_ms {
            let Self { held, by_lookup, next_expiry_ms } = self;
            *next_expiry_ms = u64::MAX;
            by_lookup.retain(|_, hold| {
                // A hold with a spend in progress ends with the spend.
                let is_overdue = hold.spend.is_none() && hold.expires_at_ms <= now_ms;
                if is_overdue {
                    *held -= hold.credits;
                } else if hold.spend.is_none() {
                    *next_expiry_ms = hold.expires_at_ms.min(*next_expiry_ms);
                }
                !is_overdue
            });
        }
        if self.by_lookup.len() < self.by_lookup.capacity() / 8 {
            self.by_lookup.shrink_to(2 * self.by_lookup.len());
        }
    }
}
