//! The observer: told once of each lookup how it ended, what it cost and where its time went.
//!
//! Log lines, metrics and traces are made of it. No email, key or profile reaches it.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::{Duration, Instant};
//!
//! use enrich_lib::observe::{Observed, Observer};
//!
//! struct Metrics {
//!     started: Instant,
//!     found: AtomicU64,
//!     resolver_us: AtomicU64,
//! }
//!
//! impl Observer for Metrics {
//!     fn now(&self) -> Duration {
//!         self.started.elapsed()
//!     }
//!
//!     fn ended(&self, lookup: &Observed<'_>) {
//!         self.found.fetch_add(u64::from(lookup.ending.outcome() == "found"), Ordering::Relaxed);
//!         let resolver = lookup.durations.resolver.unwrap_or_default();
//!         self.resolver_us.fetch_add(resolver.as_micros() as u64, Ordering::Relaxed);
//!     }
//! }
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::lookup::{Outcome, Reply};
use crate::model::{LookupId, WorkspaceId};
use crate::refusal::{PortError, Refusal};

/// Receives one event per lookup.
///
/// Methods run inside the lookup and must not block. A panic is caught and changes neither the reply nor the credits spent.
pub trait Observer: Send + Sync {
    /// What a clock says that never goes back, from any moment on. The library has none.
    fn now(&self) -> Duration;

    /// A lookup has ended.
    fn ended(&self, lookup: &Observed<'_>);

    /// Whether the time of each port is wanted, and not only that of the whole lookup. It takes a reading of the clock more
    /// for each of them.
    fn times_ports(&self) -> bool {
        true
    }
}

/// Nobody observes.
impl Observer for () {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn ended(&self, _: &Observed<'_>) {}

    fn times_ports(&self) -> bool {
        false
    }
}

/// A lookup that has ended.
#[derive(Debug)]
pub struct Observed<'a> {
    /// The lookup's identity.
    pub lookup_id: LookupId,
    /// Whose request it was, if the key told and the lookup came to a reply.
    pub workspace: Option<&'a WorkspaceId>,
    /// How it ended.
    pub ending: Ending,
    /// The step that decided the ending.
    pub step: Step,
    /// What it cost, in credits.
    pub credits_spent: u64,
    /// Where its time went.
    pub durations: Durations,
    /// The port's failure that decided the answer, or that a release met.
    pub fault: Option<&'a PortError>,
}

/// How a lookup ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a match.
    Found,
    /// Without one.
    NotFound,
    /// With an error. The refusal's `Display` gives the reason. For a 400 it names the violated rule, and never a value from
    /// the request.
    Refused(Refusal),
    /// A port panicked. If credits were held, they are until they expire.
    Panicked,
    /// Its future was dropped half-way. If credits were held, they are until they expire.
    Abandoned,
}

impl Ending {
    /// One word: the `status` of a result, the `error` of a refusal; `panicked` or `abandoned` where there is no reply.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::NotFound => "not_found",
            Self::Refused(refusal) => refusal.code(),
            Self::Panicked => "panicked",
            Self::Abandoned => "abandoned",
        }
    }

    /// The HTTP status (specification 4), if there is a reply.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Found => Some(200),
            Self::NotFound => Some(404),
            Self::Refused(refusal) => Some(refusal.status()),
            Self::Panicked | Self::Abandoned => None,
        }
    }

    fn of(reply: &Reply) -> Self {
        match &reply.result {
            Ok(Outcome::Found(_)) => Self::Found,
            Ok(Outcome::NotFound) => Self::NotFound,
            Err(refusal) => Self::Refused(*refusal),
        }
    }
}

/// The steps of a lookup, in their order: the transitions of [`crate::lookup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The key has the right form.
    Receive,
    /// The key is a workspace's: asks [`crate::ports::Keys`].
    Identify,
    /// The workspace is within its burst limit: asks [`crate::ports::Windows`].
    Admit,
    /// The body asks for an email that is looked up.
    Read,
    /// The credits are held: asks [`crate::ports::Credits::hold`].
    Fund,
    /// The person is found, or not: asks [`crate::ports::Resolver`].
    Finish,
    /// The hold is settled: asks [`crate::ports::Credits::settle`].
    Close,
}

impl Step {
    /// The name of the transition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Identify => "identify",
            Self::Admit => "admit",
            Self::Read => "read",
            Self::Fund => "fund",
            Self::Finish => "finish",
            Self::Close => "close",
        }
    }
}

/// How long each port took, from the answer of the one before it; `None` for those that did not answer, were not asked, or
/// are not [timed](Observer::times_ports). What the chain does between two ports is counted to the second one, as it takes less than a microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Of [`crate::ports::Keys`].
    pub keys: Option<Duration>,
    /// Of [`crate::ports::Windows`].
    pub windows: Option<Duration>,
    /// Of [`crate::ports::Credits::hold`].
    pub hold: Option<Duration>,
    /// Of [`crate::ports::Resolver`].
    pub resolver: Option<Duration>,
    /// Of [`crate::ports::Credits::settle`].
    pub settle: Option<Duration>,
    /// Of the whole lookup.
    pub whole: Duration,
}

/// Watches one lookup for an observer, which is told when it is over, or else when this is dropped.
pub(crate) struct Watch<'o, O: Observer + ?Sized> {
    observer: &'o O,
    lookup_id: LookupId,
    step: Step,
    durations: Durations,
    times_ports: bool,
    started_at: Duration,
    /// When a port that is timed last answered.
    answered_at: Duration,
    is_over: bool,
}

impl<'o, O: Observer + ?Sized> Watch<'o, O> {
    pub(crate) fn begin(observer: &'o O, lookup_id: LookupId) -> Self {
        let now = guarded(|| observer.now()).unwrap_or_default();
        let times_ports = guarded(|| observer.times_ports()).unwrap_or_default();
        let (step, durations) = (Step::Receive, Durations::default());
        Self {
            observer,
            lookup_id,
            step,
            durations,
            times_ports,
            started_at: now,
            answered_at: now,
            is_over: false,
        }
    }

    /// From now on it is this step that decides.
    pub(crate) fn enter(&mut self, step: Step) {
        self.step = step;
    }

    /// Awaits what a port answers in this step.
    pub(crate) async fn ask<T>(&mut self, step: Step, answer: impl Future<Output = T>) -> T {
        self.enter(step);
        let answer = answer.await;
        if !self.times_ports {
            return answer;
        }
        let now = self.now();
        let asked_at = std::mem::replace(&mut self.answered_at, now);
        let Durations { keys, windows, hold, resolver, settle, .. } = &mut self.durations;
        let duration = match step {
            Step::Receive | Step::Read => return answer, // they ask nobody
            Step::Identify => keys,
            Step::Admit => windows,
            Step::Fund => hold,
            Step::Finish => resolver,
            Step::Close => settle,
        };
        *duration = Some(self.answered_at.saturating_sub(asked_at));
        answer
    }

    pub(crate) fn end(mut self, reply: &Reply) {
        self.is_over = true;
        let ending = Ending::of(reply);
        if ending == Ending::Refused(Refusal::LookupError) {
            self.step = Step::Finish; // the hold was released after it
        }
        if !self.times_ports || matches!(self.step, Step::Receive | Step::Read) {
            self.answered_at = self.now();
        }
        self.report(&Observed {
            workspace: reply.workspace.as_ref(),
            credits_spent: reply.credits_spent,
            fault: reply.fault.as_ref(),
            ..self.observed(ending)
        });
    }

    fn now(&self) -> Duration {
        guarded(|| self.observer.now()).unwrap_or(self.answered_at)
    }

    fn report(&self, lookup: &Observed<'_>) {
        guarded(|| self.observer.ended(lookup));
    }

    fn observed(&self, ending: Ending) -> Observed<'static> {
        let whole = self.answered_at.saturating_sub(self.started_at);
        Observed {
            lookup_id: self.lookup_id,
            workspace: None,
            ending,
            step: self.step,
            credits_spent: 0,
            durations: Durations { whole, ..self.durations },
            fault: None,
        }
    }
}

impl<O: Observer + ?Sized> Drop for Watch<'_, O> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let ending = if std::thread::panicking() { Ending::Panicked } else { Ending::Abandoned };
        self.answered_at = self.now();
        self.report(&self.observed(ending));
    }
}

/// Calls the observer and returns `None` if it panics. The panic must not reach the lookup, which may have spent credits. During
/// unwinding it would abort the process.
fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}
