//! Lookups with several vendors, by the binary and over real sockets: vendor order, vendor failures, and
//! SIGHUP.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{Enrich, Server};
use crate::transcripts;
use regex::Regex;

const EMAIL: &str = "Ada.Marlowe+news@gmail.com";

/// A workspace with a key, the people directory and two vendors, in this order.
struct World {
    enrich: Enrich,
    key: String,
    alpha: Vendor,
    beta: Vendor,
    config: PathBuf,
}

impl World {
    /// Creates a world with additional settings before those of the vendors.
    fn new(settings: &str, alpha: Behavior, beta: Behavior) -> Self {
        let (enrich, key) = Enrich::with_key(1_000, 1_000_000);
        let [alpha, beta] = [alpha, beta].map(Vendor::that);
        for (name, vendor) in [("alpha", &alpha), ("beta", &beta)] {
            vendor.describe(&enrich, name, &format!("{name}-s3cret\n"));
        }
        let file = |name: &str| format!("[[vendors]]\nfile = \"{name}.toml\"\n");
        let vendors = format!("[[vendors]]\nuse = \"people\"\n{}{}", file("alpha"), file("beta"));
        let config = enrich.file("enrich.toml", format!("{settings}\n{vendors}"));
        Self { enrich, key, alpha, beta, config }
    }

    fn serve(&self) -> Server {
        self.enrich.serve_with(&self.config)
    }

    fn requests(&self) -> [usize; 2] {
        [&self.alpha, &self.beta].map(|vendor| vendor.requests().len())
    }

    fn spent(&self) -> u64 {
        self.enrich.spent()
    }

    /// Stops the server and returns its log, after checking that it contains no secrets and no personal data.
    fn end(&self, server: Server) -> String {
        let log = server.stop();
        let output = log.to_lowercase();
        for secret in [&self.key.to_lowercase(), "s3cret", "marlowe", "gmail", "linkedin.com/in"] {
            assert!(!output.contains(secret), "{secret}: {log}");
        }
        log
    }
}

/// For each lookup: the reply, the requests to each vendor and the credits spent. Then the log.
#[test]
fn transcript_of_lookups_with_two_vendors() {
    use Behavior::{Fails, Matches, NoMatch};

    let world = World::new("[price]\nnot_found = 2", NoMatch, NoMatch);
    world.enrich.import("bea.marlowe@gmail.com,linkedin.com/in/bea-of-people\n");
    world.enrich.file("demo.key", &world.key);
    let server = world.serve();
    let endpoint = format!("{}/api/v1/person/enrich", server.url);
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
        let before = (world.requests(), world.spent());
        world.alpha.set(alpha);
        world.beta.set(beta);
        let ran = world.enrich.run(&["lookup", email, "--key-file", "demo.key", "--url", &endpoint]);
        let requests = [0, 1].map(|vendor| world.requests()[vendor] - before.0[vendor]);
        transcript += &format!("alpha: {alpha:?}, beta: {beta:?}\n{}{}", ran.stdout, ran.stderr);
        transcript += &format!("requests: {requests:?}, credits: {}\n\n", world.spent() - before.1);
    }
    for (vendor, key) in [(&world.alpha, "alpha-s3cret"), (&world.beta, "beta-s3cret")] {
        let request = vendor.requests().remove(0);
        assert!(request.contains("?email=ada.marlowe%2Bnews%40gmail.com"), "normalized: {request}");
        assert!(request.contains(key), "{request}");
    }
    let log = world.end(server);
    let lines =
        log.lines().filter(|line| ["enrich::lookup", "enrich::vendor"].iter().any(|it| line.contains(it)));
    let durations = Regex::new(r"duration_us=\d+").unwrap();
    transcript += &durations.replace_all(&lines.collect::<Vec<_>>().join("\n"), "duration_us=…");
    insta::assert_snapshot!(transcripts::masked(&transcript));
}

/// Runs the example of `host/docs/vendors.md` and compares the output, except for values that differ between
/// lookups.
#[test]
fn documented_lookup_with_three_vendors_is_current() {
    let page = std::fs::read_to_string(crate::enrich::repository().join("host/docs/vendors.md")).unwrap();
    let block = |start: &str| {
        let (_, block) = page.split_once(start).unwrap();
        block.split_once("\n```").unwrap().0
    };
    let (enrich, key) = Enrich::with_key(10, 500);
    let moods = [
        ("alpha", Behavior::Fails(500)),
        ("beta", Behavior::NoMatch),
        ("gamma", Behavior::Matches("bea-marlowe")),
    ];
    let vendors = moods.map(|(name, behavior)| {
        let vendor = Vendor::that(behavior);
        vendor.describe(&enrich, name, "s3cret");
        vendor
    });
    let config = block("```toml\n[[vendors]]\nfile = \"alpha.toml\"");
    let config = enrich.file("enrich.toml", format!("[[vendors]]\nfile = \"alpha.toml\"{config}"));
    let server = enrich.serve_with(&config);
    let shown = block("\n$ enrich lookup bea.marlowe@gmail.com --key-file demo.key\n");
    enrich.file("demo.key", key);
    let output =
        enrich.ok(&["lookup", "bea.marlowe@gmail.com", "--key-file", "demo.key", "--url", &server.url]);
    assert_eq!(masked(&output), masked(shown));
    assert_eq!(vendors.map(|vendor| vendor.requests().len()), [1, 1, 1]);
    assert_eq!(enrich.spent(), 1);

    let shown = block("\n$ enrich serve --config enrich.toml\n");
    let log = server.stop().replace(enrich.data().to_str().unwrap(), "./enrich-data");
    let log: Vec<_> = log.lines().take(shown.lines().count()).collect();
    assert_eq!(masked(&log.join("\n")), masked(shown));
    assert!(shown.contains("error=\"status 500"), "{shown}");
}

/// Replaces times, ports and ids in the text.
fn masked(text: &str) -> String {
    let other = Regex::new(r"duration_us=\d+|127\.0\.0\.1:\d+").unwrap();
    other.replace_all(&transcripts::masked(text), "…").into_owned()
}

#[test]
fn vendor_is_given_up_at_its_deadline() {
    let world = World::new("", Behavior::Slow("slow", Duration::from_secs(1)), Behavior::Matches("ada"));
    let hasty = world.alpha.description("alpha").replace("tries = 1", "tries = 1\ndeadline_ms = 300");
    world.enrich.file("alpha.toml", hasty);
    let reply = world.serve().connect().enrich(&world.key, EMAIL).unwrap();
    assert_eq!(reply.body["profile"]["linkedin_url"], "https://www.linkedin.com/in/ada");
}

#[test]
fn vendor_receives_no_more_requests_at_once_than_configured() {
    let world = World::new("", Behavior::Slow("ada", Duration::from_millis(20)), Behavior::NoMatch);
    let limited = world.alpha.description("alpha").replace("tries = 1", "tries = 1\nconcurrency = 2");
    world.enrich.file("alpha.toml", limited);
    let server = world.serve();
    thread::scope(|scope| {
        for client in 0..8 {
            let (world, server) = (&world, &server);
            scope.spawn(move || {
                let mut connection = server.connect();
                for n in 0..10 {
                    let email = format!("ada.marlowe{client}.{n}@posteo.net");
                    assert_eq!(connection.enrich(&world.key, &email).unwrap().status, 200);
                }
            });
        }
    });
    assert_eq!(world.alpha.in_flight_max(), 2);
}
