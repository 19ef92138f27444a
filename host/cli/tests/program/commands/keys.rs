//! `enrich key`.

use std::fs;
use std::num::NonZeroI64;
use std::os::unix::fs::PermissionsExt as _;

use enrich_host::SystemArrivals;
use enrich_lib::key::ApiKey;
use enrich_sqlite::{DataDir, accounts, complete};
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
fn key_is_written_to_a_new_private_file() {
    let enrich = Enrich::with_key(5, 500).0;
    let (file, rotated) = (enrich.path("shop.key"), enrich.path("rotated.key"));
    let (path, rotated_path) = (file.to_str().unwrap(), rotated.to_str().unwrap());
    let created = enrich.run(&["key", "create", "demo", "shop", "--output", path]);
    assert!(created.success && created.stderr.contains(path), "{}", created.stderr);
    assert_eq!(created.stdout, "");
    let id = newest(&enrich);
    let about = enrich.json(&["key", "rotate", &id, "--json", "-o", rotated_path]);
    assert!(about["old"]["id"] == id && about.get("key").is_none(), "{about}");
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
    let mut accounts = accounts(&dir).unwrap();
    complete(accounts.adjust(&demo, NonZeroI64::new(-1).unwrap(), reason, &operator)).unwrap();
    let key = ApiKey::generate(|| 7);
    complete(accounts.create_key(&NewKey::new(&demo, reason, &key), &operator)).unwrap();
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
