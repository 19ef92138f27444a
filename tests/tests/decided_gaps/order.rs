//! The order of the checks: 401 → burst limit 429/503 → body 400 (`invalid_request`, then `invalid_email`, then
//! `unsupported_email`) → credits 402 → resolver 502 → 200/404. Any other failure is a 500 where it happens.

use enrich_tests::blackbox::{Client, KNOWN, Mood, Step, Transport, World};

/// A condition that makes a request fail, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    NoKey,
    KeysFail,
    Limited,
    WindowsFail,
    UnknownField,
    NoEmail,
    RoleAccount,
    NoCredits,
    HoldFails,
    ResolverFails,
    SpendFails,
}

use Trouble::*;

/// Each condition with its status and error code.
const TROUBLES: [(Trouble, u16, &str); 11] = [
    (NoKey, 401, "unauthorized"),
    (KeysFail, 500, "server_error"),
    (Limited, 429, "rate_limited"),
    (WindowsFail, 503, "rate_limit_unavailable"),
    (UnknownField, 400, "invalid_request"),
    (NoEmail, 400, "invalid_email"),
    (RoleAccount, 400, "unsupported_email"),
    (NoCredits, 402, "insufficient_credits"),
    (HoldFails, 500, "server_error"),
    (ResolverFails, 502, "lookup_error"),
    (SpendFails, 500, "server_error"),
];

/// Returns whether the conditions are two results of the same port call, so that they cannot occur together.
fn exclude_each_other(one: Trouble, other: Trouble) -> bool {
    [(Limited, WindowsFail), (NoCredits, HoldFails)].contains(&(one, other))
}

#[tokio::test]
async fn each_trouble_alone_has_its_answer() {
    let world = World::hurried().await;
    for (trouble, status, code) in TROUBLES {
        answer(&world, &[trouble], status, code).await;
    }
}

#[tokio::test]
async fn of_two_troubles_at_once_the_earlier_decides() {
    let world = World::hurried().await;
    for (i, (earlier, status, code)) in TROUBLES.into_iter().enumerate() {
        for (later, ..) in TROUBLES.into_iter().skip(i + 1) {
            if !exclude_each_other(earlier, later) {
                answer(&world, &[earlier, later], status, code).await;
            }
        }
    }
}

#[tokio::test]
async fn of_all_troubles_at_once_the_first_decides_and_no_store_is_asked() {
    let world = World::hurried().await;
    let all = TROUBLES.map(|(trouble, ..)| trouble);
    answer(&world, &all, 401, "unauthorized").await;
    assert_eq!(world.tap.take_asked(), []);
}

async fn answer(world: &World, troubles: &[Trouble], status: u16, code: &str) {
    let has = |trouble| troubles.contains(&trouble);
    world.tap.all_work();
    let limit = if has(Limited) { 1 } else { 10 };
    let tenant = world.tenant(limit, if has(NoCredits) { 0 } else { 1 }).await;
    let client = Client::new(world, Transport::Http1, tenant);
    if has(Limited) {
        client.post("{}").await.assert_status(400); // uses up the limit of this window
    }
    for (trouble, step) in [
        (KeysFail, Step::FindKey),
        (WindowsFail, Step::Count),
        (HoldFails, Step::Hold),
        (ResolverFails, Step::FindPerson),
        (SpendFails, Step::Settle),
    ] {
        if has(trouble) {
            world.tap.set(step, Mood::Fails);
        }
    }
    let email = match () {
        () if has(NoEmail) && has(RoleAccount) => "info@gmail..com",
        () if has(NoEmail) => "ada.marlowe",
        () if has(RoleAccount) => "info@gmail.com",
        () => KNOWN,
    };
    let other = if has(UnknownField) { r#","name":"Ada""# } else { "" };
    let client = if has(NoKey) { client.with_key("none") } else { client };
    world.tap.take_asked();
    let reply = client.post(format!(r#"{{"email":"{email}"{other}}}"#)).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (status, Some(code)), "{troubles:?}");
}

/// Nothing is spent until all checks have passed.
#[tokio::test]
async fn each_check_is_made_only_if_those_before_it_passed() {
    let world = World::hurried().await;
    let all = [Step::FindKey, Step::Count, Step::Hold, Step::FindPerson, Step::Settle];
    for (asked, (trouble, status, code)) in [
        (0, TROUBLES[0]),
        (1, TROUBLES[1]),
        (2, TROUBLES[2]),
        (2, TROUBLES[3]),
        (2, TROUBLES[4]),
        (2, TROUBLES[5]),
        (2, TROUBLES[6]),
        (3, TROUBLES[7]),
        (3, TROUBLES[8]),
        (5, TROUBLES[9]), // releases the hold
    ] {
        answer(&world, &[trouble], status, code).await;
        assert_eq!(world.tap.take_asked(), all[..asked], "{trouble:?}");
    }
}
