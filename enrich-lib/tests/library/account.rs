//! Random operations on an account, compared with a model that keeps no totals, and what the model leaves out.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_lib::credit::AccountError::{self, Ended, NoHold, OtherHold, OverHold, TooLarge, Withdrawn};
use enrich_lib::credit::HoldOutcome::{self, Granted, Insufficient};
use enrich_lib::credit::{Account, Balance, Hold, Settlement, Shortage};
use enrich_lib::model::LookupId;
use proptest::collection::vec;
use proptest::prelude::*;

/// One operation. Durations are in seconds.
#[derive(Clone, Debug)]
enum Step {
    /// The lookup, its credits, and how long the hold lasts.
    Hold(u8, u64, u64),
    Release(u8),
    Begin(u8, u64),
    Commit(u8),
    Abort(u8),
    /// Advances to this time after the current one, or to an earlier one.
    Advance(i64),
    /// Advances to the last time.
    AdvanceToEnd,
    /// Sets the granted credits to this number above the spent ones.
    SetGranted(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let lookup = || 0..4_u8;
    prop_oneof![
        60 => (lookup(), 0..4_u64, 1..20_u64).prop_map(|(lookup, credits, ttl)| Step::Hold(lookup, credits, ttl)),
        20 => lookup().prop_map(Step::Release),
        40 => (lookup(), 1..4_u64).prop_map(|(lookup, credits)| Step::Begin(lookup, credits)),
        20 => lookup().prop_map(Step::Commit),
        20 => lookup().prop_map(Step::Abort),
        30 => (-3..25_i64).prop_map(Step::Advance),
        1 => Just(Step::AdvanceToEnd),
        20 => (0..9_u64).prop_map(Step::SetGranted),
    ]
}

struct TrackedHold {
    credits: u64,
    expires_at: u64,
    /// The credits of each attempt to spend that is in progress.
    attempts: Vec<u64>,
}

struct Model {
    granted: u64,
    spent: u64,
    now: u64,
    holds: BTreeMap<u8, TrackedHold>,
    is_at_rest: bool,
}

impl Model {
    fn held(&self) -> u64 {
        self.holds.values().map(|hold| hold.credits).sum()
    }

    fn hold(&mut self, lookup: u8, credits: u64, ttl: u64) -> Result<HoldOutcome, AccountError> {
        match self.holds.get(&lookup) {
            Some(hold) if !hold.attempts.is_empty() => return Err(Ended),
            Some(hold) if hold.credits == credits => return Ok(Granted),
            Some(_) => return Err(OtherHold),
            None => {}
        }
        if self.spent + self.held() + credits > self.granted && credits > 0 {
            return Ok(Insufficient(if self.held() == 0 { Shortage::Exhausted } else { Shortage::Held }));
        }
        let expires_at = self.now.saturating_add(ttl);
        self.holds.insert(lookup, TrackedHold { credits, expires_at, attempts: Vec::new() });
        self.is_at_rest = false;
        Ok(Granted)
    }

    fn release(&mut self, lookup: u8) -> Result<(), AccountError> {
        if !self.holds.get(&lookup).ok_or(NoHold)?.attempts.is_empty() {
            return Err(Ended);
        }
        self.holds.remove(&lookup);
        Ok(())
    }

    fn begin(&mut self, lookup: u8, credits: u64) -> Result<(), AccountError> {
        let hold = self.holds.get_mut(&lookup).ok_or(NoHold)?;
        if credits > hold.credits {
            return Err(OverHold);
        }
        if hold.attempts.is_empty() && self.spent + credits > self.granted {
            self.holds.remove(&lookup);
            return Err(Withdrawn);
        }
        if hold.attempts.iter().any(|other| *other != credits) {
            return Err(Ended);
        }
        hold.attempts.push(credits);
        Ok(())
    }

    fn pending(&self, lookup: u8) -> u64 {
        self.holds.get(&lookup).and_then(|hold| hold.attempts.first().copied()).unwrap_or_default()
    }

    fn fits(&self, lookup: u8) -> bool {
        self.spent + self.pending(lookup) <= self.granted
    }

    fn commit(&mut self, lookup: u8) {
        self.spent += self.pending(lookup);
        self.holds.retain(|other, hold| *other != lookup || hold.attempts.is_empty());
    }

    fn abort(&mut self, lookup: u8) {
        let attempts =
            self.holds.get_mut(&lookup).and_then(|hold| hold.attempts.pop().map(|_| &hold.attempts));
        if attempts.is_some_and(Vec::is_empty) {
            self.holds.remove(&lookup);
        }
    }

    fn advance(&mut self, to: u64) {
        if to > self.now {
            self.now = to;
            self.holds.retain(|_, hold| !hold.attempts.is_empty() || hold.expires_at > to);
            self.is_at_rest |= self.holds.is_empty();
        }
    }
}

fn hold(lookup: u8, credits: u64, ttl: u64) -> Hold {
    let lookup_id = LookupId::from_bytes([lookup; 16]);
    let mut hold = Hold::new(lookup_id, "demo".parse().expect("a name"), credits);
    hold.ttl = Duration::from_secs(ttl);
    hold
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(5_000) })]

    #[test]
    fn account_has_the_results_and_balances_of_the_model(steps in vec(step(), 1..60)) {
        let mut account = Account::new(9, 1).expect("an account");
        let mut model = Model { granted: 9, spent: 1, now: 0, holds: BTreeMap::new(), is_at_rest: true };
        for step in steps {
            match step {
                Step::Hold(lookup, credits, ttl) => {
                    prop_assert_eq!(account.hold(&hold(lookup, credits, ttl)), model.hold(lookup, credits, ttl));
                }
                Step::Release(lookup) => {
                    prop_assert_eq!(account.release(&hold(lookup, 1, 1)), model.release(lookup));
                }
                Step::Begin(lookup, credits) => {
                    let begun = account.begin_spend(&hold(lookup, 1, 1), credits);
                    prop_assert_eq!(begun, model.begin(lookup, credits));
                }
                // A store commits no more than is granted.
                Step::Commit(lookup) if model.fits(lookup) => {
                    account.commit_spend(hold(lookup, 1, 1).lookup_id);
                    model.commit(lookup);
                }
                Step::Commit(lookup) | Step::Abort(lookup) => {
                    account.abort_spend(hold(lookup, 1, 1).lookup_id);
                    model.abort(lookup);
                }
                Step::Advance(by) => {
                    let to = model.now.saturating_add_signed(by);
                    account.advance(Duration::from_secs(to));
                    model.advance(to);
                }
                Step::AdvanceToEnd => {
                    account.advance(Duration::MAX);
                    model.advance(u64::MAX);
                }
                Step::SetGranted(more) => {
                    model.granted = model.spent + more;
                    account.set_granted(model.granted);
                }
            }
            let (granted, spent) = (model.granted, model.spent);
            // After a withdrawal, holds have only the credits that are left.
            let held = model.held().min(granted - spent);
            let expected = Balance { granted, available: granted - spent - held, held, spent };
            prop_assert_eq!(account.balance(), expected);
            prop_assert_eq!(account.is_at_rest(), model.is_at_rest);
            for lookup in 0..4 {
                prop_assert_eq!(account.tracks(hold(lookup, 1, 1).lookup_id), model.holds.contains_key(&lookup));
            }
        }
    }
}

#[test]
fn settlement_without_hold_is_decided_by_the_spend() {
    let decisions = [None, Some(1), Some(2)].map(|spent| {
        [Settlement::Release, Settlement::Spend(0), Settlement::Spend(1)]
            .map(|settlement| settlement.without_hold(spent))
    });
    let expected = [
        [Ok(()), Ok(()), Err(NoHold)],
        [Err(Ended), Err(Ended), Ok(())],
        [Err(Ended), Err(Ended), Err(Ended)],
    ];
    assert_eq!(decisions, expected);
}

#[test]
fn rejects_inconsistent_totals() {
    assert_eq!(Account::new(4, 10).map(|_| ()), Err(OverHold));
    let mut account = Account::new(u64::MAX, 0).expect("an account");
    assert_eq!(account.grant(1), Err(TooLarge));
    assert_eq!(account.hold(&hold(1, u64::MAX, 10)), Ok(Granted));
    assert_eq!(account.balance(), Balance { granted: u64::MAX, available: 0, held: u64::MAX, spent: 0 });
}
