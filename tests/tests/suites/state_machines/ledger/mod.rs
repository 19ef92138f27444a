//! The SQLite ledger on disk: group commits, spends that are cancelled before or after their commit, and crashes at any
//! time. Acknowledged spends stay committed, unacknowledged ones are voided.

mod machine;

mod process;

use std::collections::BTreeSet;
use std::fmt;

use enrich_lib::credit::Hold;
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

pub(crate) use machine::LedgerMachine;
use process::{GRANTED_FIRST, START, WORKSPACES};

use super::disk::Disk;
use super::model::{
    ALREADY_SPENT, AccountModel, Answers, BEGUN, DONE, ENDED, LOOKUPS, Lookups, lookup, number,
};

/// One operation on a ledger. Lookups are numbered and belong to the workspaces in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Hold(usize),
    Release(usize),
    /// Requests a spend of this many credits for a lookup. Cancels an earlier attempt first.
    Spend(usize, u64),
    /// Repeats the last hold or settlement, as after a lost reply.
    Replay,
    /// The writer processes its queue.
    Write,
    /// Polls the result of a pending spend.
    Take(usize),
    /// Cancels the caller that waits for the spend of a lookup.
    GiveUp(usize),
    /// Advances the time by this many seconds, followed by a tick of the ledger.
    Tick(u64),
    /// The operator grants this many credits to a workspace.
    Grant(usize, u64),
    /// The operator revokes the key of a workspace.
    Revoke(usize),
    /// The key of a workspace is looked up.
    Find(usize),
    /// The process crashes and another one starts.
    Crash,
    /// The process shuts down gracefully and another one starts.
    Close,
}

#[derive(Clone)]
pub(crate) struct Model {
    lookups: Lookups,
    holdings: [Workspace; 2],
    queue: Vec<Job>,
    waiting: [Option<Attempt>; LOOKUPS],
    attempts: u32,
    last: Option<Step>,
    expected: Option<Expected>,
}

#[derive(Clone, Debug)]
struct Workspace {
    model: AccountModel,
    disk: Disk,
    key: Key,
}

#[derive(Clone, Copy, Debug, Default)]
struct Key {
    is_revoked: bool,
    /// The ledger has returned the key and may have cached it.
    was_found: bool,
}

#[derive(Clone, Debug)]
enum Job {
    Spend { attempt: u32, hold: Hold, credits: u64 },
    Void(Hold),
}

/// A spend whose caller waits for the result.
#[derive(Clone, Debug)]
enum Attempt {
    Queued(u32),
    Answered(Hold, Answers),
}

/// The expected effect of the last step, if the step was applicable.
#[derive(Clone, Debug)]
struct Expected {
    step: Step,
    hold: Option<Hold>,
    answer: Expect,
}

#[derive(Clone, Copy, Debug)]
enum Expect {
    Nothing,
    /// The result is pending.
    Waits,
    Returns(Answers),
    Finds(&'static [bool]),
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
        let disk = Disk::with_credits(GRANTED_FIRST);
        let workspace = Workspace { model: AccountModel::open(GRANTED_FIRST, 0), disk, key: Key::default() };
        let model = Self {
            lookups: Lookups::from(START),
            holdings: [workspace.clone(), workspace],
            queue: Vec::new(),
            waiting: Default::default(),
            attempts: 0,
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
    fn of(&mut self, hold: &Hold) -> &mut Workspace {
        &mut self.holdings[usize::from(hold.workspace == WORKSPACES[1])]
    }

    fn take(&mut self, step: Step) -> Option<Expected> {
        let mut hold = None;
        let answer = match step {
            Step::Hold(lookup) | Step::Release(lookup) | Step::Spend(lookup, _) => {
                self.last = Some(step);
                let call = self.lookups.hold(lookup, &WORKSPACES[lookup % 2], 0);
                let answer = self.ask(step, lookup, &call)?;
                hold = Some(call);
                answer
            }
            Step::Replay => return None,
            Step::Write => {
                self.write();
                Expect::Nothing
            }
            Step::Take(lookup) => self.answer(lookup)?,
            Step::GiveUp(lookup) => {
                self.waiting[lookup].as_ref()?;
                self.give_up(lookup);
                Expect::Nothing
            }
            Step::Tick(seconds) => {
                self.lookups.wait(seconds);
                self.write();
                for Workspace { model, disk, key } in &mut self.holdings {
                    model.advance(self.lookups.now);
                    model.grant(disk.granted - model.balance().granted);
                    key.was_found &= !key.is_revoked;
                }
                Expect::Nothing
            }
            Step::Grant(workspace, credits) => {
                self.holdings[workspace].disk.granted += credits;
                Expect::Nothing
            }
            Step::Revoke(workspace) => {
                self.holdings[workspace].key.is_revoked = true;
                Expect::Nothing
            }
            Step::Find(workspace) => {
                let key = &mut self.holdings[workspace].key;
                key.was_found |= !key.is_revoked;
                Expect::Finds(match key {
                    Key { is_revoked: false, .. } => &[true],
                    // A cached key may be found until the next tick.
                    Key { was_found: true, .. } => &[true, false],
                    Key { was_found: false, .. } => &[false],
                })
            }
            Step::Crash => {
                self.crash();
                Expect::Nothing
            }
            Step::Close => {
                (0..LOOKUPS).for_each(|lookup| self.give_up(lookup));
                self.write();
                self.crash();
                Expect::Nothing
            }
        };
        Some(Expected { step, hold, answer })
    }

    /// Returns `None` if no caller makes this request in the current state.
    fn ask(&mut self, step: Step, lookup: usize, hold: &Hold) -> Option<Expect> {
        let Workspace { model, disk, .. } = self.of(hold);
        let answers = match step {
            // A charged lookup was answered or lost with its process, so its hold is not placed again.
            Step::Hold(_) if disk.charged(lookup) && model.is_unknown(hold) => return None,
            Step::Hold(_) => model.hold(hold),
            Step::Spend(_, credits) => return Some(self.spend(lookup, hold, credits)),
            _ => model.release(hold),
        };
        Some(Expect::Returns(answers))
    }

    fn spend(&mut self, lookup: usize, hold: &Hold, credits: u64) -> Expect {
        self.give_up(lookup);
        let model = &mut self.of(hold).model;
        match model.begin(hold, credits) {
            BEGUN if credits == 0 => {
                model.commit(hold);
                Expect::Returns(DONE)
            }
            BEGUN => {
                self.attempts += 1;
                self.waiting[lookup] = Some(Attempt::Queued(self.attempts));
                self.queue.push(Job::Spend { attempt: self.attempts, hold: hold.clone(), credits });
                Expect::Waits
            }
            ALREADY_SPENT => Expect::Returns(DONE),
            refused => Expect::Returns(refused),
        }
    }

    /// Processes the queue: drops spends whose caller has cancelled, commits the others, and voids committed spends whose
    /// result was not received, unless this batch repeats and acknowledges them.
    fn write(&mut self) {
        let (mut spends, mut voids) = (Vec::new(), BTreeSet::new());
        for job in std::mem::take(&mut self.queue) {
            match job {
                Job::Void(hold) => drop(voids.insert(number(&hold))),
                Job::Spend { attempt, hold, credits } => match self.waiting[number(&hold)] {
                    Some(Attempt::Queued(waiting)) if waiting == attempt => spends.push((hold, credits)),
                    _ => self.of(&hold).model.abort(&hold),
                },
            }
        }
        for (hold, credits) in spends {
            let lookup = number(&hold);
            let Workspace { model, disk, .. } = self.of(&hold);
            let answers = if disk.spend(lookup, credits) {
                model.commit(&hold);
                voids.remove(&lookup);
                DONE
            } else {
                model.abort(&hold);
                ENDED
            };
            self.waiting[lookup] = Some(Attempt::Answered(hold, answers));
        }
        for lookup in voids {
            let hold = self.lookups.hold(lookup, &WORKSPACES[lookup % 2], 0);
            let Workspace { model, disk, .. } = self.of(&hold);
            disk.void(lookup);
            model.void(&hold);
        }
    }

    fn answer(&mut self, lookup: usize) -> Option<Expect> {
        match self.waiting[lookup].take()? {
            Attempt::Answered(_, answers) => Some(Expect::Returns(answers)),
            queued => {
                self.waiting[lookup] = Some(queued);
                Some(Expect::Waits)
            }
        }
    }

    fn give_up(&mut self, lookup: usize) {
        if let Some(Attempt::Answered(hold, DONE)) = self.waiting[lookup].take() {
            self.of(&hold).model.reopen(&hold);
            self.queue.push(Job::Void(hold));
        }
    }

    fn crash(&mut self) {
        self.queue.clear();
        self.waiting = Default::default();
        for Workspace { model, disk, key } in &mut self.holdings {
            *model = AccountModel::open(disk.granted, disk.spent());
            key.was_found = false;
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    // Most spends cost one credit.
    let cost = prop_oneof![3 => Just(1), 1 => 0..4_u64];
    let workspace = || 0..WORKSPACES.len();
    prop_oneof![
        12 => lookup().prop_map(Hold),
        3 => lookup().prop_map(Release),
        10 => (lookup(), cost).prop_map(|(lookup, credits)| Spend(lookup, credits)),
        3 => Just(Replay),
        8 => Just(Write),
        5 => lookup().prop_map(Take),
        4 => lookup().prop_map(GiveUp),
        2 => (0..15_u64).prop_map(Tick),
        2 => (0..60_u64).prop_map(Tick),
        2 => (workspace(), 1..5_u64).prop_map(|(workspace, credits)| Grant(workspace, credits)),
        1 => workspace().prop_map(Revoke),
        1 => workspace().prop_map(Find),
        2 => Just(Crash),
        1 => Just(Close),
    ]
}
