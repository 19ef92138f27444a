//! Opt-outs of several nodes, each with its own data directory, on one PostgreSQL server.

use std::fs;

use crate::commands::{status, within_a_second};
use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{Enrich, Server, block_on, bytes_under, eventually};
use enrich_tests::servers::Postgres;
use serde_json::json;

const EMAIL: &str = "ada.marlowe@gmail.com";
const URL: &str = "https://www.linkedin.com/in/ada";

/// Two nodes that know one person.
struct Fleet {
    nodes: [Enrich; 2],
    key: String,
}

impl Fleet {
    fn new() -> Self {
        let server = Postgres::shared();
        Self::on(server.url(&block_on(server.create_database())))
    }

    fn on(url: String) -> Self {
        let nodes = [(); 2].map(|()| Enrich::with_database(url.clone()));
        let key = nodes[0].make_key(1_000_000, 1_000_000);
        import_ada(&nodes[0]);
        fs::create_dir(nodes[1].data()).unwrap();
        fs::copy(people_key(&nodes[0]), people_key(&nodes[1])).unwrap();
        import_ada(&nodes[1]);
        Self { nodes, key }
    }

    fn serve(&self, args: &[&str]) -> [Server; 2] {
        [self.nodes[0].serve(args), self.nodes[1].serve(args)]
    }

    fn statuses(&self, servers: &[Server; 2]) -> [u16; 2] {
        [status(&servers[0], &self.key, EMAIL), status(&servers[1], &self.key, EMAIL)]
    }
}

fn import_ada(enrich: &Enrich) {
    let file = enrich.file("people.csv", format!("email,linkedin_url\n{EMAIL},{URL}\n"));
    enrich.ok(&["people", "import", file.to_str().unwrap()]);
}

fn people_key(enrich: &Enrich) -> std::path::PathBuf {
    enrich.data().join("people.key")
}

/// Returns the number of records in the people directory of a node.
fn people(enrich: &Enrich) -> u64 {
    enrich.json(&["people", "stats", "--json"])["people"].as_u64().unwrap()
}

#[test]
fn all_nodes_honour_an_opt_out_and_its_withdrawal_within_a_second() {
    let fleet = Fleet::new();
    let [first, second] = &fleet.nodes;
    let servers = fleet.serve(&[]);
    assert_eq!(fleet.statuses(&servers), [200, 200]);
    assert_eq!(first.ok(&["people", "opt-out", "--show", EMAIL]), "not opted out");

    let output = first.ok(&["people", "opt-out", "Ada.Marlowe+x@googlemail.com"]);
    assert!(output.starts_with("1 person opted out: "), "{output}");
    within_a_second("the person is not found", || fleet.statuses(&servers) == [404, 404]);
    for node in &fleet.nodes {
        assert!(node.ok(&["people", "opt-out", "--show", EMAIL]).starts_with("opted out since 20"));
        eventually("the record is deleted on each node", || (people(node) == 0).then_some(()));
        import_ada(node);
        assert_eq!(
            node.json(&["people", "stats", "--json"]),
            json!({"people": 0, "untrusted": 0, "opt_outs": 1})
        );
    }
    assert_eq!(fleet.statuses(&servers), [404, 404], "imports do not restore the person");

    let output = second.ok(&["people", "opt-out", "--withdraw", EMAIL]);
    assert!(output.starts_with("1 person withdrew the opt-out: "), "{output}");
    assert_eq!(first.ok(&["people", "opt-out", "--withdraw", EMAIL]), "1 person had not opted out");
    for (node, server) in fleet.nodes.iter().zip(&servers) {
        assert_eq!(node.ok(&["people", "opt-out", "--show", EMAIL]), "not opted out");
        import_ada(node);
        within_a_second("the person is found", || status(server, &fleet.key, EMAIL) == 200);
    }
    let log = servers.map(Server::stop).concat();
    assert!(!log.to_lowercase().contains("marlowe"), "{log}");
}

#[test]
fn opt_out_applies_to_a_node_that_was_stopped() {
    let fleet = Fleet::new();
    let [first, second] = &fleet.nodes;
    first.ok(&["people", "opt-out", EMAIL]);
    assert_eq!(people(second), 1);
    let server = second.serve(&[]);
    assert_eq!(status(&server, &fleet.key, EMAIL), 404, "from the first lookup on");
    eventually("the record is deleted", || (people(second) == 0).then_some(()));
    let data = String::from_utf8_lossy(&bytes_under(&second.data())).to_lowercase();
    assert!(!data.contains("marlowe"));
}

#[test]
fn vendors_receive_no_request_for_an_opt_out_of_another_node() {
    let fleet = Fleet::new();
    let [first, second] = &fleet.nodes;
    let vendor = Vendor::that(Behavior::Matches("ada"));
    second.file("acme.toml", vendor.description("acme"));
    second.file("acme.key", "s3cret\n");
    let config =
        second.file("enrich.toml", "windows = \"memory\"\n[cache]\n[[vendors]]\nfile = \"acme.toml\"\n");
    let server = second.serve_with(&config);
    assert_eq!(status(&server, &fleet.key, EMAIL), 200);
    let sent = vendor.requests().len();
    first.ok(&["people", "opt-out", EMAIL]);
    within_a_second("the person is not found", || status(&server, &fleet.key, EMAIL) == 404);
    assert_eq!(vendor.requests().len(), sent);
    let config = config.to_str().unwrap();
    let refused = second.err(&["vendors", "try", "acme", EMAIL, "--config", config]);
    assert!(refused.contains("the person opted out"), "{refused}");
    fs::remove_dir_all(second.data()).unwrap();
    let refused = second.err(&["vendors", "try", "acme", EMAIL, "--config", config]);
    assert!(refused.contains("there is no people.key in"), "{refused}");
    // The key alone is sufficient.
    fs::create_dir(second.data()).unwrap();
    fs::copy(people_key(first), people_key(second)).unwrap();
    let refused = second.err(&["vendors", "try", "acme", EMAIL, "--config", config]);
    assert!(refused.contains("the person opted out"), "{refused}");
    assert_eq!(vendor.requests().len(), sent);
}

#[test]
fn opt_out_of_a_data_directory_reaches_all_nodes_when_it_is_served() {
    let fleet = Fleet::new();
    let [first, second] = &fleet.nodes;
    let server = first.serve(&[]);
    let mut opt_out = second.command(&["people", "opt-out", EMAIL]);
    assert!(opt_out.env_remove("ENRICH_DATABASE").output().unwrap().status.success());
    assert_eq!(status(&server, &fleet.key, EMAIL), 200, "the database does not have it yet");
    let _second = second.serve(&[]);
    within_a_second("the person is not found", || status(&server, &fleet.key, EMAIL) == 404);
}

#[test]
fn no_person_is_found_while_the_database_is_unreachable() {
    let mut postgres = Postgres::start();
    let fleet = Fleet::on(postgres.url(&block_on(postgres.create_database())));
    // A free lookup needs no commit, whose outcome would be unknown.
    let servers = fleet.serve(&["ENRICH_PRICE_FOUND=0"]);
    assert_eq!(fleet.statuses(&servers), [200, 200]);
    postgres.pause();
    // Each of these lookups waits for its key until a timeout.
    let all_fail = || fleet.statuses(&servers).iter().all(|status| *status >= 500);
    eventually("no lookup succeeds", || all_fail().then_some(()));
    assert!(all_fail());
    postgres.resume();
    eventually("lookups succeed", || (fleet.statuses(&servers) == [200, 200]).then_some(()));
    postgres.kill();
    let error = fleet.nodes[0].run(&["people", "opt-out", EMAIL]);
    assert_eq!(error.code, Some(4), "{}", error.stderr);
    postgres.restart();
    fleet.nodes[0].ok(&["people", "opt-out", EMAIL]);
    eventually("the person is not found", || (fleet.statuses(&servers) == [404, 404]).then_some(()));
}

#[test]
fn refuses_a_directory_with_another_key() {
    let fleet = Fleet::new();
    let stranger = Enrich::with_database(fleet.nodes[0].database().to_owned());
    let file = stranger.file("people.csv", format!("email,linkedin_url\n{EMAIL},{URL}\n"));
    let import = ["people", "import", file.to_str().unwrap()];
    let error = stranger.err(&import);
    assert!(
        error.contains("there is no people.key in") && error.contains("copy it from another node"),
        "{error}"
    );
    for args in [&["people", "opt-out", "--show", EMAIL][..], &["people", "fetch", "people.snapshot"]] {
        let error = stranger.err(args);
        assert!(error.contains("there is no people.key in"), "{args:?}: {error}");
    }
    assert!(!stranger.data().exists(), "no new key is created");

    fs::create_dir(stranger.data()).unwrap();
    fs::write(people_key(&stranger), [9; 16]).unwrap();
    let mut own = stranger.command(&import);
    assert!(own.env_remove("ENRICH_DATABASE").output().unwrap().status.success());
    for args in [
        &import[..],
        &["people", "opt-out", EMAIL],
        &["people", "opt-out", "--withdraw", EMAIL],
        &["people", "opt-out", "--show", EMAIL],
        &["serve", "--listen", "127.0.0.1:0"],
    ] {
        let error = stranger.err(args);
        assert!(error.contains("made with another people.key"), "{args:?}: {error}");
        assert!(error.contains("copy people.key from another node"), "{args:?}: {error}");
        assert!(!error.contains("marlowe"), "{error}");
    }
}

#[test]
fn several_emails_are_written_together_or_not_at_all() {
    let fleet = Fleet::new();
    let [first, _] = &fleet.nodes;
    let error = first.err(&["people", "opt-out", EMAIL, "not-an-email"]);
    assert!(error.contains("email 2: ") && !error.contains("not-an-email"), "{error}");
    assert_eq!(first.ok(&["people", "opt-out", "--show", EMAIL]), "not opted out");
    let emails = ["people", "opt-out", EMAIL, "ada.marlowe+x@gmail.com", "bea@gmail.com", "--json"];
    assert_eq!(first.json(&emails), json!({"changed": 2, "unchanged": 0}));
    assert_eq!(first.json(&emails), json!({"changed": 0, "unchanged": 2}));
}
