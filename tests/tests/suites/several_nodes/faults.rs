//! Network faults, and a PostgreSQL server that is suspended, killed and restarted, between a hold and its
//! spend.

use std::pin::pin;
use std::time::Duration;

use enrich_lib::credit::Hold;
use enrich_lib::credit::Settlement::Spend;
use enrich_lib::ports::Credits;
use enrich_tests::eventually;
use enrich_tests::servers::Postgres;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::failover::recovers;
use super::world::World;

const MOMENT: Duration = Duration::from_millis(300);

/// The timeout of a node whose statements must not time out on a busy machine.
const SLOW: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn spend_with_a_lost_reply_is_charged_once() {
    let world = World::new().await;
    world.workspace(10).await;
    // The only attempt that arrives must not time out on a busy server.
    let mut node = world.node_with(SLOW, Duration::ZERO).await;
    let first = world.holding(&node, 2).await;
    node.ledger.settle(&first, Spend(2)).await.unwrap();
    let held = world.holding(&node, 3).await;
    // All connections are idle, so the spend is sent at once.
    node.stop_ticking().await;
    node.network.drop_replies();
    let (ledger, spent) = (node.ledger.clone(), held.clone());
    let settling = tokio::spawn(async move { ledger.settle(&spent, Spend(3)).await });
    eventually("it is written", async || world.totals().await[1] == 5).await;
    assert!(!settling.is_finished(), "and not answered");
    assert_eq!(node.ledger.statistics().queue_depth, 1);
    node.network.heal();
    settling.await.unwrap().unwrap();
    eventually("none waits", async || node.ledger.statistics().queue_depth == 0).await;
    assert_eq!(world.totals().await[..2], [10, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn spend_without_a_reply_continues_when_its_caller_stops_waiting() {
    let world = World::new().await;
    world.workspace(10).await;
    // The only attempt that arrives must not time out on a busy server.
    let mut node = world.node_with(SLOW, Duration::ZERO).await;
    let first = world.holding(&node, 2).await;
    node.ledger.settle(&first, Spend(2)).await.unwrap();
    let held = world.holding(&node, 3).await;
    // All connections are idle, so the spend is sent at once.
    node.stop_ticking().await;
    node.network.drop_replies();
    let connections = node.network.connections();
    let (ledger, spent) = (node.ledger.clone(), held.clone());
    let settling = tokio::spawn(async move { ledger.settle(&spent, Spend(3)).await });
    eventually("it is written", async || world.totals().await[..2] == [10, 5]).await;
    // The node asks over another connection, because it cannot know whether the spend was executed.
    eventually("it asks", async || node.network.connections() > connections).await;
    assert!(!settling.is_finished(), "there is no answer");
    settling.abort();
    assert!(settling.await.unwrap_err().is_cancelled());
    node.network.heal();
    node.ledger.settle(&held, Spend(3)).await.unwrap();
    assert_eq!(world.totals().await[..2], [10, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn spend_that_was_never_sent_is_withdrawn() {
    let world = World::new().await;
    world.workspace(10).await;
    let mut node = world.node().await;
    let held = world.holding(&node, 3).await;
    node.stop_ticking().await;
    node.network.cut();
    // Until the node has discarded its connections.
    for _ in 0..3 {
        assert!(node.ledger.tick(node.now()).await.is_err());
    }
    let error = node.ledger.settle(&held, Spend(3)).await.unwrap_err().to_string();
    assert!(error.starts_with("the spend was withdrawn"), "{error}");
    assert_eq!(node.ledger.statistics().credits_held, 0);
    node.network.heal();
    assert_eq!(world.totals().await[..2], [10, 0]);
    recovers(&world, &node).await;
}

/// The outcome of one spend is unknown when the others are queued, and cannot be read for a while.
#[tokio::test(flavor = "multi_thread")]
async fn spends_queued_behind_one_in_doubt_are_answered() {
    let world = World::new().await;
    world.workspace(100).await;
    let mut node = world.node_with(SLOW, Duration::ZERO).await;
    let mut holds = Vec::new();
    for _ in 0..10 {
        holds.push(world.holding(&node, 1).await);
    }
    node.stop_ticking().await;
    let failed = node.ledger.statistics().commits.failed;
    node.network.drop_replies();
    let spend = |held: Hold| {
        let ledger = node.ledger.clone();
        tokio::spawn(async move { ledger.settle(&held, Spend(1)).await })
    };
    let first = spend(holds.remove(0));
    eventually("it is in doubt", async || node.ledger.statistics().commits.failed > failed).await;
    let others: Vec<_> = holds.into_iter().map(spend).collect();
    let connections = node.network.connections();
    eventually("its outcome is read", async || node.network.connections() > connections).await;
    node.network.heal();
    let mut spent = i64::from(first.await.unwrap().is_ok());
    for other in others {
        // Some have waited for too long.
        let answered = timeout(Duration::from_secs(30), other).await.expect("each spend is answered");
        spent += i64::from(answered.unwrap().is_ok());
    }
    assert_eq!(world.totals().await[..2], [100, spent]);
    assert_eq!(node.ledger.statistics().credits_held, 0);
}

/// The outage is longer than the time for which a spend waits to be sent.
#[tokio::test]
async fn batch_with_a_lost_reply_is_charged_once_after_a_long_outage() {
    let world = World::new().await;
    world.workspace(10).await;
    let mut node = world.node().await;
    // Opens the connection.
    assert!(world.spend(&node).await.unwrap());
    let mut holds = Vec::new();
    for _ in 0..3 {
        holds.push(world.holding(&node, 1).await);
    }
    node.stop_ticking().await;
    node.network.drop_replies();
    // On one thread, all are queued before the node takes the first one.
    let mut settling = pin!(join_all(holds.iter().map(|held| node.ledger.settle(held, Spend(1)))));
    assert!(timeout(Duration::from_secs(6), &mut settling).await.is_err());
    assert_eq!(world.totals().await[..2], [10, 4]);
    node.network.heal();
    let settled = settling.await;
    assert!(settled.iter().all(Result::is_ok), "{settled:?}");
    assert_eq!(world.totals().await[..2], [10, 4]);
}

/// A statement can be executed long after its node gave up its connection: here, it waits for a lock while
/// its node asks for the outcome. The spends are invisible then, and exist a moment later.
#[tokio::test(flavor = "multi_thread")]
async fn spend_that_is_still_being_executed_is_not_taken_for_failed() {
    let world = World::new().await;
    world.workspace(10).await;
    let node = world.node().await;
    let held = world.holding(&node, 3).await;
    let id: String = held.lookup_id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    // A settlement that another connection is executing.
    let other = world.postgres.client(&world.database).await;
    let settle = format!(
        "BEGIN; DELETE FROM credit_hold WHERE lookup_id = '\\x{id}';
         INSERT INTO credit_spend VALUES ('\\x{id}', (SELECT rowid FROM workspace), 9, 3, 0);
         INSERT INTO settlement (settled_at, workspace, day, key, lookups, credits, rest)
         VALUES (0, (SELECT rowid FROM workspace), 0, 9, 1, 3, 0)"
    );
    other.batch_execute(&settle).await.unwrap();
    let (ledger, spent) = (node.ledger.clone(), held.clone());
    let settling = tokio::spawn(async move { ledger.settle(&spent, Spend(3)).await });
    world.statement_waits_for_a_lock().await;
    assert!(!settling.is_finished());
    other.batch_execute("COMMIT").await.unwrap();
    settling.await.unwrap().unwrap();
    assert_eq!(world.totals().await, [10, 3, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_spend_fails_without_its_batch() {
    let world = World::new().await;
    world.workspace(100).await;
    world.sql("ALTER TABLE credit_spend ADD CHECK (credits <> 7)").await;
    let node = world.node_with(SLOW, Duration::ZERO).await;
    let mut holds = Vec::new();
    for credits in [1, 7, 1, 1, 7, 1, 1, 1] {
        holds.push(world.holding(&node, credits).await);
    }
    // While the first spend waits for this lock, the others are collected into one batch.
    let locker = world.postgres.client(&world.database).await;
    locker.batch_execute("BEGIN; LOCK TABLE credit_spend IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let settling: Vec<_> = holds
        .into_iter()
        .map(|held| {
            let ledger = node.ledger.clone();
            tokio::spawn(async move { (held.credits, ledger.settle(&held, Spend(held.credits)).await) })
        })
        .collect();
    world.statement_waits_for_a_lock().await;
    locker.batch_execute("COMMIT").await.unwrap();
    for settled in settling {
        let (credits, settled) = settled.await.unwrap();
        assert_eq!(settled.is_ok(), credits == 1, "{settled:?}");
    }
    assert_eq!(world.totals().await[..2], [100, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_spend_is_durable_under_any_database_setting() {
    let world = World::new().await;
    world.workspace(10).await;
    world
        .sql(&format!(
            "ALTER DATABASE {0} SET synchronous_commit = off;
             ALTER DATABASE {0} SET default_transaction_isolation = 'repeatable read';
             CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 ASSERT current_setting('synchronous_commit') = 'on';
                 RETURN NEW;
             END $$;
             CREATE CONSTRAINT TRIGGER looks AFTER INSERT ON credit_spend DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION look();",
            world.database
        ))
        .await;
    let node = world.node().await;
    let spent = timeout(Duration::from_secs(20), world.spend(&node)).await;
    assert!(spent.expect("it is sent again and again if the server refuses it").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn spend_waits_for_a_stopped_server_and_is_charged_once() {
    let postgres = Postgres::start();
    let world = World::on(&postgres).await;
    world.workspace(10).await;
    let node = world.node().await;
    let held = world.holding(&node, 3).await;
    postgres.pause();
    let (ledger, spent) = (node.ledger.clone(), held.clone());
    let settling = tokio::spawn(async move { ledger.settle(&spent, Spend(3)).await });
    assert!(
        timeout(MOMENT, async {
            while !settling.is_finished() {
                tokio::task::yield_now().await
            }
        })
        .await
        .is_err()
    );
    postgres.resume();
    settling.await.unwrap().unwrap();
    assert_eq!(world.totals().await[..2], [10, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_spends_survive_a_killed_server() {
    let mut postgres = Postgres::start();
    let world = World::on(&postgres).await;
    world.workspace(1_000).await;
    let database = world.database.clone();
    let node = world.node().await;
    let before = world.holding(&node, 3).await;
    node.ledger.settle(&before, Spend(3)).await.unwrap();
    let held = world.holding(&node, 4).await;
    postgres.kill();
    let (ledger, spent) = (node.ledger.clone(), held.clone());
    let settling = tokio::spawn(async move { ledger.settle(&spent, Spend(4)).await });
    postgres.restart();
    // The commit of a hold is asynchronous. If the kill has lost it, its spend fails and is not billed.
    let spent = if settling.await.unwrap().is_ok() { 7 } else { 3 };
    let stored = "SELECT spent, (SELECT sum(credits)::bigint FROM credit_spend) FROM account";
    assert_eq!(postgres.numbers(&database, stored).await, [spent, spent]);
}

/// A statement can arrive long after its node gave it up, even after a crash of the server. The hold must not
/// exist any more, because the lookup was answered with 500.
#[tokio::test(flavor = "multi_thread")]
async fn failed_spend_is_not_executed_after_a_crash_of_the_server() {
    // An asynchronous commit becomes durable after up to 10 s.
    let settings = ["wal_writer_delay=10s", "full_page_writes=off"];
    let mut postgres = Postgres::start_with(&settings, &[]);
    let world = World::on(&postgres).await;
    world.workspace(10).await;
    let database = world.database.clone();
    let mut node = world.node().await;
    // All connections are idle afterwards, so the next spend is sent at once.
    let first = world.holding(&node, 2).await;
    node.ledger.settle(&first, Spend(2)).await.unwrap();
    let held = world.holding(&node, 3).await;
    node.stop_ticking().await;
    world.sql("CREATE TABLE durable ()").await; // a synchronous commit, and thus the hold
    let failed = node.ledger.statistics().commits.failed;
    node.network.drop_requests();
    let (ledger, spent) = (node.ledger.clone(), held.clone());
    let settling = tokio::spawn(async move { ledger.settle(&spent, Spend(3)).await });
    eventually("its statement is lost", async || node.ledger.statistics().commits.failed > failed).await;
    node.network.heal();
    assert!(settling.await.unwrap().is_err());
    postgres.kill();
    postgres.restart();
    let id: String = held.lookup_id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let late = format!(
        "SELECT ended_count FROM settle_holds('{{demo}}', ARRAY['\\x{id}'::bytea], '{{1}}', '{{3}}', '{{9}}', '{{0}}', '{{}}', false, true)"
    );
    assert_eq!(postgres.numbers(&database, &late).await, [0], "the hold exists");
    assert_eq!(postgres.numbers(&database, "SELECT spent, held FROM account").await, [2, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_hold_while_the_server_is_unreachable() {
    let mut postgres = Postgres::start();
    let world = World::on(&postgres).await;
    world.workspace(10).await;
    let node = world.node().await;
    let hold = world.lookup(&node, 1);
    postgres.kill();
    assert!(node.ledger.hold(&hold).await.is_err());
    postgres.restart();
    eventually("it holds again", async || node.ledger.hold(&hold).await.is_ok()).await;
}
