//! People and opt-outs of several nodes on one PostgreSQL server.

use std::fs::File;

use crate::commands::{status, within_a_second};
use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{EMAIL, Enrich, Ran, Server};
use crate::people::{imports_exclude_each_other, replaces_only_by_a_complete_file};
use serde_json::json;

/// Two nodes whose database has one person.
struct Fleet {
    nodes: [Enrich; 2],
    key: String,
}

impl Fleet {
    fn new() -> Self {
        let first = Enrich::on_postgresql();
        let key = first.make_key(1_000_000, 1_000_000);
        first.import_ada();
        let second = Enrich::with_database(first.database().to_owned());
        Self { nodes: [first, second], key }
    }

    fn serve(&self, args: &[&str]) -> [Server; 2] {
        [self.nodes[0].serve(args), self.nodes[1].serve(args)]
    }

    fn statuses(&self, servers: &[Server; 2]) -> [u16; 2] {
        [status(&servers[0], &self.key, EMAIL), status(&servers[1], &self.key, EMAIL)]
    }
}

#[test]
fn all_nodes_honour_an_opt_out_and_its_withdrawal_within_a_second() {
    let fleet = Fleet::new();
    let [first, second] = &fleet.nodes;
    let servers = fleet.serve(&[]);
    assert_eq!(fleet.statuses(&servers), [200, 200]);
    assert_eq!(first.ok(&["people", "opt-out", "--show", EMAIL]), "not opted out");

    first.ok(&["people", "opt-out", "Ada.Marlowe+x@googlemail.com"]);
    within_a_second("the person is not found", || fleet.statuses(&servers) == [404, 404]);
    for node in &fleet.nodes {
        assert!(node.ok(&["people", "opt-out", "--show", EMAIL]).starts_with("opted out since 20"));
        let stats = || node.json(&["people", "stats", "--json"]);
        assert_eq!(stats()["people"], 0, "the record is deleted");
        node.import_ada();
        assert_eq!(stats(), json!({"people": 0, "untrusted": 0, "opt_outs": 1}));
    }
    assert_eq!(fleet.statuses(&servers), [404, 404], "imports do not restore the person");

    second.ok(&["people", "opt-out", "--withdraw", EMAIL]);
    assert_eq!(first.ok(&["people", "opt-out", "--withdraw", EMAIL]), "1 person had not opted out");
    first.import_ada();
    within_a_second("the person is found", || fleet.statuses(&servers) == [200, 200]);
    let log = servers.map(Server::stop).concat();
    assert!(!log.to_lowercase().contains("marlowe"), "{log}");
    assert!(!fleet.nodes.iter().any(|node| node.data().exists()), "nodes have no data");
}

#[test]
fn imports_into_the_database_exclude_each_other_and_keep_people_without_a_complete_file() {
    let enrich = Enrich::on_postgresql();
    replaces_only_by_a_complete_file(&enrich);
    imports_exclude_each_other(&enrich);
}

#[test]
fn vendors_receive_no_request_for_an_opt_out_of_another_node() {
    let fleet = Fleet::new();
    let [first, second] = &fleet.nodes;
    let vendor = Vendor::that(Behavior::Matches("ada"));
    let config = vendor.configure(second, "windows = \"memory\"\n[cache]");
    let server = second.serve_with(&config);
    assert_eq!(status(&server, &fleet.key, EMAIL), 200);
    let sent = vendor.requests().len();
    first.ok(&["people", "opt-out", EMAIL]);
    within_a_second("the person is not found", || status(&server, &fleet.key, EMAIL) == 404);
    assert_eq!(vendor.requests().len(), sent);
}

#[test]
fn refuses_another_key() {
    let fleet = Fleet::new();
    let [first, second] = &fleet.nodes;
    let people = first.path("people.csv");
    let commands = [
        &["people", "import", "people.csv"][..],
        &["people", "opt-out", EMAIL],
        &["people", "opt-out", "--withdraw", EMAIL],
        &["people", "opt-out", "--show", EMAIL],
        &["serve", "--listen", "127.0.0.1:0"],
    ];
    let other = "09".repeat(16);
    for (key, expected) in [
        (other.as_str(), "were made under another `people.key`"),
        (&other[1..], "must be 32 hexadecimal digits"),
    ] {
        let key = format!("ENRICH_PEOPLE_KEY={key}");
        for args in commands {
            let error = first.err(&[&[key.as_str()], args].concat());
            assert!(error.contains(expected), "{args:?}: {error}");
            assert!(!error.contains("marlowe") && !error.contains("0909"), "{error}");
        }
    }
    for args in commands {
        let mut command = first.command(args);
        let error = Ran::of(command.env_remove("ENRICH_PEOPLE_KEY").output().unwrap()).stderr;
        assert!(error.contains("people.key: must be set with a database"), "{args:?}: {error}");
    }
    // A directory that was made under another key.
    let mut own = second.command(&["people", "import", people.to_str().unwrap()]);
    own.env_remove("ENRICH_DATABASE").env("ENRICH_PEOPLE_KEY", &other);
    assert!(own.output().unwrap().status.success());
    let mut stats = second.command(&["people", "stats"]);
    let error = Ran::of(stats.env_remove("ENRICH_DATABASE").output().unwrap()).stderr;
    assert!(error.contains("was made with another key than `people.key`"), "{error}");
}

#[test]
fn internationalized_domain_is_that_of_lookups() {
    let enrich = Enrich::new();
    enrich.import("zoe@xn--bcher-kva.ch,linkedin.com/in/zoe\n");
    let emails = File::open(enrich.file("emails", "\u{feff}zoe@BÜCHER.ch\n\n")).unwrap();
    let out = enrich.command(&["people", "opt-out", "-"]).stdin(emails).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let shown = enrich.ok(&["people", "opt-out", "--show", "zoe@bücher.ch", "zoe@xn--bcher-kva.ch"]);
    assert_eq!(shown.matches(": opted out since").count(), 2, "{shown}");
    assert_eq!(enrich.json(&["people", "stats", "--json"])["people"], 0);
    assert!(enrich.err(&["people", "opt-out", "zoe@b\u{300}.\u{202e}"]).contains("the domain is invalid"));
    for mode in [&[][..], &["--withdraw"], &["--show"]] {
        let args = [&["people", "opt-out", "ada@gmail.com", "zoe\u{200b}@bücher.ch"], mode].concat();
        let error = enrich.err(&args);
        assert!(error.contains("email 2: the email has an invisible character"), "{error}");
    }
}
