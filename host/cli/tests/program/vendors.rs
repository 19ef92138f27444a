//! Lookups with two vendors, by the binary and over real sockets: their order and their failures.

use crate::enrich::Enrich;
use crate::enrich::vendor::{Behavior, Vendor};
use crate::transcripts;
use regex::Regex;

const EMAIL: &str = "Ada.Marlowe+news@gmail.com";

/// For each lookup: the reply, the requests to each vendor and the credits spent. Then the log.
#[test]
fn transcript_of_lookups_with_two_vendors() {
    use Behavior::{Fails, Matches, NoMatch};

    let (enrich, key) = Enrich::with_key(1_000, 1_000_000);
    enrich.import("bea.marlowe@gmail.com,linkedin.com/in/bea-of-people\n");
    enrich.file("demo.key", &key);
    let mut settings = "price.not_found = 2\n[[vendors]]\nuse = \"people\"\n".to_owned();
    let vendors = ["alpha", "beta"].map(|name| {
        let vendor = Vendor::that(NoMatch);
        vendor.describe(&enrich, name, &format!("{name}-s3cret\n"));
        settings += &format!("[[vendors]]\nfile = \"{name}.toml\"\n");
        vendor
    });
    let server = enrich.serve_with(&enrich.file("enrich.toml", settings));
    let endpoint = format!("{}/api/v1/person/enrich", server.url);
    let counts = || vendors.each_ref().map(|vendor| vendor.requests().len());
    let mut transcript = String::new();
    for (email, alpha, beta) in [
        ("bea.marlowe@gmail.com", Matches("bea-of-alpha"), Matches("bea-of-beta")),
        (EMAIL, Matches("ada-of-alpha"), Matches("ada-of-beta")),
        (EMAIL, NoMatch, Matches("ada-of-beta")),
        (EMAIL, NoMatch, NoMatch),
        (EMAIL, Fails(401), Matches("ada-of-beta")),
        (EMAIL, Fails(503), NoMatch),
        (EMAIL, Fails(500), Fails(402)),
    ] {
        let (before, spent) = (counts(), enrich.spent());
        vendors[0].set(alpha);
        vendors[1].set(beta);
        let ran = enrich.run(&["lookup", email, "--key-file", "demo.key", "--url", &endpoint]);
        let requests = [0, 1].map(|vendor| counts()[vendor] - before[vendor]);
        transcript += &format!("alpha: {alpha:?}, beta: {beta:?}\n{}{}", ran.stdout, ran.stderr);
        transcript += &format!("requests: {requests:?}, credits: {}\n\n", enrich.spent() - spent);
    }
    for (vendor, key) in vendors.iter().zip(["alpha-s3cret", "beta-s3cret"]) {
        let request = vendor.requests().remove(0);
        assert!(request.contains("?email=ada.marlowe%2Bnews%40gmail.com"), "normalized: {request}");
        assert!(request.contains(key), "{request}");
    }
    let log = server.stop();
    let output = log.to_lowercase();
    for secret in [&key.to_lowercase(), "s3cret", "marlowe", "gmail", "linkedin.com/in"] {
        assert!(!output.contains(secret), "{secret}: {log}");
    }
    let lines =
        log.lines().filter(|line| ["enrich::lookup", "enrich::vendor"].iter().any(|it| line.contains(it)));
    let durations = Regex::new(r"duration_us=\d+").unwrap();
    transcript += &durations.replace_all(&lines.collect::<Vec<_>>().join("\n"), "duration_us=…");
    insta::assert_snapshot!(transcripts::masked(&transcript));
}
