//! A spend is durable before it is acknowledged, and it is charged once.

use std::task::Poll;

use enrich_lib::credit::{Account, Hold, Settlement};
use enrich_lib::ports::Credits;
use enrich_sqlite::{Durability, Ledger};

use crate::world::{Files, START, World, lookup, message, poll, totals};

#[test]
fn spend_is_durable_before_reply() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    let mut spend = world.queue_spend(&hold);
    assert_eq!(world.on_disk().spent, 0);
    world.write();
    assert_eq!(world.on_disk().spent, 1, "read by another connection, and the spend is still not answered");
    assert!(poll(spend.as_mut()).is_ready());
}

#[test]
fn spend_row_has_lookup_workspace_and_cost_only() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    world.spend(&hold).unwrap();
    let row: (Vec<u8>, u64, u64) = world
        .sql()
        .query_row("SELECT lookup_id, credits, at FROM credit_spend", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    assert_eq!(row, (hold.lookup_id.as_bytes().to_vec(), 1, START.unix_ms()));
}

#[test]
fn release_does_not_wait_for_writer() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    world.end_writer();
    world.drive(world.ledger.settle(&hold, Settlement::Release)).unwrap();
    assert_eq!(totals(world.balance()), (10, 0, 0));
}

#[test]
fn reopen_keeps_balances_and_drops_holds() {
    let world = World::with_credits(10);
    let (spent, held) = (world.hold(1), world.hold(2));
    world.spend(&spent).unwrap();
    world.tick(START); // writes the held credits to the database
    assert_eq!(totals(world.on_disk()), (8, 1, 1));

    let world = World::serve(world.close());
    assert_eq!(totals(world.on_disk()), (9, 0, 1));
    assert_eq!(totals(world.balance()), (9, 0, 1));
    assert!(world.spend(&held).is_err());
}

/// The lookup began before one that the earlier process has finished.
#[test]
fn late_spend_and_its_void_update_total() {
    let world = World::with_credits(10);
    world.spend(&world.hold(9)).unwrap();
    let world = World::serve(world.close());
    let (late, later) = (world.hold(3), world.hold(4));
    world.spend(&late).unwrap();
    let untaken = world.queue_spend(&later);
    world.write();
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((7, 0, 3), (7, 0, 3)));
    drop(untaken);
    world.write();
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((8, 0, 2), (8, 0, 2)));
    assert_eq!(totals(World::serve(world.close()).balance()), (8, 0, 2));
}

#[test]
fn repeated_late_spend_is_charged_once() {
    let world = World::with_credits(10);
    world.spend(&world.hold(9)).unwrap();
    let world = World::serve(world.close());
    let late = world.hold(3);
    let (mut first, mut second) = (world.queue_spend(&late), world.queue_spend(&late));
    world.write();
    assert!(poll(first.as_mut()).is_ready() && poll(second.as_mut()).is_ready());
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((8, 0, 2), (8, 0, 2)));
}

#[test]
fn spend_dropped_before_commit_is_not_charged() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    drop(world.queue_spend(&hold));
    world.write();
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 1, 0), (10, 0, 0)));
    world.spend(&hold).unwrap();
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
}

#[test]
fn spend_dropped_after_commit_is_voided() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    commit_and_drop(&world, &hold);
    assert_eq!(
        (totals(world.balance()), totals(world.on_disk())),
        ((9, 1, 0), (9, 0, 1)),
        "held until it is voided"
    );
    world.write();
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((10, 0, 0), (10, 0, 0)));
    assert_eq!(world.spend(&hold).unwrap_err().to_string(), "the hold of this lookup has already ended");
    assert_eq!(totals(World::serve(world.close()).balance()), (10, 0, 0));
}

/// The machine slept or the clock jumped. When the reply is dropped, the account has already forgotten the hold.
#[test]
fn spend_dropped_after_tombstone_expired_is_voided() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    let spend = world.queue_spend(&hold);
    world.write();
    world.tick(hold.expires_at);
    world.tick(hold.expires_at + Account::TOMBSTONE_TTL);
    drop(spend);
    world.write();
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((10, 0, 0), (10, 0, 0)));
}

#[test]
fn dropped_and_retried_spend_is_charged_once() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    commit_and_drop(&world, &hold);
    let mut again = world.queue_spend(&hold);
    world.write();
    assert!(matches!(poll(again.as_mut()), Poll::Ready(Ok(()))));
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
}

#[test]
fn tick_retries_failed_void() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    commit_and_drop(&world, &hold);
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON credit_void BEGIN SELECT RAISE(ABORT, 'refused'); END";
    world.sql().execute_batch(refuse).unwrap();
    assert!(world.drive(world.ledger.tick(START)).is_err(), "the tick reports the failed void");
    assert_eq!((totals(world.balance()), world.on_disk().spent), ((9, 1, 0), 1));
    world.sql().execute_batch("DROP TRIGGER refuse").unwrap();
    world.tick(hold.expires_at);
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((10, 0, 0), (10, 0, 0)));
}

/// Writes a spend and drops its reply.
fn commit_and_drop(world: &World, hold: &Hold) {
    let spend = world.queue_spend(hold);
    world.write();
    assert_eq!(totals(world.balance()), (9, 0, 1));
    drop(spend);
}

#[test]
fn repeated_queued_spend_is_charged_once() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    let (mut first, mut second) = (world.queue_spend(&hold), world.queue_spend(&hold));
    world.write();
    assert!(poll(first.as_mut()).is_ready() && poll(second.as_mut()).is_ready());
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
}

#[test]
fn queued_spend_neither_expires_nor_is_released() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    let mut spend = world.queue_spend(&hold);
    assert!(world.drive(world.ledger.settle(&hold, Settlement::Release)).is_err());
    // The tick is behind the spend in the queue. Both are in one batch.
    let mut tick = Box::pin(world.ledger.tick(hold.expires_at));
    assert!(poll(tick.as_mut()).is_pending());
    world.write();
    assert!(poll(spend.as_mut()).is_ready() && poll(tick.as_mut()).is_ready());
    assert_eq!(totals(world.balance()), (9, 0, 1));
}

#[test]
fn spends_fail_after_writer_ended_and_credits_stay_held() {
    let world = World::with_credits(10);
    let (queued, late) = (world.hold(1), world.hold(2));
    let first = world.queue_spend(&queued);
    world.end_writer();
    for failed in [world.drive(first), world.spend(&late), world.spend(&queued)] {
        assert_eq!(failed.unwrap_err().to_string(), "the store has stopped writing");
    }
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((8, 2, 0), (10, 0, 0)));
    assert_eq!(message(world.drive(world.ledger.tick(START))), "the store has stopped writing");
    // A spend that never reached the writer can still be released.
    world.drive(world.ledger.settle(&late, Settlement::Release)).unwrap();
    assert_eq!(totals(world.balance()), (9, 1, 0));
}

#[test]
fn spend_of_zero_credits_needs_no_writer() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    world.end_writer();
    world.drive(world.ledger.settle(&hold, Settlement::Spend(0))).unwrap();
    assert_eq!(totals(world.balance()), (10, 0, 0));
}

#[test]
fn hold_of_unknown_workspace_is_an_error() {
    let world = World::with_credits(10);
    let failed = world.drive(world.ledger.hold(&lookup("unknown", 1)));
    assert_eq!(failed.unwrap_err().to_string(), "there is no workspace unknown");
}

#[test]
fn writer_runs_on_thread() {
    let files = Files::with_credits(10);
    let ledger = Ledger::open(&files.dir, START, |work| Durability::Strict.run_on_thread(work)).unwrap();
    let hold = lookup("demo", 1);
    futures_executor::block_on(async {
        ledger.hold(&hold).await.unwrap();
        ledger.settle(&hold, Settlement::Spend(1)).await.unwrap();
    });
    assert_eq!(files.on_disk().spent, 1);
}
