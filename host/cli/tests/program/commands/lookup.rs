//! `enrich lookup`.

use super::*;

#[test]
fn looks_up_at_a_running_server() {
    let (enrich, key) = Enrich::with_key(1, 3);
    enrich.count_for_a_day();
    enrich.ok(&["people", "import", &one_person(&enrich)]);
    let server = enrich.serve(&[]);
    let endpoint = format!("{}/api/v1/person/enrich", server.url);
    let ask = |email: &str, key: &str| enrich.run(&["lookup", email, "--key", key, "--url", &endpoint]);
    let found: Value = serde_json::from_str(&ask(EMAIL, &key).stdout).unwrap();
    assert_eq!(found["profile"]["linkedin_url"], URL);
    let mut ids = Vec::new();
    for (email, key, expected) in [
        (EMAIL, key.as_str(), "credits grant"),
        ("ada", key.as_str(), "reason email-syntax"),
        (EMAIL, key.as_str(), "try again in"),
        (EMAIL, "enr_wrong", "key create"),
    ] {
        let ran = ask(email, key);
        assert!(!ran.success && ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
        let (_, id) = ran.stderr.split_once("request id ").unwrap();
        ids.push(id.split_once(')').unwrap().0.to_owned());
    }
    let log = server.stop();
    for id in ids {
        assert_eq!(log.matches(&id).count(), 1, "{id}: {log}");
    }
}
