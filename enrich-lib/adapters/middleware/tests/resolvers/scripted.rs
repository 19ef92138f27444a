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
use enrich_middleware::{VendorError, VendorErrorKind};
use tokio::time::{Instant, sleep};

/// How a vendor handles one call.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    after: Duration,
    outcome: Outcome,
}

#[derive(Clone, Debug)]
enum Outcome {
    Finds(String),
    KnowsNobody,
    Fails(VendorError),
    /// Fails with an error that is not a [`VendorError`].
    Breaks,
    Panics,
}

pub(crate) fn finds(name: &str) -> Act {
    Act { after: Duration::ZERO, outcome: Outcome::Finds(name.to_owned()) }
}

pub(crate) fn knows_nobody() -> Act {
    Act { after: Duration::ZERO, outcome: Outcome::KnowsNobody }
}

pub(crate) fn fails(error: impl Into<Fault>) -> Act {
    Act { after: Duration::ZERO, outcome: Outcome::Fails(error.into().0) }
}

pub(crate) fn breaks() -> Act {
    Act { after: Duration::ZERO, outcome: Outcome::Breaks }
}

pub(crate) fn panics() -> Act {
    Act { after: Duration::ZERO, outcome: Outcome::Panics }
}

pub(crate) fn hangs() -> Act {
    knows_nobody().after(365 * 24 * 3_600_000)
}

impl Act {
    pub(crate) fn after(self, ms: u64) -> Self {
        Self { after: Duration::from_millis(ms), ..self }
    }
}

/// A conversion target, so that a test can pass a kind or a whole error.
pub(crate) struct Fault(VendorError);

impl From<VendorErrorKind> for Fault {
    fn from(kind: VendorErrorKind) -> Self {
        Self(VendorError::new(kind))
    }
}

impl From<VendorError> for Fault {
    fn from(error: VendorError) -> Self {
        Self(error)
    }
}

#[derive(Debug)]
pub(crate) struct Vendor {
    script: Mutex<VecDeque<Act>>,
    always: Mutex<Act>,
    asks: Mutex<Vec<(Instant, WorkspaceId)>>,
    under_way: AtomicUsize,
    under_way_max: AtomicUsize,
}

impl Vendor {
    /// Creates a vendor that handles every call with `always`.
    pub(crate) fn that(always: Act) -> Arc<Self> {
        Self::that_first([], always)
    }

    /// Creates a vendor that handles the first calls with `script`, in order, and every later call with `always`.
    pub(crate) fn that_first(script: impl IntoIterator<Item = Act>, always: Act) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.into_iter().collect()),
            always: Mutex::new(always),
            asks: Mutex::default(),
            under_way: AtomicUsize::new(0),
            under_way_max: AtomicUsize::new(0),
        })
    }

    pub(crate) fn now_does_first(&self, next: Act, always: Act) {
        self.now_does(always);
        lock(&self.script).push_back(next);
    }

    pub(crate) fn now_does(&self, always: Act) {
        lock(&self.script).clear();
        *lock(&self.always) = always;
    }

    pub(crate) fn asks(&self) -> usize {
        lock(&self.asks).len()
    }

    /// Returns the time of each call, in milliseconds after the first.
    pub(crate) fn asked_at(&self) -> Vec<u64> {
        let asks = lock(&self.asks);
        asks.iter().map(|(at, _)| at.duration_since(asks[0].0).as_millis() as u64).collect()
    }

    /// Returns the workspace of each call.
    pub(crate) fn asked_for(&self) -> Vec<String> {
        lock(&self.asks).iter().map(|(_, workspace)| workspace.to_string()).collect()
    }

    /// Returns the number of calls that have neither completed nor been dropped.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    pub(crate) fn under_way_max(&self) -> usize {
        self.under_way_max.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no script panics under a lock")
}

struct UnderWay<'a>(&'a Vendor);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Resolver for Vendor {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        lock(&self.asks).push((Instant::now(), query.workspace.clone()));
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.under_way_max.fetch_max(under_way, Ordering::SeqCst);
        let _under_way = UnderWay(self);

        let scripted = lock(&self.script).pop_front();
        let act = scripted.unwrap_or_else(|| lock(&self.always).clone());
        if !act.after.is_zero() {
            sleep(act.after).await;
        }
        match act.outcome {
            Outcome::Finds(name) => ProfileUrl::from_name(&name).map(Some).map_err(PortError::new),
            Outcome::KnowsNobody => Ok(None),
            Outcome::Fails(error) => Err(error.into()),
            Outcome::Breaks => Err(PortError::new("it broke")),
            Outcome::Panics => panic!("the script says so"),
        }
    }
}

/// The result of a lookup: the name of the profile, the kind of the error, or the text of an error that has no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Found(String),
    Nobody,
    Fault(VendorErrorKind),
    Error(String),
}

impl From<&Result<Option<ProfileUrl>, PortError>> for Told {
    fn from(found: &Result<Option<ProfileUrl>, PortError>) -> Self {
        match found {
            Ok(Some(profile)) => Self::Found(profile.name().to_owned()),
            Ok(None) => Self::Nobody,
            Err(error) => match VendorError::of(error) {
                Some(error) => Self::Fault(error.kind),
                None => Self::Error(error.to_string()),
            },
        }
    }
}

pub(crate) fn found(name: &str) -> Told {
    Told::Found(name.to_owned())
}

pub(crate) fn ada() -> Query {
    query("ada.marlowe@gmail.com")
}

pub(crate) fn query(email: &str) -> Query {
    query_of("demo", email)
}

pub(crate) fn query_of(workspace: &str, email: &str) -> Query {
    Query {
        lookup_id: LookupId::from_bytes([7; 16]),
        workspace: workspace.parse().expect("a workspace"),
        email: Email::parse(email).expect("an email"),
    }
}

/// Looks up Ada.
pub(crate) async fn ask(resolver: &dyn Resolver) -> Told {
    Told::from(&resolver.find(&ada()).await)
}

/// Looks up Ada and returns the result with the duration in milliseconds.
pub(crate) async fn ask_timed(resolver: &dyn Resolver) -> (Told, u64) {
    let started = Instant::now();
    let told = ask(resolver).await;
    (told, started.elapsed().as_millis() as u64)
}

/// Spawns a lookup of Ada and runs it as far as possible without advancing time.
pub(crate) async fn start(resolver: &Arc<impl Resolver + 'static>) -> tokio::task::JoinHandle<Told> {
    let resolver = resolver.clone();
    let task = tokio::spawn(async move { ask(&*resolver).await });
    settle().await;
    task
}

/// Runs every task as far as possible without advancing time.
pub(crate) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Drops a lookup of Ada before its first poll and after each millisecond up to `ms_max`, and calls `check` after each drop.
pub(crate) async fn drop_at_each_ms(resolver: &dyn Resolver, ms_max: u64, check: impl Fn(u64)) {
    drop(resolver.find(&ada()));
    check(0);
    for ms in 0..=ms_max {
        let _ = tokio::time::timeout(Duration::from_millis(ms), resolver.find(&ada())).await;
        check(ms);
    }
}
