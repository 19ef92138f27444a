//! The ledger on its disk: spends that gather and are written together, given up before that or after it, and crashes
//! at any moment. What somebody was told stays; what nobody was told is taken back.

mod machine;

mod process;

use std::collections::BTreeSet;
use std::fmt;

use enrich_lib::credit::Hold;
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

pub(crate) use machine::LedgerMachine;
use process::{GRANTED_FIRST, START, WORKSPACES};

use crate::book::{ALREADY_SPENT, Answers, BEGUN, Book, DONE, ENDED, LOOKUPS, Lookups, lookup, number};
use crate::disk::Disk;

/// What happens to a ledger. Lookups are numbered, and are of the workspaces in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Hold(usize),
    Release(usize),
    /// Asks to spend so many credits of a lookup. An earlier attempt is given up first.
    Spend(usize, u64),
    /// The answer to the last hold or settlement was lost: it is asked for again.
    Replay,
    /// The writer does all that is queued.
    Write,
    /// Whoever waits for the spend of a lookup looks for the answer.
    Take(usize),
    /// Whoever waits for the spend of a lookup waits no longer.
    GiveUp(usize),
    /// So many seconds pass, and the ledger is told.
    Tick(u64),
    /// The operator grants a workspace so many credits.
    Grant(usize, u64),
    /// The operator revokes the key of a workspace.
    Revoke(usize),
    /// The key of a workspace is looked up.
    Find(usize),
    /// The process is gone, and another one is there.
    Crash,
    /// The process ends in order, and another one is there.
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
    book: Book,
    disk: Disk,
    key: Key,
}

#[derive(Clone, Copy, Debug, Default)]
struct Key {
    is_revoked: bool,
    /// And may be remembered.
    was_found: bool,
}

#[derive(Clone, Debug)]
enum Job {
    Spend { attempt: u32, hold: Hold, credits: u64 },
    Void(Hold),
}

/// Somebody waits for a spend.
#[derive(Clone, Debug)]
enum Attempt {
    Queued(u32),
    Answered(Hold, Answers),
}

/// What the last step did, if there was anything to do.
#[derive(Clone, Debug)]
struct Expected {
    step: Step,
    hold: Option<Hold>,
    answer: Expect,
}

#[derive(Clone, Copy, Debug)]
enum Expect {
    Nothing,
    /// There is no answer yet.
    Waits,
    Told(Answers),
    Finds(&'static [bool]),
}

/// Of a failure, the steps are of interest: all begin alike.
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
        let workspace = Workspace { book: Book::open(GRANTED_FIRST, 0), disk, key: Key::default() };
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
                let asked = self.lookups.hold(lookup, &WORKSPACES[lookup % 2], 0);
                let answer = self.ask(step, lookup, &asked)?;
                hold = Some(asked);
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
                for Workspace { book, disk, key } in &mut self.holdings {
                    book.tell(self.lookups.now);
                    book.grant(disk.granted - book.balance().granted);
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
                    // Until the next tick, by those who remember it.
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

    /// None if nobody asks for this now.
    fn ask(&mut self, step: Step, lookup: usize, hold: &Hold) -> Option<Expect> {
        let Workspace { book, disk, .. } = self.of(hold);
        let answers = match step {
            // A lookup that was charged has had its answer, or its process is gone: it does not begin anew.
            Step::Hold(_) if disk.charged(lookup) && book.is_unknown(hold) => return None,
            Step::Hold(_) => book.hold(hold),
            Step::Spend(_, credits) => return Some(self.spend(lookup, hold, credits)),
            _ => book.release(hold),
        };
        Some(Expect::Told(answers))
    }

    fn spend(&mut self, lookup: usize, hold: &Hold, credits: u64) -> Expect {
        self.give_up(lookup);
        let book = &mut self.of(hold).book;
        match book.begin(hold, credits) {
            BEGUN if credits == 0 => {
                book.commit(hold);
                Expect::Told(DONE)
            }
            BEGUN => {
                self.attempts += 1;
                self.waiting[lookup] = Some(Attempt::Queued(self.attempts));
                self.queue.push(Job::Spend { attempt: self.attempts, hold: hold.clone(), credits });
                Expect::Waits
            }
            ALREADY_SPENT => Expect::Told(DONE),
            refused => Expect::Told(refused),
        }
    }

    /// What nobody waits for is not written. What was written and nobody was told of is voided, unless it was asked for
    /// again and is told now.
    fn write(&mut self) {
        let (mut spends, mut voids) = (Vec::new(), BTreeSet::new());
        for job in std::mem::take(&mut self.queue) {
            match job {
                Job::Void(hold) => drop(voids.insert(number(&hold))),
                Job::Spend { attempt, hold, credits } => match self.waiting[number(&hold)] {
                    Some(Attempt::Queued(waiting)) if waiting == attempt => spends.push((hold, credits)),
                    _ => self.of(&hold).book.abort(&hold),
                },
            }
        }
        for (hold, credits) in spends {
            let lookup = number(&hold);
            let Workspace { book, disk, .. } = self.of(&hold);
            let answers = if disk.spend(lookup, credits) {
                book.commit(&hold);
                voids.remove(&lookup);
                DONE
            } else {
                book.abort(&hold);
                ENDED
            };
            self.waiting[lookup] = Some(Attempt::Answered(hold, answers));
        }
        for lookup in voids {
            let hold = self.lookups.hold(lookup, &WORKSPACES[lookup % 2], 0);
            let Workspace { book, disk, .. } = self.of(&hold);
            disk.void(lookup);
            book.void(&hold);
        }
    }

    fn answer(&mut self, lookup: usize) -> Option<Expect> {
        match self.waiting[lookup].take()? {
            Attempt::Answered(_, answers) => Some(Expect::Told(answers)),
            queued => {
                self.waiting[lookup] = Some(queued);
                Some(Expect::Waits)
            }
        }
    }

    fn give_up(&mut self, lookup: usize) {
        if let Some(Attempt::Answered(hold, DONE)) = self.waiting[lookup].take() {
            self.of(&hold).book.reopen(&hold);
            self.queue.push(Job::Void(hold));
        }
    }

    fn crash(&mut self) {
        self.queue.clear();
        self.waiting = Default::default();
        for Workspace { book, disk, key } in &mut self.holdings {
            *book = Book::open(disk.granted, disk.spent());
            key.was_found = false;
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    // Most cost one credit.
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
