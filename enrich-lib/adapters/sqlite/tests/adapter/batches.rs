//! Group commit: queued spends become one commit, and a rejected spend does not affect the others.

use std::num::NonZeroI64;
use std::sync::Arc;

use enrich_lib::credit::Settlement;
use enrich_lib::ports::Credits;
use enrich_sqlite::{complete, run_on_thread};
use enrich_store::usage::Day;
use enrich_store::{Actor, Ledger as _};
use tokio::runtime::Builder;

use crate::world::{Files, START, Woken, World, commits, lookup, open_ledger, totals, workspace};

#[test]
fn splits_many_spends_into_batches_of_bounded_size() {
    let world = World::with_credits(2_000);
    let holds: Vec<_> = (0..2_000).map(|n| world.hold(n)).collect();
    let before = commits(&world);
    let _queued: Vec<_> = holds.iter().map(|hold| world.queue_spend(hold)).collect();
    world.write();
    let made = commits(&world) - before;
    assert!((2..=8).contains(&made), "{made} commits");
    assert_eq!(totals(world.on_disk()), (0, 0, 2_000));
}

/// A billed lookup and its usage are one commit.
#[test]
fn billed_lookup_takes_one_commit() {
    let world = World::with_credits(10);
    let before = commits(&world);
    world.spend(&world.hold(1)).unwrap();
    world.tick(START);
    let (mut admin, last) = (world.admin(), Day::from_number(u32::MAX));
    let usage = complete(admin.usage(&workspace("demo"), Day::default(), last)).unwrap();
    assert_eq!((commits(&world), usage.len(), usage[0].lookups), (before + 1, 1, 1));
}

/// A log that is never copied would fill the disk.
#[test]
fn starts_a_long_log_again() {
    let world = World::with_credits(10);
    let fill = "PRAGMA wal_autocheckpoint = 0; CREATE TABLE filler AS SELECT zeroblob(50000000)";
    world.sql().execute_batch(fill).unwrap();
    world.spend(&world.hold(1)).unwrap();
    world.spend(&world.hold(2)).unwrap();
    assert_eq!(commits(&world), 1);
    assert_eq!(world.on_disk().spent, 2);
}

/// A copy of a full log would delay spends for ten times as long.
#[test]
fn starts_the_log_again_after_many_spends() {
    let world = World::with_credits(21_000);
    let holds: Vec<_> = (0..21_000).map(|n| world.hold(n)).collect();
    let _queued: Vec<_> = holds.iter().map(|hold| world.queue_spend(hold)).collect();
    world.write();
    let left = commits(&world);
    assert!((1..=4).contains(&left), "{left} of more than 40 commits are in the log");
    assert_eq!(totals(world.on_disk()), (0, 0, 21_000));
}

/// The writer's thread could commit the first spend of a round at once, and then the others.
#[test]
fn ready_tasks_of_a_runtime_share_a_commit() {
    const ROUNDS: u16 = 20;
    let files = Files::with_credits(50 * u64::from(ROUNDS));
    let ledger = Arc::new(open_ledger(&files.dir, run_on_thread).unwrap());
    Builder::new_current_thread().build().unwrap().block_on(async {
        for round in 0..ROUNDS {
            let mut spends = Vec::new();
            for n in 0..50 {
                let hold = lookup("demo", 50 * round + n);
                ledger.hold(&hold).await.unwrap();
                let ledger = ledger.clone();
                spends.push(tokio::spawn(async move {
                    ledger.settle(&hold, Settlement::Spend(1)).await.unwrap()
                }));
            }
            for spend in spends {
                spend.await.unwrap();
            }
        }
    });
    let commits = ledger.statistics().commits.sizes.count();
    // The writer may wake late or early in some rounds. With one commit more in each, there would be twice as many.
    assert!((u64::from(ROUNDS)..u64::from(ROUNDS) * 3 / 2).contains(&commits), "{commits} commits");
}

/// A gateway that polls its lookups in turn would otherwise stall all of them for one.
#[test]
fn commit_wakes_each_task_itself() {
    let world = World::with_credits(3);
    let holds = [1, 2, 3].map(|n| world.hold(n));
    let mut spends = holds.each_ref().map(|hold| world.queue_spend(hold));
    let woken = spends.each_mut().map(|spend| Woken::poll_pending(spend.as_mut()));
    world.write();
    assert_eq!(woken.each_ref().map(|woken| woken.get()), [true; 3]);
}

#[test]
fn rejected_spend_does_not_fail_the_rest_of_its_batch() {
    const SPENDS: u16 = 300;
    let is_poor = |n| n == 200;
    let world = world_with_two_workspaces();
    let holds: Vec<_> =
        (0..SPENDS).map(|n| world.hold_of(if is_poor(n) { "poor" } else { "rich" }, n)).collect();
    adjust_poor(&world, -10);
    let before = commits(&world);
    let spends: Vec<_> = holds.iter().map(|hold| world.queue_spend(hold)).collect();
    world.write();
    for (n, spend) in (0..).zip(spends) {
        assert_eq!(world.drive(spend).is_err(), is_poor(n), "{n}");
    }
    let made = commits(&world) - before;
    assert!(made <= 9, "{made} syncs");
    assert_eq!(world.ledger.statistics().commits.failed, 0, "the disk works");
    assert_eq!(totals(world.balance_of("rich")), (701, 0, 299));
    assert_eq!(totals(world.balance_of("poor")), (10, 0, 0), "the hold has ended");
    assert_eq!(spend_rows(&world), 299);
    world.tick(START);
    assert_eq!(totals(world.balance_of("poor")), (0, 0, 0));
}

#[test]
fn failed_spend_fails_for_good() {
    let world = world_with_two_workspaces();
    let hold = world.hold_of("poor", 1);
    adjust_poor(&world, -10);
    let failed = world.spend(&hold).unwrap_err().to_string();
    assert!(failed.starts_with("the spend was not committed: "), "{failed}");
    adjust_poor(&world, 10);
    assert_eq!(world.spend(&hold).unwrap_err().to_string(), "there is no hold of this lookup");
    assert_eq!((totals(world.balance_of("poor")), spend_rows(&world)), ((10, 0, 0), 0));
}

fn world_with_two_workspaces() -> World {
    let files = Files::new();
    files.create_workspace("poor", 10);
    files.create_workspace("rich", 1_000);
    World::serve(files)
}

/// Adjusts the credits of `poor` as a command does. The account in memory changes with the next tick.
fn adjust_poor(world: &World, credits: i64) {
    let credits = NonZeroI64::new(credits).unwrap();
    complete(world.admin().adjust(&workspace("poor"), credits, "typo", &Actor::operator(START))).unwrap();
}

fn spend_rows(world: &World) -> u64 {
    world.sql().query_row("SELECT count(*) FROM credit_spend", [], |row| row.get(0)).unwrap()
}
