//! Runs lookups without async code, ports or a runtime: `cargo run -p enrich-lib --example no_async`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example")]

use enrich_lib::credit::{HoldOutcome, Settlement, Shortage};
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::{Lookup, Policy, Reply, Request};
use enrich_lib::model::{Arrival, ProfileUrl, Timestamp};
use enrich_lib::window::{Quota, Workspace};
use enrich_lib::wire;

/// Runs one lookup. The result passed to each transition could come from a blocking call to your own store.
fn look_up(request: Request, balance: &mut u64) -> Result<Reply, Reply> {
    let (policy, now) = (Policy::default(), Timestamp::from_unix_ms(1_700_000_000_000)); // your clock
    let lookup = Lookup::receive(&policy, Arrival::new(now, rand::random()), request)?;
    let acme = Workspace::new("acme".parse().unwrap(), Quota::default());
    let lookup = lookup.identify(Ok(Some(acme)))?; // the workspace of lookup.key()
    let lookup = lookup.admit(Ok(1))?; // the first request in lookup.window()
    let lookup = lookup.validate()?;
    let is_enough = *balance >= lookup.hold().credits;
    let short = HoldOutcome::Insufficient(Shortage::Exhausted);
    let lookup = lookup.fund(Ok(if is_enough { HoldOutcome::Granted } else { short }))?;
    let is_ada = lookup.query().email.canonical() == "adamarlowe@gmail.com";
    let lookup = lookup.resolve(Ok(is_ada.then(|| ProfileUrl::from_name("ada-marlowe").unwrap()).into()));
    if let Settlement::Spend(credits) = lookup.settlement() {
        *balance -= credits;
    }
    Ok(lookup.settle(Ok(None)))
}

/// Looks up two people. Returns the statuses and the balance.
fn look_up_both() -> ([u16; 2], u64) {
    let (key, mut balance) = (ApiKey::generate(rand::random).digest(), 2);
    let answer = |body: &'static str| {
        let reply = look_up(Request::new(Some(key), Ok(body.into())), &mut balance);
        let response = wire::response(&reply.unwrap_or_else(|refusal| refusal));
        println!("{response:#?}");
        response.status().as_u16()
    };
    let bodies = [r#"{"email":"Ada.Marlowe@gmail.com"}"#, r#"{"email":"bea.marlowe@gmail.com"}"#];
    (bodies.map(answer), balance)
}

fn main() {
    look_up_both();
}

#[test]
fn finds_one_person_and_spends_one_credit() {
    assert_eq!(look_up_both(), ([200, 404], 1));
}
