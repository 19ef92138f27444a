//! Commands that change the data of a running server.

use super::*;

#[test]
fn changes_of_a_workspace_take_effect_within_a_second() {
    let (enrich, key) = Enrich::with_key(0, 500);
    let server = enrich.serve(&[]);
    assert_eq!(status(&server, &key, EMAIL), 402);
    enrich.ok(&["credits", "grant", "demo", "1"]);
    within_a_second("the credit is there", || status(&server, &key, EMAIL) == 404);
    enrich.ok(&["workspace", "set", "demo", "--limit", "1000"]);
    within_a_second("the limit has changed", || {
        let reply = server.connect().enrich(&key, EMAIL).unwrap();
        reply.head.to_lowercase().contains("\nratelimit-limit: 1000\r")
    });
    let id = enrich.key_id("demo", 0);
    enrich.ok(&["key", "revoke", &id]);
    within_a_second("the revoked key is refused", || status(&server, &key, EMAIL) == 401);
    let new = enrich.ok(&["key", "create", "demo", "second"]);
    within_a_second("the new key is taken", || status(&server, &new, EMAIL) == 404);
}

#[test]
fn imports_and_opt_outs_take_effect_within_a_second() {
    let (enrich, key) = Enrich::with_key(1_000_000, 1_000_000);
    let server = enrich.serve(&[]);
    assert_eq!(status(&server, &key, EMAIL), 404);
    enrich.import_ada();
    within_a_second("the person is found", || status(&server, &key, EMAIL) == 200);
    enrich.ok(&["people", "opt-out", "Ada.Marlowe+x@googlemail.com"]);
    within_a_second("the person is not found", || status(&server, &key, EMAIL) == 404);
    server.stop();

    // A price other than that of unknown people would disclose the opt-out.
    let server = enrich.serve(&["ENRICH_PRICE_NOT_FOUND=2"]);
    let costs = [EMAIL, "unknown@gmail.com"].map(|email| {
        let before = enrich.spent();
        assert_eq!(status(&server, &key, email), 404);
        enrich.spent() - before
    });
    assert_eq!(costs, [2, 2]);
}

#[test]
fn refuses_a_second_server_on_the_same_data() {
    let (enrich, _) = Enrich::with_key(5, 500);
    let _server = enrich.serve(&[]);
    let error = enrich.err(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(error.contains("is already being served by another process"), "{error}");
}
