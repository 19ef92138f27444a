//! Keys, lookup ids and opted-out people.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use enrich_tests::blackbox::{KNOWN, PortCall, TestServer, Transport, UNKNOWN};

/// A lookup id is `lookup_` and a UUIDv7 as 32 hex digits. Ids are unique and sort by time.
#[tokio::test]
async fn lookup_ids_are_unique_and_sort_by_time() {
    let server = TestServer::start().await;
    let mut ids = BTreeSet::new();
    let mut last = String::new();
    for client in server.clients(20).await {
        for email in [UNKNOWN, KNOWN].repeat(10) {
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
            last.clone_from(&id);
            ids.insert(id);
        }
    }
    assert_eq!(ids.len(), 20 * Transport::ALL.len());
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// "The plaintext key is displayed only once, at creation" (specification 5.4), so it is not stored. A workspace may have
/// several keys, one per integration (5.3).
#[tokio::test]
async fn workspace_has_several_keys_and_none_is_stored() {
    let server = TestServer::start().await;
    for client in server.clients(5).await {
        let second = client.with_key(server.create_key(&client.workspace.id).await);
        second.look_up(KNOWN).await.assert_status(200);
        client.look_up(KNOWN).await.assert_status(200);
        server.revoke_key(&client.workspace.key).await;
        client.look_up(KNOWN).await.assert_error(401, "unauthorized");
        second.look_up(KNOWN).await.assert_status(200);

        for file in std::fs::read_dir(server.data_dir()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let secret = &second.workspace.key.as_bytes()[8..];
            assert!(!bytes.windows(secret.len()).any(|window| window == secret));
        }
    }
}

/// "A key that is missing, invalid or revoked yields status 401 with `{"error":"unauthorized"}`" (specification 5.5). The
/// key is revoked while the server runs, after it was used.
#[tokio::test]
async fn revoked_key_gets_the_same_reply_as_an_unknown_key() {
    let server = TestServer::start().await;
    for client in server.clients(1).await {
        let revoked = client.with_key(server.create_key(&client.workspace.id).await);
        revoked.look_up(UNKNOWN).await.assert_status(404);
        server.revoke_key(&revoked.workspace.key).await;
        let unknown = client.with_unknown_key().look_up(KNOWN).await;
        unknown.assert_error(401, "unauthorized");
        for key in [&revoked.workspace.key, "", "secret"] {
            assert_eq!(client.with_key(key).look_up(KNOWN).await.comparable(), unknown.comparable());
        }
        assert_eq!(server.balance(&client.workspace), (1, 0, 0));
    }
}

/// A key is `enr_`, 32 base62 characters and 6 characters of CRC-32.
#[tokio::test]
async fn rejects_malformed_keys_without_a_store_access() {
    let server = TestServer::start().await;
    for client in server.clients(1).await {
        let key = client.workspace.key.clone();
        assert_eq!((key.len(), &key[..4]), (4 + 32 + 6, "enr_"));
        assert!(key[4..].bytes().all(|c| c.is_ascii_alphanumeric()), "{key}");

        let wrong = if key.ends_with('0') { "1" } else { "0" };
        server.ports.take_calls();
        for malformed in [
            "",
            "enr_",
            "secret",
            &key[..41],
            &key[4..],
            &key.replace("enr_", "ENR_"),
            &format!("{key}0"),
            &format!("{}{wrong}", &key[..41]),
            &format!("{key} {key}"),
            &format!("{key},"),
            &"x".repeat(4_000),
        ] {
            client.with_key(malformed).look_up(KNOWN).await.assert_error(401, "unauthorized");
        }
        assert_eq!(server.ports.take_calls(), []);
        client.with_unknown_key().look_up(KNOWN).await.assert_error(401, "unauthorized");
        assert_eq!(server.ports.take_calls(), [PortCall::FindKey]);
    }
}

/// Any difference between the replies would reveal that the person is in the data.
#[tokio::test]
async fn opted_out_person_gets_the_same_reply_as_an_unknown_person() {
    let server = TestServer::start().await;
    server.add_person("opted.out@gmail.com", "opted-out", 1.0);
    for client in server.clients(1).await {
        client.look_up("opted.out@gmail.com").await.assert_status(200);
    }
    server.suppress("Opted.Out+anything@googlemail.com");
    server.add_person("opted.out@gmail.com", "opted-out", 1.0); // a later import does not undo the opt-out
    for (one, other) in server.clients(1).await.into_iter().zip(server.clients(1).await) {
        let (opted_out, unknown) = (one.look_up("opted.out@gmail.com").await, other.look_up(UNKNOWN).await);
        assert_eq!(opted_out.status, 404);
        let (mut opted_out, mut unknown) = (opted_out.comparable(), unknown.comparable());
        for headers in [&mut opted_out.1, &mut unknown.1] {
            headers.retain(|(name, _)| name != "ratelimit-reset"); // each workspace has its own windows
        }
        assert_eq!(opted_out, unknown);
        assert_eq!(server.balance(&one.workspace), server.balance(&other.workspace), "the price is the same");
    }
}
