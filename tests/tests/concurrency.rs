//! Concurrent clients, and clients that disconnect or stall.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use std::collections::BTreeMap;
use std::sync::Arc;

use enrich_tests::blackbox::{Client, KNOWN, Lookup, Mood, Raw, Step, Tenant, Transport, World, eventually};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const CROWD: usize = 64;

/// Runs `rounds` lookups on each of [`CROWD`] concurrent clients and returns the number of replies by status.
///
/// Each client has its own connections. The clients use all transports in turn.
async fn crowd(world: &World, tenant: &Tenant, rounds: usize) -> BTreeMap<u16, usize> {
    let barrier = Arc::new(Barrier::new(CROWD));
    let mut clients = JoinSet::new();
    for i in 0..CROWD {
        let client = Client::new(world, Transport::ALL[i % 4], tenant.clone());
        let barrier = barrier.clone();
        clients.spawn(async move {
            barrier.wait().await;
            let mut statuses = Vec::new();
            for _ in 0..rounds {
                statuses.push(client.look_up(KNOWN).await.status);
            }
            statuses
        });
    }
    let mut seen = BTreeMap::new();
    for status in clients.join_all().await.into_iter().flatten() {
        *seen.entry(status).or_default() += 1;
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_spends_exactly_the_balance() {
    let world = World::open().await;
    let tenant = world.tenant(1_000_000, 100).await;
    let seen = crowd(&world, &tenant, 4).await;
    assert_eq!(seen, BTreeMap::from([(200, 100), (402, CROWD * 4 - 100)]));
    assert_eq!(world.totals(&tenant), (0, 0, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_crowd_exactly_as_many_pass_as_the_burst_limit_lets() {
    let world = World::open().await;
    let tenant = world.tenant(50, 1_000).await;
    let seen = crowd(&world, &tenant, 2).await;
    assert_eq!(seen, BTreeMap::from([(200, 50), (429, CROWD * 2 - 50)]));
    assert_eq!(world.totals(&tenant), (950, 0, 50));
}

/// Held credits are unavailable to other lookups for as long as the hold lasts.
#[tokio::test(flavor = "multi_thread")]
async fn credits_that_are_held_are_not_spent_by_others() {
    let world = World::open().await;
    let tenant = world.tenant(1_000_000, 10).await;
    world.tap.set(Step::FindPerson, Mood::Hangs);
    let waiting = {
        let (world, tenant) = (&world, &tenant);
        let release = async {
            eventually("10 are looked up", || world.totals(tenant) == (0, 10, 0)).await;
            let late = Client::new(world, Transport::Http1, tenant.clone());
            late.look_up(KNOWN).await.assert_error(402, "insufficient_credits");
            world.tap.all_work();
        };
        tokio::join!(crowd(world, tenant, 1), release).0
    };
    assert_eq!(waiting, BTreeMap::from([(200, 10), (402, CROWD - 10)]));
    assert_eq!(world.totals(&tenant), (0, 0, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_stand_still_keep_nobody_from_being_served() {
    let world = World::open().await;
    let lookup = world.lookup(KNOWN, 1_000).await;
    let whole = lookup.whole();
    let mut still = Vec::new();
    for i in 0..100 {
        let mut client = if i % 4 == 3 { Raw::connect(world.tls).await } else { world.raw().await };
        let part = match i % 4 {
            0 => &whole[..whole.len() / 2],                     // half a head
            1 => &whole[..whole.len() - lookup.body.len() / 2], // half a body
            2 => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            _ => "\x16\x03\x01",
        };
        client.send(part).await;
        still.push(client);
    }
    let tenant = world.tenant(1_000_000, 1_000).await;
    assert_eq!(crowd(&world, &tenant, 2).await, BTreeMap::from([(200, CROWD * 2)]));
    drop(still);
}

/// After a client disconnects, its lookup still runs to completion and is billed as usual.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_hang_up_on_http2_leave_no_hold() {
    for (mood, totals) in OUTCOMES {
        // The clients use all connections of both ports, so the next clients are served only after the server has noticed
        // that these are gone.
        let world = World::with(|settings| settings.limits.connections_max = CROWD / 2).await;
        let tenant = world.tenant(1_000_000, 100).await;
        world.tap.set(Step::FindPerson, Mood::Hangs);
        let mut clients = JoinSet::new();
        for i in 0..CROWD {
            let client = Client::new(&world, HTTP2[i % 2], tenant.clone());
            clients.spawn(async move { client.look_up(KNOWN).await });
        }
        all_are_held(&world, &tenant).await;
        clients.shutdown().await;

        let mut next = Vec::new();
        for i in 0..CROWD {
            let client = Client::new(&world, HTTP2[i % 2], tenant.clone());
            client.post("{").await.assert_status(400);
            next.push(client);
        }
        drop(next);
        assert_eq!(world.totals(&tenant), (36, 64, 0), "nobody waits for them, and they go on");
        world.tap.set(Step::FindPerson, mood);
        all_are_settled(&world, &tenant, totals).await;
    }
}

/// Lookups also run to completion if clients reset the HTTP/2 streams but keep their connections.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_reset_leave_no_hold() {
    for (mood, totals) in OUTCOMES {
        let world = World::open().await;
        let tenant = world.tenant(1_000_000, 100).await;
        let clients = HTTP2.map(|transport| Client::new(&world, transport, tenant.clone()));
        for client in &clients {
            client.post("{").await.assert_status(400); // opens the connection that all requests share
        }
        world.tap.set(Step::FindPerson, Mood::Hangs);
        let mut requests = JoinSet::new();
        for i in 0..CROWD {
            let client = clients[i % 2].clone();
            requests.spawn(async move { client.look_up(KNOWN).await });
        }
        all_are_held(&world, &tenant).await;
        requests.shutdown().await;
        for client in &clients {
            client.post("{").await.assert_status(400); // the server processes this after the resets
        }
        world.tap.set(Step::FindPerson, mood);
        all_are_settled(&world, &tenant, totals).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_hang_up_on_http1_leave_no_hold() {
    for (mood, totals) in OUTCOMES {
        let world = World::open().await;
        let tenant = world.tenant(1_000_000, 100).await;
        let lookup = Lookup { key: tenant.key.clone(), body: format!(r#"{{"email":"{KNOWN}"}}"#) };
        world.tap.set(Step::FindPerson, Mood::Hangs);
        let mut clients = Vec::new();
        for _ in 0..CROWD {
            let mut client = world.raw().await;
            client.send(lookup.whole()).await;
            clients.push(client);
        }
        all_are_held(&world, &tenant).await;
        for (i, client) in clients.into_iter().enumerate() {
            if i % 2 == 0 { drop(client) } else { client.reset() }
        }
        world.tap.set(Step::FindPerson, mood);
        all_are_settled(&world, &tenant, totals).await;
    }
}

const HTTP2: [Transport; 2] = [Transport::Http2, Transport::Https2];

/// How the 64 blocked lookups continue, and the totals of a workspace with 100 credits after that.
const OUTCOMES: [(Mood, (u64, u64, u64)); 2] = [(Mood::Works, (36, 0, 64)), (Mood::Fails, (100, 0, 0))];

async fn all_are_held(world: &World, tenant: &Tenant) {
    eventually("all are looked up", || world.tap.count(Step::FindPerson) == CROWD).await;
    assert_eq!(world.totals(tenant), (36, 64, 0));
}

async fn all_are_settled(world: &World, tenant: &Tenant, totals: (u64, u64, u64)) {
    eventually("no hold is left", || world.totals(tenant).1 == 0).await;
    assert_eq!(world.totals(tenant), totals);
    world.tap.all_work();
    Client::new(world, Transport::Http1, tenant.clone()).look_up(KNOWN).await.assert_status(200);
}
