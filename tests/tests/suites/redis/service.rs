//! The whole service with Redis as its rate-limit store.

use std::sync::Arc;
use std::time::Duration;

use enrich_host::{Arrivals, SystemArrivals};
use enrich_lib::model::Arrival;
use enrich_lib::window::Quota;
use enrich_tests::blackbox::{KNOWN, PortCall, TestServer};
use enrich_tests::servers::Redis;

use super::{long_timeouts, now, open, short_timeouts};

/// "The service could not verify the rate-limit state, so the request was not executed."
#[tokio::test]
async fn request_without_redis_is_503_and_not_executed() {
    let redis = Redis::start();
    let windows = Arc::new(open(&redis.url(), long_timeouts()));
    let server = TestServer::start_with(|settings| settings.windows = windows).await;
    let client = server.client(10).await;
    for _ in 0..3 {
        client.look_up(KNOWN).await.assert_status(200);
        redis.kill();
        for _ in 0..5 {
            assert_unavailable(&server, &client).await;
        }
        redis.restart();
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
    let clients = [
        worlds[0].connect(worlds[0].create_workspace(5, 100).await),
        worlds[1].connect(worlds[1].create_workspace(5, 100).await),
    ];
    assert_eq!(clients[0].workspace.id, clients[1].workspace.id);
    for _ in 0..10 {
        for client in &clients {
            let status = client.look_up(KNOWN).await.status;
            assert!([200, 429].contains(&status), "{status}");
            admitted += u32::from(status == 200);
        }
    }
    assert_eq!(admitted, 5);
}

/// The clock of a node that is 30 s fast.
#[derive(Debug)]
struct FastClock;

impl Arrivals for FastClock {
    fn arrive(&self) -> Arrival {
        let arrival = SystemArrivals.arrive();
        Arrival { now: arrival.now + Duration::from_secs(30), ..arrival }
    }
}

/// Returns a quota of 5 requests whose current window of `workspace` ends in 12 to 19 s.
fn quota_near_its_edge(workspace: &str) -> Quota {
    let (now, workspace) = (now(), workspace.parse().unwrap());
    let ends_soon = |quota: &Quota| {
        let left_ms = quota.window(&workspace, now).closes_at().unix_ms() - now.unix_ms();
        (12_000..19_000).contains(&left_ms)
    };
    (60..).map(|seconds| Quota::new(5, seconds).unwrap()).find(ends_soon).unwrap()
}

/// By its clock, the node is in the next window already, which would admit the limit a second time.
#[tokio::test]
async fn node_with_a_fast_clock_admits_nothing_before_the_window_edge() {
    let redis = Redis::start();
    let [a, b] = [(); 2].map(|()| Arc::new(open(&redis.url(), long_timeouts())));
    let correct = TestServer::start_with(|settings| settings.windows = a).await;
    let fast = TestServer::start_with(|settings| {
        settings.windows = b;
        settings.arrivals = Arc::new(FastClock);
    });
    let fast = fast.await;
    let quota = quota_near_its_edge("workspace-0");
    let mut statuses = Vec::new();
    for server in [&correct, &fast] {
        // The first workspaces of both servers have the same id.
        let client = server.connect(server.create_workspace_with(quota, 100).await);
        assert_eq!(client.workspace.id.as_str(), "workspace-0");
        for _ in 0..10 {
            statuses.push(client.look_up(KNOWN).await.status);
        }
    }
    assert_eq!(statuses, [[200; 5], [429; 5], [503; 5], [503; 5]].concat());
}

async fn assert_unavailable(server: &TestServer, client: &enrich_tests::blackbox::Client) {
    let before = server.balance(&client.workspace);
    server.ports.take_calls();
    client.look_up(KNOWN).await.assert_error(503, "rate_limit_unavailable");
    assert_eq!(server.ports.take_calls(), [PortCall::FindKey, PortCall::Count]);
    assert_eq!(server.balance(&client.workspace), before);
}
