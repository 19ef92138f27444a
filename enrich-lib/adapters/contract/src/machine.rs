//! Random steps: after each one, a store returns the same result and has the same balances as a model, also
//! after crashes.
//!
//! The model derives results and balances from the state of each lookup and keeps no totals.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement, Shortage};
use enrich_lib::key::KeyId;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::Credits;
use enrich_lib::receipt::Receipt;
use enrich_lib::window::Quota;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{CreditStore, Durable, START, TIME_MAX, runtime};

/// One operation. Lookups are numbered and belong to the workspaces in turn. Half of them have receipts.
#[derive(Clone, Debug)]
enum Step {
    Call(usize, Call),
    /// Repeats the last call, as after a lost reply.
    Replay,
    /// Spends credits of several lookups at the same time.
    SpendTogether(Vec<(usize, u64)>),
    /// Places holds of this number of lookups, some of which have spent, at the same time, and then spends them.
    SpendMany(usize),
    /// Drops a call that is still pending after this number of polls, and repeats it.
    Abandon(usize, Call, u8),
    Grant(usize, u64),
    /// Advances the time, followed by a tick.
    Wait(Duration),
    /// Crashes the process. The next one starts when all holds have expired.
    Crash,
}

/// A call of the port.
#[derive(Clone, Copy, Debug)]
enum Call {
    Hold(u64, Duration),
    Settle(Settlement),
}

/// The result of a call that succeeds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Held(HoldOutcome),
    Settled(Option<LookupId>),
}

impl Call {
    async fn execute(self, credits: &dyn Credits, hold: &Hold) -> Option<Outcome> {
        match self {
            Self::Hold(..) => credits.hold(hold).await.ok().map(Outcome::Held),
            Self::Settle(settlement) => credits.settle(hold, settlement).await.ok().map(Outcome::Settled),
        }
    }
}

/// Runs random sequences of steps on new stores and compares each with the model. The variable
/// `STORE_MACHINE_CASES` replaces the number of `cases`. Panics with the shortest sequence whose result differs, if a
/// minute suffices to find it.
pub fn compare<S: CreditStore>(cases: u32, open: impl AsyncFn() -> Arc<S>) {
    let crash = async |_| unreachable!("only a durable store crashes");
    run(cases, step().boxed(), open, crash);
}

/// Like [`compare`], with crashes.
pub fn compare_with_crashes<S: Durable>(cases: u32, open: impl AsyncFn() -> Arc<S>) {
    let steps = prop_oneof![24 => step(), 1 => Just(Step::Crash)];
    run(cases, steps.boxed(), open, S::crash);
}

fn run<S: CreditStore>(
    cases: u32,
    step: BoxedStrategy<Step>,
    open: impl AsyncFn() -> Arc<S>,
    crash: impl AsyncFn(Arc<S>) -> Arc<S>,
) {
    let runtime = runtime();
    // No seed files: write a separate test for each sequence that fails. The search for a shorter one can hang as well.
    let cases = crate::cases(cases);
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    config.max_shrink_time = TIME_MAX.as_millis() as u32;
    let compared = TestRunner::new(config).run(&vec(step, 1..60), |steps| {
        runtime.block_on(async {
            let mut machine = Machine::new(open().await).await;
            for step in steps {
                let taken = timeout(TIME_MAX, machine.take(step.clone(), &crash)).await;
                machine =
                    taken.map_err(|_| TestCaseError::fail(format!("{step:?} takes {TIME_MAX:?}")))??;
            }
            Ok(())
        })
    });
    compared.unwrap_or_else(|why| panic!("the store (left; `None` is an error) is not as the model: {why}"));
}

/// A store and its model.
struct Machine<S> {
    store: Arc<S>,
    workspaces: [WorkspaceId; 2],
    model: Model,
    last: Option<(usize, Call)>,
}

const GRANTED_FIRST: u64 = 8;

impl<S: CreditStore> Machine<S> {
    async fn new(store: Arc<S>) -> Self {
        let workspace = || store.create_workspace(Quota::default(), GRANTED_FIRST);
        let workspaces = [workspace().await, workspace().await];
        let model = Model {
            now: START,
            granted: [GRANTED_FIRST; 2],
            lookups: [Lookup::default(); LOOKUPS_MAX],
            payers: Default::default(),
            keeps_receipts: store.credits().keeps_receipts(),
        };
        Self { store, workspaces, model, last: None }
    }

    async fn take(
        mut self,
        step: Step,
        crash: &impl AsyncFn(Arc<S>) -> Arc<S>,
    ) -> Result<Self, TestCaseError> {
        let step = match (step, self.last) {
            (Step::Replay, Some((lookup, call))) => Step::Call(lookup, call),
            (step, _) => step,
        };
        match step.clone() {
            Step::Call(lookup, call) => {
                let Lookup { hold, spent } = self.model.lookups[lookup];
                self.call([(lookup, call)]).await?;
                // A store may show the credits of ended holds later.
                let available = self.model.balance(lookup % 2).available;
                let left = self.store.credits().available(&self.workspaces[lookup % 2]);
                let is_first_hold = matches!(call, Call::Hold(..)) && hold.is_none() && spent.is_none();
                let is_possible = !is_first_hold || left.is_none_or(|left| left <= available);
                prop_assert!(is_possible, "{left:?} after {step:?}");
                self.last = Some((lookup, call));
            }
            Step::Replay => {}
            Step::SpendTogether(spends) => self.spend_together(spends).await?,
            Step::SpendMany(lookups) => {
                for workspace in [0, 1] {
                    self.grant(workspace, lookups as u64).await;
                }
                // The workspaces have the credits, so that the results do not depend on the order.
                self.call((0..lookups).map(|lookup| (lookup, Call::Hold(1, LIFE_MAX)))).await?;
                self.check(&step).await?;
                self.spend_together((0..lookups).map(|lookup| (lookup, 1)).collect()).await?;
            }
            Step::Abandon(lookup, call, polls) => self.abandon(lookup, call, polls).await?,
            Step::Grant(workspace, credits) => self.grant(workspace, credits).await,
            Step::Wait(wait) => self.wait(wait).await,
            Step::Crash => {
                self.store = crash(self.store).await;
                self.wait(LIFE_MAX).await;
            }
        }
        self.check(&step).await?;
        Ok(self)
    }

    async fn check(&self, step: &Step) -> Result<(), TestCaseError> {
        for (n, workspace) in self.workspaces.iter().enumerate() {
            let balance = self.store.balance(workspace).await;
            prop_assert_eq!(balance, self.model.balance(n), "workspace {} after {:?}", n, step);
        }
        Ok(())
    }

    /// Executes calls at the same time. Their results must not depend on the order, except those of spends with one
    /// receipt: a spend fails before another lookup pays, pays, or names the payer afterwards.
    async fn call(&mut self, calls: impl IntoIterator<Item = (usize, Call)>) -> Result<(), TestCaseError> {
        let mut tasks = JoinSet::new();
        for (lookup, call) in calls {
            let (store, hold) = (self.store.clone(), self.hold(lookup, call));
            tasks.spawn(async move { (call.execute(store.credits(), &hold).await, lookup, call) });
        }
        let mut results = tasks.join_all().await;
        results.sort_by_key(|(outcome, ..)| match outcome {
            Some(Outcome::Settled(payer)) => Some(*payer),
            _ => None,
        });
        for (outcome, lookup, call) in results {
            // A store may refuse the hold of a lookup that has spent.
            let is_hold = matches!(call, Call::Hold(..));
            if outcome.is_some() || !is_hold || self.model.lookups[lookup].spent.is_none() {
                prop_assert_eq!(outcome, self.model.call(lookup, call), "{:?} of {}", call, lookup);
            }
        }
        Ok(())
    }

    /// Drops a call that is still pending after this number of polls. Repeats it by the other node, and then by the
    /// node whose queue has the dropped one, which has ended then and cannot change what a later step does.
    async fn abandon(&mut self, lookup: usize, call: Call, mut polls: u8) -> Result<(), TestCaseError> {
        let (store, hold) = (self.store.clone(), self.hold(lookup, call));
        let mut dropped = Box::pin(call.execute(store.credits(), &hold));
        let polled = poll_fn(|context| {
            polls -= 1;
            let polled = dropped.as_mut().poll(context);
            if polled.is_pending() && polls > 0 { Poll::Pending } else { Poll::Ready(polled) }
        })
        .await;
        drop(dropped);
        if let Call::Settle(_) = call {
            if let Poll::Ready(outcome) = polled {
                prop_assert_eq!(outcome, self.model.call(lookup, call), "{:?} of {}", call, lookup);
            }
            self.call([(lookup, call)]).await?;
            return self.call([(lookup, call)]).await;
        }
        // The hold of a dropped call may end at any time, so that only the credits are compared, after its release.
        let release = Call::Settle(Settlement::Release);
        for call in [call, call, release, release] {
            call.execute(store.credits(), &hold).await;
        }
        self.model.lookups[lookup].hold = None;
        Ok(())
    }

    async fn grant(&mut self, workspace: usize, credits: u64) {
        self.store.grant(&self.workspaces[workspace], credits).await;
        self.model.granted[workspace] += credits;
        self.wait(Duration::ZERO).await;
    }

    /// Only the first amount of each lookup counts, so that the results do not depend on the order.
    async fn spend_together(&mut self, mut spends: Vec<(usize, u64)>) -> Result<(), TestCaseError> {
        for at in 1..spends.len() {
            let (before, rest) = spends.split_at_mut(at);
            let first = before.iter().find(|(lookup, _)| *lookup == rest[0].0);
            rest[0].1 = first.map_or(rest[0].1, |(_, credits)| *credits);
        }
        let spend = |(lookup, credits)| (lookup, Call::Settle(Settlement::Spend(credits)));
        self.call(spends.into_iter().map(spend)).await
    }

    async fn wait(&mut self, wait: Duration) {
        self.model.wait(wait);
        self.store.tick(self.model.now).await;
    }

    /// Returns the hold that is passed to a call. For a settlement, only the one that was placed counts.
    fn hold(&self, lookup: usize, call: Call) -> Hold {
        let (credits, ttl) = match call {
            Call::Hold(credits, ttl) => (credits, ttl),
            Call::Settle(_) => (1, Duration::ZERO),
        };
        let mut hold = Hold::new(lookup_id(lookup), self.workspaces[lookup % 2].clone(), credits);
        hold.key = KeyId::from_number(1);
        hold.ttl = ttl;
        hold.receipt = self.model.receipt(lookup).map(|number| Receipt::from_bytes([number as u8; 16]));
        hold
    }
}

/// The number of lookups of most steps.
const LOOKUPS: usize = 8;

/// The number of all lookups. Stores insert the spends of 16 of them or more by one statement.
const LOOKUPS_MAX: usize = 40;

fn lookup_id(lookup: usize) -> LookupId {
    LookupId::new(START, [lookup as u8; 10])
}

struct Model {
    now: Timestamp,
    /// By workspace.
    granted: [u64; 2],
    lookups: [Lookup; LOOKUPS_MAX],
    /// The lookup that has paid for each receipt of each workspace.
    payers: [[Option<usize>; 2]; 2],
    keeps_receipts: bool,
}

#[derive(Clone, Copy, Default)]
struct Lookup {
    /// When the hold expires, and its credits.
    hold: Option<(Timestamp, u64)>,
    spent: Option<u64>,
}

impl Model {
    fn balance(&self, workspace: usize) -> Balance {
        let lookups = || self.lookups.iter().skip(workspace).step_by(2);
        let held = lookups().filter_map(|lookup| lookup.hold).map(|(_, credits)| credits).sum();
        let (granted, spent) = (self.granted[workspace], lookups().filter_map(|lookup| lookup.spent).sum());
        Balance { granted, available: granted - held - spent, held, spent }
    }

    /// Returns the number of a lookup's receipt, if it has one. Two lookups of each workspace share one, and
    /// another workspace has the same.
    fn receipt(&self, lookup: usize) -> Option<usize> {
        (lookup / 4).checked_sub(1).filter(|receipt| self.keeps_receipts && *receipt < 2)
    }

    fn payer(&mut self, lookup: usize) -> Option<&mut Option<usize>> {
        let receipt = self.receipt(lookup)?;
        Some(&mut self.payers[lookup % 2][receipt])
    }

    /// Returns `None` if the store must return an error.
    fn call(&mut self, lookup: usize, call: Call) -> Option<Outcome> {
        match call {
            Call::Hold(credits, life) => self.hold(lookup, credits, life).map(Outcome::Held),
            Call::Settle(Settlement::Release) => self.settle(lookup, 0).map(Outcome::Settled),
            Call::Settle(Settlement::Spend(credits)) => self.settle(lookup, credits).map(Outcome::Settled),
        }
    }

    fn hold(&mut self, lookup: usize, credits: u64, life: Duration) -> Option<HoldOutcome> {
        let Balance { available, held, .. } = self.balance(lookup % 2);
        let shortage = if held == 0 { Shortage::Exhausted } else { Shortage::Held };
        let is_paid = self.payer(lookup).is_some_and(|payer| payer.is_some());
        let (taken, has_receipt) = (if is_paid { 0 } else { credits }, self.receipt(lookup).is_some());
        let hold = &mut self.lookups[lookup].hold;
        match hold {
            Some((_, 0)) if has_receipt => Some(HoldOutcome::Granted),
            Some((_, held)) => (*held == credits).then_some(HoldOutcome::Granted),
            None if taken > available => Some(HoldOutcome::Insufficient(shortage)),
            None => {
                *hold = Some((self.now + life, taken));
                Some(HoldOutcome::Granted)
            }
        }
    }

    /// Returns the other lookup that has paid, or `None` if the settlement fails. A release spends no credits.
    fn settle(&mut self, lookup: usize, credits: u64) -> Option<Option<LookupId>> {
        let paid = self.payer(lookup).and_then(|payer| *payer).filter(|_| credits > 0);
        let Lookup { hold, spent } = &mut self.lookups[lookup];
        let is_settled = match (paid, &hold) {
            (Some(payer), _) => {
                *hold = None;
                if spent.is_none() {
                    return Some(Some(lookup_id(payer)));
                }
                *spent == Some(credits)
            }
            (None, Some((_, held))) if credits > *held => false,
            (None, Some(_)) => {
                *hold = None;
                credits == 0 || *spent.get_or_insert(credits) == credits
            }
            (None, None) => spent.unwrap_or_default() == credits,
        };
        if is_settled && credits > 0 {
            self.payer(lookup).into_iter().for_each(|payer| *payer = Some(lookup));
        }
        is_settled.then_some(None)
    }

    fn wait(&mut self, wait: Duration) {
        self.now = self.now + wait;
        for Lookup { hold, .. } in &mut self.lookups {
            hold.take_if(|(expires_at, _)| *expires_at <= self.now);
        }
    }
}

const LIFE_MAX: Duration = Duration::from_secs(40);

/// Generates steps that are likely to conflict: few lookups, amounts that are often the same, and times around
/// the expiry.
fn step() -> impl Strategy<Value = Step> {
    let lookup = || 0..LOOKUPS;
    let amount = || prop_oneof![Just(2_u64), 0..5_u64];
    let life = || (1..20_u64).prop_map(|twos| Duration::from_secs(twos * 2));
    let hold = || (amount(), life()).prop_map(|(credits, life)| Call::Hold(credits, life));
    let spend = |credits| Call::Settle(Settlement::Spend(credits));
    let call = prop_oneof![
        8 => hold(),
        4 => amount().prop_map(spend),
        2 => Just(Call::Settle(Settlement::Release)),
    ];
    let abandoned = prop_oneof![hold(), (1..4_u64).prop_map(spend)];
    prop_oneof![
        14 => (lookup(), call).prop_map(|(lookup, call)| Step::Call(lookup, call)),
        2 => Just(Step::Replay),
        2 => vec((lookup(), 1..4_u64), 2..12).prop_map(Step::SpendTogether),
        1 => (2..=LOOKUPS_MAX).prop_map(Step::SpendMany),
        4 => (lookup(), abandoned, 1..6_u8).prop_map(|(lookup, call, polls)| Step::Abandon(lookup, call, polls)),
        2 => (0..2_usize, 1..6_u64).prop_map(|(workspace, credits)| Step::Grant(workspace, credits)),
        2 => life().prop_map(Step::Wait),
    ]
}
