//! The whole service with Redis as its rate-limit store.

use std::sync::Arc;

use enrich_tests::blackbox::{KNOWN, PortCall, TestServer};
use enrich_tests::servers::Redis;

use super::{long_timeouts, open, short_timeouts};

/// "The service could not verify the rate-limit state, so the request was not executed."
#[tokio::test]
async fn request_without_redis_is_503_and_not_executed() {
    let redis = Redis::start();
    let windows = Arc::new(open(&redis.url(), long_timeouts()));
    let server = TestServer::start_with(|settings| settings.windows = windows).await;
    let clients = server.clients(10).await;
    for client in &clients {
        client.look_up(KNOWN).await.assert_status(200);
    }
    redis.kill();
    for client in &clients {
        assert_unavailable(&server, client).await;
    }
    redis.restart();
    for client in &clients {
        while client.look_up(KNOWN).await.status != 200 {}
    }
}

#[tokio::test]
async fn request_with_a_hanging_redis_is_503_and_not_executed() {
    let redis = Redis::start();
    let windows = Arc::new(open(&redis.url(), short_timeouts()));
    let server = TestServer::start_with(|settings| settings.windows = windows).await;
    let client = server.client(10).await;
    while client.look_up(KNOWN).await.status != 200 {}
    redis.pause();
    for _ in 0..5 {
        assert_unavailable(&server, &client).await;
    }
    redis.resume();
    while client.look_up(KNOWN).await.status != 200 {}
}

#[tokio::test]
async fn two_hosts_share_one_limit() {
    let redis = Redis::start();
    let mut admitted = 0;
    let [a, b] = [(); 2].map(|()| Arc::new(open(&redis.url(), long_timeouts())));
    let worlds = [
        TestServer::start_with(|settings| settings.windows = a).await,
        TestServer::start_with(|settings| settings.windows = b).await,
    ];
    // The first workspaces of both servers have the same id.
    let clients = [worlds[0].limited_clients(5, 100).await, worlds[1].limited_clients(5, 100).await];
    assert_eq!(clients[0][0].workspace.id, clients[1][0].workspace.id);
    for _ in 0..10 {
        for clients in &clients {
            let status = clients[0].look_up(KNOWN).await.status;
            assert!([200, 429].contains(&status), "{status}");
            admitted += u32::from(status == 200);
        }
    }
    assert_eq!(admitted, 5);
}

async fn assert_unavailable(server: &TestServer, client: &enrich_tests::blackbox::Client) {
    let before = server.balance(&client.workspace);
    server.ports.take_calls();
    client.look_up(KNOWN).await.assert_error(503, "rate_limit_unavailable");
    assert_eq!(server.ports.take_calls(), [PortCall::FindKey, PortCall::Count]);
    assert_eq!(server.balance(&client.workspace), before);
}
