//! `enrich people publish` and `fetch` on the real binary.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::commands::{status, within_a_second};
use crate::enrich::{Enrich, block_on};
use enrich_tests::servers::Postgres;
use serde_json::json;

const ADA: &str = "ada.marlowe@gmail.com";
const BEA: &str = "bea.marlowe@gmail.com";

fn import(enrich: &Enrich, emails: &[&str]) {
    let rows: String = emails.iter().map(|email| format!("{email},linkedin.com/in/someone\n")).collect();
    let file = enrich.file("people.csv", format!("email,linkedin_url\n{rows}"));
    enrich.ok(&["people", "import", file.to_str().unwrap()]);
}

/// Copies the key of the people directory.
fn copy_key(from: &Enrich, to: &Enrich) {
    fs::create_dir_all(to.data()).unwrap();
    fs::copy(from.data().join("people.key"), to.data().join("people.key")).unwrap();
}

#[test]
fn running_server_finds_fetched_people_within_a_second() {
    let (to, key) = Enrich::with_key(1_000_000, 1_000_000);
    let from = Enrich::new();
    import(&from, &[ADA, BEA]);
    copy_key(&from, &to);
    let server = to.serve(&[]);
    assert_eq!(status(&server, &key, ADA), 404);
    let snapshot = from.path("people.snapshot");
    let snapshot = snapshot.to_str().unwrap();
    let output = from.ok(&["people", "publish", snapshot]);
    assert!(output.starts_with(&format!("published 2 people to {snapshot} (")), "{output}");
    let output = to.ok(&["people", "fetch", snapshot]);
    assert!(output.ends_with(": 2 new or changed, 0 removed"), "{output}");
    within_a_second("the person is found", || status(&server, &key, ADA) == 200);

    from.ok(&["people", "opt-out", ADA]);
    assert_eq!(from.json(&["people", "publish", snapshot, "--json"])["people"], 1);
    let fetched = to.json(&["people", "fetch", snapshot, "--json"]);
    assert_eq!(fetched, json!({"people": 1, "changed": 0, "removed": 1}));
    within_a_second("the person is not found", || status(&server, &key, ADA) == 404);
    assert_eq!(status(&server, &key, BEA), 200);
}

#[cfg(feature = "servers")]
#[test]
fn nodes_of_a_database_do_not_fetch_people_who_opted_out() {
    let url = Postgres::shared().url(&block_on(Postgres::shared().create_database()));
    let [from, to] = [(); 2].map(|()| Enrich::with_database(url.clone()));
    import(&from, &[ADA, BEA]);
    let snapshot = from.path("people.snapshot");
    let snapshot = snapshot.to_str().unwrap();
    from.ok(&["people", "publish", snapshot]);
    from.ok(&["people", "opt-out", ADA]);
    copy_key(&from, &to);
    let fetched = to.json(&["people", "fetch", snapshot, "--json"]);
    assert_eq!(fetched, json!({"people": 2, "changed": 1, "removed": 0}));
    assert_eq!(to.json(&["people", "stats", "--json"])["people"], 1);
}

#[test]
fn fetch_copies_the_key_to_a_new_node() {
    let [from, to] = [Enrich::new(), Enrich::new()];
    import(&from, &[ADA]);
    let snapshot = from.path("people.snapshot");
    from.ok(&["people", "publish", snapshot.to_str().unwrap()]);
    let key = from.data().join("people.key");
    let fetch = ["people", "fetch", snapshot.to_str().unwrap(), "--people-key"];
    let error = to.err(&[&fetch[..], &[snapshot.to_str().unwrap()]].concat());
    assert!(error.contains("people.snapshot is not a people.key"), "{error}");
    // The second time, as when a container starts again, there is a key.
    for changed in ["1 new or changed", "0 new or changed"] {
        let output = to.ok(&[&fetch[..], &[key.to_str().unwrap()]].concat());
        assert!(output.contains(changed), "{output}");
    }
    assert_eq!(fs::read(to.data().join("people.key")).unwrap(), fs::read(&key).unwrap());
    assert_eq!(fs::metadata(to.data().join("people.key")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn mistakes_have_a_remedy() {
    let [from, to] = [Enrich::new(), Enrich::new()];
    let error = from.err(&["people", "publish", "people.snapshot"]);
    assert!(error.contains("there is no data in"), "{error}");
    import(&from, &[ADA]);
    let error = from.err(&["people", "publish", "no/such/directory/people.snapshot"]);
    assert!(error.contains("no/such/directory"), "{error}");
    from.ok(&["people", "publish", "people.snapshot"]);
    let snapshot = from.path("people.snapshot");
    let snapshot = snapshot.to_str().unwrap();

    let error = to.err(&["people", "fetch", snapshot]);
    assert!(
        error.contains("there is no people.key in") && error.contains("copy it from another node"),
        "{error}"
    );
    import(&to, &[BEA]);
    let error = to.err(&["people", "fetch", snapshot]);
    assert!(
        error.contains("another people.key") && error.contains("copy people.key from another node"),
        "{error}"
    );
    let error = from.err(&["people", "fetch", "people.csv"]);
    assert!(error.contains("is not a snapshot") && error.contains("enrich people publish"), "{error}");
    fs::copy(snapshot, from.path("old.snapshot")).unwrap();
    from.ok(&["people", "publish", "people.snapshot"]);
    let error = from.err(&["people", "fetch", "old.snapshot"]);
    assert!(error.contains("is older than") && error.contains("publish a new snapshot"), "{error}");
}
