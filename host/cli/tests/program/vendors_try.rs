//! `enrich vendors try`: a single request to a vendor.

use enrich_tests::servers::Postgres;

use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{Enrich, block_on};

const EMAIL: &str = "Ada.Marlowe+news@gmail.com";

struct World {
    enrich: Enrich,
    vendor: Vendor,
}

impl World {
    fn new(behavior: Behavior) -> Self {
        Self::on(Enrich::new(), behavior)
    }

    fn on(enrich: Enrich, behavior: Behavior) -> Self {
        let vendor = Vendor::that(behavior);
        enrich.file("acme.toml", vendor.description("acme"));
        enrich.file("acme.key", "s3cret");
        enrich.file("enrich.toml", "[[vendors]]\nuse = \"people\"\n[[vendors]]\nfile = \"acme.toml\"\n");
        Self { enrich, vendor }
    }

    fn args<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["vendors", "try", name, EMAIL, "--config", "enrich.toml"], more].concat()
    }
}

/// Returns the text without the duration of the request.
fn without_time(text: &str) -> &str {
    let (text, time) = text.rsplit_once("\ntime     ").unwrap();
    assert!(time.trim_end().ends_with(" ms"), "{time}");
    text
}

#[test]
fn shows_the_request_without_its_secret_and_the_match() {
    let world = World::new(Behavior::Matches("ada-marlowe"));
    let shown = world.enrich.ok(&World::args("acme", &[]));
    let address = world.vendor.address;
    assert_eq!(
        without_time(&shown),
        format!(
            "request  GET http://{address}/?email=ada.marlowe%2Bnews%40gmail.com\n         \
             accept: application/json\n         x-key: SECRET\nstatus   200\n\
             match    https://www.linkedin.com/in/ada-marlowe"
        )
    );
    let [requests] = &world.vendor.requests()[..] else { panic!("requests once") };
    assert!(
        requests.contains("s3cret") && requests.starts_with("GET /?email=ada.marlowe%2Bnews%40gmail.com"),
        "{requests}"
    );
}

#[test]
fn shows_no_match() {
    let world = World::new(Behavior::NoMatch);
    let shown = world.enrich.ok(&World::args("acme", &[]));
    assert!(without_time(&shown).ends_with("status   404\nmatch    none"), "{shown}");
    let json = world.enrich.json(&World::args("acme", &["--json"]));
    assert_eq!(
        (&json["status"], &json["outcome"], &json["error"]),
        (&404.into(), &"not_found".into(), &().into())
    );
}

#[test]
fn fails_with_the_vendors_status() {
    let world = World::new(Behavior::Fails(401));
    let ran = world.enrich.run(&World::args("acme", &[]));
    assert!(!ran.success);
    assert!(
        without_time(&ran.stdout)
            .ends_with("status   401\nerror    status 401: the vendor rejected the API key")
    );
    assert_eq!(ran.stderr, "error: acme failed: status 401: the vendor rejected the API key\n");
    assert!(!(ran.stdout + &ran.stderr).contains("s3cret"));
}

#[test]
fn sends_no_opted_out_person() {
    sends_until_opted_out(&World::new(Behavior::Matches("ada-marlowe")));
}

#[cfg(feature = "servers")]
/// The database of the environment does not require the setting `windows`, which is for servers.
#[test]
fn sends_no_person_who_opted_out_in_the_database() {
    let server = Postgres::shared();
    let database = server.url(&block_on(server.create_database()));
    sends_until_opted_out(&World::on(Enrich::with_database(database), Behavior::Matches("ada-marlowe")));
}

fn sends_until_opted_out(world: &World) {
    let people = world.enrich.file("people.csv", "email,linkedin_url\n");
    world.enrich.ok(&["people", "import", people.to_str().unwrap()]);
    world.enrich.ok(&World::args("acme", &[]));
    assert_eq!(world.vendor.requests().len(), 1);
    world.enrich.ok(&["people", "opt-out", "adamarlowe@gmail.com"]);
    let refused = world.enrich.err(&World::args("acme", &[]));
    assert!(refused.contains("the person opted out"), "{refused}");
    assert_eq!(world.vendor.requests().len(), 1);
}

#[test]
fn lists_known_vendors_for_an_unknown_name() {
    let world = World::new(Behavior::NoMatch);
    let refused = world.enrich.err(&World::args("alpha", &[]));
    assert_eq!(refused, "error: the settings have no vendor alpha\n  the vendors are acme\n");
    let refused = world.enrich.err(&["vendors", "try", "acme", "ada", "--config", "enrich.toml"]);
    assert!(refused.starts_with("error: "), "{refused}");
}
