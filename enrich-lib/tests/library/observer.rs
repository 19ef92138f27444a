//! The events that an observer receives.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::body::BodyError;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::drive::Service;
use enrich_lib::email::EmailError;
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::lookup::Request;
use enrich_lib::model::{Arrival, LookupId, ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::observe::{Durations, Ending, LookupEvent, Observer, Step};
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::{PortError, Refusal};
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Quota, Window, Workspace};

/// The behaviour of a port, and its duration in milliseconds.
#[derive(Clone, Copy)]
enum Port<T> {
    Answers(T, u64),
    Fails(u64),
    Panics,
    Hangs,
}

use Port::{Answers, Fails, Hangs, Panics};

#[derive(Clone, Copy)]
struct World {
    body: &'static str,
    is_known: Port<bool>,
    count: Port<u64>,
    hold: Port<HoldOutcome>,
    is_found: Port<bool>,
    settle: Port<()>,
}

const GOOD: World = World {
    body: r#"{"email":"ada.marlowe@gmail.com"}"#,
    is_known: Answers(true, 1),
    count: Answers(1, 2),
    hold: Answers(HoldOutcome::Granted, 4),
    is_found: Answers(true, 8),
    settle: Answers((), 16),
};

#[test]
fn emits_one_event_per_lookup_with_step_and_timings() {
    use Ending::{Found, NotFound, Refused};
    use Refusal::*;
    let all = [Some(1), Some(2), Some(4), Some(8), Some(16)];
    let to_hold = [Some(1), Some(2), Some(4), None, None];
    let to_windows = [Some(1), Some(2), None, None, None];
    let to_keys = [Some(1), None, None, None, None];
    let table = [
        (GOOD, Found, Step::Settle, all, 1),
        (World { is_found: Answers(false, 8), ..GOOD }, NotFound, Step::Settle, all, 0),
        (World { settle: Fails(16), ..GOOD }, Refused(ServerError), Step::Settle, all, 0),
        (World { is_found: Fails(8), ..GOOD }, Refused(LookupError), Step::Resolve, all, 0),
        (
            World { is_found: Fails(8), settle: Fails(16), ..GOOD },
            Refused(LookupError),
            Step::Resolve,
            all,
            0,
        ),
        (World { hold: Fails(4), ..GOOD }, Refused(ServerError), Step::Fund, to_hold, 0),
        (
            World { hold: Answers(HoldOutcome::Insufficient, 4), ..GOOD },
            Refused(InsufficientCredits),
            Step::Fund,
            to_hold,
            0,
        ),
        (
            World { body: "{", ..GOOD },
            Refused(InvalidRequest(BodyError::Json)),
            Step::Validate,
            to_windows,
            0,
        ),
        (
            World { body: "{}", ..GOOD },
            Refused(InvalidEmail(EmailError::Missing)),
            Step::Validate,
            to_windows,
            0,
        ),
        (World { count: Answers(501, 2), ..GOOD }, Refused(RateLimited), Step::Admit, to_windows, 0),
        (World { count: Fails(2), ..GOOD }, Refused(RateLimitUnavailable), Step::Admit, to_windows, 0),
        (World { is_known: Fails(1), ..GOOD }, Refused(ServerError), Step::Identify, to_keys, 0),
        (World { is_known: Answers(false, 1), ..GOOD }, Refused(Unauthorized), Step::Identify, to_keys, 0),
    ];
    for (world, ending, step, durations, credits_spent) in table {
        let event = one(world.events(Some(api_key().digest())));
        assert_eq!((event.ending, event.step), (ending, step));
        assert_eq!(event.durations, in_ms(durations), "{ending:?}");
        assert_eq!((event.lookup_id, event.credits_spent), (arrival().id, credits_spent), "{ending:?}");
        assert_eq!(event.workspace, (step > Step::Identify).then(|| demo().id), "{ending:?}");
        let failed = [
            world.settle.fails(),
            world.is_found.fails(),
            world.hold.fails(),
            world.count.fails(),
            world.is_known.fails(),
        ];
        assert_eq!(event.error.is_some(), failed.contains(&true), "{ending:?}");
    }
}

#[test]
fn emits_event_for_request_without_key() {
    let event = one(GOOD.events(None));
    assert_eq!((event.ending, event.step), (Ending::Refused(Refusal::Unauthorized), Step::Receive));
    assert_eq!(event.durations, Durations::default());
}

#[test]
fn emits_one_event_with_step_when_port_panics() {
    let panics: [(World, Step); 5] = [
        (World { is_known: Panics, ..GOOD }, Step::Identify),
        (World { count: Panics, ..GOOD }, Step::Admit),
        (World { hold: Panics, ..GOOD }, Step::Fund),
        (World { is_found: Panics, ..GOOD }, Step::Resolve),
        (World { settle: Panics, ..GOOD }, Step::Settle),
    ];
    for (world, step) in panics {
        let event = one(world.events(Some(api_key().digest())));
        assert_eq!((event.ending, event.step), (Ending::Panicked, step));
        assert_eq!(event.ending.status(), None);
    }
}

#[test]
fn emits_one_event_with_step_when_lookup_is_dropped() {
    let event = one(World { is_found: Hangs, ..GOOD }.events(Some(api_key().digest())));
    assert_eq!((event.ending, event.step), (Ending::Abandoned, Step::Resolve));
    assert_eq!(event.durations, in_ms([Some(1), Some(2), Some(4), None, None]));
}

#[test]
fn observer_panic_changes_neither_reply_nor_settlement() {
    let table = [
        (GOOD, Some(200), Some(Settlement::Spend(1))),
        (World { is_found: Answers(false, 8), ..GOOD }, Some(404), Some(Settlement::Release)),
        (World { is_found: Fails(8), ..GOOD }, Some(502), Some(Settlement::Release)),
        (World { settle: Fails(16), ..GOOD }, Some(500), Some(Settlement::Spend(1))),
        (World { body: "{", ..GOOD }, Some(400), None),
        (World { is_known: Answers(false, 1), ..GOOD }, Some(401), None),
        // The observer then panics while the lookup is dropped, in the second case during unwinding.
        (World { is_found: Hangs, ..GOOD }, None, None),
        (World { is_found: Panics, ..GOOD }, None, None),
    ];
    for (world, status, settlement) in table {
        for method in [Method::Now, Method::TimesPorts, Method::Ended] {
            let (replied, settled) = world.observed_by(&PanicsIn(method));
            assert_eq!((replied, settled), (status, settlement), "{method:?}");
        }
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
        assert_ne!(self.0, method, "the observer panics");
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
    workspace: Option<WorkspaceId>,
    ending: Ending,
    step: Step,
    credits_spent: u64,
    durations: Durations,
    error: Option<String>,
}

/// A clock that only ports advance, and the events received.
#[derive(Default)]
struct Notes {
    ms: AtomicU64,
    events: Mutex<Vec<RecordedEvent>>,
}

impl Observer for Notes {
    fn now(&self) -> Duration {
        Duration::from_millis(self.ms.load(Ordering::Relaxed))
    }

    fn finished(&self, lookup: &LookupEvent<'_>) {
        for secret in ["ada", "gmail", "linkedin", &*api_key().reveal().to_string()] {
            assert!(!format!("{lookup:?}").contains(secret), "{lookup:?}");
        }
        self.events.lock().expect("nothing panics while it is locked").push(RecordedEvent {
            lookup_id: lookup.lookup_id,
            workspace: lookup.workspace.cloned(),
            ending: lookup.ending,
            step: lookup.step,
            credits_spent: lookup.credits_spent,
            durations: lookup.durations,
            error: lookup.error.map(ToString::to_string),
        });
    }
}

impl World {
    /// Returns the events of one lookup.
    fn events(self, key: Option<KeyDigest>) -> Vec<RecordedEvent> {
        let notes = Arc::new(Notes::default());
        let ports = Arc::new(Ports { world: self, notes: notes.clone(), settled: Mutex::default() });
        ports.poll_once(key, &*notes);
        std::mem::take(&mut notes.events.lock().expect("nothing panics while it is locked"))
    }

    /// Returns the status of the reply and the requested settlement, if any.
    fn observed_by(self, observer: &impl Observer) -> (Option<u16>, Option<Settlement>) {
        let notes = Arc::default();
        let ports = Arc::new(Ports { world: self, notes, settled: Mutex::default() });
        let status = ports.poll_once(Some(api_key().digest()), observer);
        let settled = ports.settled.lock().expect("nothing panics while it is locked");
        (status, *settled)
    }
}

struct Ports {
    world: World,
    notes: Arc<Notes>,
    settled: Mutex<Option<Settlement>>,
}

impl Ports {
    /// Polls one lookup once, so that a port that hangs leaves it incomplete. Returns the status of the
    /// reply.
    fn poll_once(self: &Arc<Self>, key: Option<KeyDigest>, observer: &impl Observer) -> Option<u16> {
        let service = Service::new(self.clone(), self.clone(), self.clone(), self.clone());
        let request = Request::new(key, Ok(self.world.body.into()));
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let lookup = pin!(service.answer_with(arrival(), request, observer));
            lookup.poll(&mut Context::from_waker(Waker::noop()))
        }));
        match polled {
            Ok(Poll::Ready(reply)) => Some(reply.status()),
            Ok(Poll::Pending) | Err(_) => None,
        }
    }
}

impl<T> Port<T> {
    fn fails(&self) -> bool {
        matches!(self, Fails(_))
    }

    async fn answer(self, notes: &Notes) -> Result<T, PortError> {
        let (Answers(_, ms) | Fails(ms)) = self else {
            return match self {
                Panics => panic!("a port does"),
                _ => pending().await,
            };
        };
        notes.ms.fetch_add(ms, Ordering::Relaxed);
        match self {
            Answers(answer, _) => Ok(answer),
            _ => Err(PortError::new("scripted failure")),
        }
    }
}

#[async_trait]
impl Keys for Ports {
    async fn find(&self, _: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        self.world.is_known.answer(&self.notes).await.map(|is_known| is_known.then(demo))
    }
}

#[async_trait]
impl Windows for Ports {
    async fn count(&self, _: &Window) -> Result<u64, PortError> {
        self.world.count.answer(&self.notes).await
    }
}

#[async_trait]
impl Credits for Ports {
    async fn hold(&self, _: &Hold) -> Result<HoldOutcome, PortError> {
        self.world.hold.answer(&self.notes).await
    }

    async fn settle(&self, _: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let settled = self.settled.lock().expect("nothing panics while it is locked").replace(settlement);
        assert_eq!(settled, None, "settled twice");
        self.world.settle.answer(&self.notes).await
    }
}

#[async_trait]
impl Resolver for Ports {
    async fn find(&self, _: &Query) -> Result<Answer, PortError> {
        let ada = || ProfileUrl::from_name("ada-marlowe").expect("a name");
        self.world.is_found.answer(&self.notes).await.map(|is_found| is_found.then(ada).into())
    }
}

fn api_key() -> ApiKey {
    ApiKey::generate(|| 7)
}

fn demo() -> Workspace {
    Workspace::new("demo".parse().expect("a name"), Quota::default())
}

fn arrival() -> Arrival {
    Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), [7; 10])
}

fn one(event: Vec<RecordedEvent>) -> RecordedEvent {
    let [event] = <[RecordedEvent; 1]>::try_from(event).map_err(|event| event.len()).expect("one event");
    event
}

/// Returns the given durations of the ports and their sum.
fn in_ms(ports: [Option<u64>; 5]) -> Durations {
    let mut durations = Durations::default();
    durations.total = Duration::from_millis(ports.iter().flatten().sum());
    let Durations { keys, windows, hold, resolver, settle, .. } = &mut durations;
    [*keys, *windows, *hold, *resolver, *settle] = ports.map(|ms| ms.map(Duration::from_millis));
    durations
}
