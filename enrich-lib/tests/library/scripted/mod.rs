//! Ports that return scripted results, take a scripted time and record their calls.

use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::drive::Service;
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::lookup::{Policy, Reply, Request};
use enrich_lib::model::{Arrival, LookupId, ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::observe::{Observer, Step};
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver;
use enrich_lib::window::{Quota, Window, Workspace};

/// The result of each port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// `true` if the key belongs to a workspace.
    pub(crate) key: Answer<bool>,
    pub(crate) is_test: bool,
    pub(crate) count: Answer<u64>,
    pub(crate) hold: Answer<HoldOutcome>,
    /// `true` if the person is found.
    pub(crate) person: Answer<bool>,
    /// The other lookup that has paid.
    pub(crate) settle: Answer<Option<LookupId>>,
    pub(crate) keeps_receipts: bool,
}

impl Script {
    /// Every port succeeds, and the person is found.
    pub(crate) const GOES_WELL: Self = Self {
        key: Ok(true),
        is_test: false,
        count: Ok(1),
        hold: Ok(HoldOutcome::Granted),
        person: Ok(true),
        settle: Ok(None),
        keeps_receipts: true,
    };
}

pub(crate) type Answer<T> = Result<T, Fails>;

/// A port failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fails;

/// One call of a port, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    FindKey(KeyDigest),
    Count(Window),
    Hold(Hold),
    FindPerson(String),
    Settle(Hold, Settlement),
}

/// The burst limit of [`demo`].
pub(crate) const LIMIT: u64 = 5;

/// The source of the profile.
pub(crate) const SOURCE: &str = "crm";

/// Returns the reply to `request` and the port calls that led to it.
pub(crate) fn answer(policy: &Arc<Policy>, script: Script, request: Request) -> (Reply, Vec<Call>) {
    answer_with(policy, script, request, &())
}

/// Does the same with an observer.
pub(crate) fn answer_with(
    policy: &Arc<Policy>,
    script: Script,
    request: Request,
    observer: &impl Observer,
) -> (Reply, Vec<Call>) {
    let ports = Arc::new(Ports::new(script));
    let reply = ports.poll_once(policy, request, observer).expect("no port hangs");
    (reply, ports.calls())
}

/// The key of [`demo`].
pub(crate) fn api_key() -> ApiKey {
    ApiKey::generate(|| 7)
}

pub(crate) fn demo() -> Workspace {
    let quota = Quota::new(LIMIT as u32, 60).expect("a quota");
    Workspace::new("demo".parse().expect("a name"), quota)
}

/// A lookup that has paid for the same receipt.
pub(crate) fn payer() -> LookupId {
    LookupId::new(Timestamp::from_unix_ms(1_600_000_000_000), [9; 10])
}

pub(crate) fn arrival() -> Arrival {
    Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), [7; 10])
}

/// The behaviour of a port that does not answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Interruption {
    Panics,
    Hangs,
}

/// All four ports.
pub(crate) struct Ports {
    script: Script,
    pub(crate) interruption: Option<(Step, Interruption)>,
    /// A clock that only the ports advance.
    clock_ms: AtomicU64,
    calls: Mutex<Vec<Call>>,
}

impl Ports {
    pub(crate) fn new(script: Script) -> Self {
        Self { script, interruption: None, clock_ms: AtomicU64::new(0), calls: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Duration {
        Duration::from_millis(self.clock_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no port panics while it is locked").clone()
    }

    /// Polls one lookup once. Returns `None` if a port hangs.
    pub(crate) fn poll_once(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        request: Request,
        observer: &impl Observer,
    ) -> Option<Reply> {
        let mut service = Service::new(self.clone(), self.clone(), self.clone(), self.clone());
        service.policy = policy.clone();
        let lookup = pin!(service.answer_with(arrival(), request, observer));
        match lookup.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => Some(reply),
            Poll::Pending => None,
        }
    }

    /// Answers a call at this step, after a time that identifies the port.
    async fn answer<T>(&self, step: Step, call: Call, ms: u64, answer: Answer<T>) -> Result<T, PortError> {
        self.calls.lock().expect("no port panics while it is locked").push(call);
        match self.interruption {
            Some((at, Interruption::Panics)) if at == step => panic!("a scripted panic"),
            Some((at, Interruption::Hangs)) if at == step => pending().await,
            _ => {}
        }
        self.clock_ms.fetch_add(ms, Ordering::Relaxed);
        answer.map_err(|Fails| PortError::new("scripted failure"))
    }
}

#[async_trait]
impl Keys for Ports {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        let known = self.answer(Step::Identify, Call::FindKey(*key), 1, self.script.key).await?;
        Ok(known.then(|| demo().with_test(self.script.is_test)))
    }
}

#[async_trait]
impl Windows for Ports {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        self.answer(Step::Admit, Call::Count(window.clone()), 2, self.script.count).await
    }
}

#[async_trait]
impl Credits for Ports {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.answer(Step::Fund, Call::Hold(hold.clone()), 4, self.script.hold).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        self.answer(Step::Settle, Call::Settle(hold.clone(), settlement), 16, self.script.settle).await
    }

    fn keeps_receipts(&self) -> bool {
        self.script.keeps_receipts
    }

    fn available(&self, workspace: &WorkspaceId) -> Option<u64> {
        (*workspace == demo().id).then_some(7)
    }
}

#[async_trait]
impl Resolver for Ports {
    async fn find(&self, query: &Query) -> Result<resolver::Answer, PortError> {
        let call = Call::FindPerson(query.email.as_str().to_owned());
        let found = self.answer(Step::Resolve, call, 8, self.script.person).await?;
        let profile = found.then(|| ProfileUrl::from_name("ada-marlowe").expect("a name"));
        let mut answer = resolver::Answer::from(profile).from_source(SOURCE);
        answer.is_cached = found;
        Ok(answer)
    }
}
