//! Workspaces, keys and credits.

use super::*;
use crate::enrich::admin::{ADMIN, Scrape};

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
fn refunded_credit_can_be_spent() {
    let (enrich, key) = Enrich::with_ada(1, 500);
    let server = enrich.serve(&["ENRICH_CREDITS_SHOW_AVAILABLE=true"]);
    let reply = server.connect().enrich(&key, EMAIL).unwrap();
    assert!(reply.head.contains("\r\ncredits-available: 0\r\n"), "{}", reply.head);
    let lookup_id = reply.body["lookup_id"].as_str().unwrap();
    assert_eq!(status(&server, &key, EMAIL), 402);
    let refunded = enrich.ok(&["credits", "refund", lookup_id, "--reason", "wrong profile"]);
    assert_eq!(refunded, "refunded 1 credit to demo, which has 1 available");
    within_a_second("the credit can be spent", || status(&server, &key, EMAIL) == 200);
    assert!(enrich.ok(&["check"]).ends_with("1 of 1 workspaces reconcile with their rows"));
}
