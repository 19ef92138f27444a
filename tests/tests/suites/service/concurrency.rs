//! Concurrent clients, and clients that disconnect or stall.

use std::collections::BTreeMap;
use std::sync::Arc;

use enrich_tests::blackbox::{
    Behavior, Client, KNOWN, PortCall, RawConnection, RawRequest, TestServer, TestWorkspace, Transport,
    eventually,
};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const CLIENTS: usize = 64;

/// Runs `rounds` lookups on each of [`CLIENTS`] concurrent clients and returns the number of replies by status.
///
/// Each client has its own connections. The clients use all transports in turn.
async fn run_clients(server: &TestServer, workspace: &TestWorkspace, rounds: usize) -> BTreeMap<u16, usize> {
    let barrier = Arc::new(Barrier::new(CLIENTS));
    let mut clients = JoinSet::new();
    for i in 0..CLIENTS {
        let client = Client::new(server, Transport::ALL[i % 4], workspace.clone());
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
async fn concurrent_lookups_spend_exactly_the_balance() {
    let server = TestServer::start().await;
    let workspace = server.create_workspace(1_000_000, 100).await;
    let seen = run_clients(&server, &workspace, 4).await;
    assert_eq!(seen, BTreeMap::from([(200, 100), (402, CLIENTS * 4 - 100)]));
    assert_eq!(server.balance(&workspace), (0, 0, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_stay_within_the_rate_limit() {
    let server = TestServer::start().await;
    let workspace = server.create_workspace(50, 1_000).await;
    let seen = run_clients(&server, &workspace, 2).await;
    assert_eq!(seen, BTreeMap::from([(200, 50), (429, CLIENTS * 2 - 50)]));
    assert_eq!(server.balance(&workspace), (950, 0, 50));
}

/// Held credits are unavailable to other lookups for as long as the hold lasts.
#[tokio::test(flavor = "multi_thread")]
async fn held_credits_are_unavailable_to_other_lookups() {
    let server = TestServer::start().await;
    let workspace = server.create_workspace(1_000_000, 10).await;
    server.ports.set(PortCall::FindPerson, Behavior::Hangs);
    let waiting = {
        let (server, workspace) = (&server, &workspace);
        let release = async {
            eventually("10 are looked up", || server.balance(workspace) == (0, 10, 0)).await;
            let other = Client::new(server, Transport::Http1, workspace.clone());
            other.look_up(KNOWN).await.assert_error(402, "insufficient_credits");
            server.ports.all_work();
        };
        tokio::join!(run_clients(server, workspace, 1), release).0
    };
    assert_eq!(waiting, BTreeMap::from([(200, 10), (402, CLIENTS - 10)]));
    assert_eq!(server.balance(&workspace), (0, 0, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_clients_do_not_block_others() {
    let server = TestServer::start().await;
    let lookup = server.raw_request(KNOWN, 1_000).await;
    let request = lookup.text();
    let mut stalled = Vec::new();
    for i in 0..100 {
        let mut client =
            if i % 4 == 3 { RawConnection::open(server.tls).await } else { server.connect_raw().await };
        let part = match i % 4 {
            0 => &request[..request.len() / 2],                     // half a head
            1 => &request[..request.len() - lookup.body.len() / 2], // half a body
            2 => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            _ => "\x16\x03\x01",
        };
        client.send(part).await;
        stalled.push(client);
    }
    let workspace = server.create_workspace(1_000_000, 1_000).await;
    assert_eq!(run_clients(&server, &workspace, 2).await, BTreeMap::from([(200, CLIENTS * 2)]));
    drop(stalled);
}

/// After a client disconnects, its lookup still runs to completion and is billed as usual.
#[tokio::test(flavor = "multi_thread")]
async fn disconnected_http2_clients_leave_no_hold() {
    for (behavior, totals) in OUTCOMES {
        // The clients use all connections of both ports, so the next clients are served only after the server has noticed
        // that these are gone.
        let server = TestServer::start_with(|settings| settings.limits.connections_max = CLIENTS / 2).await;
        let workspace = server.create_workspace(1_000_000, 100).await;
        server.ports.set(PortCall::FindPerson, Behavior::Hangs);
        let mut clients = JoinSet::new();
        for i in 0..CLIENTS {
            let client = Client::new(&server, HTTP2[i % 2], workspace.clone());
            clients.spawn(async move { client.look_up(KNOWN).await });
        }
        all_are_held(&server, &workspace).await;
        clients.shutdown().await;

        let mut next = Vec::new();
        for i in 0..CLIENTS {
            let client = Client::new(&server, HTTP2[i % 2], workspace.clone());
            client.post("{").await.assert_status(400);
            next.push(client);
        }
        drop(next);
        assert_eq!(server.balance(&workspace), (36, 64, 0), "lookups of disconnected clients continue");
        server.ports.set(PortCall::FindPerson, behavior);
        all_are_settled(&server, &workspace, totals).await;
    }
}

/// Lookups also run to completion if clients reset the HTTP/2 streams but keep their connections.
#[tokio::test(flavor = "multi_thread")]
async fn reset_http2_streams_leave_no_hold() {
    for (behavior, totals) in OUTCOMES {
        let server = TestServer::start().await;
        let workspace = server.create_workspace(1_000_000, 100).await;
        let clients = HTTP2.map(|transport| Client::new(&server, transport, workspace.clone()));
        for client in &clients {
            client.post("{").await.assert_status(400); // opens the connection that all requests share
        }
        server.ports.set(PortCall::FindPerson, Behavior::Hangs);
        let mut requests = JoinSet::new();
        for i in 0..CLIENTS {
            let client = clients[i % 2].clone();
            requests.spawn(async move { client.look_up(KNOWN).await });
        }
        all_are_held(&server, &workspace).await;
        requests.shutdown().await;
        for client in &clients {
            client.post("{").await.assert_status(400); // the server processes this after the resets
        }
        server.ports.set(PortCall::FindPerson, behavior);
        all_are_settled(&server, &workspace, totals).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_http1_clients_leave_no_hold() {
    for (behavior, totals) in OUTCOMES {
        let server = TestServer::start().await;
        let workspace = server.create_workspace(1_000_000, 100).await;
        let lookup = RawRequest { key: workspace.key.clone(), body: format!(r#"{{"email":"{KNOWN}"}}"#) };
        server.ports.set(PortCall::FindPerson, Behavior::Hangs);
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = server.connect_raw().await;
            client.send(lookup.text()).await;
            clients.push(client);
        }
        all_are_held(&server, &workspace).await;
        for (i, client) in clients.into_iter().enumerate() {
            if i % 2 == 0 { drop(client) } else { client.reset() }
        }
        server.ports.set(PortCall::FindPerson, behavior);
        all_are_settled(&server, &workspace, totals).await;
    }
}

const HTTP2: [Transport; 2] = [Transport::Http2, Transport::Https2];

/// How the 64 blocked lookups continue, and the totals of a workspace with 100 credits after that.
const OUTCOMES: [(Behavior, (u64, u64, u64)); 2] =
    [(Behavior::Works, (36, 0, 64)), (Behavior::Fails, (100, 0, 0))];

async fn all_are_held(server: &TestServer, workspace: &TestWorkspace) {
    eventually("all are looked up", || server.ports.count(PortCall::FindPerson) == CLIENTS).await;
    assert_eq!(server.balance(workspace), (36, 64, 0));
}

async fn all_are_settled(server: &TestServer, workspace: &TestWorkspace, totals: (u64, u64, u64)) {
    eventually("no hold is left", || server.balance(workspace).1 == 0).await;
    assert_eq!(server.balance(workspace), totals);
    server.ports.all_work();
    Client::new(server, Transport::Http1, workspace.clone()).look_up(KNOWN).await.assert_status(200);
}
