//! `enrich vendors try`: a single request to a vendor.

use crate::enrich::Enrich;
use crate::enrich::vendor::{Behavior, Vendor};
use crate::transcripts::transcript;
use regex::Regex;

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
        vendor.configure(&enrich, "[[vendors]]\nuse = \"people\"");
        Self { enrich, vendor }
    }

    fn args<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["vendors", "try", name, EMAIL, "--config", "enrich.toml"], more].concat()
    }
}

#[test]
fn transcripts_of_single_requests() {
    let world = World::new(Behavior::Matches("ada-marlowe"));
    let try_acme = format!("vendors try acme {EMAIL} --config enrich.toml");
    let json = format!("{try_acme} --json");
    let mut text = transcript(&world.enrich, &[&try_acme, &json]);
    let requests = world.vendor.requests();
    let is_sent = requests[0].contains("s3cret")
        && requests[0].starts_with("GET /?email=ada.marlowe%2Bnews%40gmail.com");
    assert!(requests.len() == 2 && is_sent, "{requests:?}");
    for behavior in [Behavior::NoMatch, Behavior::Fails(401)] {
        world.vendor.set(behavior);
        text += &transcript(&world.enrich, &[&try_acme, &json]);
    }
    let unknown = format!("vendors try alpha {EMAIL} --config enrich.toml");
    text += &transcript(&world.enrich, &[&unknown, "vendors try acme ada --config enrich.toml"]);
    let text = text.replace(&world.vendor.address.to_string(), "[address]");
    let time = Regex::new(r#"(time +|"duration_ms":)\d+"#).unwrap();
    insta::assert_snapshot!(time.replace_all(&text, "${1}[time]"));
}

#[test]
fn sends_no_opted_out_person() {
    sends_until_opted_out(&World::new(Behavior::Matches("ada-marlowe")));
}

#[cfg(feature = "servers")]
/// The database of the environment does not require the setting `windows`, which is for servers.
#[test]
fn sends_no_person_who_opted_out_in_the_database() {
    sends_until_opted_out(&World::on(Enrich::on_postgresql(), Behavior::Matches("ada-marlowe")));
}

fn sends_until_opted_out(world: &World) {
    world.enrich.make_key(1, 1);
    world.enrich.ok(&World::args("acme", &[]));
    assert_eq!(world.enrich.ok(&["people", "opt-out", "--show", EMAIL]), "not opted out");
    assert_eq!(world.enrich.json(&["people", "stats", "--json"])["opt_outs"], 0);
    let people = ["people.db", "people.key"].map(|name| world.enrich.data().join(name).exists());
    assert_eq!(people, [false; 2], "reading creates no file");
    assert_eq!(world.vendor.requests().len(), 1);
    world.enrich.ok(&["people", "opt-out", "adamarlowe@gmail.com"]);
    let refused = world.enrich.err(&World::args("acme", &[]));
    assert!(refused.contains("the person opted out"), "{refused}");
    assert_eq!(world.vendor.requests().len(), 1);
}
