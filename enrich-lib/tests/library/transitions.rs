//! The transitions of the state machine in one table: the result of each input in each state.

use std::time::Duration;

use crate::scripted::payer;
use enrich_lib::body::{Body, BodyError};
use enrich_lib::credit::{HoldOutcome, Price, Settlement, Shortage};
use enrich_lib::email::EmailPolicy;
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::lookup::{
    Admitted, Funded, Identified, Lookup, Policy, Received, Reply, Request, TEST_REPLIES, Validated,
};
use enrich_lib::model::{Arrival, ProfileUrl, Timestamp};
use enrich_lib::receipt::{IdempotencyKey, ReceiptKey};
use enrich_lib::refusal::{PortError, Refusal};
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Quota, Workspace};

#[test]
fn transitions_match_table() {
    let rows = [
        receives(),
        identify_rows(),
        admit_rows(),
        validate_rows(),
        fund_rows(),
        resolve_rows(),
        settle_rows(),
    ]
    .concat();
    let table = table(&rows);
    insta::assert_snapshot!(table);
}

#[test]
fn hold_lasts_as_long_as_the_policy_says() {
    let policy = policy().with_hold_ttl(Duration::from_secs(7));
    assert_eq!(validated(&policy).hold().ttl, Duration::from_secs(7));
}

/// An input of a state and its result.
type Row = [String; 6];

const HEADINGS: [&str; 6] = ["state", "is input", "becomes", "left", "spent", "for the log"];

fn receives() -> Vec<Row> {
    let policy = policy();
    [("a key of the right form", Some(key())), ("no key of the right form", None)]
        .map(|(input, key)| {
            let received = Lookup::receive(&policy, arrival(), Request::new(key, Ok(ADA.into())));
            row("-", input, received, nothing)
        })
        .into()
}

fn identify_rows() -> Vec<Row> {
    let policy = policy();
    [("a workspace", Ok(Some(demo()))), ("unknown key", Ok(None)), ("the store fails", Err(error()))]
        .map(|(input, found)| {
            row("Received", input, received(&policy, Ok(ADA.into())).identify(found), nothing)
        })
        .into()
}

fn admit_rows() -> Vec<Row> {
    let policy = policy();
    [
        ("count 1 of 500", Ok(1)),
        ("count 499 of 500", Ok(499)),
        ("count 500 of 500", Ok(500)),
        ("count 501 of 500", Ok(501)),
        ("count 2^64 - 1 of 500", Ok(u64::MAX)),
        ("count 0 of 500", Ok(0)),
        ("the store fails", Err(error())),
    ]
    .map(|(input, counted)| {
        row("Identified", input, identified(&policy, Ok(ADA.into())).admit(counted), nothing)
    })
    .into()
}

fn validate_rows() -> Vec<Row> {
    let policy = policy();
    let long = format!(r#"{{"email":"{}@gmail.com"}}"#, "a".repeat(255));
    let email = |input: &'static str, body: &str| (input, Ok(body.to_owned()));
    [
        ("the HTTP is malformed", Err(BodyError::Http)),
        ("no content type", Err(BodyError::MissingContentType)),
        ("another content type", Err(BodyError::ContentType)),
        ("too large", Err(BodyError::TooLarge)),
        ("cut off", Err(BodyError::CutOff)),
        ("too slow", Err(BodyError::TooSlow)),
        email("no JSON", "email"),
        email("no object", r#"["ada@gmail.com"]"#),
        email("email twice", r#"{"email":"ada@gmail.com","email":"ada@gmail.com"}"#),
        email("another field", r#"{"email":"ada@gmail.com","name":"Ada"}"#),
        email("another field, a bad email", r#"{"email":"ada","name":"Ada"}"#),
        email("no email", "{}"),
        email("an email that is no string", r#"{"email":null}"#),
        email("an empty email", r#"{"email":""}"#),
        email("too long an email", &long),
        email("a bad local part", r#"{"email":"a..b@gmail.com"}"#),
        email("a bad domain", r#"{"email":"ada@-"}"#),
        email("an internationalised email", r#"{"email":"zoë@gmail.com"}"#),
        email("a quoted local part", r#"{"email":"\"ada\"@gmail.com"}"#),
        email("an address literal", r#"{"email":"ada@[127.0.0.1]"}"#),
        email("a domain that is not public", r#"{"email":"ada@localhost"}"#),
        email("a disposable provider", r#"{"email":"ada@mailinator.com"}"#),
        email("a private relay", r#"{"email":"ada@privaterelay.appleid.com"}"#),
        email("a role", r#"{"email":"info@gmail.com"}"#),
        email("a provider that is not allowed", r#"{"email":"ada@yahoo.com"}"#),
        ("a malformed idempotency key", Err(BodyError::IdempotencyKey)),
        email("a supported email", ADA),
    ]
    .map(|(input, body)| {
        let validated = admitted(&policy, body.map(Into::into)).validate();
        row("Admitted", input, validated, |lookup| format!("hold {}", lookup.hold().credits))
    })
    .into_iter()
    .chain(test_rows(&policy))
    .chain([("an idempotency key", true), ("an idempotency key, no receipts", false)].map(
        |(input, has_receipts)| {
            let policy = if has_receipts {
                policy.clone().with_receipts(ReceiptKey::new([7; 16]))
            } else {
                policy.clone()
            };
            let mut request = Request::new(Some(key()), Ok(ADA.into()));
            request.idempotency_key = IdempotencyKey::parse(b"order-1");
            let received = Lookup::receive(&policy, arrival(), request).expect("received");
            let identified = received.identify(Ok(Some(demo()))).expect("identified");
            let validated = identified.admit(Ok(1)).expect("admitted").validate();
            row("Admitted", input, validated, |lookup| {
                format!(
                    "hold {}{}",
                    lookup.hold().credits,
                    if lookup.hold().receipt.is_some() { ", receipt" } else { "" }
                )
            })
        },
    ))
    .collect()
}

fn test_rows(policy: &Policy) -> Vec<Row> {
    let addresses = TEST_REPLIES.iter().map(|reply| reply.address());
    let others = ["Found@Enrich.TEST", "found@gmail.com", "info@gmail.com", "found"].map(str::to_owned);
    let row = |address: String| {
        let body = format!(r#"{{"email":"{address}"}}"#);
        let request = Request::new(Some(key()), Ok(body.into()));
        let received = Lookup::receive(policy, arrival(), request).expect("received");
        let identified = received.identify(Ok(Some(demo().with_test(true)))).expect("identified");
        let reply = identified.admit(Ok(1)).expect("admitted").validate().expect_err("the reply of a test");
        let delay = if reply.delay.is_zero() { String::new() } else { format!(" after {:?}", reply.delay) };
        assert!(reply.is_test);
        row::<()>("Admitted", &format!("test: {address}{delay}"), Err(reply), nothing)
    };
    addresses.chain(others).map(row).collect()
}

fn fund_rows() -> Vec<Row> {
    let policy = policy();
    [
        ("granted", Ok(HoldOutcome::Granted)),
        ("insufficient", Ok(HoldOutcome::Insufficient(Shortage::Exhausted))),
        ("insufficient, and held", Ok(HoldOutcome::Insufficient(Shortage::Held))),
        ("the store fails", Err(error())),
    ]
    .map(|(input, held)| row("Validated", input, validated(&policy).fund(held), nothing))
    .into()
}

fn resolve_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (priced, price) in PRICES {
        let policy = policy().with_price(price);
        rows.extend(people().map(|(input, found)| {
            let resolved = Ok(funded(&policy).resolve(found));
            row("Funded", &format!("{input}, {priced}"), resolved, |lookup| show(lookup.settlement()))
        }));
    }
    rows
}

fn settle_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for ((_, price), settled) in
        PRICES.into_iter().flat_map(|price| [0, 1, 2].map(|settled| (price, settled)))
    {
        let policy = policy().with_price(price);
        rows.extend(people().map(|(person, found)| {
            let resolved = funded(&policy).resolve(found);
            let state = format!("Resolved: {person}, {}", show(resolved.settlement()));
            let (input, settled) = match settled {
                0 => ("settled", Ok(None)),
                1 => ("another lookup has paid", Ok(Some(payer()))),
                _ => ("the store fails", Err(error())),
            };
            row::<()>(&state, input, Err(resolved.settle(settled)), nothing)
        }));
    }
    rows.sort();
    rows.dedup(); // some inputs have the same result for every price
    rows
}

/// Returns the row of one transition. `request` returns the next state's request, as far as it depends on the
/// input.
fn row<Next>(
    state: &str,
    input: &str,
    became: Result<Lookup<'_, Next>, Reply>,
    request: impl Fn(&Lookup<'_, Next>) -> String,
) -> Row {
    let [becomes, left, spent, log] = match became {
        Ok(next) => {
            let name = std::any::type_name::<Next>().rsplit("::").next().unwrap_or_default();
            let request = request(&next);
            let becomes = if request.is_empty() { name.to_owned() } else { format!("{name}: {request}") };
            [becomes, String::new(), String::new(), String::new()]
        }
        Err(reply) => reply_columns(&reply),
    };
    [state.to_owned(), input.to_owned(), becomes, left, spent, log]
}

fn reply_columns(reply: &Reply) -> [String; 4] {
    let becomes = format!("{} {}", reply.status(), reply.outcome());
    let left = reply.rate_limit.map_or("-".to_owned(), |rate_limit| rate_limit.remaining.to_string());
    let reason = |refusal: &Refusal| refusal.reason().map_or_else(|| refusal.to_string(), str::to_owned);
    let reason = reply.result.as_ref().err().map(reason);
    let error = reply.error.as_ref().map(|error| format!("({error})"));
    let payer = reply.paid_by.map(|payer| format!("paid by {payer}"));
    let log: Vec<_> = reason.into_iter().chain(payer).chain(error).collect();
    [becomes, left, reply.credits_spent.to_string(), log.join(" ")]
}

fn table(rows: &[Row]) -> String {
    let all: Vec<_> = std::iter::once(&HEADINGS.map(str::to_owned)).chain(rows).cloned().collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<_> = (0..HEADINGS.len()).map(width).collect();
    let mut lines = Vec::new();
    for (i, row) in all.iter().enumerate() {
        let state = |row: &Row| row[0].split(':').next().map(str::to_owned);
        if i > 0 && state(row) != state(&all[i - 1]) {
            lines.push(String::new());
        }
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        lines.push(cells.join("  ").trim_end().to_owned());
    }
    lines.join("\n")
}

fn nothing<State>(_: &Lookup<'_, State>) -> String {
    String::new()
}

fn show(settlement: Settlement) -> String {
    match settlement {
        Settlement::Spend(credits) => format!("spend {credits}"),
        Settlement::Release => "release".to_owned(),
    }
}

const ADA: &str = r#"{"email":"ada@gmail.com"}"#;
const PRICES: [(&str, Price); 3] = [
    ("matches cost 1", Price { found: 1, not_found: 0 }),
    ("matches cost 1, misses 2", Price { found: 1, not_found: 2 }),
    ("all is free", Price { found: 0, not_found: 0 }),
];

fn people() -> [(&'static str, Result<Answer, PortError>); 3] {
    [
        ("a profile", Ok(ProfileUrl::from_name("ada-marlowe").ok().into())),
        ("no profile", Ok(Answer::default())),
        ("the resolver fails", Err(error())),
    ]
}

fn policy() -> Policy {
    let providers = ["gmail.com", "localhost", "mailinator.com", "privaterelay.appleid.com"];
    let providers_allowed = Some(providers.map(str::to_owned).into());
    let mut emails = EmailPolicy::default();
    emails.providers_allowed = providers_allowed;
    Policy::default().with_emails(emails)
}

fn demo() -> Workspace {
    Workspace::new("demo".parse().expect("a name"), Quota::default())
}

fn arrival() -> Arrival {
    Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), [7; 10])
}

fn error() -> PortError {
    PortError::new("no connection")
}

fn key() -> KeyDigest {
    ApiKey::generate(|| 7).digest()
}

fn received(policy: &Policy, body: Body) -> Lookup<'_, Received> {
    Lookup::receive(policy, arrival(), Request::new(Some(key()), body)).expect("received")
}

fn identified(policy: &Policy, body: Body) -> Lookup<'_, Identified> {
    received(policy, body).identify(Ok(Some(demo()))).expect("identified")
}

fn admitted(policy: &Policy, body: Body) -> Lookup<'_, Admitted> {
    identified(policy, body).admit(Ok(1)).expect("admitted")
}

fn validated(policy: &Policy) -> Lookup<'_, Validated> {
    admitted(policy, Ok(ADA.into())).validate().expect("validated")
}

fn funded(policy: &Policy) -> Lookup<'_, Funded> {
    validated(policy).fund(Ok(HoldOutcome::Granted)).expect("funded")
}
