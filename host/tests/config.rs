//! `enrich config`: what is wrong in a file of settings, and what it would serve.
#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod enrich;

use enrich::Enrich;
use enrich::vendor::{Mood, Vendor};

fn path(file: std::path::PathBuf) -> String {
    file.to_str().unwrap().to_owned()
}

#[test]
fn the_example_can_be_served_as_it_is() {
    let enrich = Enrich::new();
    let file = path(enrich.file("enrich.toml", enrich.ok(&["config", "example"])));
    let said = enrich.ok(&["config", "check", &file]);
    assert!(said.starts_with(&format!("{file} can be served\nlistens on http://127.0.0.1:8080\n")), "{said}");
    assert!(said.ends_with("1  people  –      –         –        –      –      –      –"), "{said}");
}

#[test]
fn what_would_be_served_is_told_in_order_and_without_keys() {
    let enrich = Enrich::new();
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    enrich.file("cert.pem", certified.cert.pem());
    enrich.file("key.pem", certified.signing_key.serialize_pem());
    enrich.file("acme.toml", Vendor::that(Mood::KnowsNobody).description("acme"));
    enrich.file("acme.key", "s3cret");
    let file = path(enrich.file(
        "enrich.toml",
        "listen = \"0.0.0.0:443\"\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n[cache]\n\
         [[vendors]]\nfile = \"acme.toml\"\nhedge_ms = 500\n[[vendors]]\nuse = \"people\"\n",
    ));
    let said = enrich.ok(&["config", "check", &file]);
    assert!(said.contains("listens on https://0.0.0.0:443"), "{said}");
    assert!(said.contains("accounts: SQLite in the data directory\nwindows: memory\n"), "{said}");
    assert!(said.contains("remembers 100000 answers: a match for 86400 s, none for 3600 s"), "{said}");
    let rows: Vec<_> = said.lines().skip(7).collect();
    let [header, first, second] = rows[..] else { panic!("{said}") };
    assert!(header.trim_start().starts_with("NAME"), "{said}");
    for part in ["1  acme", "matches", "8000 ms", "500 ms", "acme.key"] {
        assert!(first.contains(part), "{part}: {said}");
    }
    assert!(second.starts_with("2  people"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn a_mistake_is_told_with_its_line_and_is_a_failure() {
    let enrich = Enrich::with_key(1, 500).0;
    enrich.file(
        "bad.toml",
        Vendor::that(Mood::KnowsNobody).description("acme").replace("tries = 1", "tries = 9"),
    );
    enrich.file("bad.txt", "throwaway.name\nada@gmail.com\n");
    for (text, told) in [
        ("listen = \"0.0.0.0:443\"", "in the clear"),
        ("\nlisten = 8080", "enrich.toml, line 2, listen: "),
        (
            "[price]\nfuond = 1",
            "enrich.toml, line 2, fuond: unknown field `fuond`, expected `found` or `not_found`",
        ),
        ("tls = { cert = \"no.pem\", key = \"no.pem\" }", "no.pem"),
        (
            "[[vendors]]\nuse = \"hunter\"",
            "enrich.toml, line 2, vendors.use: hunter: can't use the secret in the environment variable HUNTER_API_KEY: it is not set",
        ),
        ("[emails]\ndisposable_file = \"bad.txt\"", "bad.txt, line 2: has to be one domain"),
        ("[[vendors]]\nfile = \"bad.toml\"", "bad.toml, line 14, limits.tries: has to be from 1 to 5"),
    ] {
        let file = path(enrich.file("enrich.toml", text));
        for command in [&["config", "check", &file][..], &["serve", "--config", &file]] {
            let error = enrich.err(command);
            assert!(error.starts_with("error: ") && error.contains(told), "{error}");
        }
    }
    assert!(enrich.err(&["config", "check", "nowhere.toml"]).contains("can't read nowhere.toml"));
}

/// The blocks of a page that are in TOML.
fn blocks(page: &'static str) -> Vec<&'static str> {
    page.split("```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

#[test]
fn the_readmes_waterfall_can_be_served_with_the_vendor_that_is_described_beside_it() {
    let enrich = Enrich::new();
    let readme = blocks(include_str!("../../README.md"));
    let acme = blocks(include_str!("../../CONTRIBUTING.md"))[0];
    let file = path(enrich.file("enrich.toml", readme[1]));
    enrich.file("acme.toml", acme.replace("env = \"ACME_API_KEY\"", "file = \"acme.key\""));
    enrich.file("acme.key", "s3cret");
    enrich.file("people-data-labs.key", "s3cret");
    let said = enrich.ok(&["config", "check", &file]);
    let rows = said.lines().skip_while(|line| !line.contains("NAME")).skip(1);
    let names: Vec<_> = rows.map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(names, ["people", "people-data-labs", "acme"], "{said}");
}
