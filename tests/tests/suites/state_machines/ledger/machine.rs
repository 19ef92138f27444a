//! Applies the model's steps to the real ledger.

use enrich_lib::credit::AccountError;
use proptest_state_machine::StateMachineTest;

use super::super::model::{Answer, Answers};
use super::process::{Outcome, START, WORKSPACES, World};
use super::{Expect, Expected, Model, Step, Workspace};

pub(crate) struct LedgerMachine {
    world: World,
}

impl StateMachineTest for LedgerMachine {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        Self { world: World::open() }
    }

    fn apply(mut machine: Self, model: &Model, _: Step) -> Self {
        if let Some(expected) = &model.expected {
            machine.take(expected, model);
        }
        machine
    }

    fn check_invariants(machine: &Self, model: &Model) {
        for (n, Workspace { model, disk, .. }) in model.holdings.iter().enumerate() {
            let [balance, on_disk] = machine.world.balances(n);
            assert_eq!(balance, model.balance());
            assert_eq!(balance.granted, balance.available + balance.held + balance.spent);
            assert_eq!((on_disk.granted, on_disk.spent), (disk.granted, disk.spent()));
            // The disk has every acknowledged spend. Any other spend there still has its credits held.
            assert!((balance.spent..=balance.spent + balance.held).contains(&on_disk.spent), "{on_disk:?}");
        }
    }
}

impl LedgerMachine {
    fn take(&mut self, expected: &Expected, model: &Model) {
        let world = &mut self.world;
        let outcome = match (expected.step, &expected.hold) {
            (Step::Hold(_), Some(hold)) => Some(world.hold(hold)),
            (Step::Release(_), Some(hold)) => Some(world.release(hold)),
            (Step::Spend(lookup, credits), Some(hold)) => world.spend(lookup, hold, credits),
            (Step::Take(lookup), _) => world.take(lookup),
            (Step::Find(workspace), _) => {
                let found = world.finds(workspace);
                assert!(
                    matches!(expected.answer, Expect::Finds(right) if right.contains(&found)),
                    "found: {found}"
                );
                return;
            }
            (step, _) => return self.work(step, model),
        };
        match expected.answer {
            Expect::Returns(answers) => assert!(
                outcome.as_ref().is_some_and(|outcome| is_one_of(outcome, answers)),
                "{outcome:?} instead of {answers:?}"
            ),
            Expect::Withdrawn => {
                let error = outcome.and_then(Result::err).unwrap_or_default();
                assert!(error.starts_with("the spend was withdrawn"), "{error}");
            }
            _ => assert_eq!(outcome, None, "pending until the commit"),
        }
    }

    fn work(&mut self, step: Step, model: &Model) {
        let world = &mut self.world;
        match step {
            Step::Write => world.write(),
            Step::GiveUp(lookup) => world.give_up(lookup),
            Step::Tick(_) => world.tick(model.lookups.now),
            Step::Grant(workspace, credits) => {
                world.operator.get_mut().grant(&WORKSPACES[workspace], credits, START).unwrap();
            }
            Step::Revoke(workspace) => world.revoke(workspace),
            Step::Crash => world.crash(model.lookups.now),
            Step::Close => world.close(model.lookups.now),
            call => panic!("{call:?} already has a result"),
        }
    }
}

fn is_one_of(outcome: &Outcome, answers: Answers) -> bool {
    answers.iter().any(|answer: &Answer| match (outcome, answer) {
        (Ok(outcome), Ok(answer)) => outcome == answer,
        (Err(words), Err(fault)) => *words == AccountError::to_string(fault),
        _ => false,
    })
}
