//! Usage counts each billed lookup once, whatever happens after its commit.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyId;
use enrich_lib::ports::Credits;
use enrich_sqlite::BlockingAccounts;
use enrich_store::usage::{BILLED, Day, UsageCount, UsageRow};
use futures_executor::block_on;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::world::{Files, START, World, after_seconds, commits, lookup, poll, workspace};

#[test]
fn orderly_end_writes_usage() {
    let world = World::with_credits(10);
    world.spend(&world.hold(1)).unwrap();
    let key = KeyId::from_number(1);
    world.ledger.usage().put_back(vec![UsageCount {
        workspace: workspace("demo"),
        key,
        outcome: "not_found",
        lookups: 2,
    }]);
    let row = |outcome: &str, lookups, credits| UsageRow {
        day: Day::from_timestamp(START),
        key,
        outcome: outcome.to_owned(),
        lookups,
        credits,
    };
    assert_eq!(usage(&world.close()), [row(BILLED, 1, 1), row("not_found", 2, 0)]);
}

#[test]
fn failed_tick_keeps_free_lookups() {
    let world = World::with_credits(10);
    let count = UsageCount {
        workspace: workspace("demo"),
        key: KeyId::from_number(1),
        outcome: "not_found",
        lookups: 2,
    };
    world.ledger.usage().put_back(vec![count]);
    world.spend(&world.hold(1)).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON usage_day BEGIN SELECT RAISE(ABORT, 'refused'); END";
    world.sql().execute_batch(refuse).unwrap();
    assert!(world.drive(world.ledger.tick(START)).is_err());
    world.sql().execute_batch("DROP TRIGGER refuse").unwrap();
    world.tick(START);
    assert_eq!(lookups(&world), 3);
}

#[test]
fn billed_lookup_takes_one_commit() {
    let world = World::with_credits(10);
    let before = commits(&world);
    world.spend(&world.hold(1)).unwrap();
    world.tick(START);
    assert_eq!((commits(&world), lookups(&world)), (before + 1, 1));
}

#[test]
fn audit_reports_usage_that_differs_from_spends() {
    for tampering in
        ["UPDATE usage_day SET credits = 5", "UPDATE usage_day SET lookups = 5", "DELETE FROM usage_day"]
    {
        let world = World::with_credits(10);
        world.spend(&world.hold(1)).unwrap();
        assert!(world.admin().audit().unwrap().reconciles());
        world.sql().execute_batch(tampering).unwrap();
        let audit = world.admin().audit().unwrap();
        assert!(
            audit.errors[0].starts_with("the usage of demo with key_00000001 is"),
            "{tampering}: {audit:?}"
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Spends of lookups with these numbers, in one batch.
    Spend(Vec<u16>),
    Tick,
    Crash,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => vec(0..400_u16, 1..20).prop_map(Step::Spend),
        3 => Just(Step::Tick),
        1 => Just(Step::Crash),
        1 => Just(Step::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn usage_equals_spends_after_any_steps(
        steps in vec(step(), 1..25),
    ) {
        let mut world = World::serve(Files::with_credits(1_000_000));
        for step in steps {
            match step {
                Step::Spend(numbers) => spend_all(&world, &numbers),
                Step::Tick => world.tick(START),
                Step::Crash => world = World::serve(world.kill()),
                Step::Close => world = World::serve(world.close()),
            }
            let audit = world.admin().audit().unwrap();
            prop_assert!(audit.reconciles(), "{:?}", audit);
        }
        let files = world.close();
        prop_assert_eq!(usage(&files), spends(&files));
    }
}

/// Returns a lookup with one of three keys, on one of two days. The order of the ids is that of the numbers.
fn varied(n: u16) -> Hold {
    let at = after_seconds(u64::from(n % 2) * 86_400);
    let mut hold = lookup("demo", n);
    hold.key = KeyId::from_number(u32::from(n % 3));
    hold.placed_at = at;
    hold.ttl = Duration::from_secs(200_000);
    hold
}

fn spend_all(world: &World, numbers: &[u16]) {
    let holds: Vec<_> = numbers.iter().map(|n| varied(*n)).collect();
    // A lookup that was spent before cannot be held again.
    let holds: Vec<_> = holds
        .iter()
        .filter(|hold| matches!(world.drive(world.ledger.hold(hold)), Ok(HoldOutcome::Granted)))
        .collect();
    let spends = holds.iter().map(|hold| world.ledger.settle(hold, Settlement::Spend(1)));
    let mut pending: Vec<_> = spends
        .map(Box::pin)
        .filter_map(|mut spend| poll(spend.as_mut()).is_pending().then_some(spend))
        .collect();
    world.write();
    for spend in &mut pending {
        assert!(poll(spend.as_mut()).is_ready());
    }
}

/// Returns the number of lookups in the usage of `demo`.
fn lookups(files: &Files) -> u64 {
    usage(files).iter().map(|row| row.lookups).sum()
}

fn usage(files: &Files) -> Vec<UsageRow> {
    let mut admin: BlockingAccounts = files.admin();
    block_on(admin.usage(&workspace("demo"), Day::default(), Day::from_number(u32::MAX))).unwrap()
}

/// Returns the usage that follows from the spends.
fn spends(files: &Files) -> Vec<UsageRow> {
    let db = files.sql();
    let mut select = db.prepare("SELECT key, credits, at FROM credit_spend").unwrap();
    let mut counts: BTreeMap<(u64, u32), (u64, u64)> = BTreeMap::new();
    let mut rows = select.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let at: u64 = row.get(2).unwrap();
        let count = counts.entry((at / 86_400_000, row.get(0).unwrap())).or_default();
        count.0 += 1;
        count.1 += row.get::<_, u64>(1).unwrap();
    }
    let row = |((day, key), (lookups, credits)): ((u64, u32), (u64, u64))| UsageRow {
        day: Day::from_number(u32::try_from(day).unwrap()),
        key: KeyId::from_number(key),
        outcome: BILLED.to_owned(),
        lookups,
        credits,
    };
    counts.into_iter().map(row).collect()
}
