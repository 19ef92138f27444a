//! A spend is durable before it is acknowledged, and it is charged once.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use enrich_lib::credit::Settlement;
use enrich_lib::ports::Credits;
use enrich_sqlite::{DataDir, accounts, complete};

use crate::world::{START, World, after_seconds, lookup, message, poll, totals, workspace};

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
fn release_does_not_wait_for_writer() {
    let world = World::with_credits(10);
    let hold = world.hold(1);
    world.end_writer();
    world.drive(world.ledger.settle(&hold, Settlement::Release)).unwrap();
    assert_eq!(totals(world.balance()), (10, 0, 0));
}

#[test]
fn spend_that_waits_too_long_for_the_disk_is_withdrawn() {
    let world = World::with_credits(10);
    let (waiting, later) = (world.hold(1), world.hold(2));
    let mut spend = world.queue_spend(&waiting);
    // The writer does not run, as while the disk does not respond.
    assert!(poll(pin!(world.ledger.tick(after_seconds(4)))).is_pending());
    assert!(poll(spend.as_mut()).is_pending());
    let mut second = world.queue_spend(&later);
    assert!(poll(pin!(world.ledger.tick(after_seconds(5)))).is_pending());
    let Poll::Ready(Err(error)) = poll(spend.as_mut()) else { panic!("it is withdrawn") };
    assert!(error.to_string().starts_with("the spend was withdrawn"), "{error}");
    assert!(poll(second.as_mut()).is_pending(), "it was queued a second ago");
    world.write();
    assert!(matches!(poll(second.as_mut()), Poll::Ready(Ok(()))));
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((9, 0, 1), (9, 0, 1)));
    assert!(world.spend(&waiting).is_err(), "it has failed for good");
}

#[test]
fn queued_spend_neither_expires_nor_is_released() {
    let world = World::with_credits(10);
    let mut hold = lookup("demo", 1);
    hold.ttl = Duration::from_secs(2);
    world.drive(world.ledger.hold(&hold)).unwrap();
    let mut spend = world.queue_spend(&hold);
    assert!(world.drive(world.ledger.settle(&hold, Settlement::Release)).is_err());
    // The tick is behind the spend in the queue. Both are in one batch.
    let mut tick = Box::pin(world.ledger.tick(START + hold.ttl));
    assert!(poll(tick.as_mut()).is_pending());
    world.write();
    assert!(poll(spend.as_mut()).is_ready() && poll(tick.as_mut()).is_ready());
    assert_eq!(totals(world.balance()), (9, 0, 1));
}

#[test]
fn spends_fail_after_writer_ended() {
    let world = World::with_credits(10);
    let (queued, late) = (world.hold(1), world.hold(2));
    let first = world.queue_spend(&queued);
    world.end_writer();
    for failed in [world.drive(first), world.spend(&late)] {
        assert_eq!(failed.unwrap_err().to_string(), "the store has stopped writing");
    }
    assert_eq!((totals(world.balance()), totals(world.on_disk())), ((10, 0, 0), (10, 0, 0)));
    assert_eq!(message(world.drive(world.ledger.tick(START))), "the store has stopped writing");
}

#[test]
fn close_moves_all_commits_into_the_database() {
    let world = World::with_credits(10);
    world.spend(&world.hold(1)).unwrap();
    let hold = world.hold(2);
    let mut last = world.queue_spend(&hold);
    let mut closing = Box::pin(world.ledger.close());
    assert!(poll(closing.as_mut()).is_pending());
    world.finish();
    assert!(matches!(poll(last.as_mut()), Poll::Ready(Ok(()))));
    assert!(matches!(poll(closing.as_mut()), Poll::Ready(Ok(()))));
    assert_eq!(std::fs::metadata(world.path("accounts.db-wal")).map_or(0, |log| log.len()), 0);
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(world.path("accounts.db"), copy.path().join("accounts.db")).unwrap();
    let mut copy = accounts(&DataDir::open(copy.path()).unwrap()).unwrap();
    assert_eq!(complete(copy.balance(&workspace("demo"))).unwrap().spent, 2);
    assert_eq!(message(world.drive(world.ledger.tick(START))), "the store has stopped writing");
    assert_eq!(message(world.drive(world.ledger.close())), "the store has stopped writing");
}
