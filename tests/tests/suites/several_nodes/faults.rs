//! Network faults, and a PostgreSQL server that is killed and restarted, between a hold and its spend.

use std::pin::pin;
use std::time::Duration;

use enrich_lib::credit::Settlement::Spend;
use enrich_lib::ports::Credits;
use enrich_postgres::{Config, accounts, accounts_for_pages};
use enrich_store::Ledger as _;
use enrich_tests::contract::START;
use enrich_tests::eventually;
use enrich_tests::servers::Postgres;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::failover::recovers;
use super::world::{TIMEOUT, World, demo};

/// The timeout of a node whose statements must not time out on a busy machine.
const SLOW: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn spend_that_was_never_sent_is_withdrawn() {
    let world = World::with_credits(10).await;
    let mut config = Config::default();
    (config.timeout, config.sizes.batch) = (TIMEOUT, 1);
    let mut node = world.node_of(config).await;
    let mut holds = Vec::new();
    for _ in 0..8 {
        holds.push(world.holding(&node, 1).await);
    }
    node.stop_ticking().await;
    node.network.lose_all();
    // Until the node has discarded its connections.
    for _ in 0..3 {
        assert!(node.ledger.write_statistics().await.is_err());
    }
    let settling = join_all(holds.iter().map(|held| node.ledger.settle(held, Spend(1))));
    // Not one after the other.
    for settled in timeout(Duration::from_secs(18), settling).await.unwrap() {
        let error = settled.unwrap_err().to_string();
        assert!(error.starts_with("the spend was withdrawn"), "{error}");
    }
    assert_eq!(node.ledger.statistics().credits_held, 0);
    node.network.heal();
    assert_eq!(world.totals().await[..2], [10, 0]);
    recovers(&world, &node).await;
}

/// The outage is longer than the time for which a spend waits to be sent.
#[tokio::test]
async fn batch_with_a_lost_reply_is_charged_once_after_a_long_outage() {
    let world = World::with_credits(10).await;
    let mut node = world.node().await;
    // Opens the connection.
    assert!(world.spend(&node).await.unwrap());
    let mut holds = Vec::new();
    for _ in 0..3 {
        holds.push(world.holding(&node, 1).await);
    }
    node.stop_ticking().await;
    node.network.lose_replies();
    // On one thread, all are queued before the node takes the first one.
    let mut settling = pin!(join_all(holds.iter().map(|held| node.ledger.settle(held, Spend(1)))));
    assert!(timeout(Duration::from_secs(6), &mut settling).await.is_err());
    assert_eq!(world.totals().await[..2], [10, 4]);
    assert_eq!(node.ledger.statistics().queue_depth, 3);
    node.network.heal();
    let settled = settling.await;
    assert!(settled.iter().all(Result::is_ok), "{settled:?}");
    eventually("none waits", async || node.ledger.statistics().queue_depth == 0).await;
    assert_eq!(world.totals().await[..2], [10, 4]);
}

/// A statement can be executed long after its node gave up its connection: here, it waits for a lock while
/// its node asks for the outcome. The spends are invisible then, and exist a moment later.
#[tokio::test(flavor = "multi_thread")]
async fn spend_that_is_still_being_executed_is_not_taken_for_failed() {
    let world = World::with_credits(10).await;
    let node = world.node().await;
    let held = world.holding(&node, 3).await;
    let id: String = held.lookup_id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    // A settlement that another connection is executing.
    let settle = format!(
        "DELETE FROM credit_hold WHERE lookup_id = '\\x{id}';
         INSERT INTO credit_spend VALUES ('\\x{id}', (SELECT rowid FROM workspace), 9, 3, 0);
         INSERT INTO settlement (settled_at, workspace, day, key, lookups, credits, rest)
         VALUES (0, (SELECT rowid FROM workspace), 0, 9, 1, 3, 0)"
    );
    let other = world.begin(&settle).await;
    let settling = node.begin_spend(&held);
    world.statement_waits_for_a_lock().await;
    assert!(!settling.is_finished());
    other.batch_execute("COMMIT").await.unwrap();
    settling.await.unwrap().unwrap();
    assert_eq!(world.totals().await, [10, 3, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_spend_fails_without_its_batch() {
    let world = World::with_credits(100).await;
    world.sql("ALTER TABLE credit_spend ADD CHECK (credits <> 7)").await;
    let node = world.node_with(SLOW).await;
    let mut holds = Vec::new();
    for credits in [1, 7, 1, 1, 7, 1, 1, 1] {
        holds.push(world.holding(&node, credits).await);
    }
    // While the first spend waits for this lock, the others are collected into one batch.
    let locker = world.begin("LOCK TABLE credit_spend IN ACCESS EXCLUSIVE MODE").await;
    let settling: Vec<_> = holds.iter().map(|held| (held.credits, node.begin_spend(held))).collect();
    world.statement_waits_for_a_lock().await;
    locker.batch_execute("COMMIT").await.unwrap();
    for (credits, settling) in settling {
        let settled = settling.await.unwrap();
        assert_eq!(settled.is_ok(), credits == 1, "{settled:?}");
    }
    assert_eq!(world.totals().await[..2], [100, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_changes_are_durable_under_any_database_setting() {
    let world = World::with_credits(10).await;
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
             FOR EACH ROW EXECUTE FUNCTION look();
             CREATE CONSTRAINT TRIGGER looks AFTER INSERT ON audit_event DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION look();",
            world.database
        ))
        .await;
    let node = world.node().await;
    let spent = timeout(Duration::from_secs(20), world.spend(&node)).await;
    assert!(spent.expect("it is sent again and again if the server refuses it").unwrap());
    let server = world.postgres.server(&world.database);
    for mut accounts in [accounts(&server).await.unwrap(), accounts_for_pages(&server).await.unwrap()] {
        accounts.grant(&demo(), 5, START).await.unwrap();
    }
}

/// A statement can arrive long after its node gave it up, even after a crash of the server. The hold must not
/// exist any more, because the lookup was answered with 500.
#[tokio::test(flavor = "multi_thread")]
async fn failed_spend_is_not_executed_after_a_crash_of_the_server() {
    // An asynchronous commit becomes durable after up to 10 s.
    let settings = ["wal_writer_delay=10s", "full_page_writes=off"];
    let mut postgres = Postgres::start_with(&settings, &[]);
    let world = World::on(&postgres, 10).await;
    let database = world.database.clone();
    let mut node = world.node().await;
    // All connections are idle afterwards, so the next spend is sent at once.
    assert!(world.spend(&node).await.unwrap());
    let held = world.holding(&node, 3).await;
    node.stop_ticking().await;
    world.sql("CREATE TABLE durable ()").await; // a synchronous commit, and thus the hold
    let failed = node.ledger.statistics().commits.failed;
    node.network.lose_requests();
    let settling = node.begin_spend(&held);
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
    assert_eq!(postgres.numbers(&database, "SELECT spent, held FROM account").await, [1, 0]);
}
