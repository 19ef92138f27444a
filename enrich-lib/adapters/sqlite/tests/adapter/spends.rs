//! A spend is durable before it is acknowledged, and it is charged once.

use std::task::Poll;

use enrich_lib::credit::{Account, Hold, Settlement};
use enrich_lib::ports::Credits;
use enrich_sqlite::{Durability, Ledger};

use crate::world::{Files, START, World, lookup, message, poll, totals};

#[test]
fn a_spend_is_on_the_disk_before_it_is_answered() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    let mut spend = world.queue_spend(&hold);
    assert_eq!(world.on_disk().spent, 0);
    world.write();
    assert_eq!(world.on_disk().spent, 1, "read by another connection, and the spend is still not answered");
    assert!(poll(spend.as_mut()).is_ready());
}

#[test]
fn a_spend_leaves_a_row_with_its_lookup_and_no_more_than_it_cost() {
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
fn a_release_does_not_wait_for_the_disk() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    world.end_writer();
    world.drive(world.ledger.settle(&hold, Settlement::Release)).unwrap();
    assert_eq!(totals(world.balance()), (10, 0, 0));
}

#[test]
fn balances_survive_a_reopen_and_holds_do_not() {
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
fn a_late_spend_is_in_the_total_and_so_is_its_void() {
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
fn a_late_spend_that_is_repeated_is_charged_once() {
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
fn a_settle_that_is_given_up_before_it_is_written_is_not_charged() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    drop(world.queue_spend(&hold));
    world.write();
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 1, 0), (10, 0, 0)));
    world.spend(&hold).unwrap();
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
}

#[test]
fn a_settle_that_is_given_up_before_its_answer_is_taken_is_voided() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    written_and_given_up(&world, &hold);
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
fn a_settle_that_is_given_up_after_its_hold_is_forgotten_is_voided() {
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
fn a_settle_that_is_given_up_and_tried_again_at_once_is_charged_once() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    written_and_given_up(&world, &hold);
    let mut again = world.queue_spend(&hold);
    world.write();
    assert!(matches!(poll(again.as_mut()), Poll::Ready(Ok(()))));
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
}

#[test]
fn a_void_that_the_disk_refuses_is_made_up_for_by_a_later_tick() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    written_and_given_up(&world, &hold);
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON credit_void BEGIN SELECT RAISE(ABORT, 'refused'); END";
    world.sql().execute_batch(refuse).unwrap();
    assert!(world.drive(world.ledger.tick(START)).is_err(), "a tick tells that it could not void");
    assert_eq!((totals(world.balance()), world.on_disk().spent), ((9, 1, 0), 1));
    world.sql().execute_batch("DROP TRIGGER refuse").unwrap();
    world.tick(hold.expires_at);
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((10, 0, 0), (10, 0, 0)));
}

/// Writes a spend and drops its reply.
fn written_and_given_up(world: &World, hold: &Hold) {
    let spend = world.queue_spend(hold);
    world.write();
    assert_eq!(totals(world.balance()), (9, 0, 1));
    drop(spend);
}

#[test]
fn a_settle_that_is_repeated_while_the_first_is_queued_is_charged_once() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    let (mut first, mut second) = (world.queue_spend(&hold), world.queue_spend(&hold));
    world.write();
    assert!(poll(first.as_mut()).is_ready() && poll(second.as_mut()).is_ready());
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
}

#[test]
fn a_queued_spend_does_not_expire_and_is_not_released() {
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
fn when_the_writer_has_ended_spends_fail_and_credits_stay_held() {
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
fn a_spend_of_nothing_needs_no_disk() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    world.end_writer();
    world.drive(world.ledger.settle(&hold, Settlement::Spend(0))).unwrap();
    assert_eq!(totals(world.balance()), (10, 0, 0));
}

#[test]
fn an_unknown_workspace_is_a_failure_and_not_a_lack_of_credits() {
    let world = World::with_credits(10);
    let failed = world.drive(world.ledger.hold(&lookup("stranger", 1)));
    assert_eq!(failed.unwrap_err().to_string(), "there is no workspace stranger");
}

#[test]
fn a_writer_on_a_thread_answers() {
    let files = Files::with_credits(10);
    let ledger = Ledger::open(&files.dir, START, |work| Durability::Strict.on_a_thread(work)).unwrap();
    let hold = lookup("demo", 1);
    futures_executor::block_on(async {
        ledger.hold(&hold).await.unwrap();
        ledger.settle(&hold, Settlement::Spend(1)).await.unwrap();
    });
    assert_eq!(files.on_disk().spent, 1);
}
