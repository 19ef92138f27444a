//! Fuzzing of one lookup with scripted ports.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use enrich_contract::order::Conditions;
use enrich_contract::reply;
use enrich_lib::body::{self, Body, BodyError};
use enrich_lib::credit::{Hold, HoldOutcome, Price, Settlement, Shortage};
use enrich_lib::drive::Service;
use enrich_lib::email::{Email, EmailPolicy};
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::lookup::{Policy, Reply, Request};
use enrich_lib::model::{Arrival, LookupId, ProfileUrl, Timestamp};
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Quota, Window, Workspace};
use enrich_lib::wire;

/// Reads `data` as a `Script` and a body, runs the lookup, and checks the port calls and the reply.
pub fn lookup(mut data: &[u8]) {
    let script = Script::read(&mut data);
    let body = script.body(data);
    let policy = Arc::new(script.policy());
    let expected = script.conditions(&body, &policy.emails).expected();

    let (reply, calls) = script.run(policy, body);
    let permitted =
        reply::check(&wire::response(&reply)).unwrap_or_else(|error| panic!("{error}: {script:?}"));
    assert_eq!(permitted.outcome(), expected.outcome, "{script:?}");
    assert_eq!(permitted.rule.status, reply.status(), "{script:?}");
    // The calls that follow those of keys and windows.
    assert_eq!(calls.len(), expected.ports_called.saturating_sub(2), "{script:?}");
    check_credits(&script, &reply, &calls);
    assert!(reply.credits_spent == 0 || permitted.is_result(), "{permitted:?}");
    check_rate_limit(&script, &permitted);
    let is_unidentified = reply.status() == 401 || script.is_known == ScriptedResult::Fails;
    assert_eq!(reply.workspace.is_none(), is_unidentified);
}

/// The results of the ports and all other inputs of the chain.
#[derive(Clone, Copy, Debug)]
struct Script {
    has_key: ScriptedResult,
    has_body: ScriptedResult,
    is_known: ScriptedResult,
    is_counted: ScriptedResult,
    is_held: ScriptedResult,
    is_found: ScriptedResult,
    is_settled: ScriptedResult,
    has_allow_list: ScriptedResult,
    count: u64,
    now_ms: u64,
    price: Price,
    quota: Quota,
    hold_ttl_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptedResult {
    Yes,
    No,
    Fails,
}

impl ScriptedResult {
    /// Returns the result of a port that does not fail.
    fn ok(self) -> Option<bool> {
        (self != Self::Fails).then_some(self == Self::Yes)
    }
}

/// A call of a port that follows rate limiting.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    Hold(Hold),
    Find,
    Settle(Hold, Settlement),
}

impl Script {
    /// Reads the script from the start of `data`, in the order of the fields: eight results of one byte each,
    /// then little-endian numbers of eight bytes. Missing bytes are 0.
    fn read(data: &mut &[u8]) -> Self {
        let results = take::<8>(data).map(|byte| match byte % 4 {
            1 => ScriptedResult::Fails, // `!` in the seeds
            3 => ScriptedResult::No,    // `?` in the seeds
            _ => ScriptedResult::Yes,   // `.` in the seeds
        });
        let [has_key, has_body, is_known, is_counted, is_held, is_found, is_settled, has_allow_list] =
            results;
        let [count, now_ms, found, not_found, limit, window_seconds, hold_ttl_ms] =
            std::array::from_fn(|_| u64::from_le_bytes(take(data)));
        let window_seconds = window_seconds % u64::from(Quota::WINDOW_SECONDS_MAX) + 1;
        let quota = Quota::new((limit as u32).max(1), window_seconds as u32).expect("both are in range");
        Self {
            has_key,
            has_body,
            is_known,
            is_counted,
            is_held,
            is_found,
            is_settled,
            has_allow_list,
            count,
            now_ms,
            price: Price { found, not_found },
            quota,
            hold_ttl_ms,
        }
    }

    fn body(&self, data: &[u8]) -> Body {
        match self.has_body {
            ScriptedResult::Yes => Ok(data.to_vec().into()),
            ScriptedResult::No => Err(BodyError::TooSlow),
            ScriptedResult::Fails => Err(BodyError::CutOff),
        }
    }

    fn policy(&self) -> Policy {
        let allowed = (self.has_allow_list == ScriptedResult::No).then(|| ["gmail.com".to_owned()].into());
        let mut emails = EmailPolicy::default();
        emails.providers_allowed = allowed;
        let hold_ttl = Duration::from_millis(self.hold_ttl_ms);
        Policy::default().with_price(self.price).with_hold_ttl(hold_ttl).with_emails(emails)
    }

    fn conditions(&self, body: &Body, emails: &EmailPolicy) -> Conditions {
        let field = body.as_ref().ok().and_then(|bytes| body::read(bytes).ok());
        let email = field.as_ref().and_then(|text| Email::parse(text.as_deref()?).ok());
        let limit = u64::from(self.quota.limit());
        let cost = match self.is_found {
            ScriptedResult::Yes => self.price.found,
            ScriptedResult::No => self.price.not_found,
            ScriptedResult::Fails => 0,
        };
        Conditions {
            has_key: self.has_key == ScriptedResult::Yes,
            is_known: self.is_known.ok(),
            is_admitted: (self.is_counted == ScriptedResult::Yes && self.count > 0)
                .then_some(self.count <= limit),
            is_body_valid: field.is_some(),
            is_email_valid: email.is_some(),
            is_test: false,
            is_email_supported: email.is_some_and(|email| emails.check(&email).is_ok()),
            is_held: self.is_held.ok(),
            is_found: self.is_found.ok(),
            is_settled: cost == 0 || self.is_settled == ScriptedResult::Yes,
        }
    }

    fn run(&self, policy: Arc<Policy>, body: Body) -> (Reply, Vec<Call>) {
        let port = Arc::new(ScriptedPorts { script: *self, calls: Mutex::default() });
        let mut service = Service::new(port.clone(), port.clone(), port.clone(), port.clone());
        service.policy = policy;
        let arrival = Arrival::new(Timestamp::from_unix_ms(self.now_ms), [7; 10]);
        let key = (self.has_key == ScriptedResult::Yes).then(|| ApiKey::generate(|| 7).digest());
        let reply = futures_executor::block_on(service.answer(arrival, Request::new(key, body)));
        (reply, port.take_calls())
    }
}

fn take<const N: usize>(data: &mut &[u8]) -> [u8; N] {
    let (taken, rest) = data.split_at(data.len().min(N));
    *data = rest;
    std::array::from_fn(|i| taken.get(i).copied().unwrap_or(0))
}

/// Checks that no port is called twice or after a refusal, that each granted hold is settled exactly once,
/// and that no spend exceeds its hold.
fn check_credits(script: &Script, reply: &Reply, calls: &[Call]) {
    let spent = match calls {
        [] => 0,
        [Call::Hold(_)] => {
            assert_ne!(script.is_held, ScriptedResult::Yes, "a granted hold was not settled");
            0
        }
        [Call::Hold(hold), Call::Find, Call::Settle(settled, settlement)] => {
            assert_eq!(script.is_held, ScriptedResult::Yes);
            assert_eq!(hold, settled);
            assert_eq!(hold.credits, script.price.found.max(script.price.not_found));
            assert!(hold.lookup_id == reply.lookup_id);
            match settlement {
                Settlement::Spend(credits) => {
                    assert!((1..=hold.credits).contains(credits), "{credits} of {}", hold.credits);
                    assert_ne!(script.is_found, ScriptedResult::Fails, "an error is not charged");
                    if script.is_settled == ScriptedResult::Yes { *credits } else { 0 }
                }
                Settlement::Release => 0,
            }
        }
        _ => panic!("unexpected port calls: {calls:?}"),
    };
    assert_eq!(reply.credits_spent, spent);
}

fn check_rate_limit(script: &Script, permitted: &reply::Reply) {
    if let Some(rate_limit) = permitted.rate_limit {
        assert_eq!(rate_limit.limit, u64::from(script.quota.limit()));
        assert!(rate_limit.reset_seconds <= u64::from(script.quota.window_seconds()));
    }
}

/// All four ports, with the results of the script.
struct ScriptedPorts {
    script: Script,
    calls: Mutex<Vec<Call>>,
}

impl ScriptedPorts {
    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls())
    }
}

fn scripted<T>(result: ScriptedResult, yes: T, no: Result<T, PortError>) -> Result<T, PortError> {
    match result {
        ScriptedResult::Yes => Ok(yes),
        ScriptedResult::No => no,
        ScriptedResult::Fails => Err(failure()),
    }
}

fn failure() -> PortError {
    PortError::new("scripted failure")
}

#[async_trait]
impl Keys for ScriptedPorts {
    async fn find(&self, _: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        let id = "demo".parse().expect("a name");
        scripted(self.script.is_known, Some(Workspace::new(id, self.script.quota)), Ok(None))
    }
}

#[async_trait]
impl Windows for ScriptedPorts {
    async fn count(&self, _: &Window) -> Result<u64, PortError> {
        scripted(self.script.is_counted, self.script.count, Err(failure()))
    }
}

#[async_trait]
impl Credits for ScriptedPorts {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.calls().push(Call::Hold(hold.clone()));
        scripted(
            self.script.is_held,
            HoldOutcome::Granted,
            Ok(HoldOutcome::Insufficient(Shortage::Exhausted)),
        )
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        self.calls().push(Call::Settle(hold.clone(), settlement));
        scripted(self.script.is_settled, None, Err(failure()))
    }
}

#[async_trait]
impl Resolver for ScriptedPorts {
    async fn find(&self, _: &Query) -> Result<Answer, PortError> {
        self.calls().push(Call::Find);
        scripted(
            self.script.is_found,
            ProfileUrl::from_name("ada-marlowe").expect("a name").into(),
            Ok(Answer::default()),
        )
    }
}
