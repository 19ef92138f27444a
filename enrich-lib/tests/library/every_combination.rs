//! Tests all combinations of request inputs and port results. Each combination has exactly one reply, which
//! the first failing check determines, and no port is called after that check.
//!
//! The expected replies come from a flat list, the specification's table in the decided order, and not from
//! the state machine.

use std::sync::Arc;
use std::time::Duration;

use crate::order::{Conditions, Expected};
use crate::scripted::{Answer, Call, Fails, LIMIT, Script, api_key, arrival, demo, payer};
use enrich_contract::reply::{RateLimit, check};
use enrich_lib::body::BodyError;
use enrich_lib::credit::{Hold, HoldOutcome, Price, Settlement, Shortage};
use enrich_lib::email::Email;
use enrich_lib::lookup::{Policy, Reply, Request};
use enrich_lib::model::LookupId;
use enrich_lib::receipt::{IdempotencyKey, Receipt, ReceiptKey};
use enrich_lib::wire;
use http::HeaderMap;

const COMBINATIONS: usize = 1_296_000;

#[test]
fn reply_matches_specification() {
    for_every_combination(|combination, reply, _| {
        let expected = combination.expected();
        let permitted = check(&wire::response(reply)).unwrap_or_else(|e| panic!("{e}: {combination:?}"));
        assert_eq!(permitted.outcome(), expected.outcome, "{combination:?}");
        let is_shown = matches!(expected.outcome, "found" | "not_found" | "insufficient_credits");
        let is_shown = is_shown && combination.price == SHOWING && !combination.script.is_test;
        assert_eq!(reply.credits_available, is_shown.then_some(7), "{combination:?}");
        assert_eq!(permitted.request_id, "lookup_018bcfe5680077078707070707070707");
        let is_of_test = reply.workspace.is_some() && combination.script.is_test;
        assert_eq!(reply.is_test, is_of_test, "{combination:?}");
        let is_paid = reply.result.is_ok() && !combination.script.is_test;
        let paid_by = is_paid.then(|| combination.payer()).flatten();
        assert_eq!(permitted.paid_by, paid_by.map(|payer| payer.to_string()), "{combination:?}");
        assert!(permitted.profile.is_none_or(|url| url == "https://www.linkedin.com/in/ada-marlowe"));
        assert_eq!(permitted.rate_limit, combination.rate_limit(&expected), "{combination:?}");
    });
}

#[test]
fn calls_ports_up_to_first_failed_check() {
    for_every_combination(|combination, _, calls| {
        let called = combination.expected().ports_called;
        assert_eq!(calls, &combination.calls()[..called], "{combination:?}");
    });
}

/// Does not use the list, because a mistake here costs money.
#[test]
fn settles_each_granted_hold_exactly_once() {
    for_every_combination(|combination, reply, calls| {
        let holds = calls.iter().filter(|call| matches!(call, Call::Hold(_))).count();
        let settlements: Vec<_> = calls.iter().filter_map(settlement).collect();
        let granted = holds == 1 && combination.script.hold == Ok(HoldOutcome::Granted);
        let expected = granted.then(|| combination.settlement());
        assert_eq!(settlements, Vec::from_iter(expected), "{combination:?}");

        let is_paid = granted && combination.script.settle.is_ok() && combination.payer().is_none();
        let spent = if is_paid { combination.cost() } else { 0 };
        assert_eq!(reply.credits_spent, spent, "{combination:?}");
        assert!(reply.result.is_ok() || spent == 0, "an error is free: {combination:?}");
    });
}

/// The store may have charged it.
#[test]
fn lookup_that_the_store_names_as_its_own_payer_is_charged() {
    let policy = Policy::default().with_receipts(receipt_key());
    let script = Script { settle: Ok(Some(arrival().id)), ..Script::GOES_WELL };
    let mut request = Request::new(Some(api_key().digest()), Ok(r#"{"email":"ada@gmail.com"}"#.into()));
    request.idempotency_key = IdempotencyKey::parse(b"order-1");
    let (reply, _) = crate::scripted::answer(&Arc::new(policy), script, request);
    assert_eq!((reply.status(), reply.credits_spent, reply.paid_by), (200, 1, None));
}

/// It would charge the request again when it is repeated.
#[test]
fn store_without_receipts_accepts_no_idempotency_key() {
    let policy = Arc::new(Policy::default().with_receipts(receipt_key()));
    for (key, status) in [(None, 200), (Some(&b"order-1"[..]), 400)] {
        let script = Script { keeps_receipts: false, ..Script::GOES_WELL };
        let mut request = Request::new(Some(api_key().digest()), Ok(r#"{"email":"ada@gmail.com"}"#.into()));
        request.idempotency_key = key.and_then(IdempotencyKey::parse);
        let (reply, _) = crate::scripted::answer(&policy, script, request);
        assert_eq!((reply.status(), reply.credits_spent), (status, u64::from(status == 200)));
    }
}

fn for_every_combination(check: impl Fn(&Combination, &Reply, &[Call])) {
    let policies = PRICES.map(|price| {
        let mut policy = Policy::default();
        policy.price = price;
        policy.shows_credits = price == SHOWING;
        policy.hold_ttl = HOLD_TTL;
        policy.receipts = (price != WITHOUT_RECEIPTS).then(receipt_key);
        Arc::new(policy)
    });
    let mut count = 0;
    for combination in (0..).map_while(Combination::nth) {
        let policy = policies.iter().find(|policy| policy.price == combination.price).expect("a policy");
        let (reply, calls) = crate::scripted::answer(policy, combination.script, combination.request());
        check(&combination, &reply, &calls);
        count += 1;
    }
    assert_eq!(count, COMBINATIONS);
}

#[derive(Debug)]
struct Combination {
    authorization: Option<&'static str>,
    /// The content type and the idempotency key.
    headers: (Option<&'static str>, Option<&'static str>),
    body: Result<&'static str, BodyError>,
    email: EmailField,
    script: Script,
    price: Price,
}

/// `<key>` stands for the API key.
const AUTHORIZATIONS: [Option<&str>; 4] = [None, Some("Basic <key>"), Some("Bearer enr_0"), VALID_KEY];
const VALID_KEY: Option<&str> = Some("Bearer <key>");
const HEADERS: [(Option<&str>, Option<&str>); 5] = [
    (None, Some("order-1")),
    (Some("text/plain"), None),
    (JSON, None),
    (JSON, Some("\"order-1\"")),
    (JSON, Some("order 1")),
];
const JSON: Option<&str> = Some("application/json");
/// `<email>` stands for the field `email`, which may be missing.
const BODIES: [Result<&str, BodyError>; 8] = [
    OBJECT,
    Ok(r#"{<email>,"name":"Ada"}"#),
    Ok("{<email>}{<email>}"),
    Ok("[{<email>}]"),
    Ok("{<email>"),
    Err(BodyError::TooLarge),
    Err(BodyError::CutOff),
    Err(BodyError::TooSlow),
];
const OBJECT: Result<&str, BodyError> = Ok("{<email>}");

/// The field `email`, or nothing.
#[derive(Clone, Copy, Debug)]
struct EmailField {
    json: &'static str,
    is_valid: bool,
    is_supported: bool,
}

const EMAILS: [EmailField; 5] = [
    EmailField { json: r#""email":"ada@gmail.com""#, is_valid: true, is_supported: true },
    EmailField { json: "", is_valid: false, is_supported: true },
    EmailField { json: r#""email":7"#, is_valid: false, is_supported: true },
    EmailField { json: r#""email":"ada""#, is_valid: false, is_supported: true },
    EmailField { json: r#""email":"info@gmail.com""#, is_valid: true, is_supported: false },
];
/// Whether the key is known, and a test key.
const KEYS: [(Answer<bool>, bool); 4] =
    [(Ok(true), false), (Ok(true), true), (Ok(false), false), (Err(Fails), false)];
/// 0 is an invalid count, because a count includes the request itself.
const COUNTS: [Answer<u64>; 5] = [Ok(0), Ok(1), Ok(LIMIT), Ok(LIMIT + 1), Err(Fails)];
const HOLDS: [Answer<HoldOutcome>; 3] =
    [Ok(HoldOutcome::Granted), Ok(HoldOutcome::Insufficient(Shortage::Held)), Err(Fails)];
const PEOPLE: [Answer<bool>; 3] = [Ok(true), Ok(false), Err(Fails)];
const PRICES: [Price; 3] =
    [Price { found: 1, not_found: 0 }, Price { found: 1, not_found: 2 }, Price { found: 0, not_found: 0 }];

const HOLD_TTL: Duration = Duration::from_secs(7);

/// The policy with this price shows the available credits.
const SHOWING: Price = PRICES[1];

/// The policy with this price keeps no receipts.
const WITHOUT_RECEIPTS: Price = PRICES[2];

impl Combination {
    /// Returns the `n`-th combination, or `None` after the last.
    fn nth(n: usize) -> Option<Self> {
        let mut digits = Digits(n);
        let (key, is_test) = digits.pick(&KEYS);
        let combination = Self {
            authorization: digits.pick(&AUTHORIZATIONS),
            headers: digits.pick(&HEADERS),
            body: digits.pick(&BODIES),
            email: digits.pick(&EMAILS),
            script: Script {
                key,
                is_test,
                count: digits.pick(&COUNTS),
                hold: digits.pick(&HOLDS),
                person: digits.pick(&PEOPLE),
                settle: digits.pick(&[Ok(None), Ok(Some(payer())), Err(Fails)]),
                keeps_receipts: true,
            },
            price: digits.pick(&PRICES),
        };
        (digits.0 == 0).then_some(combination)
    }

    fn request(&self) -> Request {
        let mut headers = HeaderMap::new();
        let authorization = self.authorization.map(|value| value.replace("<key>", api_key().reveal()));
        if let Some(value) = authorization {
            headers.insert("authorization", value.parse().expect("a header"));
        }
        for (name, value) in [("content-type", self.headers.0), ("idempotency-key", self.headers.1)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().expect("a header"));
            }
        }
        let body = self.body.map(|body| match self.email.json {
            "" => body.replace("<email>,", "").replace("<email>", ""),
            email => body.replace("<email>", email),
        });
        wire::request(&headers, body.map(Into::into))
    }

    fn expected(&self) -> Expected {
        let Script { key, is_test, count, hold, person, settle, .. } = self.script;
        let conditions = Conditions {
            has_key: self.authorization == VALID_KEY,
            is_known: key.ok(),
            is_admitted: count.ok().filter(|count| *count > 0).map(|count| count <= LIMIT),
            is_body_valid: self.headers.0 == JSON && self.is_key_valid() && self.body == OBJECT,
            is_email_valid: self.email.is_valid,
            is_test,
            is_email_supported: self.email.is_supported,
            is_held: hold.ok().map(|outcome| outcome == HoldOutcome::Granted),
            is_found: person.ok(),
            is_settled: self.cost() == 0 || settle.is_ok(),
        };
        conditions.expected()
    }

    /// Returns whether there is no idempotency key, or a valid one and receipts.
    fn is_key_valid(&self) -> bool {
        let is_valid = |key| key != "order 1" && self.price != WITHOUT_RECEIPTS;
        self.headers.1.is_none_or(is_valid)
    }

    fn cost(&self) -> u64 {
        match self.script.person {
            Ok(true) => self.price.found,
            Ok(false) => self.price.not_found,
            Err(Fails) => 0,
        }
    }

    fn settlement(&self) -> Settlement {
        if self.cost() > 0 { Settlement::Spend(self.cost()) } else { Settlement::Release }
    }

    /// Returns the lookup that has paid for the result, if another one has. A store that names one for a hold without
    /// a receipt may have charged the lookup.
    fn payer(&self) -> Option<LookupId> {
        self.script.settle.ok().flatten().filter(|_| self.cost() > 0 && self.headers.1.is_some())
    }

    /// Returns the port calls of a request that passes every check.
    fn calls(&self) -> [Call; 5] {
        let credits = self.price.found.max(self.price.not_found);
        let mut hold = Hold::new(arrival().id, demo().id, credits);
        hold.key = api_key().digest().key_id();
        hold.ttl = HOLD_TTL;
        hold.receipt = self.headers.1.map(|_| receipt());
        [
            Call::FindKey(api_key().digest()),
            Call::Count(demo().with_test(self.script.is_test).window(arrival().now)),
            Call::Hold(hold.clone()),
            Call::FindPerson("ada@gmail.com".to_owned()),
            Call::Settle(hold, self.settlement()),
        ]
    }

    fn rate_limit(&self, expected: &Expected) -> Option<RateLimit> {
        let count = self.script.count.ok().filter(|count| *count > 0 && expected.ports_called > 1)?;
        let remaining = LIMIT.saturating_sub(count);
        Some(RateLimit { limit: LIMIT, remaining, reset_seconds: RESET_SECONDS })
    }
}

/// The time from the arrival to the end of the window, which is shifted by the CRC-32 of `demo`. Calculated
/// by hand.
const RESET_SECONDS: u64 = 54;

/// A number in a mixed radix: each digit has its own base.
struct Digits(usize);

impl Digits {
    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        let digit = self.0 % all.len();
        self.0 /= all.len();
        all[digit]
    }
}

fn receipt_key() -> ReceiptKey {
    ReceiptKey::new([7; 16])
}

/// The receipt of `order-1`.
fn receipt() -> Receipt {
    let (key, email) = (IdempotencyKey::parse(b"order-1"), Email::parse("ada@gmail.com"));
    receipt_key().receipt(&demo().id, &key.expect("a key"), &email.expect("an email"))
}

fn settlement(call: &Call) -> Option<Settlement> {
    if let Call::Settle(_, settlement) = call { Some(*settlement) } else { None }
}
