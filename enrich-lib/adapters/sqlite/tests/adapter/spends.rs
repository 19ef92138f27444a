//! A spend is durable before it is acknowledged.

use std::task::Poll;

use enrich_lib::credit::Settlement;
use enrich_lib::ports::Credits;
use enrich_sqlite::{DataDir, accounts, complete};
use enrich_store::{Clocks, Ledger as _};

use crate::world::{START, World, message, poll, totals, workspace};

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
    assert_eq!(
        message(world.drive(world.ledger.tick(Clocks::simulated(START)))),
        "the store has stopped writing"
    );
    assert_eq!(message(world.drive(world.ledger.close())), "the store has stopped writing");
}
