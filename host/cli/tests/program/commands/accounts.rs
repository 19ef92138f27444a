//! Workspaces, keys and credits.

use super::*;

#[test]
fn lists_workspaces_with_limit_and_credits() {
    let enrich = Enrich::new();
    enrich.ok(&["workspace", "create", "acme", "--credits", "7", "--limit", "9", "--window", "30"]);
    enrich.ok(&["workspace", "create", "bolt"]);
    let list = enrich.json(&["workspace", "list", "--json"]);
    assert_eq!(list[0]["name"], "acme");
    assert_eq!(list[0]["limit"], 9);
    assert_eq!(list[0]["window_seconds"], 30);
    assert_eq!(list[0]["credits"], json!({"granted": 7, "available": 7, "held": 0, "spent": 0}));
    assert_eq!((&list[1]["limit"], &list[1]["window_seconds"]), (&json!(500), &json!(60)));
    let table = enrich.ok(&["workspace", "list"]);
    assert!(
        table.starts_with("NAME  LIMIT         AVAILABLE  HELD  CREATED\nacme  9 per 30 s    7"),
        "{table}"
    );
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
fn grants_add_up() {
    let (enrich, _) = Enrich::with_key(5, 500);
    let granted = enrich.json(&["credits", "grant", "demo", "10", "--json"]);
    assert_eq!(granted, json!({"granted": 15, "available": 15, "held": 0, "spent": 0}));
    assert_eq!(enrich.json(&["credits", "show", "demo", "--json"]), granted);
}

#[test]
fn audit_reports_whether_balances_match_their_rows() {
    let (enrich, key) = Enrich::with_key(5, 500);
    enrich.ok(&["people", "import", &one_person(&enrich)]);
    let server = enrich.serve(&[]);
    assert_eq!(status(&server, &key, EMAIL), 200);
    assert_eq!(enrich.ok(&["credits", "audit"]), "1 of 1 workspaces reconcile with their rows");
    let audit = enrich.json(&["credits", "audit", "--json"]);
    let spent = json!({"total": 1, "rows": 1});
    assert_eq!((&audit["reconciles"], &audit["workspaces"][0]["spent"]), (&json!(true), &spent));
}
