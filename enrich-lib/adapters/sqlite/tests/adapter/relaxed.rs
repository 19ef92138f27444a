//! Relaxed durability: a spend is acknowledged first and written soon after. A failing disk does not give credits away.

use enrich_lib::credit::{Account, Hold, Settlement};
use enrich_lib::ports::Credits;
use enrich_lib::refusal::PortError;
use enrich_sqlite::Durability;

use crate::world::{Files, START, World, after_seconds, commits, message, poll, totals};

/// Maximum number of unflushed spends.
const UNFLUSHED_MAX: u16 = 4_096;

#[test]
fn acknowledges_before_commit() {
    let world = relaxed(10);
    let hold = world.hold(1);
    spend_at_once(&world, &hold).unwrap();
    assert_eq!((totals(world.balance()), world.on_disk().spent), ((9, 0, 1), 0));
    world.write();
    assert_eq!(totals(world.on_disk()), (9, 0, 1));
    spend_at_once(&world, &hold).unwrap();
    world.write();
    assert_eq!(totals(world.on_disk()), (9, 0, 1), "a repeated spend is charged once");
}

#[test]
fn commits_unflushed_spends_as_one_batch() {
    let world = relaxed(300);
    let before = commits(&world);
    for n in 0..300 {
        spend_at_once(&world, &world.hold(n)).unwrap();
    }
    world.write();
    assert_eq!((commits(&world) - before, world.on_disk().spent), (1, 300));
}

#[test]
fn tick_and_shutdown_flush_spends() {
    let world = relaxed(10);
    spend_at_once(&world, &world.hold(1)).unwrap();
    world.tick(START);
    assert_eq!(world.on_disk().spent, 1);
    spend_at_once(&world, &world.hold(2)).unwrap();
    assert_eq!(world.close().on_disk().spent, 2);
}

#[test]
fn crash_loses_unflushed_spends_only() {
    let world = relaxed(10);
    spend_at_once(&world, &world.hold(1)).unwrap();
    world.write();
    spend_at_once(&world, &world.hold(2)).unwrap();
    let world = World::serve_with(Durability::Relaxed, world.kill());
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
}

#[test]
fn spends_behave_as_strict_while_flush_fails() {
    let world = relaxed(10);
    let [unflushed, rejected, next, late] = [1, 2, 3, 4].map(|n| world.hold(n));
    reject_spends(&world);
    spend_at_once(&world, &unflushed).unwrap();
    world.write();
    let error = world.spend(&rejected).unwrap_err().to_string();
    assert!(error.starts_with("the spend was not committed: "), "{error}");
    let error = message(world.drive(world.ledger.tick(START)));
    assert!(error.starts_with("the spend was not committed: "), "{error}");
    assert_eq!((totals(world.balance()), world.on_disk().spent), ((7, 2, 1), 0));

    world.sql().execute_batch("DROP TRIGGER refuse").unwrap();
    world.spend(&next).unwrap();
    assert_eq!(world.on_disk().spent, 2, "unflushed spends are written first");
    spend_at_once(&world, &late).unwrap();
    world.tick(START);
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((7, 0, 3), (7, 0, 3)));
}

#[test]
fn tick_retries_failed_flush() {
    let world = relaxed(10);
    let hold = world.hold(1);
    reject_spends(&world);
    spend_at_once(&world, &hold).unwrap();
    world.write();
    world.sql().execute_batch("DROP TRIGGER refuse").unwrap();
    // By then the hold may have expired and been forgotten.
    world.tick(START + hold.ttl + Account::TOMBSTONE_TTL);
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
}

#[test]
fn spend_waits_when_too_many_are_unflushed() {
    let world = relaxed(10_000);
    for n in 0..UNFLUSHED_MAX {
        spend_at_once(&world, &world.hold(n)).unwrap();
    }
    let one_more = world.hold(UNFLUSHED_MAX);
    let mut waiting = world.queue_spend(&one_more);
    world.write();
    assert!(poll(waiting.as_mut()).is_ready());
    assert_eq!(world.on_disk().spent, u64::from(UNFLUSHED_MAX) + 1);
    spend_at_once(&world, &world.hold(UNFLUSHED_MAX + 1)).unwrap();
}

#[test]
fn holds_expire_in_relaxed_mode() {
    let world = relaxed(10);
    world.hold(1);
    world.tick(after_seconds(60));
    assert_eq!(totals(world.balance()), (10, 0, 0));
}

fn relaxed(credits: u64) -> World {
    World::serve_with(Durability::Relaxed, Files::with_credits(credits))
}

/// Spends the credit of `hold` without polling the writer.
fn spend_at_once(world: &World, hold: &Hold) -> Result<(), PortError> {
    let mut spend = world.ledger.settle(hold, Settlement::Spend(1));
    let std::task::Poll::Ready(result) = poll(spend.as_mut()) else {
        panic!("the spend waits for the writer")
    };
    result
}

fn reject_spends(world: &World) {
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON credit_spend BEGIN SELECT RAISE(ABORT, 'refused'); END";
    world.sql().execute_batch(refuse).unwrap();
}
