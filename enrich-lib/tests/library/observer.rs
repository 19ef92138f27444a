//! The events that an observer receives.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::panic_any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::scripted::{
    Call, Fails, Interruption, LIMIT, Ports, SOURCE, Script, answer_with, api_key, arrival, demo,
};
use enrich_lib::body::BodyError;
use enrich_lib::credit::{HoldOutcome, Settlement, Shortage};
use enrich_lib::email::EmailError;
use enrich_lib::key::{KeyDigest, KeyId};
use enrich_lib::lookup::{Lookup, Policy, Reply, Request};
use enrich_lib::model::{LookupId, ProfileUrl, WorkspaceId};
use enrich_lib::observe::{Durations, Ending, LookupEvent, Observer, Step};
use enrich_lib::refusal::Refusal;

const ADA: &str = r#"{"email":"ada.marlowe@gmail.com"}"#;
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: Script = Script::GOES_WELL;

#[test]
fn emits_one_event_per_lookup_with_step_and_timings() {
    use Ending::{Found, NotFound, Refused};
    use Refusal::*;
    let exhausted = Shortage::Exhausted;
    let no_credits = Script { hold: Ok(HoldOutcome::Insufficient(exhausted)), ..GOOD };
    let both_fail = Script { person: Err(Fails), settle: Err(Fails), ..GOOD };
    // The body, the results of the ports, the ending with its step, and the number of ports that were called.
    for (body, script, ending, step, ports) in [
        (ADA, GOOD, Found, Step::Settle, 5),
        (ADA, Script { person: Ok(false), ..GOOD }, NotFound, Step::Settle, 5),
        (ADA, Script { settle: Err(Fails), ..GOOD }, Refused(ServerError), Step::Settle, 5),
        (ADA, Script { person: Err(Fails), ..GOOD }, Refused(LookupError), Step::Resolve, 5),
        (ADA, both_fail, Refused(LookupError), Step::Resolve, 5),
        (ADA, Script { hold: Err(Fails), ..GOOD }, Refused(ServerError), Step::Fund, 3),
        (ADA, no_credits, Refused(InsufficientCredits(exhausted)), Step::Fund, 3),
        ("{", GOOD, Refused(InvalidRequest(BodyError::Json)), Step::Validate, 2),
        ("{}", GOOD, Refused(InvalidEmail(EmailError::Missing)), Step::Validate, 2),
        (ADA, Script { count: Ok(LIMIT + 1), ..GOOD }, Refused(RateLimited), Step::Admit, 2),
        (ADA, Script { count: Err(Fails), ..GOOD }, Refused(RateLimitUnavailable), Step::Admit, 2),
        (ADA, Script { key: Err(Fails), ..GOOD }, Refused(ServerError), Step::Identify, 1),
        (ADA, Script { key: Ok(false), ..GOOD }, Refused(Unauthorized), Step::Identify, 1),
    ] {
        let event = event(Ports::new(script), Some(api_key().digest()), body);
        assert_eq!((event.ending, event.step), (ending, step));
        assert_eq!(event.durations, in_ms(&[1, 2, 4, 8, 16][..ports]), "{ending:?}");
        let credits_spent = u64::from(ending == Found);
        assert_eq!((event.lookup_id, event.credits_spent), (arrival().id, credits_spent), "{ending:?}");
        assert_eq!(event.client, Some(CLIENT), "{ending:?}");
        let is_identified = step > Step::Identify;
        assert_eq!(event.workspace, is_identified.then(|| demo().id), "{ending:?}");
        assert_eq!(event.key, is_identified.then(|| api_key().digest().key_id()), "{ending:?}");
        let is_match = step == Step::Settle && script.person == Ok(true);
        let source = is_match.then(|| SOURCE.to_owned());
        assert_eq!((event.is_cached, event.source), (is_match, source), "{ending:?}");
        let Script { key, count, hold, person, settle, .. } = script;
        let failed =
            [key.is_err(), count.is_err(), hold.is_err(), person.is_err(), settle.is_err()].contains(&true);
        assert_eq!(event.error.is_some(), failed, "{ending:?}");
    }
}

#[test]
fn emits_event_for_request_without_key() {
    let event = event(Ports::new(GOOD), None, ADA);
    assert_eq!((event.ending, event.step), (Ending::Refused(Refusal::Unauthorized), Step::Receive));
    assert_eq!(event.durations, Durations::default());
}

#[test]
fn port_that_panics_has_failed() {
    for (step, fails) in [
        (Step::Identify, Script { key: Err(Fails), ..GOOD }),
        (Step::Admit, Script { count: Err(Fails), ..GOOD }),
        (Step::Fund, Script { hold: Err(Fails), ..GOOD }),
        (Step::Resolve, Script { person: Err(Fails), ..GOOD }),
        (Step::Settle, Script { settle: Err(Fails), ..GOOD }),
    ] {
        let [failed, panicked] = [Ports::new(fails), interrupted(step, Interruption::Panics)]
            .map(|ports| event(ports, Some(api_key().digest()), ADA));
        assert_eq!((panicked.ending, panicked.step), (failed.ending, failed.step));
        assert_eq!(panicked.workspace, failed.workspace, "{step:?}");
        assert_eq!(panicked.error.as_deref(), Some("the port panicked"), "{step:?}");
    }
}

#[test]
fn emits_one_event_with_step_when_lookup_is_dropped() {
    let event = event(interrupted(Step::Resolve, Interruption::Hangs), Some(api_key().digest()), ADA);
    assert_eq!((event.ending, event.step), (Ending::Abandoned, Step::Resolve));
    assert_eq!(event.durations, in_ms(&[1, 2, 4]));
}

#[test]
fn observer_panic_changes_neither_reply_nor_settlement() {
    let scripted = |script| move || Ports::new(script);
    let (hangs, panics) = (Interruption::Hangs, Interruption::Panics);
    let table: [(&str, &dyn Fn() -> Ports, _, _); 8] = [
        (ADA, &scripted(GOOD), Some(200), Some(Settlement::Spend(1))),
        (ADA, &scripted(Script { person: Ok(false), ..GOOD }), Some(404), Some(Settlement::Release)),
        (ADA, &scripted(Script { person: Err(Fails), ..GOOD }), Some(502), Some(Settlement::Release)),
        (ADA, &scripted(Script { settle: Err(Fails), ..GOOD }), Some(500), Some(Settlement::Spend(1))),
        ("{", &scripted(GOOD), Some(400), None),
        (ADA, &scripted(Script { key: Ok(false), ..GOOD }), Some(401), None),
        (ADA, &|| interrupted(Step::Resolve, panics), Some(502), Some(Settlement::Release)),
        // The observer then panics while the lookup is dropped.
        (ADA, &|| interrupted(Step::Resolve, hangs), None, None),
    ];
    for (body, ports, status, settlement) in table {
        for method in [Method::Now, Method::TimesPorts, Method::Ended] {
            let ports = Arc::new(ports());
            let request = Request::new(Some(api_key().digest()), Ok(body.into()));
            let both = (PanicsIn(method), Ticking::default());
            let reply = ports.poll_once(&Arc::new(Policy::default()), request, &both);
            assert!(
                both.1.durations.into_inner().expect("no panic").is_some(),
                "{method:?}: the other observer"
            );
            let settled = ports.calls().into_iter().filter_map(|call| match call {
                Call::Settle(_, settlement) => Some(settlement),
                _ => None,
            });
            assert_eq!(reply.map(|reply| reply.status()), status, "{method:?}");
            assert_eq!(settled.collect::<Vec<_>>(), Vec::from_iter(settlement), "{method:?}");
        }
    }
}

/// An observer whose clock advances by 1 ms with each reading.
#[derive(Default)]
struct Ticking {
    times_ports: bool,
    readings: AtomicU64,
    durations: Mutex<Option<Durations>>,
}

impl Observer for Ticking {
    fn now(&self) -> Duration {
        Duration::from_millis(self.readings.fetch_add(1, Ordering::Relaxed))
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        *self.durations.lock().expect("no panic") = Some(event.durations);
    }

    fn times_ports(&self, _: Duration) -> bool {
        self.times_ports
    }
}

/// The total ends with the last check or port call.
#[test]
fn reads_clock_once_per_port_and_at_both_ends() {
    let key = Some(api_key().digest());
    for (times_ports, key, body, ports, total_ms) in [
        (true, key, ADA, &[1; 5][..], 5),
        (true, key, "{", &[1; 2], 3),
        (true, None, ADA, &[], 1),
        (false, key, ADA, &[], 1),
        (false, key, "{", &[], 1),
    ] {
        let ticking = Ticking { times_ports, ..Ticking::default() };
        let both = (ticking, ());
        let request = Request::new(key, Ok(body.into()));
        answer_with(&Arc::new(Policy::default()), GOOD, request, &both);
        let mut durations = in_ms(ports);
        durations.total = Duration::from_millis(total_ms);
        assert_eq!(both.0.durations.into_inner().unwrap(), Some(durations), "{times_ports} {key:?} {body}");
    }
}

/// A method of [`Observer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Now,
    TimesPorts,
    Ended,
}

/// An observer that panics whenever this method is called.
struct PanicsIn(Method);

impl PanicsIn {
    fn call(&self, method: Method) {
        if self.0 == method {
            panic_any(PanicsOnDrop);
        }
    }
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("the payload panics, too");
    }
}

impl Observer for PanicsIn {
    fn now(&self) -> Duration {
        self.call(Method::Now);
        Duration::ZERO
    }

    fn times_ports(&self, _: Duration) -> bool {
        self.call(Method::TimesPorts);
        true
    }

    fn finished(&self, _: &LookupEvent<'_>) {
        self.call(Method::Ended);
    }
}

/// An owned copy of [`LookupEvent`].
struct RecordedEvent {
    lookup_id: LookupId,
    client: Option<IpAddr>,
    workspace: Option<WorkspaceId>,
    key: Option<KeyId>,
    source: Option<String>,
    is_cached: bool,
    ending: Ending,
    step: Step,
    credits_spent: u64,
    durations: Durations,
    error: Option<String>,
}

/// The events of lookups with these ports, and the ports' clock.
struct Notes {
    ports: Arc<Ports>,
    events: Mutex<Vec<RecordedEvent>>,
}

impl Observer for Notes {
    fn now(&self) -> Duration {
        self.ports.now()
    }

    fn finished(&self, lookup: &LookupEvent<'_>) {
        for secret in ["ada", "gmail", "linkedin", "192.0.2.7", &*api_key().reveal().to_string()] {
            assert!(!format!("{lookup:?}").contains(secret), "{lookup:?}");
        }
        self.events.lock().expect("nothing panics while it is locked").push(RecordedEvent {
            lookup_id: lookup.lookup_id,
            client: lookup.context.and_then(|context| context.client),
            workspace: lookup.workspace.cloned(),
            key: lookup.key,
            source: lookup.source.map(|source| source.as_str().to_owned()),
            is_cached: lookup.is_cached,
            ending: lookup.ending,
            step: lookup.step,
            credits_spent: lookup.credits_spent,
            durations: lookup.durations,
            error: lookup.error.map(ToString::to_string),
        });
    }
}

/// Returns the only event of one lookup.
fn event(ports: Ports, key: Option<KeyDigest>, body: &'static str) -> RecordedEvent {
    let ports = Arc::new(ports);
    let notes = || Notes { ports: ports.clone(), events: Mutex::default() };
    let both = (notes(), Arc::new(notes()));
    let request = Request::new(key, Ok(body.into())).from_client(CLIENT);
    ports.poll_once(&Arc::new(Policy::default()), request, &both);
    let (notes, other) = both;
    assert_eq!(other.events.lock().expect("no panic").len(), 1);
    let events = notes.events.into_inner().expect("nothing panics while it is locked");
    let [event] = <[RecordedEvent; 1]>::try_from(events).map_err(|events| events.len()).expect("one event");
    event
}

/// Returns ports that succeed until this step, which is interrupted.
fn interrupted(step: Step, interruption: Interruption) -> Ports {
    let mut ports = Ports::new(GOOD);
    ports.interruption = Some((step, interruption));
    ports
}

/// Returns the given durations of the first ports and their sum.
fn in_ms(ports: &[u64]) -> Durations {
    let mut durations = Durations::default();
    durations.total = Duration::from_millis(ports.iter().sum());
    let Durations { keys, windows, hold, resolver, settle, .. } = &mut durations;
    for (port, ms) in [keys, windows, hold, resolver, settle].into_iter().zip(ports) {
        *port = Some(Duration::from_millis(*ms));
    }
    durations
}

#[test]
fn no_state_of_a_lookup_shows_the_person() {
    fn hides<T: Debug>(state: T) -> T {
        let shown = format!("{state:?}");
        assert!(
            !["ada", "gmail", "linkedin", "192.0.2.7"].iter().any(|secret| shown.contains(secret)),
            "{shown}"
        );
        state
    }
    let policy = Policy::default();
    let walk = |request| {
        let lookup = hides(Lookup::receive(&policy, arrival(), request)?);
        let lookup = hides(lookup.identify(Ok(Some(demo())))?);
        let lookup = hides(lookup.admit(Ok(1))?);
        let lookup = hides(lookup.validate()?);
        let lookup = hides(lookup.fund(Ok(HoldOutcome::Granted))?);
        let lookup = hides(lookup.resolve(Ok(ProfileUrl::from_name("ada-marlowe").unwrap().into())));
        Ok::<_, Reply>(hides(lookup.settle(Ok(None))))
    };
    let request = Request::new(Some(api_key().digest()), Ok(ADA.into())).from_client(CLIENT);
    assert_eq!(walk(hides(request)).unwrap().status(), 200);
}
