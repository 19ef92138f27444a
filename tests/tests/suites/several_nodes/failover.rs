//! Connections during a failover: standbys, promotions, and addresses that lead to another server.

use std::time::Duration;

use enrich_postgres::Ledger;
use enrich_store::{Clocks, Ledger as _};
use enrich_tests::contract::START;
use enrich_tests::eventually;
use enrich_tests::servers::{Postgres, Proxy};
use tokio::time::Instant;

use super::world::{Node, TIMEOUT, World, applies_within_a_second, demo, url};

/// The manual promises that a node serves within 5 s after a server accepts writes.
pub(super) const RECOVERY: Duration = Duration::from_secs(5);

/// Checks that a lookup that begins [`RECOVERY`] after a server has been promoted succeeds.
pub(super) async fn recovers(world: &World<'_>, node: &Node) {
    let promoted_at = Instant::now();
    eventually("it spends again", async || {
        let is_late = promoted_at.elapsed() > RECOVERY;
        let spends = world.spend(node).await.is_ok_and(|is_spent| is_spent);
        assert!(spends || !is_late, "not within {RECOVERY:?}");
        spends
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_a_server_whose_operator_made_it_read_only() {
    let postgres = Postgres::start();
    let database = postgres.create_database().await;
    postgres
        .sql("postgres", &format!("ALTER DATABASE {database} SET default_transaction_read_only = on"))
        .await;
    let error = Ledger::open(postgres.server(&database), Default::default(), Clocks::simulated(START))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uses_the_first_host_that_accepts_writes() {
    let primary = Postgres::start();
    let world = World::on(&primary, 10).await;
    let standby = primary.start_standby();
    let silent = Proxy::start(primary.port()).await;
    silent.lose_all();
    let refused = Proxy::start(primary.port()).await.port();
    let ports = [refused, silent.port(), standby.port(), primary.port()];
    // Connecting takes as long as the machine is busy, and 200 ms for the silent host.
    let node = world.node_at(&url(&world.database, &ports), 20 * TIMEOUT).await;
    assert!(world.spend(&node).await.unwrap());
    assert!(silent.accepted() > 0, "the hosts are tried in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn recovers_when_the_primary_dies_and_a_standby_of_the_url_is_promoted() {
    let mut primary = Postgres::start();
    let world = World::on(&primary, 100).await;
    let key = world.key(1).await;
    let standby = primary.start_standby();
    let (database, ports) = (world.database.clone(), [primary.port(), standby.port()]);
    let node = world.node_at(&url(&database, &ports), TIMEOUT).await;
    assert!(world.spend(&node).await.unwrap() && node.accepts(&key).await.unwrap());
    primary.wait_for(&standby).await;
    drop(world);
    primary.kill();
    let world = World::in_database(&standby, database);
    standby.promote().await;
    recovers(&world, &node).await;
    assert!(node.accepts(&key).await.unwrap());
    world.update_key(&key, "revoked_at = 0").await;
    eventually("the key is refused", async || !node.accepts(&key).await.unwrap_or(true)).await;
}

/// As after the loss of a machine: no packet is answered, neither on open nor on new connections.
#[tokio::test(flavor = "multi_thread")]
async fn recovers_when_the_first_host_does_not_respond_and_the_next_one_is_promoted() {
    let primary = Postgres::start();
    let world = World::on(&primary, 100).await;
    let standby = primary.start_standby();
    let first = Proxy::start(primary.port()).await;
    let node = world.node_at(&url(&world.database, &[first.port(), standby.port()]), TIMEOUT).await;
    assert!(world.spend(&node).await.unwrap());
    primary.wait_for(&standby).await;
    first.lose_all();
    let accepted = first.accepted();
    eventually("it connects again", async || {
        let _ = world.hold(&node, 1).await;
        first.accepted() > accepted + 2
    })
    .await;
    standby.promote().await;
    recovers(&World::in_database(&standby, world.database.clone()), &node).await;
}

/// The address of the primary leads to the standby before that is promoted, and open connections are lost
/// without an error.
#[tokio::test(flavor = "multi_thread")]
async fn recovers_when_the_address_leads_to_a_standby_that_is_promoted_later() {
    let primary = Postgres::start();
    let world = World::on(&primary, 100).await;
    let standby = primary.start_standby();
    let node = world.node().await;
    assert!(world.spend(&node).await.unwrap());
    primary.wait_for(&standby).await;
    node.network.lead_to(standby.port());
    node.network.lose_open();
    let before = node.network.accepted();
    eventually("it connects to the standby", async || node.network.accepted() > before).await;
    standby.promote().await;
    recovers(&World::in_database(&standby, world.database.clone()), &node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_validates_no_key() {
    let primary = Postgres::start();
    let world = World::on(&primary, 10).await;
    let (key, other) = (world.key(1).await, world.key(2).await);
    let standby = primary.start_standby();
    let node = world.node().await;
    assert!(node.accepts(&key).await.unwrap());
    primary.wait_for(&standby).await;
    standby.sql("postgres", "SELECT pg_wal_replay_pause()").await;
    node.network.lead_to(standby.port());
    node.network.close_open();
    world.update_key(&key, "revoked_at = 0").await;
    // The node may use a cached key for a second.
    applies_within_a_second("the revoked key is refused", async || Some(node.accepts(&key).await.is_err()))
        .await;
    for _ in 0..5 {
        assert!(node.accepts(&key).await.is_err() && node.accepts(&other).await.is_err());
    }
}

/// The old primary accepts writes again, but no connection at the moment when the node replaces one.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_a_node_lead_to_one_of_two_primaries() {
    let primary = Postgres::start();
    let world = World::on(&primary, 50).await;
    let key = world.key(1).await;
    let standby = primary.start_standby();
    let (first, second) = (Proxy::start(primary.port()).await, Proxy::start(standby.port()).await);
    let node = world.node_at(&url(&world.database, &[first.port(), second.port()]), 4 * TIMEOUT).await;
    assert!(node.accepts(&key).await.unwrap());
    primary.wait_for(&standby).await;
    standby.promote().await;
    let promoted = World::in_database(&standby, world.database.clone());
    promoted.update_key(&key, "revoked_at = 0").await;
    first.lead_to(1); // nothing listens there
    let end_one = "SELECT count(pg_terminate_backend(pid)) FROM (
                       SELECT pid FROM pg_stat_activity
                       WHERE datname = current_database() AND application_name = 'enrich' AND state = 'idle' LIMIT 1
                   ) AS one";
    assert_eq!(world.numbers(end_one).await, [1]);
    let connected = "SELECT count(*) FROM pg_stat_activity
                     WHERE application_name = 'enrich' AND state = 'idle' AND query <> ''";
    eventually("it connects to the other server", async || promoted.numbers(connected).await != [0]).await;
    assert_ne!(world.numbers(connected).await, [0], "others lead to the first server");
    first.lead_to(primary.port());
    applies_within_a_second("the key is refused", async || Some(!node.accepts(&key).await.ok()?)).await;
    for _ in 0..50 {
        assert!(!node.accepts(&key).await.unwrap());
        assert!(world.spend(&node).await.unwrap());
    }
    assert_eq!(promoted.numbers("SELECT count(*) FROM credit_spend").await, [50]);
}

/// Both servers have changed a key since, so that both have the same revision.
#[tokio::test(flavor = "multi_thread")]
async fn key_revoked_on_a_promoted_standby_is_refused_within_a_second() {
    let primary = Postgres::start();
    let world = World::on(&primary, 10).await;
    let (key, other) = (world.key(1).await, world.key(2).await);
    let standby = primary.start_standby();
    let node = world.node().await;
    primary.wait_for(&standby).await;
    standby.promote().await;
    let promoted = World::in_database(&standby, world.database.clone());
    promoted.update_key(&key, "revoked_at = 0").await;
    assert!(node.accepts(&key).await.unwrap() && node.accepts(&other).await.unwrap());
    world.update_key(&other, "disabled_at = 0").await;
    eventually("the node has read the change", async || node.accepts(&other).await.is_ok_and(|is| !is)).await;
    node.network.lead_to(standby.port());
    node.network.close_open();
    applies_within_a_second("the key is refused", async || Some(!node.accepts(&key).await.ok()?)).await;
}

/// A server can become read-only while its connections stay open, for example behind a proxy.
#[tokio::test(flavor = "multi_thread")]
async fn key_is_not_validated_over_an_open_connection_that_becomes_read_only() {
    let postgres = Postgres::start();
    let world = World::on(&postgres, 10).await;
    let key = world.key(1).await;
    let (mut node, mut admin) = (world.node().await, world.admin().await);
    assert!(node.accepts(&key).await.unwrap());
    node.stop_ticking().await;
    let read_only = "ALTER SYSTEM SET default_transaction_read_only = on";
    postgres.sql("postgres", read_only).await;
    postgres.sql("postgres", "SELECT pg_reload_conf()").await;
    eventually("the key is refused", async || node.accepts(&key).await.is_err()).await;
    assert!(node.accepts(&key).await.is_err());
    // The change would be lost if another server has become the primary.
    admin.grant(&demo(), 1, START).await.unwrap_err();
}

/// A call that may be repeated notices the loss. Others then use none of the connections that were open.
#[tokio::test(flavor = "multi_thread")]
async fn each_loss_of_all_connections_is_noticed_by_one_call() {
    let postgres = Postgres::start();
    let world = World::on(&postgres, 10).await;
    let mut node = world.node_with(2 * TIMEOUT).await;
    node.stop_ticking().await;
    for loss in 0..3 {
        world.holding(&node, 1).await;
        node.ledger.balance(&demo()).await.unwrap();
        node.network.lose_open();
        let (_, repeated) = world.hold(&node, 1).await;
        assert!(repeated.is_ok(), "loss {loss}: {repeated:?}");
        let not_repeated = node.ledger.balance(&demo()).await;
        assert!(not_repeated.is_ok(), "loss {loss}: {not_repeated:?}");
    }
}
