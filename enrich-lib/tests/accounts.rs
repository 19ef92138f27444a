//! The arithmetic of credits against a model that keeps no totals: it writes down what happened, and works out
//! balances and answers from that log alone.

use std::time::Duration;

use enrich_lib::credit::{Account, AccountFault, Balance, Hold, Holding, Settlement, SpendStart};
use enrich_lib::model::{LookupId, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn an_account_answers_and_stands_as_its_log_says(steps in vec(step(), 1..80)) {
        let (mut account, mut world) = (Account::default(), World::default());
        for step in steps {
            let hold = world.hold(step);
            if matches!(step, Step::Reopen(lookup) if world.may_be_forgotten(lookup)) {
                continue;
            }
            let may_answer = world.expect(step, &hold);
            let answer = take(&mut account, step, &hold, world.clock);
            prop_assert!(may_answer.is_none_or(|any| any.contains(&answer)), "{answer:?} to {step:?}\n{world:#?}");
            prop_assert_eq!(account.balance(), world.balance(), "{:?}\n{:#?}", step, world);

            let Balance { granted, available, held, spent } = account.balance();
            prop_assert_eq!(granted, available + held + spent);

            if let Step::Hold { .. } | Step::Settle(..) = step {
                prop_assert_eq!(take(&mut account, step, &hold, world.clock), answer, "again {:?}\n{:#?}", step, world);
                prop_assert_eq!(account.balance(), world.balance(), "again {:?}\n{:#?}", step, world);
            }
        }
    }
}

/// What is done to an account. Lookups are numbered.
#[derive(Clone, Copy, Debug)]
enum Step {
    Grant(u64),
    /// The account is told that so many seconds have passed.
    Advance(u64),
    /// So many seconds pass, and nobody tells the account.
    Sleep(u64),
    /// Asks for the credits of a lookup, or for `more`.
    Hold {
        lookup: usize,
        more: u64,
    },
    Settle(usize, Settlement),
    Begin(usize, u64),
    Commit(usize),
    Abort(usize),
    Reopen(usize),
    Void(usize),
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    let lookup = || 0..LOOKUPS;
    let settlement = prop_oneof![Just(Settlement::Release), (0..4_u64).prop_map(Settlement::Spend)];
    prop_oneof![
        2 => (0..6_u64).prop_map(Grant),
        2 => (0..15_u64).prop_map(Advance),
        1 => (0..60_u64).prop_map(Advance),
        1 => (0..15_u64).prop_map(Sleep),
        6 => lookup().prop_map(|lookup| Hold { lookup, more: 0 }),
        1 => lookup().prop_map(|lookup| Hold { lookup, more: 1 }),
        4 => (lookup(), settlement).prop_map(|(lookup, settlement)| Settle(lookup, settlement)),
        3 => (lookup(), 0..4_u64).prop_map(|(lookup, credits)| Begin(lookup, credits)),
        2 => lookup().prop_map(Commit),
        2 => lookup().prop_map(Abort),
        1 => lookup().prop_map(Reopen),
        1 => lookup().prop_map(Void),
    ]
}

const LOOKUPS: usize = 8;

/// One shape for all answers.
type Answer = Result<&'static str, AccountFault>;

fn take(account: &mut Account, step: Step, hold: &Hold, clock: Timestamp) -> Answer {
    match step {
        Step::Grant(credits) => account.grant(credits).map(|()| "done"),
        Step::Advance(_) => {
            account.advance(clock);
            Ok("done")
        }
        Step::Sleep(_) => Ok("done"),
        Step::Hold { .. } => account.hold(hold).map(|holding| match holding {
            Holding::Granted => "granted",
            Holding::Insufficient => "insufficient",
        }),
        Step::Settle(_, settlement) => account.settle(hold, settlement).map(|()| "done"),
        Step::Begin(_, credits) => account.begin_spend(hold, credits).map(|start| match start {
            SpendStart::Begun => "begun",
            SpendStart::AlreadySpent => "already spent",
        }),
        Step::Commit(_) => {
            account.commit_spend(hold);
            Ok("done")
        }
        Step::Abort(_) => {
            account.abort_spend(hold);
            Ok("done")
        }
        Step::Reopen(_) => {
            account.reopen_spend(hold);
            Ok("done")
        }
        Step::Void(_) => {
            account.void_spend(hold);
            Ok("done")
        }
    }
}

/// What happened to an account.
#[derive(Clone, Copy, Debug)]
enum Event {
    Granted(u64),
    Held(usize, u64),
    Begun(usize, u64),
    Aborted(usize),
    Spent(usize, u64),
    /// Durable, but told to nobody.
    Reopened(usize, u64),
    /// Released, expired or voided.
    Freed(usize),
    /// Its time came while it was being spent, or was spent: it is looked at again then.
    Postponed(usize, Timestamp),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Status {
    Unknown,
    Held(u64),
    Spending { held: u64, credits: u64, attempts: u32 },
    Spent(u64),
    Freed,
}

#[derive(Debug, Default)]
struct World {
    clock: Timestamp,
    /// The latest time that the account was told.
    told: Timestamp,
    /// Each lookup's hold, as it was when the lookup was first spoken of.
    holds: [Option<Hold>; LOOKUPS],
    log: Vec<Event>,
}

impl World {
    /// Lets time pass, and makes the hold that `step` speaks of.
    fn hold(&mut self, step: Step) -> Hold {
        if let Step::Advance(seconds) | Step::Sleep(seconds) = step {
            self.clock = self.clock + Duration::from_secs(seconds);
        }
        let (lookup, more) = match step {
            Step::Hold { lookup, more } => (lookup, more),
            Step::Settle(lookup, _) | Step::Begin(lookup, _) => (lookup, 0),
            Step::Commit(lookup) | Step::Abort(lookup) | Step::Reopen(lookup) | Step::Void(lookup) => {
                (lookup, 0)
            }
            Step::Grant(_) | Step::Advance(_) | Step::Sleep(_) => return hold(LOOKUPS, 0, self.clock),
        };
        let mut hold =
            self.holds[lookup].get_or_insert_with(|| hold(lookup, lookup as u64 % 4, self.clock)).clone();
        hold.credits += more;
        hold
    }

    /// The answers that `step` may get, `None` if it is about a lookup that may be forgotten.
    fn expect(&mut self, step: Step, hold: &Hold) -> Option<Vec<Answer>> {
        match step {
            Step::Grant(credits) => self.log.push(Event::Granted(credits)),
            Step::Advance(_) => self.tell(self.clock),
            Step::Sleep(_) => {}
            Step::Hold { lookup, .. } => return self.expect_hold(lookup, hold),
            Step::Settle(lookup, Settlement::Release) => return self.expect_release(lookup, hold),
            Step::Settle(lookup, Settlement::Spend(credits)) => {
                let answers = self.expect_begin(lookup, credits);
                self.commit(lookup, answers == Some(vec![Ok("begun")]));
                return answers.map(|any| any.into_iter().map(|answer| answer.map(|_| "done")).collect());
            }
            Step::Begin(lookup, credits) => return self.expect_begin(lookup, credits),
            Step::Commit(lookup) => self.commit(lookup, true),
            Step::Abort(lookup) => {
                if let Status::Spending { .. } = self.status(lookup) {
                    self.log.push(Event::Aborted(lookup));
                }
            }
            Step::Reopen(lookup) => {
                if let Status::Spent(credits) = self.status(lookup) {
                    self.log.push(Event::Reopened(lookup, credits));
                    if self.due(lookup).is_some_and(|due| due <= self.told) {
                        self.log.push(Event::Postponed(lookup, hold.expires_at + Account::MEMORY));
                    }
                }
            }
            Step::Void(lookup) => {
                if let Status::Spending { .. } = self.status(lookup) {
                    self.log.push(Event::Freed(lookup));
                }
            }
        }
        Some(vec![Ok("done")])
    }

    fn expect_hold(&mut self, lookup: usize, hold: &Hold) -> Option<Vec<Answer>> {
        self.tell(hold.placed_at);
        let answer = match self.status(lookup) {
            Status::Held(credits) if credits == hold.credits => Ok("granted"),
            Status::Held(_) => Err(AccountFault::OtherHold),
            Status::Unknown if hold.expires_at <= self.told => Err(AccountFault::Ended),
            Status::Unknown if hold.credits > self.balance().available => Ok("insufficient"),
            Status::Unknown => {
                self.log.push(Event::Held(lookup, hold.credits));
                Ok("granted")
            }
            Status::Spending { .. } | Status::Spent(_) | Status::Freed => Err(AccountFault::Ended),
        };
        Some(vec![answer])
    }

    fn expect_release(&mut self, lookup: usize, hold: &Hold) -> Option<Vec<Answer>> {
        match self.status(lookup) {
            Status::Held(_) => self.log.push(Event::Freed(lookup)),
            // A tombstone for a hold that was overtaken; one that has run out needs none.
            Status::Unknown if hold.expires_at > self.told => self.log.push(Event::Freed(lookup)),
            Status::Unknown | Status::Freed => {}
            Status::Spent(_) if self.may_be_forgotten(lookup) => return None,
            Status::Spending { .. } | Status::Spent(_) => return Some(vec![Err(AccountFault::Ended)]),
        }
        Some(vec![Ok("done")])
    }

    fn expect_begin(&mut self, lookup: usize, credits: u64) -> Option<Vec<Answer>> {
        let may_begin = match self.status(lookup) {
            Status::Unknown => return Some(vec![Err(AccountFault::NoHold)]),
            Status::Spent(_) | Status::Freed if self.may_be_forgotten(lookup) => return None,
            Status::Spent(before) if before == credits => return Some(vec![Ok("already spent")]),
            Status::Held(held) if credits > held => return Some(vec![Err(AccountFault::OverHold)]),
            Status::Held(_) => true,
            Status::Spending { credits: before, .. } => before == credits,
            Status::Spent(_) | Status::Freed => false,
        };
        if may_begin {
            self.log.push(Event::Begun(lookup, credits));
            return Some(vec![Ok("begun")]);
        }
        // Too late, and perhaps too much as well: which of the two is told does not matter.
        Some(vec![Err(AccountFault::Ended), Err(AccountFault::OverHold)])
    }

    fn commit(&mut self, lookup: usize, begun: bool) {
        if let (Status::Spending { credits, .. }, true) = (self.status(lookup), begun) {
            self.log.push(Event::Spent(lookup, credits));
        }
    }

    fn tell(&mut self, now: Timestamp) {
        self.told = self.told.max(now);
        for lookup in 0..LOOKUPS {
            if self.due(lookup).is_some_and(|due| due <= self.told) {
                match self.status(lookup) {
                    Status::Held(_) => self.log.push(Event::Freed(lookup)),
                    Status::Spending { .. } => {
                        self.log.push(Event::Postponed(lookup, self.told + Account::MEMORY))
                    }
                    Status::Unknown | Status::Spent(_) | Status::Freed => {}
                }
            }
        }
    }

    /// When a hold runs out.
    fn due(&self, lookup: usize) -> Option<Timestamp> {
        self.postponed(lookup).or(self.holds[lookup].as_ref().map(|hold| hold.expires_at))
    }

    fn may_be_forgotten(&self, lookup: usize) -> bool {
        let expires_at = self.holds[lookup].as_ref().map(|hold| hold.expires_at + Account::MEMORY);
        self.postponed(lookup).or(expires_at).is_some_and(|at| at <= self.told)
    }

    fn postponed(&self, lookup: usize) -> Option<Timestamp> {
        self.log.iter().rev().find_map(|event| match event {
            Event::Postponed(other, until) if *other == lookup => Some(*until),
            _ => None,
        })
    }

    fn status(&self, lookup: usize) -> Status {
        self.log.iter().fold(Status::Unknown, |status, event| match (*event, status) {
            (Event::Held(of, credits), _) if of == lookup => Status::Held(credits),
            (Event::Begun(of, credits), Status::Held(held)) if of == lookup => {
                Status::Spending { held, credits, attempts: 1 }
            }
            (Event::Begun(of, _), Status::Spending { held, credits, attempts }) if of == lookup => {
                Status::Spending { held, credits, attempts: attempts + 1 }
            }
            (Event::Aborted(of), Status::Spending { held, attempts: 1, .. }) if of == lookup => {
                Status::Held(held)
            }
            (Event::Aborted(of), Status::Spending { held, credits, attempts }) if of == lookup => {
                Status::Spending { held, credits, attempts: attempts - 1 }
            }
            (Event::Spent(of, credits), _) if of == lookup => Status::Spent(credits),
            (Event::Reopened(of, credits), _) if of == lookup => {
                Status::Spending { held: credits, credits, attempts: 1 }
            }
            (Event::Freed(of), _) if of == lookup => Status::Freed,
            _ => status,
        })
    }

    fn balance(&self) -> Balance {
        let sum = |credits: fn(&Event) -> u64| self.log.iter().map(credits).sum::<u64>();
        let granted = sum(|event| if let Event::Granted(credits) = event { *credits } else { 0 });
        let spent = sum(|event| if let Event::Spent(_, credits) = event { *credits } else { 0 });
        let reopened = sum(|event| if let Event::Reopened(_, credits) = event { *credits } else { 0 });
        let spent = spent - reopened;
        let held = (0..LOOKUPS).map(|lookup| match self.status(lookup) {
            Status::Held(held) | Status::Spending { held, .. } => held,
            Status::Unknown | Status::Spent(_) | Status::Freed => 0,
        });
        let held = held.sum();
        Balance { granted, available: granted - held - spent, held, spent }
    }
}

/// A hold that lives for ten seconds and some more.
fn hold(lookup: usize, credits: u64, placed_at: Timestamp) -> Hold {
    Hold {
        lookup_id: LookupId::from_bytes([lookup as u8; 16]),
        workspace: "demo".parse().expect("a name"),
        credits,
        placed_at,
        expires_at: placed_at + Duration::from_secs(10 + lookup as u64),
    }
}
