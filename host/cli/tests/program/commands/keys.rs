//! `enrich key` and `enrich usage`.

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
fn lists_expiry_state_and_uses() {
    let (enrich, _) = Enrich::with_key(5, 500);
    let key = enrich.ok(&["key", "create", "demo", "short", "--expires", "90d"]);
    let server = enrich.serve(&[]);
    assert_eq!(status(&server, &key, EMAIL), 404);
    server.stop();
    let rows = keys(&enrich);
    let row = &rows[1];
    assert_eq!((&row["state"], &row["uses_30_days"]), (&json!("active"), &json!(1)));
    assert_eq!((&row["created_by"], &row["disabled_at"]), (&json!("operator"), &Value::Null));
    assert!(row["expires_at"].is_string() && row["last_used_at"].is_string(), "{row}");
    assert_eq!(rows[0]["expires_at"], Value::Null);
    let table = enrich.ok(&["key", "list", "demo"]);
    let header: Vec<_> = table.lines().next().unwrap().split("  ").filter(|cell| !cell.is_empty()).collect();
    let columns = ["ID", "LABEL", "KEY", "STATE", "CREATED", "BY", "LAST USED", "USES (30 DAYS)", "EXPIRES"];
    assert_eq!(header.iter().map(|cell| cell.trim()).collect::<Vec<_>>(), columns, "{table}");
}

#[test]
fn warns_about_a_label_that_another_key_has() {
    let (enrich, _) = Enrich::with_key(5, 500);
    let create = || enrich.run(&["key", "create", "demo", "test"]).stderr;
    let id = newest(&enrich);
    let warning = format!("warning: {id} of demo has the same label\n");
    assert!(create().starts_with(&warning));
    for row in keys(&enrich) {
        enrich.ok(&["key", "revoke", row["id"].as_str().unwrap()]);
    }
    assert!(!create().contains("warning"), "revoked keys do not count");
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

    let rotated = enrich.json(&["key", "rotate", &newest(&enrich), "--json"]);
    assert!(rotated["key"].as_str().unwrap().starts_with("enr_"));
    assert!(rotated["old"]["expires_at_latest"].is_string(), "{rotated}");
}

#[test]
fn revoked_key_cannot_be_enabled_or_rotated() {
    let (enrich, _) = Enrich::with_key(5, 500);
    let id = newest(&enrich);
    enrich.ok(&["key", "revoke", &id]);
    for args in [&["set", &id, "--enable"][..], &["set", &id, "--disable"], &["rotate", &id]] {
        let error = enrich.err(&[&["key"], args].concat());
        assert!(error.contains(&format!("{id} is not active")), "{args:?}: {error}");
    }
}

#[test]
fn usage_is_a_table_json_or_csv() {
    let (enrich, key) = Enrich::with_key(5, 500);
    enrich.ok(&["people", "import", &one_person(&enrich)]);
    let server = enrich.serve(&[]);
    assert_eq!(status(&server, &key, EMAIL), 200);
    server.stop();
    let id = newest(&enrich);
    let table = enrich.ok(&["usage", "demo"]);
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["DAY", "KEY", "LABEL", "OUTCOME", "LOOKUPS", "CREDITS"]);
    assert_eq!(rows[1][1..], [id.as_str(), "test", "billed", "1", "1"]);
    let day = rows[1][0];
    let row = json!({"day": day, "key": id, "outcome": "billed", "lookups": 1, "credits": 1});
    assert_eq!(enrich.json(&["usage", "demo", "--days", "1", "--json"]), json!([row]));
    let csv = enrich.ok(&["usage", "demo", "--csv"]);
    assert_eq!(csv, format!("day,key,outcome,lookups,credits\n{day},{id},billed,1,1"));
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
    assert_eq!(enrich.ok(&["usage", "demo", "--from", "1970-01-01", "--to", "1999-12-31", "--json"]), "[]");
}

#[test]
fn ledger_is_a_table_json_or_csv() {
    let (enrich, key) = Enrich::with_key(5, 500);
    enrich.ok(&["people", "import", &one_person(&enrich)]);
    let server = enrich.serve(&[]);
    let lookups = [0, 1].map(|_| {
        let reply = server.connect().enrich(&key, EMAIL).unwrap();
        reply.body["lookup_id"].as_str().unwrap().to_owned()
    });
    enrich.ok(&["credits", "refund", &lookups[1], "--reason", "wrong, and \"late\""]);
    let rows = enrich.json(&["credits", "ledger", "demo", "--json"]);
    let row = |n: usize| {
        [&rows[n]["kind"], &rows[n]["credits"], &rows[n]["lookup_id"], &rows[n]["key"]].map(Value::clone)
    };
    assert_eq!(row(0), [json!("grant"), json!(5), Value::Null, Value::Null]);
    assert_eq!(row(1), [json!("spend"), json!(-1), json!(lookups[0]), json!(newest(&enrich))]);
    assert_eq!(row(2), [json!("spend"), json!(-1), json!(lookups[1]), json!(newest(&enrich))]);
    assert_eq!(row(3), [json!("refund"), json!(1), json!(lookups[1]), Value::Null]);
    let sum: i64 = rows.as_array().unwrap().iter().map(|row| row["credits"].as_i64().unwrap()).sum();
    assert_eq!(enrich.credits("demo")["available"], sum);
    let csv = enrich.ok(&["credits", "ledger", "demo", "--csv"]);
    let header = "at,kind,credits,lookup_id,key,reason\n";
    assert!(csv.starts_with(header) && csv.lines().count() == 5, "{csv}");
    assert!(csv.ends_with(&format!(",refund,1,{},,\"wrong, and \"\"late\"\"\"", lookups[1])), "{csv}");
    let table = enrich.ok(&["credits", "ledger", "demo"]);
    assert!(table.starts_with("AT") && table.lines().nth(2).unwrap().contains(&lookups[0]), "{table}");
    assert_eq!(enrich.ok(&["credits", "ledger", "demo", "--to", "2000-01-01", "--json"]), "[]");
}
