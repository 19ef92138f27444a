//! Workspaces, keys and credits.

use super::*;
use crate::enrich::admin::{ADMIN, Scrape};

#[test]
fn changed_limit_is_in_force_within_a_second() {
    let (enrich, key) = Enrich::with_key(5, 500);
    let server = enrich.serve(&[]);
    let has_limit = |limit| {
        let reply = server.connect().enrich(&key, EMAIL).unwrap();
        reply.head.to_lowercase().contains(&format!("\nratelimit-limit: {limit}\r"))
    };
    assert!(has_limit(500));
    enrich.ok(&["workspace", "set", "demo", "--limit", "1000"]);
    within_a_second("the limit has changed", || has_limit(1_000));
}

#[test]
fn server_warns_of_a_low_balance_once() {
    let (enrich, _) = Enrich::with_key(5, 500);
    enrich.ok(&["workspace", "set", "demo", "--low-balance", "6"]);
    let server = enrich.serve(&[ADMIN]);
    server.wait_for_log("the workspace has few credits left", 1);
    assert_eq!(Scrape::of(server.admin()).value("enrich_low_balances"), Some(1.0));
    let log = server.stop();
    assert!(log.contains("workspace=demo available=5 low_balance=6"), "{log}");
}

#[test]
fn key_is_printed_and_not_stored() {
    let (enrich, key) = Enrich::with_key(1, 500);
    assert_eq!(key.len(), 42);
    assert!(!String::from_utf8_lossy(&bytes_under(&enrich.data())).contains(&key));
}

#[test]
fn refunded_credit_can_be_spent() {
    let (enrich, key) = Enrich::with_key(1, 500);
    enrich.import_ada();
    let server = enrich.serve_where(&[("ENRICH_CREDITS_SHOW_AVAILABLE", "true")], &[]);
    let reply = server.connect().enrich(&key, EMAIL).unwrap();
    assert!(reply.head.contains("\r\ncredits-available: 0\r\n"), "{}", reply.head);
    let lookup_id = reply.body["lookup_id"].as_str().unwrap();
    assert_eq!(status(&server, &key, EMAIL), 402);
    let refunded = enrich.ok(&["credits", "refund", lookup_id, "--reason", "wrong profile"]);
    assert_eq!(refunded, "refunded 1 credit to demo, which has 1 available");
    within_a_second("the credit can be spent", || status(&server, &key, EMAIL) == 200);
    assert!(enrich.ok(&["check"]).ends_with("1 of 1 workspaces reconcile with their rows"));
}

#[test]
fn server_removes_spends_after_the_set_number_of_days() {
    let (enrich, key) = Enrich::with_key(9, 500);
    enrich.import_ada();
    let server = enrich.serve(&[]);
    assert_eq!(status(&server, &key, EMAIL), 200);
    server.stop();
    let db = rusqlite::Connection::open(enrich.data().join("accounts.db")).unwrap();
    let old = "INSERT INTO credit_spend SELECT unhex(printf('%012x7000', 1700000000000) || hex(randomblob(8))), rowid, 1, 2, 1700000000000
               FROM workspace;
               UPDATE workspace SET spent = spent + 2;
               INSERT INTO usage_day SELECT 1700000000000 / 86400000, rowid, 1, 'billed', 1, 2 FROM workspace";
    db.execute_batch(old).unwrap();
    drop(db);
    let sums = || (enrich.credits("demo"), enrich.ok(&["usage", "demo", "--from", "2023-01-01", "--json"]));
    let (before, config) = (sums(), enrich.file("enrich.toml", "credits.keep_spends_days = 400"));
    let server = enrich.serve_with(&config);
    server.wait_for_log("removed old spends removed=1 days=", 1);
    server.stop();
    let ledger = enrich.json(&["credits", "ledger", "demo", "--from", "2023-01-01", "--json"]);
    let spends = ledger.as_array().unwrap().iter().filter(|row| row["kind"] == "spend");
    assert_eq!(spends.count(), 1);
    assert_eq!(sums(), before, "balances and usage stay exact");
    assert!(enrich.ok(&["check"]).ends_with("1 of 1 workspaces reconcile with their rows"));
}
