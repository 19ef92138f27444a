//! Ports that fail or exceed their timeout.

use enrich_tests::blackbox::{Behavior, FAULT_MESSAGE, KNOWN, PortCall, TestServer};

/// Each port call before the settlement, with its reply and the calls up to the end of the lookup.
const FAILURES: [(PortCall, u16, &str, &[PortCall]); 4] = [
    (PortCall::FindKey, 500, "server_error", &[PortCall::FindKey]),
    (PortCall::Count, 503, "rate_limit_unavailable", &[PortCall::FindKey, PortCall::Count]),
    (PortCall::Hold, 500, "server_error", &[PortCall::FindKey, PortCall::Count, PortCall::Hold]),
    (
        PortCall::FindPerson,
        502,
        "lookup_error",
        &[PortCall::FindKey, PortCall::Count, PortCall::Hold, PortCall::FindPerson, PortCall::Settle],
    ),
];

/// "When the rate-limit state cannot be verified, the request is not executed" (specification 8.3). Failures of the other
/// ports stop the lookup in the same way, and none is billed (specification 7).
#[tokio::test]
async fn port_that_fails_or_times_out_ends_the_lookup_for_free() {
    let server = TestServer::start_with_short_timeouts().await;
    for client in server.clients(1).await {
        for (call, status, code, calls) in FAILURES {
            for behavior in [Behavior::Fails, Behavior::Hangs] {
                server.ports.set(call, behavior);
                server.ports.take_calls();
                client.look_up(KNOWN).await.assert_error(status, code);
                assert_eq!(server.ports.take_calls(), calls);
                server.ports.all_work();
            }
        }
        assert_eq!(server.balance(&client.workspace), (1, 0, 0));
    }
}

#[tokio::test]
async fn serves_the_next_lookup_after_a_failure() {
    let server = TestServer::start().await;
    for (call, ..) in FAILURES {
        for client in server.clients(1).await {
            server.ports.set(call, Behavior::Fails);
            assert!(client.look_up(KNOWN).await.status >= 500);
            server.ports.all_work();
            client.look_up(KNOWN).await.assert_status(200);
            assert_eq!(server.balance(&client.workspace), (0, 0, 1));
        }
    }
}

/// Error details go to the operator's log, not into replies.
#[tokio::test]
async fn replies_contain_no_error_details() {
    let server = TestServer::start_with_short_timeouts().await;
    for client in server.clients(9).await {
        for (call, status) in [
            (PortCall::FindKey, 500),
            (PortCall::Count, 503),
            (PortCall::Hold, 500),
            (PortCall::FindPerson, 502),
            (PortCall::Settle, 500),
        ] {
            server.ports.set(call, Behavior::Fails);
            let reply = client.look_up(KNOWN).await;
            server.ports.all_work();
            reply.assert_status(status);
            let reply = format!("{reply:?}").to_lowercase();
            let workspace = &client.workspace;
            for secret in [FAULT_MESSAGE, "vault", "sqlite", "marlowe", workspace.id.as_str(), &workspace.key]
            {
                assert!(!reply.contains(&secret.to_lowercase()), "{secret} in {reply}");
            }
        }
    }
}
