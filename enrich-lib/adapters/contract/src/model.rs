//! Random steps: after each one, a store returns the same result and has the same balance as [`AccountTable`].

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyId;
use enrich_lib::memory::AccountTable;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::Credits;
use enrich_lib::window::Quota;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::{CreditStore, START, runtime};

/// One operation on a workspace.
#[derive(Clone, Debug)]
enum Step {
    Hold {
        lookup: u8,
        credits: u64,
        life: Duration,
    },
    Settle {
        lookup: u8,
        life: Duration,
        settlement: Settlement,
    },
    Grant(u64),
    /// Advances the time, followed by a tick.
    Wait(Duration),
}

/// Runs `cases` random sequences of steps on new stores and compares each with the model.
///
/// Panics with the shortest sequence whose result differs.
pub fn compare<S: CreditStore>(cases: u32, open: impl AsyncFn() -> Arc<S>) {
    let runtime = runtime();
    // No seed files: write a separate test for each sequence that fails.
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    let compared = TestRunner::new(config)
        .run(&vec(step(), 1..60), |steps| runtime.block_on(async { play(&*open().await, steps).await }));
    if let Err(difference) = compared {
        panic!("the store differs from the model: {difference}");
    }
}

async fn play(store: &impl CreditStore, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let model = AccountTable::default();
    let workspace = store.create_workspace(Quota::default(), GRANTED_FIRST).await;
    model.grant(&workspace, GRANTED_FIRST).unwrap();
    let mut now = START;
    model.advance(elapsed(now));
    for step in steps {
        match step {
            Step::Hold { lookup, credits, life } => {
                let hold = hold(&workspace, lookup_id(lookup), credits, now, life);
                let result: Option<HoldOutcome> = store.credits().hold(&hold).await.ok();
                prop_assert_eq!(result, model.hold(&hold).await.ok(), "{:?}", hold);
            }
            Step::Settle { lookup, life, settlement } => {
                let hold = hold(&workspace, lookup_id(lookup), 1, now, life);
                let is_settled = store.credits().settle(&hold, settlement).await.is_ok();
                prop_assert_eq!(
                    is_settled,
                    model.settle(&hold, settlement).await.is_ok(),
                    "{:?} {:?}",
                    hold,
                    settlement
                );
            }
            Step::Grant(credits) => {
                store.grant(&workspace, credits).await;
                store.tick(now).await;
                model.grant(&workspace, credits).unwrap();
                model.advance(elapsed(now));
            }
            Step::Wait(wait) => {
                now = now + wait;
                store.tick(now).await;
                model.advance(elapsed(now));
            }
        }
        prop_assert_eq!(store.balance(&workspace).await, model.balance(&workspace));
    }
    Ok(())
}

const GRANTED_FIRST: u64 = 8;

/// Generates steps that are likely to conflict: few lookups, small amounts, and times around the expiry.
fn step() -> impl Strategy<Value = Step> {
    let lookup = 0..8_u8;
    let life = || (1..20_u64).prop_map(|twos| Duration::from_secs(twos * 2));
    let settlement = prop_oneof![
        2 => (0..5_u64).prop_map(Settlement::Spend),
        1 => Just(Settlement::Release),
    ];
    prop_oneof![
        4 => (lookup.clone(), 0..5_u64, life())
            .prop_map(|(lookup, credits, life)| Step::Hold { lookup, credits, life }),
        4 => (lookup, life(), settlement)
            .prop_map(|(lookup, life, settlement)| Step::Settle { lookup, life, settlement }),
        1 => (1..6_u64).prop_map(Step::Grant),
        1 => life().prop_map(Step::Wait),
    ]
}

fn lookup_id(lookup: u8) -> LookupId {
    LookupId::new(START, [lookup; 10])
}

fn elapsed(now: Timestamp) -> Duration {
    Duration::from_millis(now.unix_ms())
}

fn hold(workspace: &WorkspaceId, lookup_id: LookupId, credits: u64, now: Timestamp, ttl: Duration) -> Hold {
    Hold { lookup_id, workspace: workspace.clone(), key: KeyId::from_number(1), credits, placed_at: now, ttl }
}
