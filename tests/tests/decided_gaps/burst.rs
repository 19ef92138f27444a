//! Which requests count against the burst limit, and the rate-limit headers.

use enrich_lib::window::Quota;
use enrich_tests::blackbox::{Client, KNOWN, Mood, Reply, Step, Transport, UNKNOWN, World};

/// Every request of an authenticated workspace counts, regardless of its outcome.
#[tokio::test]
async fn every_request_of_a_workspace_counts_whatever_its_outcome() {
    let world = World::open().await;
    for client in world.limited_clients(7, 1).await {
        let replies = [
            client.post("{").await,
            client.look_up("ada").await,
            client.look_up("info@gmail.com").await,
            client.look_up(UNKNOWN).await,
            client.look_up(KNOWN).await,
            client.look_up(KNOWN).await,
            failing(&world, Step::Hold, &client).await,
            client.look_up(KNOWN).await,
            client.post("{").await,
        ];
        let seen = replies.each_ref().map(|reply| (reply.status, reply.integer("ratelimit-remaining")));
        let expected =
            [(400, 6), (400, 5), (400, 4), (404, 3), (200, 2), (402, 1), (500, 0), (429, 0), (429, 0)];
        assert_eq!(seen, expected, "{:?}", client.transport);
    }
}

async fn failing(world: &World, step: Step, client: &Client) -> Reply {
    world.tap.set(step, Mood::Fails);
    let reply = client.look_up(KNOWN).await;
    world.tap.all_work();
    reply
}

/// A 401 counts against no workspace.
#[tokio::test]
async fn a_401_counts_for_nobody() {
    let world = World::open().await;
    for client in world.limited_clients(2, 1).await {
        let revoked = client.with_key(world.create_key(&client.tenant.id).await);
        world.revoke(&revoked.tenant.key).await;
        for stranger in [&revoked, &client.stranger(), &client.with_key("")] {
            for _ in 0..3 {
                stranger.look_up(KNOWN).await.assert_status(401);
            }
        }
        assert_eq!(client.look_up(KNOWN).await.integer("ratelimit-remaining"), 1);
    }
}

/// Every reply after the count has the rate-limit headers, and `Retry-After` is sent on 429 only. Replies before the count
/// have none, because the values are not known yet.
#[tokio::test]
async fn every_reply_after_the_count_tells_it_and_only_a_429_tells_to_wait() {
    let world = World::open().await;
    for client in world.limited_clients(7, 1).await {
        let told = [
            client.post("{").await,
            client.look_up("ada").await,
            client.look_up("info@gmail.com").await,
            failing(&world, Step::FindPerson, &client).await,
            client.look_up(UNKNOWN).await,
            client.look_up(KNOWN).await,
            client.look_up(KNOWN).await,
            client.look_up(KNOWN).await,
        ];
        for (i, reply) in told.iter().enumerate() {
            assert_eq!(reply.integer("ratelimit-limit"), 7);
            assert_eq!(reply.integer("ratelimit-remaining"), 6_u64.saturating_sub(i as u64));
            assert!((1..=86_400).contains(&reply.integer("ratelimit-reset")));
            assert_eq!(reply.header("retry-after").is_some(), reply.status == 429, "{reply:?}");
        }
        let untold = [
            client.stranger().look_up(KNOWN).await,
            failing(&world, Step::FindKey, &client).await,
            failing(&world, Step::Count, &client).await,
        ];
        for (reply, status) in untold.iter().zip([401, 500, 503]) {
            reply.assert_status(status);
            let names = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "retry-after"];
            assert_eq!(names.map(|name| reply.header(name)), [None; 4]);
        }
    }
}

/// `RateLimit-Reset` and `Retry-After` are equal delta-seconds, rounded up, at least 1.
#[tokio::test]
async fn reset_and_retry_after_are_the_same_seconds_within_the_window() {
    let world = World::open().await;
    for window_seconds in [1, 60, 3_600] {
        let tenant = world.tenant_with(Quota::new(1, window_seconds).unwrap(), 0).await;
        let client = Client::new(&world, Transport::Http2, tenant);
        let mut limited = client.look_up(UNKNOWN).await;
        while limited.status != 429 {
            limited = client.look_up(UNKNOWN).await;
        }
        let reset = limited.integer("ratelimit-reset");
        assert_eq!(reset, limited.integer("retry-after"));
        assert!((1..=u64::from(window_seconds)).contains(&reset), "{limited:?}");
    }
}

/// The default limit is 500 requests per 60 s. It is set per workspace.
#[tokio::test]
async fn a_workspace_has_500_requests_a_minute_unless_the_operator_says_otherwise() {
    let world = World::open().await;
    for (quota, limit, seconds) in [(Quota::default(), 500, 60), (Quota::new(9, 5).unwrap(), 9, 5)] {
        let client = Client::new(&world, Transport::Http1, world.tenant_with(quota, 1).await);
        let reply = client.look_up(KNOWN).await;
        assert_eq!((reply.status, reply.integer("ratelimit-limit")), (200, limit));
        assert_eq!(reply.integer("ratelimit-remaining"), limit - 1);
        assert!((1..=seconds).contains(&reply.integer("ratelimit-reset")), "{reply:?}");
    }
}
