//! Work that does not grow with the number of workspaces, and locks that delay only the workspace that they lock.

use std::time::Duration;

use enrich_lib::credit::Hold;
use enrich_lib::credit::HoldOutcome::Granted;
use enrich_lib::credit::Settlement::{Release, Spend};
use enrich_lib::ports::Credits;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;

use super::world::{LEASE, Node, World, eventually};

/// The most that a statement may read with one index scan per lease, for those that others have changed.
const READS_MAX: i64 = 100;

/// Creates `count` workspaces with 100 credits.
async fn workspaces(world: &World<'_>, count: u32) {
    world
        .sql(&format!(
            "INSERT INTO workspace (id, quota_limit, window_seconds, created_at, granted)
             SELECT 'w' || n, 500, 60, now(), 100 FROM generate_series(1, {count}) AS n ORDER BY n;
             INSERT INTO credit_grant (workspace, credits, at) SELECT rowid, 100, now() FROM workspace"
        ))
        .await;
}

/// Creates a session that leases 16 credits of each workspace and has spent 3 of them. Returns its epoch.
async fn session(world: &World<'_>, ttl_ms: i64) -> i64 {
    let client = world.postgres.client(&world.database).await;
    let epoch = client.query_one("SELECT node_begin('other', $1)", &[&ttl_ms]).await.unwrap().get(0);
    let insert = "INSERT INTO lease (workspace, epoch, number, taken, spent) SELECT rowid, $1, 1, 16, 3 FROM workspace";
    client.execute(insert, &[&epoch]).await.unwrap();
    let spends = "INSERT INTO credit_spend (lookup_id, workspace, key, credits, epoch, at)
         SELECT gen_random_uuid(), rowid, 1, 3, $1, now() FROM workspace";
    client.execute(spends, &[&epoch]).await.unwrap();
    client.batch_execute("UPDATE workspace SET leased = leased + 16").await.unwrap();
    epoch
}

/// Returns the number of sessions and leases, and the spent and leased credits of all workspaces. Panics if the accounts
/// differ from their rows.
async fn state(world: &World<'_>) -> Vec<i64> {
    assert_eq!(enrich_store::Admin::audit(&mut world.admin().await).await.unwrap().errors, [""; 0]);
    let select = "SELECT (SELECT count(*) FROM node), (SELECT count(*) FROM lease), sum(spent)::bigint, sum(leased)::bigint
         FROM account";
    world.postgres.numbers(&world.database, select).await
}

async fn nodes_end(client: &Client, leases_max: i64) -> i64 {
    client.query_one("SELECT nodes_end($1)", &[&leases_max]).await.unwrap().get(0)
}

/// Creates a hold of one credit of the workspace `w{n}`.
fn lookup(world: &World<'_>, node: &Node, n: u32) -> Hold {
    Hold { workspace: format!("w{n}").parse().unwrap(), ..world.lookup(node, 1) }
}

async fn spend(world: &World<'_>, node: &Node, n: u32) {
    let hold = lookup(world, node, n);
    assert_eq!(node.ledger.hold(&hold).await.unwrap(), Granted);
    node.ledger.settle(&hold, Spend(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_an_ended_session_return_in_chunks() {
    let world = World::new().await;
    workspaces(&world, 25).await;
    session(&world, 0).await;
    let client = world.postgres.client(&world.database).await;
    assert_eq!(nodes_end(&client, 10).await, 10);
    assert_eq!(state(&world).await, [1, 15, 75, 15 * 13]);
    assert_eq!([nodes_end(&client, 10).await, nodes_end(&client, 10).await], [10, 5]);
    assert_eq!(state(&world).await, [0, 0, 75, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_return_all_leases_of_an_ended_session() {
    let world = World::new().await;
    workspaces(&world, 5_000).await;
    session(&world, 0).await;
    let node = world.node().await;
    spend(&world, &node, 1).await;
    eventually("they have returned", async || state(&world).await[..3] == [1, 1, 15_001]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_leases_waits_for_no_lock() {
    let world = World::new().await;
    workspaces(&world, 5).await;
    let epoch = session(&world, 0).await;
    let [locker, other, client] = [(); 3].map(|()| world.postgres.client(&world.database));
    let (locker, other, client) = tokio::join!(locker, other, client);
    locker
        .batch_execute(&format!(
            "BEGIN; SELECT FROM workspace WHERE id = 'w1' FOR UPDATE;
             SELECT FROM lease JOIN workspace w ON w.rowid = lease.workspace WHERE w.id = 'w3' AND epoch = {epoch} FOR UPDATE OF lease"
        ))
        .await
        .unwrap();
    other.batch_execute("BEGIN").await.unwrap();
    assert_eq!(nodes_end(&other, 10).await, 3, "all but those of the locked rows");
    let concurrent = timeout(Duration::from_secs(10), nodes_end(&client, 10)).await;
    assert_eq!(concurrent.unwrap(), 0, "another node returns them");
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(nodes_end(&client, 10).await, 0);
    locker.batch_execute("COMMIT").await.unwrap();
    assert_eq!(nodes_end(&client, 10).await, 2);
    assert_eq!(state(&world).await, [0, 0, 15, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_obtains_the_credits_of_an_ended_session_of_its_workspace() {
    let world = World::new().await;
    workspaces(&world, 50).await;
    let mut node = world.node().await;
    node.stop_ticking().await;
    for _ in 0..6 {
        session(&world, 0).await;
    }
    let all = Hold { credits: 82, ..lookup(&world, &node, 7) };
    assert_eq!(node.ledger.hold(&all).await.unwrap(), Granted);
    assert_eq!(state(&world).await[..2], [7, 6 * 49 + 1], "those of the other workspaces follow later");
}

#[tokio::test(flavor = "multi_thread")]
async fn spend_of_an_ended_session_is_charged_once_before_and_after_its_lease_has_returned() {
    let world = World::new().await;
    workspaces(&world, 1).await;
    let mut node = world.node().await;
    let holds = [(); 2].map(|()| lookup(&world, &node, 1));
    for hold in &holds {
        assert_eq!(node.ledger.hold(hold).await.unwrap(), Granted);
    }
    node.stop_ticking().await;
    world.sql("UPDATE node SET ends_at = clock_timestamp()").await;
    node.ledger.settle(&holds[0], Spend(1)).await.unwrap();
    assert_eq!(state(&world).await[1..3], [1, 1]);
    nodes_end(&world.postgres.client(&world.database).await, 10).await;
    node.ledger.settle(&holds[1], Spend(1)).await.unwrap();
    assert_eq!(state(&world).await[1..], [0, 2, 0]);
}

/// Locks that a tick waits for must not end the session.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeat_continues_while_the_leases_are_locked() {
    let world = World::new().await;
    workspaces(&world, 1).await;
    let key = world.key(1).await;
    let node = world.node().await;
    let hold = lookup(&world, &node, 1);
    assert_eq!(node.ledger.hold(&hold).await.unwrap(), Granted);
    node.ledger.settle(&hold, Release).await.unwrap();
    assert!(node.accepts(&key).await.unwrap());
    let locker = world.postgres.client(&world.database).await;
    locker.batch_execute("BEGIN; LOCK TABLE lease, workspace IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let locked_at = Instant::now();
    while locked_at.elapsed() < LEASE * 2 {
        let hold = lookup(&world, &node, 1);
        assert_eq!(node.ledger.hold(&hold).await.unwrap(), Granted, "after {:?}", locked_at.elapsed());
        node.ledger.settle(&hold, Release).await.unwrap();
        assert!(node.accepts(&key).await.unwrap());
        sleep(Duration::from_millis(50)).await;
    }
    assert!(node.ledger.tick(node.now()).await.is_err(), "ticks do wait");
    locker.batch_execute("COMMIT").await.unwrap();
    spend(&world, &node, 1).await;
    assert_eq!(state(&world).await[..3], [1, 1, 1], "it is the same session");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_part_of_a_tick_does_not_delay_the_others() {
    let world = World::new().await;
    world.workspace(10).await;
    let (one, two) = (world.node().await, world.node().await);
    assert!(world.spend(&one).await.unwrap());
    world.sql("ALTER FUNCTION lease_show(bigint, bigint[], bigint[]) RENAME TO hidden").await;
    let _held = world.holding(&one, 1).await;
    eventually("a tick fails", async || one.ledger.tick(one.now()).await.is_err()).await;
    assert_eq!(world.hold(&two, 8).await.1.unwrap(), Granted, "the first node returns its idle credits");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_leases_end_and_can_be_taken_again() {
    let world = World::new().await;
    workspaces(&world, 1_200).await;
    let node = world.node().await;
    for n in 1..=1_200 {
        spend(&world, &node, n).await;
    }
    // A lookup depends on this lease.
    let hold = lookup(&world, &node, 1);
    assert_eq!(node.ledger.hold(&hold).await.unwrap(), Granted);
    eventually("the other leases have ended", async || state(&world).await[1] == 1).await;
    node.ledger.settle(&hold, Spend(1)).await.unwrap();
    node.ledger.settle(&hold, Spend(1)).await.unwrap();
    for n in 1..=10 {
        spend(&world, &node, n).await;
    }
    assert_eq!(state(&world).await[..3], [1, 10, 1_211]);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_call_for_an_ended_lease_has_no_effect_on_the_next() {
    let world = World::new().await;
    workspaces(&world, 1).await;
    let client = world.postgres.client(&world.database).await;
    let epoch: i64 = client.query_one("SELECT node_begin('late', 100000)", &[]).await.unwrap().get(0);
    let take = "SELECT outcome, taken FROM lease_take($1, 'w1', $2, $3, 5, 5, false)";
    let take = async |number: i64, known: i64| {
        let row = client.query_one(take, &[&epoch, &number, &known]).await.unwrap();
        (row.get::<_, String>(0), row.get::<_, Option<i64>>(1))
    };
    let give_back = async |number: i64, total: Option<i64>| {
        let call = "SELECT lease_return($1, '{1}', ARRAY[$2::bigint], ARRAY[$3::bigint], '{0}')";
        client.query_one(call, &[&epoch, &number, &total]).await.unwrap();
    };
    assert_eq!(take(1, 0).await, ("taken".to_owned(), Some(5)));
    give_back(1, None).await;
    assert_eq!(state(&world).await[1..], [0, 0, 0]);
    assert_eq!(take(2, 0).await, ("taken".to_owned(), Some(5)));
    give_back(1, Some(3)).await;
    give_back(1, None).await;
    assert_eq!(take(1, 0).await.0, "ended");
    assert_eq!(state(&world).await[1..], [1, 0, 5]);
    assert_eq!(take(3, 0).await, ("taken".to_owned(), Some(5)), "the end of the second one was lost");
    assert_eq!(state(&world).await[1..], [1, 0, 5]);
    assert_eq!(take(3, 7).await.0, "ended", "the node knows more than the store");
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_lease_delays_only_the_spends_of_its_workspace() {
    let world = World::new().await;
    workspaces(&world, 20).await;
    let node = world.node().await;
    for n in 1..=20 {
        spend(&world, &node, n).await;
    }
    let locker = world.postgres.client(&world.database).await;
    let lock = "BEGIN; SELECT FROM lease l JOIN workspace w ON w.rowid = l.workspace WHERE w.id = 'w1' FOR UPDATE OF l";
    locker.batch_execute(lock).await.unwrap();
    let mut blocked = Vec::new();
    let locked_at = Instant::now();
    while locked_at.elapsed() < Duration::from_secs(2) {
        // More credits would have to be leased.
        if blocked.len() < 10 {
            let (hold, ledger) = (lookup(&world, &node, 1), node.ledger.clone());
            assert_eq!(ledger.hold(&hold).await.unwrap(), Granted);
            blocked.push(tokio::spawn(async move { ledger.settle(&hold, Spend(1)).await }));
        }
        let others = (2..=20).map(|n| spend(&world, &node, n));
        let spent = timeout(Duration::from_secs(1), futures_util::future::join_all(others)).await;
        assert!(spent.is_ok(), "after {:?}", locked_at.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    assert!(blocked.iter().all(|settled| !settled.is_finished()));
    locker.batch_execute("COMMIT").await.unwrap();
    for settled in blocked {
        settled.await.unwrap().unwrap();
    }
    state(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spend_of_a_lease_that_stays_locked_fails_and_is_not_billed() {
    let world = World::new().await;
    workspaces(&world, 1).await;
    let node = world.node().await;
    spend(&world, &node, 1).await;
    let hold = lookup(&world, &node, 1);
    assert_eq!(node.ledger.hold(&hold).await.unwrap(), Granted);
    let locker = world.postgres.client(&world.database).await;
    locker.batch_execute("BEGIN; SELECT FROM lease FOR UPDATE").await.unwrap();
    let settled = timeout(Duration::from_secs(20), node.ledger.settle(&hold, Spend(1))).await.unwrap();
    let error = settled.unwrap_err().to_string();
    assert!(error.starts_with("the spend was withdrawn"), "{error}");
    locker.batch_execute("COMMIT").await.unwrap();
    spend(&world, &node, 1).await;
    assert_eq!(state(&world).await[2], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn epochs_are_random() {
    let world = World::new().await;
    let client = world.postgres.client(&world.database).await;
    for _ in 0..50 {
        client.query_one("SELECT node_begin('node', 1000)", &[]).await.unwrap();
    }
    // The probability that one of 50 is smaller than 2^40 is less than 10^-5.
    let select = "SELECT count(*) FROM node WHERE epoch > 1099511627776";
    assert_eq!(world.postgres.numbers(&world.database, select).await, [50]);
}

/// The statistics are those of the empty table, or lack the epochs of the current sessions.
#[tokio::test(flavor = "multi_thread")]
async fn statements_read_only_their_leases_with_outdated_statistics() {
    for earlier_sessions in [0, 1] {
        let world = World::new().await;
        world.sql("ALTER TABLE lease SET (autovacuum_enabled = off)").await;
        workspaces(&world, 5_000).await;
        for _ in 0..earlier_sessions {
            session(&world, 0).await;
        }
        world.sql("ANALYZE lease, workspace").await;
        let client = world.postgres.client(&world.database).await;
        while nodes_end(&client, 1_000).await > 0 {}
        let (epoch, other) = (session(&world, 100_000).await, session(&world, 100_000).await);
        world.sql("UPDATE lease SET recalled = 1 WHERE workspace % 1000 = 0").await;
        let reads = "SELECT (idx_tup_fetch + seq_tup_read)::bigint FROM pg_stat_xact_user_tables WHERE relname = 'lease'";
        let lookup = "'{00000000-0000-0000-0000-000000000001}'";
        let row = |n: u32| format!("(SELECT ARRAY[rowid] FROM workspace WHERE id = 'w{n}')");
        for call in [
            format!("SELECT names FROM leases_recalled({epoch}, 10)"),
            format!("SELECT outcome FROM lease_take({epoch}, 'w5', 1, 16, 1, 1, false)"),
            format!("SELECT outcome FROM lease_take({epoch}, 'w5', 1, 16, 90, 90, false)"),
            format!("SELECT lease_return({epoch}, {}, '{{1}}', '{{1}}', '{{1}}')", row(6)),
            format!("SELECT lease_return({epoch}, {}, '{{1}}', '{{NULL}}', '{{1}}')", row(7)),
            format!("SELECT lease_show({epoch}, {}, '{{1}}')", row(8)),
            format!(
                "SELECT settle('{{{epoch}}}', {}, '{{1}}', {lookup}, '{{1}}', '{{1}}', '{{1}}', ARRAY[now()])",
                row(9)
            ),
            format!(
                "SELECT settle('{{{epoch}}}', {}, '{{50}}', {lookup}, '{{1}}', '{{1}}', '{{50}}', ARRAY[now()])",
                row(9)
            ),
            format!("SELECT charge('{{{epoch}}}', {}, {lookup}, '{{1}}', '{{50}}', ARRAY[now()])", row(9)),
            format!("UPDATE node SET ends_at = now() WHERE epoch = {other}; SELECT nodes_end(10)"),
        ] {
            client.batch_execute("BEGIN").await.unwrap();
            let before: i64 = client.query_one(reads, &[]).await.unwrap().get(0);
            client.batch_execute(&call).await.unwrap();
            let read = client.query_one(reads, &[]).await.unwrap().get::<_, i64>(0) - before;
            client.batch_execute("ROLLBACK").await.unwrap();
            assert!(read <= READS_MAX, "{call} reads {read} leases");
        }
    }
}
