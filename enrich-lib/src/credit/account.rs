//! The credits of one workspace and the states of its holds.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::ended::{EndedLookups, Outcome};
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
    holds: FxHashMap<LookupId, TrackedHold>,
    /// A lower bound of the times at which the holds expire. Meaningless without holds.
    next_expiry_ms: u64,
    ended: EndedLookups,
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
        let tracks = |lookups: &Lookups| {
            lookups.holds.contains_key(&lookup_id) || lookups.ended.get(lookup_id).is_some()
        };
        self.lookups.as_deref().is_some_and(tracks)
    }

    /// Returns `true` if no hold is tracked and no ended hold is remembered.
    pub fn is_at_rest(&self) -> bool {
        self.lookups.is_none()
    }

    /// Returns a time at which to call [`Account::advance`] next, if it has work to do. The work may be due later, but not earlier.
    pub fn next_due(&self) -> Option<Duration> {
        let lookups = self.lookups.as_ref()?;
        let expiry_ms = (!lookups.holds.is_empty()).then_some(lookups.next_expiry_ms);
        let due_ms = expiry_ms.into_iter().chain(lookups.ended.next_forgotten_at_ms()).min();
        due_ms.map(Duration::from_millis)
    }

    /// Holds credits. A repeated call with the same hold returns the same outcome.
    ///
    /// The hold expires [`Hold::ttl`] after the account's current time. Fails with [`AccountError::OtherHold`] if the lookup
    /// holds another number of credits, and with [`AccountError::Ended`] if the hold was settled or has expired.
    pub fn hold(&mut self, hold: &Hold) -> Result<HoldOutcome, AccountError> {
        if let Some(lookups) = &self.lookups {
            match lookups.holds.get(&hold.lookup_id) {
                Some(TrackedHold { spend: Some(_), .. }) => return Err(AccountError::Ended),
                Some(known) if known.credits == hold.credits => return Ok(HoldOutcome::Granted),
                Some(_) => return Err(AccountError::OtherHold),
                None if lookups.ended.get(hold.lookup_id).is_some() => return Err(AccountError::Ended),
                None => {}
            }
        }
        if hold.credits > self.available() {
            return Ok(HoldOutcome::Insufficient);
        }
        self.lookups.get_or_insert_default().hold(hold, self.now_ms);
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
        let now_ms = self.now_ms;
        let lookups = self.lookups.get_or_insert_default();
        match lookups.holds.get(&hold.lookup_id) {
            Some(TrackedHold { spend: Some(_), .. }) => return Err(AccountError::Ended),
            Some(_) => lookups.end(hold.lookup_id, Outcome::Unspent),
            None => match lookups.ended.get(hold.lookup_id) {
                Some(Outcome::Spent(_)) => return Err(AccountError::Ended),
                Some(Outcome::Unspent) => {}
                None => {
                    let forget_at_ms = after(after(now_ms, hold.ttl), Self::TOMBSTONE_TTL);
                    lookups.ended.insert(hold.lookup_id, Outcome::Unspent, forget_at_ms);
                }
            },
        }
        Ok(())
    }

    /// Begins a spend. Durable stores settle a spend in two steps, of which this is the first. Until the second step, the
    /// hold can neither expire nor be released.
    ///
    /// Fails with [`AccountError::NoHold`], with [`AccountError::OverHold`], or with [`AccountError::Ended`] if the hold was
    /// released, has expired, or was spent with another number of credits.
    pub fn begin_spend(&mut self, hold: &Hold, credits: u64) -> Result<SpendStart, AccountError> {
        let lookups = self.lookups.as_mut().ok_or(AccountError::NoHold)?;
        let Some(known) = lookups.holds.get_mut(&hold.lookup_id) else {
            return match lookups.ended.get(hold.lookup_id) {
                Some(Outcome::Spent(before)) if before == credits => Ok(SpendStart::AlreadySpent),
                Some(_) => Err(AccountError::Ended),
                None => Err(AccountError::NoHold),
            };
        };
        if credits > known.credits {
            return Err(AccountError::OverHold);
        }
        let spend = known.spend.get_or_insert(PendingSpend { credits, attempts: 0 });
        if spend.credits != credits {
            return Err(AccountError::Ended);
        }
        spend.attempts += 1;
        Ok(SpendStart::Begun)
    }

    /// Commits a spend that has become durable (second step). Does nothing if no spend is in progress.
    pub fn commit_spend(&mut self, lookup_id: LookupId) {
        if let Some(lookups) = &mut self.lookups
            && let Some(&mut PendingSpend { credits, .. }) = lookups.pending_spend(lookup_id)
        {
            lookups.end(lookup_id, Outcome::Spent(credits));
            self.spent += credits;
        }
    }

    /// Aborts one attempt to make a spend durable (second step). After the last attempt, the hold has ended, and its credits
    /// are available again: a spend that failed cannot succeed later.
    pub fn abort_spend(&mut self, lookup_id: LookupId) {
        if let Some(lookups) = &mut self.lookups
            && let Some(PendingSpend { attempts, .. }) = lookups.pending_spend(lookup_id)
        {
            *attempts -= 1;
            if *attempts == 0 {
                lookups.end(lookup_id, Outcome::Unspent);
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
            if lookups.holds.is_empty() && lookups.ended.is_empty() {
                self.lookups = None;
            }
        }
    }
}

impl Lookups {
    fn hold(&mut self, hold: &Hold, now_ms: u64) {
        let expires_at_ms = after(now_ms, hold.ttl);
        self.next_expiry_ms =
            if self.holds.is_empty() { expires_at_ms } else { self.next_expiry_ms.min(expires_at_ms) };
        self.held += hold.credits;
        let tracked = TrackedHold { credits: hold.credits, expires_at_ms, spend: None };
        self.holds.insert(hold.lookup_id, tracked);
    }

    fn pending_spend(&mut self, id: LookupId) -> Option<&mut PendingSpend> {
        self.holds.get_mut(&id)?.spend.as_mut()
    }

    /// Ends a hold.
    fn end(&mut self, id: LookupId, outcome: Outcome) {
        if let Some(TrackedHold { credits, expires_at_ms, .. }) = self.holds.remove(&id) {
            self.held -= credits;
            self.ended.insert(id, outcome, after(expires_at_ms, Account::TOMBSTONE_TTL));
        }
    }

    fn advance(&mut self, now_ms: u64) {
        if !self.holds.is_empty() && self.next_expiry_ms <= now_ms {
            self.expire_due(now_ms);
        }
        self.ended.forget_due(now_ms);
        if self.holds.len() < self.holds.capacity() / 8 {
            self.holds.shrink_to(2 * self.holds.len());
        }
    }

    fn expire_due(&mut self, now_ms: u64) {
        // A spend in progress is left as it is and checked again at this time.
        let again_at_ms = after(now_ms, Account::TOMBSTONE_TTL);
        let mut due = Vec::new();
        self.next_expiry_ms = u64::MAX;
        for (id, hold) in &mut self.holds {
            if hold.expires_at_ms <= now_ms {
                if hold.spend.is_none() {
                    due.push(*id);
                    continue;
                }
                hold.expires_at_ms = again_at_ms;
            }
            self.next_expiry_ms = self.next_expiry_ms.min(hold.expires_at_ms);
        }
        due.into_iter().for_each(|id| self.end(id, Outcome::Unspent));
    }
}

/// Returns the time `ttl` after `ms`.
fn after(ms: u64, ttl: Duration) -> u64 {
    ms.saturating_add(whole_ms(ttl))
}
