//! Compares `enrich serve`, with its default stores, with the transcripts of `enrich-golden`.

use enrich_golden::{Keys, Kind, Report, Scenario, Server, over_tcp, scenarios};
use enrich_lib::key::ApiKey;

use crate::enrich::Enrich;

#[test]
fn enrich_serve_matches_byte_by_byte() {
    let scenarios = scenarios().unwrap();
    let enrich = Enrich::new();
    let keys = prepare(&enrich, &scenarios);

    let serving = enrich.serve(&[]);
    let server = Server::new(over_tcp(serving.address()), Kind::Host, keys);
    let Report { passed, skipped, failed, .. } = server.run(&scenarios);

    assert_eq!(failed, []);
    let with_faults = scenarios.iter().filter(|scenario| scenario.has_faults());
    let reason = "the ports of this server cannot be made to fail".to_owned();
    let expected: Vec<_> = with_faults.map(|Scenario { name, .. }| (name.clone(), reason.clone())).collect();
    assert_eq!((skipped, expected.len()), (expected, 8));
    assert_eq!(passed.len() + 8, scenarios.len());
}

/// Fills the data directory with the data of the scenarios.
fn prepare(enrich: &Enrich, scenarios: &[Scenario]) -> Keys {
    let mut keys = Keys::default();
    let mut people = String::new();
    for scenario in scenarios {
        for workspace in &scenario.given.workspaces {
            let quota = workspace.quota;
            let numbers = [workspace.credits, quota.limit().into(), quota.window_seconds().into()];
            let [credits, limit, window] = numbers.map(|number| number.to_string());
            let settings = ["--credits", &credits, "--limit", &limit, "--window", &window];
            enrich.ok(&[&["workspace", "create", workspace.id.as_str()], &settings[..]].concat());
        }
        for given in &scenario.given.keys {
            let kind = given.is_test.then_some("--test");
            let create = ["key", "create", given.workspace.as_str(), &given.name].into_iter().chain(kind);
            let key = enrich.ok(&create.collect::<Vec<_>>()).trim().to_owned();
            if given.revoked {
                let id = ApiKey::parse(&key).unwrap().digest().key_id().to_string();
                enrich.ok(&["key", "revoke", &id]);
            }
            keys.insert(&scenario.name, &given.name, &key);
        }
        let rows = scenario.given.people.iter();
        people.extend(rows.map(|person| format!("{},{}\n", person.email, person.profile.as_str())));
    }
    enrich.import(&people);
    for email in scenarios.iter().flat_map(|scenario| &scenario.given.opted_out) {
        enrich.ok(&["people", "opt-out", email]);
    }
    keys
}
