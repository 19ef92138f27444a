//! Keys, lookup ids and opted-out people.

use std::time::{SystemTime, UNIX_EPOCH};

use enrich_tests::blackbox::{KNOWN, Payload, Step, UNKNOWN, World};
use http::Request;

use crate::body;

/// A lookup id is `lookup_` and a UUIDv7 as 32 hex digits, and sorts by time.
#[tokio::test]
async fn a_lookup_id_is_lookup_and_a_uuidv7() {
    let world = World::open().await;
    let mut last = String::new();
    for client in world.clients(1).await {
        for email in [UNKNOWN, KNOWN] {
            let before_ms = unix_ms();
            let id = client.look_up(email).await.lookup_id();
            let uuid = id.strip_prefix("lookup_").unwrap();
            assert_eq!(uuid.len(), 32);
            assert!(uuid.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')), "{id}");
            assert_eq!(&uuid[12..13], "7", "the version");
            assert!(matches!(&uuid[16..17], "8" | "9" | "a" | "b"), "the variant");
            let made_ms = u64::from_str_radix(&uuid[..12], 16).unwrap();
            assert!((before_ms..=unix_ms()).contains(&made_ms), "{id}");
            assert!(last[..last.len().min(19)] <= id[..19], "later ids sort later");
            last = id;
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// v1 has no endpoint to fetch a past lookup.
#[tokio::test]
async fn a_lookup_cannot_be_fetched_later() {
    let world = World::open().await;
    for client in world.clients(1).await {
        let id = client.look_up(KNOWN).await.lookup_id();
        for path in ["/api/v1/person/enrich/", "/api/v1/person/", "/api/v1/lookups/", "/"] {
            let request = Request::get(format!("{}{path}{id}", client.base))
                .header("authorization", format!("Bearer {}", client.tenant.key));
            client.send(request.body(Payload::default()).unwrap()).await.assert_error(404, "invalid_request");
        }
    }
}

/// A key is `enr_`, 32 base62 characters and 6 characters of CRC-32. Malformed keys are rejected without a store access.
#[tokio::test]
async fn what_is_no_key_is_refused_before_any_store_is_asked() {
    let world = World::open().await;
    for client in world.clients(1).await {
        let key = client.tenant.key.clone();
        assert_eq!((key.len(), &key[..4]), (4 + 32 + 6, "enr_"));
        assert!(key[4..].bytes().all(|c| c.is_ascii_alphanumeric()), "{key}");

        let mistyped = if key.ends_with('0') { "1" } else { "0" };
        world.tap.take_asked();
        for garbage in [
            "",
            "enr_",
            "secret",
            &key[..41],
            &key[4..],
            &key.replace("enr_", "ENR_"),
            &format!("{key}0"),
            &format!("{}{mistyped}", &key[..41]),
            &format!("{key} {key}"),
            &format!("{key},"),
            &"x".repeat(4_000),
        ] {
            client.with_key(garbage).look_up(KNOWN).await.assert_error(401, "unauthorized");
        }
        assert_eq!(world.tap.take_asked(), []);
        client.stranger().look_up(KNOWN).await.assert_error(401, "unauthorized");
        assert_eq!(world.tap.take_asked(), [Step::FindKey], "one of the right form might be somebody's");
    }
}

/// RFC 9110, 11.1 and 11.4: the scheme is case-insensitive and followed by one or more spaces.
#[tokio::test]
async fn one_authorization_of_the_bearer_scheme_is_taken_and_no_other() {
    let world = World::open().await;
    for client in world.clients(9).await {
        let key = &client.tenant.key;
        for (values, status) in [
            (vec![format!("bearer {key}")], 200),
            (vec![format!("BEARER   {key}")], 200),
            (vec![key.clone()], 401),
            (vec![format!("Basic {key}")], 401),
            (vec![format!("Bearer{key}")], 401),
            (vec![format!("Bearer\t{key}")], 401),
            (vec![format!("Bearer {key}"), format!("Bearer {key}")], 401),
        ] {
            let mut request = client.bare_request().header("content-type", "application/json");
            for value in &values {
                request = request.header("authorization", value);
            }
            let reply = client.send(request.body(body(KNOWN).into()).unwrap()).await;
            assert_eq!(reply.status, status, "{}", values[0].replace(key, "<key>"));
        }
        let elsewhere =
            client.bare_request().header("x-api-key", key).header("content-type", "application/json");
        client.send(elsewhere.body(body(KNOWN).into()).unwrap()).await.assert_status(401);
    }
}

/// `WWW-Authenticate: Bearer` is sent on a 401 only.
#[tokio::test]
async fn a_401_names_its_scheme() {
    let world = World::open().await;
    for client in world.clients(1).await {
        let reply = client.stranger().look_up(KNOWN).await;
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
        for reply in [client.look_up(KNOWN).await, client.look_up(KNOWN).await, client.post("{").await] {
            assert_eq!(reply.header("www-authenticate"), None);
        }
    }
}

/// The reply for an opted-out person is indistinguishable from `not_found`: any difference would reveal that the person is
/// in the data.
#[tokio::test]
async fn a_person_who_opted_out_is_not_told_from_one_who_was_never_there() {
    let world = World::open().await;
    world.add_person("opted.out@gmail.com", "opted-out", 1.0);
    for client in world.clients(1).await {
        client.look_up("opted.out@gmail.com").await.assert_status(200);
    }
    world.suppress("Opted.Out+anything@googlemail.com");
    world.add_person("opted.out@gmail.com", "opted-out", 1.0); // a later import does not undo the opt-out
    for (one, other) in world.clients(1).await.into_iter().zip(world.clients(1).await) {
        let (suppressed, unknown) = (one.look_up("opted.out@gmail.com").await, other.look_up(UNKNOWN).await);
        assert_eq!(suppressed.status, 404);
        let (mut suppressed, mut unknown) = (suppressed.comparable(), unknown.comparable());
        for headers in [&mut suppressed.1, &mut unknown.1] {
            headers.retain(|(name, _)| name != "ratelimit-reset"); // each workspace has its own windows
        }
        assert_eq!(suppressed, unknown);
        assert_eq!(world.totals(&one.tenant), world.totals(&other.tenant), "it costs the same too");
    }
}
