//! `enrich key` and `enrich usage`.

use std::fs;
use std::num::NonZeroI64;
use std::os::unix::fs::PermissionsExt as _;

use enrich_host::SystemArrivals;
use enrich_lib::key::ApiKey;
use enrich_sqlite::{BlockingAccounts, DataDir};
use enrich_store::Actor;
use enrich_store::records::NewKey;

use super::*;

/// Returns the rows of `key list demo`.
fn keys(enrich: &Enrich) -> Vec<Value> {
    enrich.json(&["key", "list", "demo", "--json"]).as_array().unwrap().clone()
}

/// Returns the id of the newest key.
fn newest(enrich: &Enrich) -> String {
    keys(enrich).last().unwrap()["id"].as_str().unwrap().to_owned()
}

#[test]
fn disabled_key_is_refused_until_it_is_enabled() {
    let (enrich, key) = Enrich::with_key(5, 500);
    let (server, id) = (enrich.serve(&[]), newest(&enrich));
    assert_eq!(enrich.json(&["key", "set", &id, "--disable", "--json"]), json!({"id": id, "disabled": true}));
    within_a_second("the disabled key is refused", || status(&server, &key, EMAIL) == 401);
    assert_eq!(keys(&enrich)[0]["state"], "disabled");
    assert_eq!(enrich.ok(&["key", "set", &id, "--enable"]), format!("enabled {id}"));
    within_a_second("the enabled key is accepted", || status(&server, &key, EMAIL) == 404);
}

#[test]
fn rotated_key_works_until_the_grace_period_ends() {
    let (enrich, old) = Enrich::with_key(5, 500);
    let (server, id) = (enrich.serve(&[]), newest(&enrich));
    let ran = enrich.run(&["key", "rotate", &id, "--grace", "30m"]);
    let new = ran.stdout.trim_end();
    assert!(ran.success && new.len() == 42, "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("replaces {id}")) && !ran.stderr.contains(new), "{}", ran.stderr);
    within_a_second("the new key is accepted", || status(&server, new, EMAIL) == 404);
    assert_eq!(status(&server, &old, EMAIL), 404);
    let rows = keys(&enrich);
    assert_eq!((&rows[0]["state"], &rows[1]["label"]), (&json!("active"), &json!("test")));
    assert!(rows[0]["expires_at"].is_string() && rows[1]["expires_at"].is_null(), "{rows:?}");
}

#[test]
fn key_is_written_to_a_new_private_file() {
    let enrich = Enrich::with_key(5, 500).0;
    let (file, rotated) = (enrich.path("shop.key"), enrich.path("rotated.key"));
    let (path, rotated_path) = (file.to_str().unwrap(), rotated.to_str().unwrap());
    let created = enrich.run(&["key", "create", "demo", "shop", "--output", path]);
    assert!(created.success && created.stderr.contains(path), "{}", created.stderr);
    assert_eq!(created.stdout, "");
    let id = newest(&enrich);
    assert!(enrich.run(&["key", "rotate", &id, "-o", rotated_path]).success);
    for file in [&file, &rotated] {
        let metadata = fs::metadata(file).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 43), "{file:?}");
    }
    // No key is created without a place for it, and no file without a key.
    let before = keys(&enrich).len();
    for path in [path, "/none/shop.key"] {
        let error = enrich.err(&["key", "create", "demo", "shop", "--output", path]);
        assert!(error.contains(path), "{error}");
    }
    assert_eq!(keys(&enrich).len(), before);
    let unknown = enrich.path("unknown.key");
    enrich.err(&["key", "create", "none", "shop", "--output", unknown.to_str().unwrap()]);
    assert!(!unknown.exists());
}

/// A reason, a label and an error may contain what others have entered, with any program.
#[test]
fn control_characters_are_escaped_on_the_terminal() {
    let enrich = Enrich::with_key(5, 500).0;
    let reason = "red \u{1b}[31m\nline \u{9b}2J \u{202e}txet";
    let dir = DataDir::open(enrich.data()).unwrap();
    let (demo, operator) = ("demo".parse().unwrap(), Actor::operator(SystemArrivals::now()));
    let mut accounts = BlockingAccounts::open(&dir).unwrap();
    accounts.adjust(&demo, NonZeroI64::new(-1).unwrap(), reason, &operator).unwrap();
    let key = ApiKey::generate(|| 7);
    accounts.create_key(&NewKey::new(&demo, reason, &key), &operator).unwrap();
    let shown = "red \\u001b[31m line \\u009b2J \\u202etxet";
    for list in [["credits", "ledger", "demo"], ["key", "list", "demo"]] {
        let text = enrich.ok(&list);
        assert!(text.contains(shown), "{text}");
    }
    let rows = enrich.json(&["credits", "ledger", "demo", "--json"]);
    assert!(rows.as_array().unwrap().iter().any(|row| row["reason"] == reason), "{rows}");
    let error = enrich.err(&["key", "create", "demo", "shop", "--output", "/none\u{1b}[31m/shop.key"]);
    assert!(error.contains("/none\\u001b[31m/shop.key"), "{error}");
}

#[test]
fn usage_is_added_up_by_day_or_by_key() {
    let (enrich, key) = Enrich::with_key(5, 500);
    let other = enrich.ok(&["key", "create", "demo", "other"]);
    let server = enrich.serve(&[]);
    for key in [&key, &key, &other] {
        assert_eq!(status(&server, key, EMAIL), 404);
    }
    server.stop();
    let by_day = enrich.json(&["usage", "demo", "--by", "day", "--json"])[0].clone();
    let day = by_day["day"].as_str().unwrap();
    assert_eq!(by_day, json!({"day": day, "outcome": "not_found", "lookups": 3, "credits": 0}));
    let by_key = enrich.ok(&["usage", "demo", "--from", day, "--to", day, "--by", "key", "--csv"]);
    let mut lines: Vec<_> = keys(&enrich).iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    lines = lines.iter().zip([2, 1]).map(|(id, n)| format!("{id},not_found,{n},0")).collect();
    lines.sort();
    assert_eq!(by_key, format!("key,outcome,lookups,credits\n{}", lines.join("\n")));
}
