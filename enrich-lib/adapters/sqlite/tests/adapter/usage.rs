//! A billed lookup and its usage are one commit.

use enrich_store::usage::Day;
use futures_executor::block_on;

use crate::world::{Files, START, World, commits, workspace};

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
    let mut admin = files.admin();
    let usage = block_on(admin.usage(&workspace("demo"), Day::default(), Day::from_number(u32::MAX)));
    usage.unwrap().iter().map(|row| row.lookups).sum()
}
