//! One account with a model of a store's disk. A crash ends all holds and keeps the written spends.

use std::fmt;

use enrich_lib::credit::{Account, AccountError, Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::Clocks;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use super::disk::Disk;
use super::model::{AccountModel, Answer, Answers, DONE, Lookups, NO_HOLD, lookup, settle_without_hold};

/// One operation on an account. Lookups are numbered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Grant(u64),
    /// Advances the time by this many seconds, and the account to it.
    Advance(u64),
    /// Places the hold of a lookup, with `more` credits than its normal amount.
    Hold {
        lookup: usize,
        more: u64,
    },
    Settle(usize, Settlement),
    /// Repeats the last hold or settlement, as after a lost reply.
    Replay,
    Begin(usize, u64),
    /// Writes a pending spend to the disk without acknowledging it.
    Write(usize),
    /// Writes a pending spend to the disk and acknowledges it.
    Commit(usize),
    Abort(usize),
    /// Loses everything except the disk.
    Crash,
}

#[derive(Clone)]
pub(crate) struct Model {
    workspace: WorkspaceId,
    lookups: Lookups,
    model: AccountModel,
    disk: Disk,
    /// The last hold or settlement.
    last: Option<Step>,
    expected: Option<Expected>,
}

/// The expected effect of the last step, if the step was applicable.
#[derive(Clone, Debug)]
struct Expected {
    step: Step,
    hold: Hold,
    answers: Answers,
}

/// Omits the state, because all cases start in the same one and only the steps help to analyze a failure.
impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").finish_non_exhaustive()
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        let model = Self {
            workspace: "demo".parse().unwrap(),
            lookups: Lookups::from(Timestamp::default()),
            model: AccountModel::open(0, 0),
            disk: Disk::default(),
            last: None,
            expected: None,
        };
        Just(model).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        thread_local!(static STEP: BoxedStrategy<Step> = step().boxed());
        STEP.with(Clone::clone)
    }

    fn apply(mut model: Self, step: &Step) -> Self {
        let step = if let Step::Replay = step { model.last } else { Some(*step) };
        model.expected = step.and_then(|step| model.take(step));
        model
    }
}

impl Model {
    fn take(&mut self, step: Step) -> Option<Expected> {
        if let Step::Hold { .. } | Step::Settle(..) = step {
            self.last = Some(step);
        }
        let (lookup, more) = match step {
            Step::Hold { lookup, more } => (lookup, more),
            Step::Settle(lookup, _) | Step::Begin(lookup, _) => (lookup, 0),
            Step::Write(lookup) | Step::Commit(lookup) | Step::Abort(lookup) => (lookup, 0),
            Step::Grant(_) | Step::Advance(_) | Step::Replay | Step::Crash => (0, 0),
        };
        if let Step::Advance(seconds) = step {
            self.lookups.wait(seconds);
        }
        let hold = self.lookups.hold(lookup, &self.workspace, more);
        let answers = self.answers(step, lookup, &hold)?;
        Some(Expected { step, hold, answers })
    }

    /// Returns `None` if no store performs this step in the current state.
    fn answers(&mut self, step: Step, lookup: usize, hold: &Hold) -> Option<Answers> {
        let Self { lookups, model, disk, .. } = self;
        match step {
            Step::Grant(credits) => {
                disk.granted += credits;
                model.grant(credits);
            }
            Step::Advance(_) => model.advance(lookups.now),
            Step::Replay => {}
            // A lookup with a written spend was answered or lost with its process, so its hold is not placed
            // again.
            Step::Hold { .. } if disk.contains(lookup) && !model.has_hold(hold) => return None,
            Step::Hold { .. } => return Some(model.hold(hold)),
            Step::Settle(_, settlement) => {
                let answers = match model.settle(hold, settlement) {
                    NO_HOLD => return Some(settle_without_hold(settlement, disk.spent_by(lookup))),
                    answers => answers,
                };
                if let (Settlement::Spend(credits @ 1..), DONE) = (settlement, answers) {
                    disk.spend(lookup, credits);
                }
                return Some(answers);
            }
            Step::Begin(_, credits) => return Some(model.begin(hold, credits)),
            Step::Write(_) => {
                disk.spend(lookup, model.spending(hold)?.credits);
            }
            Step::Commit(_) => {
                if let Some(spending) = model.spending(hold) {
                    disk.spend(lookup, spending.credits);
                }
                model.commit(hold);
            }
            // A written spend has not failed, but a further attempt to write it may have.
            Step::Abort(_) if disk.contains(lookup) && model.spending(hold)?.attempts == 1 => return None,
            Step::Abort(_) => model.abort(hold),
            Step::Crash => {
                *model = AccountModel::open(disk.granted, disk.spent());
                model.advance(lookups.now);
            }
        }
        Some(DONE)
    }
}

pub(crate) struct AccountMachine {
    account: Account,
    /// The result of the last step and the balance after it, if the step was a hold or a settlement.
    answered: Option<(Answer, Balance)>,
}

impl StateMachineTest for AccountMachine {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        Self { account: Account::default(), answered: None }
    }

    fn apply(mut machine: Self, model: &Model, transition: Step) -> Self {
        let Some(Expected { step, hold, answers }) = &model.expected else { return machine };
        let answer = machine.take(*step, hold, model);
        assert!(answers.contains(&answer), "{answer:?} instead of {answers:?} to {step:?}");
        let left = (answer, machine.account.balance());
        if let (Step::Replay, Some(answered)) = (transition, machine.answered) {
            assert_eq!(answered, left, "a replay is answered as before, and changes nothing");
        }
        let is_asked = matches!(step, Step::Hold { .. } | Step::Settle(..));
        machine.answered = is_asked.then_some(left);
        machine
    }

    fn check_invariants(machine: &Self, model: &Model) {
        let balance = machine.account.balance();
        assert_eq!(balance, model.model.balance());
        assert_eq!(balance.granted, balance.available + balance.held + balance.spent);
        // The disk has every acknowledged spend. Any other spend there still has its credits held.
        assert!((balance.spent..=balance.spent + balance.held).contains(&model.disk.spent()));
    }
}

impl AccountMachine {
    fn take(&mut self, step: Step, hold: &Hold, model: &Model) -> Answer {
        let account = &mut self.account;
        match step {
            Step::Grant(credits) => account.grant(credits)?,
            Step::Advance(_) => account.advance(Clocks::from(model.lookups.now).elapsed),
            Step::Replay | Step::Write(_) => {}
            Step::Hold { .. } => {
                return account.hold(hold).map(|holding| match holding {
                    HoldOutcome::Granted => "granted",
                    HoldOutcome::Insufficient => "insufficient",
                });
            }
            Step::Settle(lookup, settlement) => match account.settle(hold, settlement) {
                Err(AccountError::NoHold) => settlement.without_hold(model.disk.spent_by(lookup))?,
                settled => settled?,
            },
            Step::Begin(_, credits) => return account.begin_spend(hold, credits).map(|()| "begun"),
            Step::Commit(_) => account.commit_spend(hold.lookup_id),
            Step::Abort(_) => account.abort_spend(hold.lookup_id),
            Step::Crash => {
                *account = Account::new(model.disk.granted, model.disk.spent())?;
                account.advance(Clocks::from(model.lookups.now).elapsed);
            }
        }
        Ok("done")
    }
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    let settlement = prop_oneof![Just(Settlement::Release), (0..4_u64).prop_map(Settlement::Spend)];
    prop_oneof![
        4 => (0..6_u64).prop_map(Grant),
        3 => (0..15_u64).prop_map(Advance),
        2 => (0..60_u64).prop_map(Advance),
        12 => lookup().prop_map(|lookup| Hold { lookup, more: 0 }),
        1 => lookup().prop_map(|lookup| Hold { lookup, more: 1 }),
        8 => (lookup(), settlement).prop_map(|(lookup, settlement)| Settle(lookup, settlement)),
        4 => Just(Replay),
        6 => (lookup(), 1..4_u64).prop_map(|(lookup, credits)| Begin(lookup, credits)),
        2 => lookup().prop_map(Write),
        3 => lookup().prop_map(Commit),
        3 => lookup().prop_map(Abort),
        1 => Just(Crash),
    ]
}
