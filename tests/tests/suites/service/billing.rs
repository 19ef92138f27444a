//! Credits after each kind of reply.

use enrich_tests::blackbox::{Behavior, KNOWN, KNOWN_URL, PortCall, TestServer, UNKNOWN};

/// The default price is 1 for `found` and 0 for `not_found`. Errors are free.
#[tokio::test]
async fn match_costs_one_credit_and_other_replies_are_free() {
    let server = TestServer::start().await;
    for client in server.clients(3).await {
        client.look_up(UNKNOWN).await.assert_status(404);
        client.post("{").await.assert_status(400);
        client.look_up("ada").await.assert_status(400);
        client.look_up("info@gmail.com").await.assert_status(400);
        client.with_unknown_key().look_up(KNOWN).await.assert_status(401);
        server.ports.set(PortCall::FindPerson, Behavior::Fails);
        client.look_up(KNOWN).await.assert_status(502);
        server.ports.all_work();
        assert_eq!(server.balance(&client.workspace), (3, 0, 0));
        client.look_up(KNOWN).await.assert_status(200);
        assert_eq!(server.balance(&client.workspace), (2, 0, 1));
    }
}

/// "When the workspace cannot accept another lookup, status 402 is returned" (specification 8.4).
#[tokio::test]
async fn lookup_without_credits_is_402_and_not_resolved() {
    let server = TestServer::start().await;
    for client in server.clients(2).await {
        client.look_up(KNOWN).await.assert_status(200);
        client.look_up(KNOWN).await.assert_status(200);
        server.ports.take_calls();
        client.look_up(KNOWN).await.assert_error(402, "insufficient_credits");
        assert_eq!(server.ports.take_calls(), [PortCall::FindKey, PortCall::Count, PortCall::Hold]);
        assert_eq!(server.balance(&client.workspace), (0, 0, 2));
    }
}

#[tokio::test]
async fn limited_request_is_free() {
    let server = TestServer::start().await;
    for client in server.limited_clients(3, 10).await {
        for _ in 0..3 {
            client.look_up(KNOWN).await.assert_status(200);
        }
        client.look_up(KNOWN).await.assert_error(429, "rate_limited");
        assert_eq!(server.balance(&client.workspace), (7, 0, 3));
    }
}

/// If the spend fails, the reply does not contain the result.
#[tokio::test]
async fn failed_spend_is_500_without_the_profile() {
    let server = TestServer::start_with_short_timeouts().await;
    server.ports.set(PortCall::Settle, Behavior::Fails);
    for client in server.clients(1).await {
        let reply = client.look_up(KNOWN).await;
        reply.assert_error(500, "server_error");
        assert!(!format!("{reply:?}").contains("ada-marlowe"));
        assert_eq!(server.balance(&client.workspace), (0, 1, 0), "held until it expires");
    }
}

/// While the outcome of a spend is unknown, neither a 200 nor a 500 is true.
#[tokio::test]
async fn reply_waits_for_the_outcome_of_the_spend() {
    let server = TestServer::start_with_short_timeouts().await;
    for client in server.clients(1).await {
        server.ports.set(PortCall::Settle, Behavior::Hangs);
        server.ports.take_calls();
        let works_again = async {
            while server.ports.count(PortCall::Settle) == 0 {
                tokio::task::yield_now().await;
            }
            server.ports.all_work();
        };
        let (reply, ()) = tokio::join!(client.look_up(KNOWN), works_again);
        assert_eq!(reply.json()["profile"]["linkedin_url"], KNOWN_URL);
        assert_eq!(server.balance(&client.workspace), (0, 0, 1));
    }
}

/// If a settlement that spends nothing fails, the reply is unchanged and the hold expires.
#[tokio::test]
async fn failed_release_does_not_change_the_reply() {
    let server = TestServer::start_with_short_timeouts().await;
    server.ports.set(PortCall::Settle, Behavior::Fails);
    for client in server.clients(1).await {
        let reply = client.look_up(UNKNOWN).await;
        assert_eq!((reply.status, reply.json()["status"].as_str()), (404, Some("not_found")));
        assert_eq!(server.balance(&client.workspace), (0, 1, 0));
    }
    server.ports.set(PortCall::FindPerson, Behavior::Fails);
    for client in server.clients(1).await {
        client.look_up(KNOWN).await.assert_error(502, "lookup_error");
        assert_eq!(server.balance(&client.workspace), (0, 1, 0));
    }
}
