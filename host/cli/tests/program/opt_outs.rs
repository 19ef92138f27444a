//! People and opt-outs of several nodes on one PostgreSQL server.

use crate::commands::{status, within_a_second};
use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{Enrich, Server, block_on};
use crate::people::{imports_exclude_each_other, replaces_only_by_a_complete_file};
use enrich_tests::servers::Postgres;
use serde_json::json;

const EMAIL: &str = "ada.marlowe@gmail.com";
const URL: &str = "https://www.linkedin.com/in/ada";

/// Two nodes whose database has one person.
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
        import(&nodes[0], &[EMAIL]);
        Self { nodes, key }
    }

    fn serve(&self, args: &[&str]) -> [Server; 2] {
        [self.nodes[0].serve(args), self.nodes[1].serve(args)]
    }

    fn statuses(&self, servers: &[Server; 2]) -> [u16; 2] {
        [status(&servers[0], &self.key, EMAIL), status(&servers[1], &self.key, EMAIL)]
    }
}

fn import(enrich: &Enrich, emails: &[&str]) -> String {
    let rows: String = emails.iter().map(|email| format!("{email},{URL}\n")).collect();
    let file = enrich.file("people.csv", format!("email,linkedin_url\n{rows}"));
    enrich.ok(&["people", "import", file.to_str().unwrap()])
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
        let stats = || node.json(&["people", "stats", "--json"]);
        assert_eq!(stats()["people"], 0, "the record is deleted");
        import(node, &[EMAIL]);
        assert_eq!(stats(), json!({"people": 0, "untrusted": 0, "opt_outs": 1}));
    }
    assert_eq!(fleet.statuses(&servers), [404, 404], "imports do not restore the person");

    let output = second.ok(&["people", "opt-out", "--withdraw", EMAIL]);
    assert!(output.starts_with("1 person withdrew the opt-out: "), "{output}");
    assert_eq!(first.ok(&["people", "opt-out", "--withdraw", EMAIL]), "1 person had not opted out");
    import(first, &[EMAIL]);
    within_a_second("the person is found", || fleet.statuses(&servers) == [200, 200]);
    let log = servers.map(Server::stop).concat();
    assert!(!log.to_lowercase().contains("marlowe"), "{log}");
    assert!(!fleet.nodes.iter().any(|node| node.data().exists()), "nodes have no data");
}

#[test]
fn imports_into_the_database_exclude_each_other_and_keep_people_without_a_complete_file() {
    let server = Postgres::shared();
    let enrich = Enrich::with_database(server.url(&block_on(server.create_database())));
    replaces_only_by_a_complete_file(&enrich);
    imports_exclude_each_other(&enrich);
}

#[test]
fn vendors_receive_no_request_for_an_opt_out_of_another_node() {
    let fleet = Fleet::new();
    let [first, second] = &fleet.nodes;
    second.file("acme.key", "s3cret\n");
    let vendor = Vendor::that(Behavior::Matches("ada"));
    second.file("acme.toml", vendor.description("acme"));
    let settings = "windows = \"memory\"\n[cache]\n[[vendors]]\nfile = \"acme.toml\"\n";
    let config = second.file("enrich.toml", settings);
    let server = second.serve_with(&config);
    assert_eq!(status(&server, &fleet.key, EMAIL), 200);
    let sent = vendor.requests().len();
    first.ok(&["people", "opt-out", EMAIL]);
    within_a_second("the person is not found", || status(&server, &fleet.key, EMAIL) == 404);
    let refused = second.err(&["vendors", "try", "acme", EMAIL, "--config", config.to_str().unwrap()]);
    assert!(refused.contains("the person opted out"), "{refused}");
    assert_eq!(vendor.requests().len(), sent);
}

#[test]
fn refuses_another_key() {
    let fleet = Fleet::new();
    let [first, second] = &fleet.nodes;
    let file = first.file("people.csv", format!("email,linkedin_url\n{EMAIL},{URL}\n"));
    let commands = [
        &["people", "import", file.to_str().unwrap()][..],
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
        let output = command.env_remove("ENRICH_PEOPLE_KEY").output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("people.key: must be set with a database"), "{args:?}: {error}");
    }
    // A directory that was made under another key.
    let mut own = second.command(&["people", "import", file.to_str().unwrap()]);
    own.env_remove("ENRICH_DATABASE").env("ENRICH_PEOPLE_KEY", &other);
    assert!(own.output().unwrap().status.success());
    let output = second.command(&["people", "stats"]).env_remove("ENRICH_DATABASE").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("was made with another key than `people.key`"), "{error}");
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
