//! Every row of the specification's tables, over every transport. Tests quote their clause.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use enrich_lib::window::Quota;
use enrich_tests::blackbox::{
    Client, KNOWN, KNOWN_URL, Mood, PATIENCE, Reply, Step, Transport, UNKNOWN, World,
};
use serde_json::{Value, json};

/// Returns the field names of an object.
fn fields(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

fn body(email: &str) -> String {
    json!({ "email": email }).to_string()
}

#[tokio::test]
async fn section_2_1_email_is_the_one_required_field() {
    let world = World::open().await;
    for client in world.clients(1).await {
        client.post(body(KNOWN)).await.assert_status(200);
        client.post("{}").await.assert_error(400, "invalid_email");
        client.post(r#"{"mail":"ada.marlowe@gmail.com"}"#).await.assert_error(400, "invalid_request");
    }
}

/// "A body with any other field is rejected with status 400 and error `invalid_request`."
#[tokio::test]
async fn section_2_1_rule_1_a_body_with_any_other_field_is_rejected() {
    let world = World::open().await;
    for client in world.clients(1).await {
        for other in
            [r#""name":"Ada""#, r#""linkedin_url":null"#, r#""Email":"x""#, r#""":{}"#, r#""email2":[]"#]
        {
            for body in
                [format!(r#"{{"email":"{KNOWN}",{other}}}"#), format!(r#"{{{other},"email":"{KNOWN}"}}"#)]
            {
                client.post(body).await.assert_error(400, "invalid_request");
            }
        }
        assert_eq!(world.totals(&client.tenant), (1, 0, 0));
    }
}

/// "The request content type is `application/json`."
#[tokio::test]
async fn section_2_1_rule_2_the_content_type_is_json() {
    let world = World::open().await;
    for client in world.clients(1).await {
        let key = format!("Bearer {}", client.tenant.key);
        let untyped = || client.bare_request().header("authorization", &key);
        let typed = |content_type: &str| untyped().header("content-type", content_type);
        client
            .send(typed("text/plain").body(body(KNOWN).into()).unwrap())
            .await
            .assert_error(400, "invalid_request");
        client.send(untyped().body(body(KNOWN).into()).unwrap()).await.assert_error(400, "invalid_request");
        client.send(typed("application/json").body(body(KNOWN).into()).unwrap()).await.assert_status(200);
    }
}

/// 2.2: "`status` always `found`", "`profile` contains only `linkedin_url`", "no other fields are present".
#[tokio::test]
async fn section_2_2_a_match_is_200_with_the_found_response() {
    let world = World::open().await;
    for client in world.clients(1).await {
        let reply = client.look_up(KNOWN).await;
        reply.assert_status(200);
        let found = reply.json();
        assert_eq!(fields(&found), BTreeSet::from(["lookup_id", "status", "profile"]));
        assert!(!found["lookup_id"].as_str().unwrap().is_empty());
        assert_eq!(found["status"], "found");
        assert_eq!(found["profile"], json!({ "linkedin_url": KNOWN_URL }));
    }
}

/// 2.3: "The `profile` object is absent. No other fields are present."
#[tokio::test]
async fn section_2_3_no_match_is_404_with_the_not_found_response() {
    let world = World::open().await;
    for client in world.clients(1).await {
        let reply = client.look_up(UNKNOWN).await;
        reply.assert_status(404);
        assert_eq!(fields(&reply.json()), BTreeSet::from(["lookup_id", "status"]));
        assert!(!reply.lookup_id().is_empty());
        assert_eq!(reply.json()["status"], "not_found");
    }
}

/// Section 1: "no trusted match" yields `not_found`.
#[tokio::test]
async fn section_1_a_match_that_is_not_trusted_is_not_found() {
    let world = World::open().await;
    world.add_person("maybe.ada@gmail.com", "ada-marlowe", 0.79);
    for client in world.clients(1).await {
        client.look_up("maybe.ada@gmail.com").await.assert_status(404);
    }
}

/// "Unique identifier of the lookup."
#[tokio::test]
async fn section_2_2_each_lookup_has_an_identifier_of_its_own() {
    let world = World::open().await;
    let mut ids = BTreeSet::new();
    for client in world.clients(20).await {
        for email in [KNOWN, UNKNOWN].repeat(10) {
            assert!(ids.insert(client.look_up(email).await.lookup_id()));
        }
    }
    assert_eq!(ids.len(), 20 * Transport::ALL.len());
}

/// "The plaintext key is displayed only once, at creation", so it is not stored. A workspace may have several keys, one per
/// integration.
#[tokio::test]
async fn section_5_3_and_5_4_a_workspace_has_several_keys_and_none_is_stored() {
    let world = World::open().await;
    for client in world.clients(5).await {
        let second = client.with_key(world.create_key(&client.tenant.id).await);
        second.look_up(KNOWN).await.assert_status(200);
        client.look_up(KNOWN).await.assert_status(200);
        world.revoke(&client.tenant.key).await;
        client.look_up(KNOWN).await.assert_error(401, "unauthorized");
        second.look_up(KNOWN).await.assert_status(200);

        for file in std::fs::read_dir(world.files()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let secret = &second.tenant.key.as_bytes()[8..];
            assert!(!bytes.windows(secret.len()).any(|window| window == secret));
        }
    }
}

/// "A key that is missing, invalid or revoked yields status 401 with `{"error":"unauthorized"}`." The replies are identical,
/// so that they reveal nothing about a guessed key.
#[tokio::test]
async fn section_5_5_a_key_that_is_missing_invalid_or_revoked_is_401_to_the_same_byte() {
    let world = World::open().await;
    for client in world.clients(1).await {
        let replies = unauthorized(&world, &client).await;
        for reply in &replies {
            reply.assert_error(401, "unauthorized");
            assert_eq!(reply.comparable(), replies[0].comparable(), "{reply:?}");
        }
        assert_eq!(world.totals(&client.tenant), (1, 0, 0));
    }
}

/// Returns the replies to a missing, empty, malformed, unknown and revoked key.
async fn unauthorized(world: &World, client: &Client) -> [Reply; 5] {
    let revoked = client.with_key(world.create_key(&client.tenant.id).await);
    revoked.look_up(UNKNOWN).await.assert_status(404);
    world.revoke(&revoked.tenant.key).await;
    let missing = client.bare_request().header("content-type", "application/json");
    [
        client.send(missing.body(body(KNOWN).into()).unwrap()).await,
        client.with_key("").look_up(KNOWN).await,
        client.with_key("secret").look_up(KNOWN).await,
        client.stranger().look_up(KNOWN).await,
        revoked.look_up(KNOWN).await,
    ]
}

#[tokio::test]
async fn section_7_an_email_that_is_invalid_or_unsupported_is_400() {
    let world = World::open().await;
    for client in world.clients(1).await {
        client.post("{").await.assert_error(400, "invalid_request");
        client.look_up("ada").await.assert_error(400, "invalid_email");
        client.look_up("info@gmail.com").await.assert_error(400, "unsupported_email");
        assert_eq!(world.totals(&client.tenant), (1, 0, 0));
    }
}

/// 8.4: "Lookups consume workspace credits; when the workspace cannot accept another lookup, status 402 is returned."
#[tokio::test]
async fn section_8_4_without_credits_a_lookup_is_402() {
    let world = World::open().await;
    for client in world.clients(2).await {
        client.look_up(KNOWN).await.assert_status(200);
        client.look_up(KNOWN).await.assert_status(200);
        world.tap.take_asked();
        client.look_up(KNOWN).await.assert_error(402, "insufficient_credits");
        assert_eq!(world.tap.take_asked(), [Step::FindKey, Step::Count, Step::Hold]);
        assert_eq!(world.totals(&client.tenant), (0, 0, 2));
    }
}

/// 8.2: "A 429 response carries these headers, each an integer", "0 when limited".
#[tokio::test]
async fn section_8_2_over_the_burst_limit_a_request_is_429_with_four_integers() {
    let world = World::open().await;
    for client in world.limited_clients(3, 10).await {
        for _ in 0..3 {
            client.look_up(KNOWN).await.assert_status(200);
        }
        let reply = client.look_up(KNOWN).await;
        reply.assert_error(429, "rate_limited");
        assert_eq!(reply.integer("ratelimit-limit"), 3);
        assert_eq!(reply.integer("ratelimit-remaining"), 0);
        assert!(reply.integer("ratelimit-reset") >= 1);
        assert!(reply.integer("retry-after") >= 1);
        assert_eq!(world.totals(&client.tenant), (7, 0, 3));
    }
}

/// 8.1: "A burst rate limit applies per workspace."
#[tokio::test]
async fn section_8_1_keys_of_one_workspace_share_a_limit_and_workspaces_do_not() {
    let world = World::open().await;
    let clients = world.limited_clients(2, 10).await;
    for client in &clients {
        let second = client.with_key(world.create_key(&client.tenant.id).await);
        client.look_up(KNOWN).await.assert_status(200);
        second.look_up(KNOWN).await.assert_status(200);
        second.look_up(KNOWN).await.assert_status(429);
        client.look_up(KNOWN).await.assert_status(429);
    }
}

/// "`Retry-After`: minimum time to wait before retrying."
#[tokio::test]
async fn section_8_2_a_client_that_waits_as_long_as_it_is_told_is_served_again() {
    let world = World::open().await;
    let tenant = world.tenant_with(Quota::new(1, 1).unwrap(), 1_000).await;
    let client = Client::new(&world, Transport::Http2, tenant);
    let started = Instant::now();
    let limited = loop {
        let reply = client.look_up(UNKNOWN).await;
        if reply.status == 429 {
            break reply;
        }
        assert!(started.elapsed() < PATIENCE, "one a second was never exceeded");
    };
    tokio::time::sleep(Duration::from_secs(limited.integer("retry-after"))).await;
    client.look_up(UNKNOWN).await.assert_status(404);
}

/// 500: "Temporary service failure."
#[tokio::test]
async fn section_7_keys_that_fail_or_are_too_slow_are_500() {
    let world = World::hurried().await;
    for client in world.clients(1).await {
        for mood in [Mood::Fails, Mood::Hangs] {
            world.tap.set(Step::FindKey, mood);
            world.tap.take_asked();
            client.look_up(KNOWN).await.assert_error(500, "server_error");
            assert_eq!(world.tap.take_asked(), [Step::FindKey]);
        }
        assert_eq!(world.totals(&client.tenant), (1, 0, 0));
    }
}

#[tokio::test]
async fn section_7_credits_that_cannot_be_held_are_500_and_nobody_is_looked_up() {
    let world = World::hurried().await;
    for client in world.clients(1).await {
        for mood in [Mood::Fails, Mood::Hangs] {
            world.tap.set(Step::Hold, mood);
            world.tap.take_asked();
            client.look_up(KNOWN).await.assert_error(500, "server_error");
            assert_eq!(world.tap.take_asked(), [Step::FindKey, Step::Count, Step::Hold]);
        }
        assert_eq!(world.totals(&client.tenant), (1, 0, 0));
    }
}

/// If the spend fails, the reply does not contain the result.
#[tokio::test]
async fn section_7_a_spend_that_fails_is_500_and_nothing_is_given_away() {
    let world = World::hurried().await;
    for mood in [Mood::Fails, Mood::Hangs] {
        world.tap.set(Step::Settle, mood);
        for client in world.clients(1).await {
            let reply = client.look_up(KNOWN).await;
            reply.assert_error(500, "server_error");
            assert!(!format!("{reply:?}").contains("ada-marlowe"));
            assert_eq!(world.totals(&client.tenant), (0, 1, 0), "held until it expires, and not spent");
        }
    }
}

/// 502: "The service could not complete resolver work for this request."
#[tokio::test]
async fn section_7_a_resolver_that_fails_or_is_too_slow_is_502_and_free() {
    let world = World::hurried().await;
    for client in world.clients(1).await {
        for mood in [Mood::Fails, Mood::Hangs] {
            world.tap.set(Step::FindPerson, mood);
            client.look_up(KNOWN).await.assert_error(502, "lookup_error");
            assert_eq!(world.totals(&client.tenant), (1, 0, 0));
        }
    }
}

/// 8.3: "When the rate-limit state cannot be verified, the request is not executed and status 503 is returned."
#[tokio::test]
async fn section_8_3_without_a_rate_limit_state_a_request_is_503_and_not_executed() {
    let world = World::hurried().await;
    for client in world.clients(1).await {
        for mood in [Mood::Fails, Mood::Hangs] {
            world.tap.set(Step::Count, mood);
            world.tap.take_asked();
            client.look_up(KNOWN).await.assert_error(503, "rate_limit_unavailable");
            assert_eq!(world.tap.take_asked(), [Step::FindKey, Step::Count]);
        }
        assert_eq!(world.totals(&client.tenant), (1, 0, 0));
    }
}

/// Section 1: "a final result in the same response". A past failure does not affect later requests.
#[tokio::test]
async fn section_7_after_a_failure_the_service_is_whole_again() {
    let world = World::open().await;
    for step in [Step::FindKey, Step::Count, Step::Hold, Step::FindPerson] {
        for client in world.clients(1).await {
            world.tap.set(step, Mood::Fails);
            assert!(client.look_up(KNOWN).await.status >= 500);
            world.tap.all_work();
            client.look_up(KNOWN).await.assert_status(200);
            assert_eq!(world.totals(&client.tenant), (0, 0, 1));
        }
    }
}
