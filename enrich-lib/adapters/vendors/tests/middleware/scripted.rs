//! A scripted vendor that records its calls, and helpers for lookups and their results.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::model::{LookupId, ProfileUrl, WorkspaceId};
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, OptOuts, VendorError, VendorErrorKind};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// A list of people who opted out, as a function.
pub(crate) struct OptOutsBy<F>(pub(crate) F);

#[async_trait]
impl<F: Fn(&Email) -> Result<bool, PortError> + Send + Sync> OptOuts for OptOutsBy<F> {
    async fn contains(&self, email: &Email) -> Result<bool, PortError> {
        self.0(email)
    }
}

/// Returns a list of these people.
pub(crate) fn opted_out(people: &'static [&'static str]) -> Arc<dyn OptOuts> {
    let form = |email: &str| Email::parse(email).expect("a valid email").opt_out_form();
    Arc::new(OptOutsBy(move |email: &Email| {
        Ok(people.iter().any(|opted_out| form(opted_out) == email.opt_out_form()))
    }))
}

/// Returns a runtime whose time is paused.
pub(crate) fn paused_runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

/// How a vendor handles one call.
#[derive(Clone)]
pub(crate) struct Behavior {
    after: Duration,
    answer: Arc<dyn Fn() -> Result<Answer, PortError> + Send + Sync>,
}

fn answers(answer: impl Fn() -> Result<Answer, PortError> + Send + Sync + 'static) -> Behavior {
    Behavior { after: Duration::ZERO, answer: Arc::new(answer) }
}

pub(crate) fn finds(name: &str) -> Behavior {
    let profile = ProfileUrl::from_name(name).expect("a name");
    answers(move || Ok(profile.clone().into()))
}

pub(crate) fn no_match() -> Behavior {
    answers(|| Ok(Answer::default()))
}

pub(crate) fn fails(error: impl Into<VendorError>) -> Behavior {
    let error = error.into();
    answers(move || Err(error.into()))
}

/// Fails with an error that is not a [`VendorError`].
pub(crate) fn fails_untyped() -> Behavior {
    answers(|| Err(PortError::new("it broke")))
}

pub(crate) fn panics() -> Behavior {
    answers(|| panic!("scripted panic"))
}

pub(crate) fn hangs() -> Behavior {
    no_match().after(365 * 24 * 3_600_000)
}

impl Behavior {
    pub(crate) fn after(self, ms: u64) -> Self {
        Self { after: Duration::from_millis(ms), ..self }
    }
}

pub(crate) struct Vendor {
    script: Mutex<VecDeque<Behavior>>,
    always: Mutex<Behavior>,
    calls: Mutex<Vec<(Instant, WorkspaceId)>>,
    in_flight: AtomicUsize,
    in_flight_max: AtomicUsize,
}

impl Vendor {
    /// Creates a vendor that handles every call with `always`.
    pub(crate) fn new(always: Behavior) -> Arc<Self> {
        Self::scripted([], always)
    }

    /// Creates a vendor that handles the first calls with `script`, in order, and every later call with
    /// `always`.
    pub(crate) fn scripted(script: impl IntoIterator<Item = Behavior>, always: Behavior) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.into_iter().collect()),
            always: Mutex::new(always),
            calls: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            in_flight_max: AtomicUsize::new(0),
        })
    }

    pub(crate) fn set_behavior(&self, always: Behavior) {
        lock(&self.script).clear();
        *lock(&self.always) = always;
    }

    pub(crate) fn calls(&self) -> usize {
        lock(&self.calls).len()
    }

    /// Returns the time of each call, in milliseconds after the first.
    pub(crate) fn call_times_ms(&self) -> Vec<u64> {
        let calls = lock(&self.calls);
        calls.iter().map(|(at, _)| at.duration_since(calls[0].0).as_millis() as u64).collect()
    }

    /// Returns the workspace of each call.
    pub(crate) fn called_workspaces(&self) -> Vec<String> {
        lock(&self.calls).iter().map(|(_, workspace)| workspace.to_string()).collect()
    }

    /// Returns the number of calls that have neither completed nor been dropped.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    pub(crate) fn in_flight_max(&self) -> usize {
        self.in_flight_max.load(Ordering::SeqCst)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no script panics under a lock")
}

struct InFlightGuard<'a>(&'a Vendor);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Resolver for Vendor {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        lock(&self.calls).push((Instant::now(), query.workspace.clone()));
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.in_flight_max.fetch_max(in_flight, Ordering::SeqCst);
        let _under_way = InFlightGuard(self);

        let scripted = lock(&self.script).pop_front();
        let behavior = scripted.unwrap_or_else(|| lock(&self.always).clone());
        if !behavior.after.is_zero() {
            sleep(behavior.after).await;
        }
        (behavior.answer)()
    }
}

/// The result of a lookup, in comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookupResult {
    /// The name of the profile.
    Found(String),
    NoMatch,
    VendorError(VendorErrorKind),
    /// The message of an error that is not a [`VendorError`].
    OtherError(String),
}

impl From<&Result<Answer, PortError>> for LookupResult {
    fn from(found: &Result<Answer, PortError>) -> Self {
        match found {
            Ok(Answer { profile: Some(profile), .. }) => Self::Found(profile.name().to_owned()),
            Ok(_) => Self::NoMatch,
            Err(error) => match VendorError::find_in(error) {
                Some(error) => Self::VendorError(error.kind),
                None => Self::OtherError(error.to_string()),
            },
        }
    }
}

pub(crate) fn found(name: &str) -> LookupResult {
    LookupResult::Found(name.to_owned())
}

const ADA: &str = "ada.marlowe@gmail.com";

pub(crate) fn ada() -> Query {
    query(ADA)
}

pub(crate) fn query(email: &str) -> Query {
    query_of("demo", email)
}

pub(crate) fn query_of(workspace: &str, email: &str) -> Query {
    let (workspace, email) = (workspace.parse().expect("a workspace"), Email::parse(email));
    Query::new(LookupId::from_bytes([7; 16]), workspace, email.expect("an email"))
}

/// Looks up Ada.
pub(crate) async fn look_up(resolver: &dyn Resolver) -> LookupResult {
    LookupResult::from(&resolver.find(&ada()).await)
}

/// Looks up one of many people.
pub(crate) async fn look_up_person(resolver: &dyn Resolver, number: usize) -> LookupResult {
    LookupResult::from(&resolver.find(&query(&format!("person{number}@posteo.net"))).await)
}

/// Looks up Ada and returns the result with the duration in milliseconds.
pub(crate) async fn look_up_timed(resolver: &dyn Resolver) -> (LookupResult, u64) {
    let started = Instant::now();
    let result = look_up(resolver).await;
    (result, started.elapsed().as_millis() as u64)
}

/// Spawns a lookup of Ada and runs it as far as possible without advancing time.
pub(crate) async fn start(resolver: &Arc<impl Resolver + 'static>) -> JoinHandle<LookupResult> {
    start_for(resolver, "demo").await
}

/// Does the same for a workspace.
pub(crate) async fn start_for(
    resolver: &Arc<impl Resolver + 'static>,
    workspace: &'static str,
) -> JoinHandle<LookupResult> {
    let (resolver, query) = (resolver.clone(), query_of(workspace, ADA));
    let task = tokio::spawn(async move { LookupResult::from(&resolver.find(&query).await) });
    settle().await;
    task
}

/// Runs every task as far as possible without advancing time.
pub(crate) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
