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

#[test]
fn trusts_only_the_given_ca_over_tls() {
    let (enrich, key) = Enrich::with_key(1, 500);
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let cert = enrich.file("cert.pem", cert.pem()).to_str().unwrap().to_owned();
    let secret = enrich.file("key.pem", signing_key.serialize_pem()).to_str().unwrap().to_owned();
    let server = enrich.serve(&[&format!("ENRICH_TLS_CERT={}", cert), &format!("ENRICH_TLS_KEY={}", secret)]);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let ask = ["lookup", EMAIL, "--key", &key, "--url", &server.url];
    assert!(enrich.ok(&[&ask[..], &["--tls-ca", &cert]].concat()).contains("\"not_found\""));
    assert!(enrich.err(&ask).contains("--tls-ca"));
}
