//! The SQLite ledger on disk: group commits, callers that stop waiting, spends that are withdrawn, and
//! crashes at any time. Acknowledged spends stay committed, failed ones never are.

mod machine;

mod process;

use std::fmt;
use std::time::Duration;

use enrich_lib::credit::{Hold, Settlement};
use enrich_lib::model::Timestamp;
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

pub(crate) use machine::LedgerMachine;
use process::{GRANTED_FIRST, START, WORKSPACES};

use super::disk::Disk;
use super::model::{
    AccountModel, Answers, BEGUN, DONE, ENDED, LOOKUPS, Lookups, NO_HOLD, lookup, number, settle_without_hold,
};

/// How long a spend may wait for its transaction.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// One operation on a ledger. Lookups are numbered and belong to the workspaces in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Hold(usize),
    Release(usize),
    /// Requests a spend of this many credits for a lookup. The caller of an earlier attempt stops waiting
    /// first.
    Spend(usize, u64),
    /// Repeats the last hold or settlement, as after a lost reply.
    Replay,
    /// The writer processes its queue.
    Write,
    /// Polls the result of a pending spend.
    Take(usize),
    /// The caller that waits for the spend of a lookup stops waiting.
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
    queue: Vec<QueuedSpend>,
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
struct QueuedSpend {
    attempt: u32,
    hold: Hold,
    credits: u64,
    queued_at: Timestamp,
}

/// A spend whose caller waits for the result.
#[derive(Clone, Debug)]
enum Attempt {
    Queued(u32),
    Answered(Expect),
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
    /// The spend was withdrawn.
    Withdrawn,
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
        let mut model = AccountModel::open(GRANTED_FIRST, 0);
        model.advance(START);
        let workspace = Workspace { model, disk, key: Key::default() };
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
                let answer = self.ask(step, lookup, &call);
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
                self.waiting[lookup] = None;
                Expect::Nothing
            }
            Step::Tick(seconds) => {
                self.lookups.wait(seconds);
                self.withdraw_overdue();
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
                self.waiting = Default::default();
                self.write();
                self.crash();
                Expect::Nothing
            }
        };
        Some(Expected { step, hold, answer })
    }

    fn ask(&mut self, step: Step, lookup: usize, hold: &Hold) -> Expect {
        if let Step::Spend(..) = step {
            self.waiting[lookup] = None;
        }
        match step {
            Step::Hold(_) => Expect::Returns(self.of(hold).model.hold(hold)),
            Step::Spend(_, credits @ 1..) => self.spend(lookup, hold, credits),
            _ => {
                let Workspace { model, disk, .. } = self.of(hold);
                Expect::Returns(match model.release(hold) {
                    NO_HOLD => settle_without_hold(Settlement::Release, disk.spent_by(lookup)),
                    answers => answers,
                })
            }
        }
    }

    fn spend(&mut self, lookup: usize, hold: &Hold, credits: u64) -> Expect {
        let Workspace { model, disk, .. } = self.of(hold);
        match model.begin(hold, credits) {
            BEGUN => {
                self.attempts += 1;
                self.waiting[lookup] = Some(Attempt::Queued(self.attempts));
                let (attempt, hold, queued_at) = (self.attempts, hold.clone(), self.lookups.now);
                self.queue.push(QueuedSpend { attempt, hold, credits, queued_at });
                Expect::Waits
            }
            NO_HOLD => {
                Expect::Returns(settle_without_hold(Settlement::Spend(credits), disk.spent_by(lookup)))
            }
            refused => Expect::Returns(refused),
        }
    }

    /// Commits all queued spends, also those whose caller has stopped waiting.
    fn write(&mut self) {
        for QueuedSpend { attempt, hold, credits, .. } in std::mem::take(&mut self.queue) {
            let Workspace { model, disk, .. } = self.of(&hold);
            let answers = match disk.spent_by(number(&hold)) {
                None => {
                    disk.spend(number(&hold), credits);
                    model.commit(&hold);
                    DONE
                }
                // A lookup that holds credits again after its spend is not charged again.
                Some(spent) => {
                    model.abort(&hold);
                    if spent == credits { DONE } else { ENDED }
                }
            };
            self.reply(&hold, attempt, Expect::Returns(answers));
        }
    }

    /// Withdraws the spends that are in the queue for too long.
    fn withdraw_overdue(&mut self) {
        let now = self.lookups.now;
        let is_overdue = |spend: &mut QueuedSpend| now >= spend.queued_at + QUEUE_TIMEOUT;
        for QueuedSpend { attempt, hold, .. } in self.queue.extract_if(.., is_overdue).collect::<Vec<_>>() {
            let model = &mut self.of(&hold).model;
            model.advance(now);
            model.abort(&hold);
            self.reply(&hold, attempt, Expect::Withdrawn);
        }
    }

    /// Answers the caller of an attempt, if it still waits.
    fn reply(&mut self, hold: &Hold, attempt: u32, answer: Expect) {
        let waiting = &mut self.waiting[number(hold)];
        if matches!(waiting, Some(Attempt::Queued(queued)) if *queued == attempt) {
            *waiting = Some(Attempt::Answered(answer));
        }
    }

    fn answer(&mut self, lookup: usize) -> Option<Expect> {
        match self.waiting[lookup].take()? {
            Attempt::Answered(answer) => Some(answer),
            queued => {
                self.waiting[lookup] = Some(queued);
                Some(Expect::Waits)
            }
        }
    }

    fn crash(&mut self) {
        self.queue.clear();
        self.waiting = Default::default();
        for Workspace { model, disk, key } in &mut self.holdings {
            *model = AccountModel::open(disk.granted, disk.spent());
            model.advance(self.lookups.now);
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
