//! The price of a lookup, and lookups whose settlement fails.

use enrich_lib::credit::Price;
use enrich_tests::blackbox::{FAULT, KNOWN, KNOWN_URL, Mood, Step, UNKNOWN, World};

/// The default price is 1 for `found` and 0 for `not_found`. Errors are free.
#[tokio::test]
async fn a_match_costs_1_and_everything_else_is_free() {
    let world = World::open().await;
    for client in world.clients(3).await {
        client.look_up(UNKNOWN).await.assert_status(404);
        client.look_up("ada").await.assert_status(400);
        client.look_up("info@gmail.com").await.assert_status(400);
        world.tap.set(Step::FindPerson, Mood::Fails);
        client.look_up(KNOWN).await.assert_status(502);
        world.tap.all_work();
        assert_eq!(world.totals(&client.tenant), (3, 0, 0));
        client.look_up(KNOWN).await.assert_status(200);
        assert_eq!(world.totals(&client.tenant), (2, 0, 1));
    }
}

/// Prices are configurable. The hold reserves the larger of the two.
#[tokio::test]
async fn the_price_is_the_operators_and_the_larger_of_the_two_has_to_be_there() {
    let world = World::with(|settings| settings.policy.price = Price { found: 3, not_found: 1 }).await;
    for client in world.clients(6).await {
        client.look_up(KNOWN).await.assert_status(200);
        assert_eq!(world.totals(&client.tenant), (3, 0, 3));
        client.look_up(UNKNOWN).await.assert_status(404);
        assert_eq!(world.totals(&client.tenant), (2, 0, 4));
        client.look_up(UNKNOWN).await.assert_error(402, "insufficient_credits");
        assert_eq!(world.totals(&client.tenant), (2, 0, 4));
    }
}

#[tokio::test]
async fn a_miss_that_costs_more_than_a_match_has_to_be_there_too() {
    let world = World::with(|settings| settings.policy.price = Price { found: 1, not_found: 3 }).await;
    for client in world.clients(6).await {
        client.look_up(KNOWN).await.assert_status(200);
        client.look_up(UNKNOWN).await.assert_status(404);
        assert_eq!(world.totals(&client.tenant), (2, 0, 4));
        client.look_up(KNOWN).await.assert_error(402, "insufficient_credits");
    }
}

#[tokio::test]
async fn what_is_free_needs_no_credits() {
    let world = World::with(|settings| settings.policy.price = Price { found: 0, not_found: 0 }).await;
    for client in world.clients(0).await {
        client.look_up(KNOWN).await.assert_status(200);
        client.look_up(UNKNOWN).await.assert_status(404);
    }
}

/// Settlements are retried with the same lookup id, so a lookup is billed once even if the first attempt succeeded.
#[tokio::test]
async fn a_settlement_whose_answer_is_lost_is_billed_once() {
    let world = World::open().await;
    for mood in [Mood::FailsOnce, Mood::LosesAnAnswer] {
        for client in world.clients(1).await {
            world.tap.set(Step::Settle, mood);
            world.tap.take_asked();
            let reply = client.look_up(KNOWN).await;
            assert_eq!(reply.json()["profile"]["linkedin_url"], KNOWN_URL);
            assert_eq!(world.tap.count(Step::Settle), 2);
            assert_eq!(world.totals(&client.tenant), (0, 0, 1));
        }
    }
}

/// If a settlement that spends nothing fails, the reply is unchanged and the hold expires.
#[tokio::test]
async fn a_release_that_fails_changes_no_answer() {
    let world = World::hurried().await;
    world.tap.set(Step::Settle, Mood::Fails);
    for client in world.clients(1).await {
        let reply = client.look_up(UNKNOWN).await;
        assert_eq!((reply.status, reply.json()["status"].as_str()), (404, Some("not_found")));
        assert_eq!(world.totals(&client.tenant), (0, 1, 0));
    }
    world.tap.set(Step::FindPerson, Mood::Fails);
    for client in world.clients(1).await {
        client.look_up(KNOWN).await.assert_error(502, "lookup_error");
        assert_eq!(world.totals(&client.tenant), (0, 1, 0));
    }
}

/// Error details go to the operator's log, not into replies.
#[tokio::test]
async fn a_reply_to_a_failure_tells_nothing_of_it() {
    let world = World::hurried().await;
    for client in world.clients(9).await {
        for (step, status) in [
            (Step::FindKey, 500),
            (Step::Count, 503),
            (Step::Hold, 500),
            (Step::FindPerson, 502),
            (Step::Settle, 500),
        ] {
            world.tap.set(step, Mood::Fails);
            let reply = client.look_up(KNOWN).await;
            world.tap.all_work();
            reply.assert_status(status);
            let told = format!("{reply:?}").to_lowercase();
            for secret in [FAULT, "vault", "sqlite", "ada", client.tenant.id.as_str(), &client.tenant.key] {
                assert!(!told.contains(&secret.to_lowercase()), "{secret} in {told}");
            }
        }
    }
}
