//! Ports that return scripted results and record their calls.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::drive::Service;
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::lookup::{Policy, Reply, Request};
use enrich_lib::model::{Arrival, ProfileUrl, Timestamp};
use enrich_lib::observe::Observer;
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
    pub(crate) count: Answer<u64>,
    pub(crate) hold: Answer<HoldOutcome>,
    /// `true` if the person is found.
    pub(crate) person: Answer<bool>,
    pub(crate) settle: Answer<()>,
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
    let ports = Arc::new(Ports { script, calls: Mutex::default() });
    let mut service = Service::new(ports.clone(), ports.clone(), ports.clone(), ports.clone());
    service.policy = policy.clone();
    let reply = futures_executor::block_on(service.answer_with(arrival(), request, observer));
    let calls = ports.calls.lock().expect("no port panics").clone();
    (reply, calls)
}

/// The key of [`demo`].
pub(crate) fn api_key() -> ApiKey {
    ApiKey::generate(|| 7)
}

pub(crate) fn demo() -> Workspace {
    let quota = Quota::new(LIMIT as u32, 60).expect("a quota");
    Workspace::new("demo".parse().expect("a name"), quota)
}

pub(crate) fn arrival() -> Arrival {
    Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), [7; 10])
}

struct Ports {
    script: Script,
    calls: Mutex<Vec<Call>>,
}

impl Ports {
    fn note(&self, call: Call) {
        self.calls.lock().expect("no port panics").push(call);
    }
}

fn result_of<T>(answer: Answer<T>) -> Result<T, PortError> {
    answer.map_err(|Fails| PortError::new("scripted failure"))
}

#[async_trait]
impl Keys for Ports {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        self.note(Call::FindKey(*key));
        result_of(self.script.key).map(|known| known.then(demo))
    }
}

#[async_trait]
impl Windows for Ports {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        self.note(Call::Count(window.clone()));
        result_of(self.script.count)
    }
}

#[async_trait]
impl Credits for Ports {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.note(Call::Hold(hold.clone()));
        result_of(self.script.hold)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        self.note(Call::Settle(hold.clone(), settlement));
        result_of(self.script.settle)
    }
}

#[async_trait]
impl Resolver for Ports {
    async fn find(&self, query: &Query) -> Result<resolver::Answer, PortError> {
        self.note(Call::FindPerson(query.email.as_str().to_owned()));
        let ada = || ProfileUrl::from_name("ada-marlowe").expect("a name");
        result_of(self.script.person).map(|found| found.then(ada).into())
    }
}
