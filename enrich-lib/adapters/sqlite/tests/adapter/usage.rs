//! Usage counts each billed lookup once, whatever happens after its commit.

use enrich_lib::key::KeyId;
use enrich_store::usage::{BILLED, Day, UsageCount, UsageRow};
use futures_executor::block_on;

use crate::world::{Files, START, World, commits, workspace};

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

/// Returns the number of lookups in the usage of `demo`.
fn lookups(files: &Files) -> u64 {
    usage(files).iter().map(|row| row.lookups).sum()
}

fn usage(files: &Files) -> Vec<UsageRow> {
    let mut admin = files.admin();
    block_on(admin.usage(&workspace("demo"), Day::default(), Day::from_number(u32::MAX))).unwrap()
}
