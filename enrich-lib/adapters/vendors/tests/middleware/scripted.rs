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
use tokio::time::{Instant, sleep};

/// A list of people who opted out.
#[derive(Debug)]
pub(crate) struct OptedOut(pub(crate) &'static [&'static str]);

#[async_trait]
impl OptOuts for OptedOut {
    async fn contains(&self, email: &Email) -> Result<bool, PortError> {
        let form = |email: &str| Email::parse(email).expect("a valid email").opt_out_form();
        Ok(self.0.iter().any(|opted_out| form(opted_out) == email.opt_out_form()))
    }
}

/// How a vendor handles one call.
#[derive(Clone, Debug)]
pub(crate) struct Behavior {
    after: Duration,
    outcome: Outcome,
}

#[derive(Clone, Debug)]
enum Outcome {
    Finds(String),
    NoMatch,
    Fails(VendorError),
    /// Fails with an error that is not a [`VendorError`].
    FailsUntyped,
    Panics,
}

pub(crate) fn finds(name: &str) -> Behavior {
    Behavior { after: Duration::ZERO, outcome: Outcome::Finds(name.to_owned()) }
}

pub(crate) fn no_match() -> Behavior {
    Behavior { after: Duration::ZERO, outcome: Outcome::NoMatch }
}

pub(crate) fn fails(error: impl Into<VendorError>) -> Behavior {
    Behavior { after: Duration::ZERO, outcome: Outcome::Fails(error.into()) }
}

pub(crate) fn fails_untyped() -> Behavior {
    Behavior { after: Duration::ZERO, outcome: Outcome::FailsUntyped }
}

pub(crate) fn panics() -> Behavior {
    Behavior { after: Duration::ZERO, outcome: Outcome::Panics }
}

pub(crate) fn hangs() -> Behavior {
    no_match().after(365 * 24 * 3_600_000)
}

impl Behavior {
    pub(crate) fn after(self, ms: u64) -> Self {
        Self { after: Duration::from_millis(ms), ..self }
    }
}

#[derive(Debug)]
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
        match behavior.outcome {
            Outcome::Finds(name) => ProfileUrl::from_name(&name).map(Answer::from).map_err(PortError::new),
            Outcome::NoMatch => Ok(Answer::default()),
            Outcome::Fails(error) => Err(error.into()),
            Outcome::FailsUntyped => Err(PortError::new("it broke")),
            Outcome::Panics => panic!("scripted panic"),
        }
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

pub(crate) fn ada() -> Query {
    query("ada.marlowe@gmail.com")
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

/// Looks up Ada and returns the result with the duration in milliseconds.
pub(crate) async fn look_up_timed(resolver: &dyn Resolver) -> (LookupResult, u64) {
    let started = Instant::now();
    let result = look_up(resolver).await;
    (result, started.elapsed().as_millis() as u64)
}

/// Spawns a lookup of Ada and runs it as far as possible without advancing time.
pub(crate) async fn start(resolver: &Arc<impl Resolver + 'static>) -> tokio::task::JoinHandle<LookupResult> {
    let resolver = resolver.clone();
    let task = tokio::spawn(async move { look_up(&*resolver).await });
    settle().await;
    task
}

/// Runs every task as far as possible without advancing time.
pub(crate) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Drops a lookup of Ada before its first poll and after each millisecond up to `ms_max`, and calls `check`
/// after each drop.
pub(crate) async fn drop_at_each_ms(resolver: &dyn Resolver, ms_max: u64, check: impl Fn(u64)) {
    drop(resolver.find(&ada()));
    check(0);
    for ms in 0..=ms_max {
        let _ = tokio::time::timeout(Duration::from_millis(ms), resolver.find(&ada())).await;
        check(ms);
    }
}
