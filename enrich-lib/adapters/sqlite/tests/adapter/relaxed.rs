//! Relaxed durability: a spend is acknowledged first and written soon after. A failing disk does not give credits away.

use enrich_lib::credit::{Account, Hold, Settlement};
use enrich_lib::ports::Credits;
use enrich_lib::refusal::PortError;
use enrich_sqlite::Durability;

use crate::world::{Files, START, World, after_seconds, commits, message, poll, totals};

/// Maximum number of unflushed spends.
const OWED_MAX: u16 = 4_096;

#[test]
fn a_spend_is_told_at_once_and_on_the_disk_with_the_next_commit() {
    let world = relaxed(10);
    let hold = world.hold(1);
    at_once(&world, &hold).unwrap();
    assert_eq!((totals(world.balance()), world.on_disk().spent), ((9, 0, 1), 0));
    world.write();
    assert_eq!(totals(world.on_disk()), (9, 0, 1));
    at_once(&world, &hold).unwrap();
    world.write();
    assert_eq!(totals(world.on_disk()), (9, 0, 1), "asked twice, it is spent once");
}

#[test]
fn what_gathers_is_one_commit() {
    let world = relaxed(300);
    let before = commits(&world);
    for n in 0..300 {
        at_once(&world, &world.hold(n)).unwrap();
    }
    world.write();
    assert_eq!((commits(&world) - before, world.on_disk().spent), (1, 300));
}

#[test]
fn what_was_told_is_on_the_disk_after_a_tick_and_after_the_end() {
    let world = relaxed(10);
    at_once(&world, &world.hold(1)).unwrap();
    world.tick(START);
    assert_eq!(world.on_disk().spent, 1);
    at_once(&world, &world.hold(2)).unwrap();
    assert_eq!(world.close().on_disk().spent, 2);
}

#[test]
fn a_crash_loses_what_was_not_written_and_nothing_else() {
    let world = relaxed(10);
    at_once(&world, &world.hold(1)).unwrap();
    world.write();
    at_once(&world, &world.hold(2)).unwrap();
    let world = World::serve_with(Durability::Relaxed, world.kill());
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
}

#[test]
fn a_spend_that_can_not_be_written_makes_new_ones_wait_and_fail_until_it_is() {
    let world = relaxed(10);
    let [told, refused, late] = [1, 2, 3].map(|n| world.hold(n));
    refuse_spends(&world);
    at_once(&world, &told).unwrap();
    world.write();
    for _ in 0..2 {
        let error = world.spend(&refused).unwrap_err().to_string();
        assert!(error.starts_with("the spend was not written: "), "{error}");
    }
    let error = message(world.drive(world.ledger.tick(START)));
    assert!(error.starts_with("the spend was not written: "), "a tick tells: {error}");
    assert_eq!((totals(world.balance()), world.on_disk().spent), ((7, 2, 1), 0));

    world.sql().execute_batch("DROP TRIGGER refuse").unwrap();
    world.spend(&refused).unwrap();
    assert_eq!(world.on_disk().spent, 2, "what was owed is written first");
    at_once(&world, &late).unwrap();
    world.tick(START);
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((7, 0, 3), (7, 0, 3)));
}

#[test]
fn what_is_owed_is_written_by_a_tick_if_nobody_spends() {
    let world = relaxed(10);
    let hold = world.hold(1);
    refuse_spends(&world);
    at_once(&world, &hold).unwrap();
    world.write();
    world.sql().execute_batch("DROP TRIGGER refuse").unwrap();
    // By then the hold may have expired and been forgotten.
    world.tick(hold.expires_at + Account::TOMBSTONE_TTL);
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
}

#[test]
fn a_disk_that_falls_behind_is_waited_for() {
    let world = relaxed(10_000);
    for n in 0..OWED_MAX {
        at_once(&world, &world.hold(n)).unwrap();
    }
    let one_more = world.hold(OWED_MAX);
    let mut waiting = world.queue_spend(&one_more);
    world.write();
    assert!(poll(waiting.as_mut()).is_ready());
    assert_eq!(world.on_disk().spent, u64::from(OWED_MAX) + 1);
    at_once(&world, &world.hold(OWED_MAX + 1)).unwrap();
}

#[test]
fn a_spend_that_was_given_up_is_not_told_before_it_is_certain() {
    let world = relaxed(10);
    let [told, hold] = [1, 2].map(|n| world.hold(n));
    refuse_spends(&world);
    at_once(&world, &told).unwrap();
    world.write();
    world.sql().execute_batch("DROP TRIGGER refuse").unwrap();
    // The spend waits and is written, but its reply is not taken, so it must be voided.
    let given_up = world.queue_spend(&hold);
    world.write();
    drop(given_up);
    let again = world.queue_spend(&hold);
    world.write();
    world.drive(again).unwrap();
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((8, 0, 2), (8, 0, 2)));
}

#[test]
fn what_is_held_runs_out_as_ever() {
    let world = relaxed(10);
    world.hold(1);
    world.tick(after_seconds(60));
    assert_eq!(totals(world.balance()), (10, 0, 0));
}

fn relaxed(credits: u64) -> World {
    World::serve_with(Durability::Relaxed, Files::with_credits(credits))
}

/// Spends the credit of `hold` without polling the writer.
fn at_once(world: &World, hold: &Hold) -> Result<(), PortError> {
    let mut spend = world.ledger.settle(hold, Settlement::Spend(1));
    let std::task::Poll::Ready(told) = poll(spend.as_mut()) else { panic!("it waits for the disk") };
    told
}

fn refuse_spends(world: &World) {
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON credit_spend BEGIN SELECT RAISE(ABORT, 'refused'); END";
    world.sql().execute_batch(refuse).unwrap();
}
