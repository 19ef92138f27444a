//! Workspaces, keys and credits.

use super::*;
use crate::enrich::admin::{ADMIN, Scrape};

/// Returns the row of `demo` in `workspace list`.
fn demo(enrich: &Enrich) -> Value {
    enrich.json(&["workspace", "list", "--json"])[0].clone()
}

#[test]
fn changed_limit_is_in_force_within_a_second() {
    let (enrich, key) = Enrich::with_key(5, 500);
    let server = enrich.serve(&[]);
    let has_limit = |limit| {
        let reply = server.connect().enrich(&key, EMAIL).unwrap();
        reply.head.to_lowercase().contains(&format!("\nratelimit-limit: {limit}\r"))
    };
    assert!(has_limit(500));
    let changed = enrich.ok(&["workspace", "set", "demo", "--limit", "1000", "--low-balance", "20"]);
    assert_eq!(changed, "demo: 1,000 requests per 60 s, a warning below 20 credits");
    within_a_second("the limit has changed", || has_limit(1_000));
    let row = enrich.json(&["workspace", "set", "demo", "--window", "30", "--low-balance", "0", "--json"]);
    assert_eq!(
        (&row["limit"], &row["window_seconds"], &row["low_balance"]),
        (&json!(1000), &json!(30), &json!(0))
    );
    assert_eq!(demo(&enrich), row);
}

#[test]
fn server_warns_of_a_low_balance_once() {
    let (enrich, _) = Enrich::with_key(5, 500);
    enrich.ok(&["workspace", "set", "demo", "--low-balance", "6"]);
    let server = enrich.serve(&ADMIN);
    server.wait_for_log("the workspace has few credits left", 1);
    assert_eq!(Scrape::of(server.admin()).value("enrich_low_balances"), Some(1.0));
    let log = server.stop();
    assert!(log.contains("workspace=demo available=5 low_balance=6"), "{log}");
}

#[test]
fn prints_only_the_key_and_only_once() {
    let (enrich, key) = Enrich::with_key(1, 500);
    assert_eq!(key.len(), 42);
    assert!(!String::from_utf8_lossy(&bytes_under(&enrich.data())).contains(&key));
    let row = key_row(&enrich, &key);
    assert_eq!(
        (&row["label"], &row["last_used_at"], &row["revoked_at"]),
        (&json!("test"), &Value::Null, &Value::Null)
    );
    let created = row["created_at"].as_str().unwrap();
    assert!(created.ends_with('Z') && created.contains('T'), "{created}");
}

#[test]
fn adjusts_credits_while_serving() {
    let (enrich, key) = Enrich::with_key(5, 500);
    enrich.ok(&["people", "import", &one_person(&enrich)]);
    let server = enrich.serve(&[]);
    assert_eq!(status(&server, &key, EMAIL), 200);
    let adjust =
        |credits: &str| enrich.run(&["credits", "grant", "demo", credits, "--reason", "typo", "--json"]);
    let error = adjust("-5").stderr;
    assert!(error.contains("only 4 credits are available"), "{error}");
    let balance: Value = serde_json::from_str(&adjust("-4").stdout).unwrap();
    assert_eq!(balance, json!({"granted": 1, "available": 0, "held": 0, "spent": 1}));
    // Until the server reads the withdrawal, it answers 500 and bills nothing.
    within_a_second("no credit is available", || status(&server, &key, EMAIL) == 402);
    assert!(adjust("2").success);
    within_a_second("the credits can be spent", || status(&server, &key, EMAIL) == 200);
    server.stop();
    assert!(adjust("-1").success);
    let error = adjust("-1").stderr;
    assert!(error.contains("only 0 credits are available"), "{error}");
    assert!(adjust("1234").success);
    let error = adjust("-1235").stderr;
    assert!(error.contains("only 1,234 credits are available"), "{error}");
    assert!(enrich.ok(&["check"]).ends_with("1 of 1 workspaces reconcile with their rows"));
}

#[test]
fn refunded_credit_can_be_spent() {
    let (enrich, key) = Enrich::with_key(1, 500);
    enrich.ok(&["people", "import", &one_person(&enrich)]);
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

/// Returns the program with two spends of the workspace `demo`: one of 2023, and one of today.
fn with_old_spend() -> Enrich {
    let (enrich, key) = Enrich::with_key(9, 500);
    enrich.ok(&["people", "import", &one_person(&enrich)]);
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
    enrich
}

fn spends(enrich: &Enrich) -> usize {
    let ledger = enrich.json(&["credits", "ledger", "demo", "--from", "2023-01-01", "--json"]);
    ledger.as_array().unwrap().iter().filter(|row| row["kind"] == "spend").count()
}

#[test]
fn server_removes_spends_after_the_set_number_of_days() {
    let enrich = with_old_spend();
    let sums = || (enrich.credits("demo"), enrich.ok(&["usage", "demo", "--from", "2023-01-01", "--json"]));
    let (before, config) = (sums(), enrich.file("enrich.toml", "credits.keep_spends_days = 400"));
    let server = enrich.serve_with(&config);
    eventually("the old spend is removed", || (spends(&enrich) == 1).then_some(()));
    let log = server.stop();
    assert!(log.contains("removed old spends removed=1 days="), "{log}");
    assert_eq!(sums(), before, "balances and usage stay exact");
    assert!(enrich.ok(&["check"]).ends_with("1 of 1 workspaces reconcile with their rows"));
}
