//! Rate-limit windows in real time, and quotas other than those of the golden transcripts.

use std::time::{Duration, Instant};

use enrich_lib::window::Quota;
use enrich_tests::blackbox::{Client, KNOWN, TIMEOUT, TestServer, Transport, UNKNOWN};

/// The default limit is 500 requests per 60 s. It is set per workspace.
#[tokio::test]
async fn default_limit_is_500_requests_per_minute() {
    let server = TestServer::start().await;
    for (quota, limit, seconds) in [(Quota::default(), 500, 60), (Quota::new(9, 5).unwrap(), 9, 5)] {
        let workspace = server.create_workspace_with(quota, 1).await;
        let reply = Client::new(&server, Transport::Http1, workspace).look_up(KNOWN).await;
        assert_eq!((reply.status, reply.integer("ratelimit-limit")), (200, limit));
        assert_eq!(reply.integer("ratelimit-remaining"), limit - 1);
        assert!((1..=seconds).contains(&reply.integer("ratelimit-reset")), "{reply:?}");
    }
}

/// `RateLimit-Reset` and `Retry-After` are equal delta-seconds, rounded up, at least 1.
#[tokio::test]
async fn reset_and_retry_after_are_within_the_window() {
    let server = TestServer::start().await;
    for window_seconds in [1, 60, 3_600] {
        let workspace = server.create_workspace_with(Quota::new(1, window_seconds).unwrap(), 0).await;
        let client = Client::new(&server, Transport::Http2, workspace);
        let mut limited = client.look_up(UNKNOWN).await;
        while limited.status != 429 {
            limited = client.look_up(UNKNOWN).await;
        }
        let reset = limited.integer("ratelimit-reset");
        assert_eq!(reset, limited.integer("retry-after"));
        assert!((1..=u64::from(window_seconds)).contains(&reset), "{limited:?}");
    }
}

/// "`Retry-After`: minimum time to wait before retrying" (specification 8.2).
#[tokio::test]
async fn admits_a_client_again_after_retry_after() {
    let server = TestServer::start().await;
    let workspace = server.create_workspace_with(Quota::new(1, 1).unwrap(), 1_000).await;
    let client = Client::new(&server, Transport::Http2, workspace);
    let started = Instant::now();
    let limited = loop {
        let reply = client.look_up(UNKNOWN).await;
        if reply.status == 429 {
            break reply;
        }
        assert!(started.elapsed() < TIMEOUT, "one request per second was never exceeded");
    };
    tokio::time::sleep(Duration::from_secs(limited.integer("retry-after"))).await;
    client.look_up(UNKNOWN).await.assert_status(404);
}

/// A 401 is not counted. Here the key is revoked while the server runs.
#[tokio::test]
async fn requests_with_revoked_keys_are_not_counted() {
    let server = TestServer::start().await;
    for client in server.limited_clients(2, 1).await {
        let revoked = client.with_key(server.create_key(&client.workspace.id).await);
        server.revoke_key(&revoked.workspace.key).await;
        for client in [&revoked, &client.with_unknown_key(), &client.with_key("")] {
            for _ in 0..3 {
                client.look_up(KNOWN).await.assert_status(401);
            }
        }
        assert_eq!(client.look_up(KNOWN).await.integer("ratelimit-remaining"), 1);
    }
}
