//! Lookup events for logs, metrics and traces.
//!
//! Each lookup produces one event with its outcome, cost and timings. Events never contain an email, key or
//! profile.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::{Duration, Instant};
//!
//! use enrich_lib::observe::{LookupEvent, Observer};
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
//!     fn finished(&self, event: &LookupEvent<'_>) {
//!         self.found.fetch_add(u64::from(event.ending.outcome() == "found"), Ordering::Relaxed);
//!         let resolver = event.durations.resolver.unwrap_or_default();
//!         self.resolver_us.fetch_add(resolver.as_micros() as u64, Ordering::Relaxed);
//!     }
//! }
//! ```

use std::future::poll_fn;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::context::RequestContext;
use crate::key::KeyId;
use crate::lookup::{Outcome, Reply};
use crate::model::{LookupId, WorkspaceId};
use crate::refusal::{PortError, Refusal, Rejection};
use crate::resolver::SourceName;

mod both;

/// Receives one event per lookup.
///
/// Methods run inside the lookup and must not block. A panic is caught and changes neither the reply nor the
/// credits spent. A pair of observers is one that calls both.
pub trait Observer: Send + Sync {
    /// Returns the time of a monotonic clock with an arbitrary origin. The library itself reads no clock.
    fn now(&self) -> Duration;

    /// Called once per lookup that has begun, when it completes or is cancelled.
    fn finished(&self, event: &LookupEvent<'_>);

    /// Called once per request that does not become a lookup. `request_id` is in the reply. The default does
    /// nothing.
    fn rejected(&self, request_id: LookupId, rejection: Rejection) {
        let _ = (request_id, rejection);
    }

    /// Called if the client of a lookup went away before its reply. The lookup goes on, and
    /// [`finished`](Self::finished) reports how it ended.
    ///
    /// The server calls it, for example the layer of `enrich-tower`. A client that goes away before its
    /// request is complete starts no lookup. The default does nothing.
    fn client_gone(&self, lookup_id: LookupId) {
        let _ = lookup_id;
    }

    /// Returns whether to time the port calls of a lookup, which takes one more clock reading per call.
    /// `started_at` is the [time](Self::now) at which the lookup started. Defaults to `true`.
    fn times_ports(&self, started_at: Duration) -> bool {
        let _ = started_at;
        true
    }
}

/// Discards all events.
impl Observer for () {
    fn now(&self) -> Duration {
        Default::default()
    }

    fn finished(&self, _: &LookupEvent<'_>) {}

    fn times_ports(&self, _: Duration) -> bool {
        false
    }
}

/// A finished lookup. More fields may be added.
#[derive(Debug)]
#[non_exhaustive]
pub struct LookupEvent<'a> {
    /// The lookup's id.
    pub lookup_id: LookupId,
    /// The context of the request, if there is any.
    pub context: Option<&'a RequestContext>,
    /// The workspace, if the key was valid and the lookup produced a reply.
    pub workspace: Option<&'a WorkspaceId>,
    /// The id of the key, if the key was valid and the lookup produced a reply.
    pub key: Option<KeyId>,
    /// How the lookup ended.
    pub ending: Ending,
    /// The step that determined the ending.
    pub step: Step,
    /// The number of credits spent.
    pub credits_spent: u64,
    /// The lookup that paid for the result, if an earlier one with the same receipt did.
    pub paid_by: Option<LookupId>,
    /// The source that found the profile, if it has a name.
    pub source: Option<&'a SourceName>,
    /// Whether the resolver's answer came from a cache.
    pub is_cached: bool,
    /// The duration of the lookup and of its port calls.
    pub durations: Durations,
    /// The port failure that caused the refusal, or the failure of a release.
    pub error: Option<&'a PortError>,
}

impl LookupEvent<'_> {
    /// Creates an event without a workspace, for a test of an observer.
    pub fn new(lookup_id: LookupId, ending: Ending) -> Self {
        Self {
            lookup_id,
            context: None,
            workspace: None,
            key: None,
            ending,
            step: Step::Settle,
            credits_spent: 0,
            paid_by: None,
            source: None,
            is_cached: false,
            durations: Durations::default(),
            error: None,
        }
    }
}

/// How a lookup ended. Exhaustive: an observer must not count a further ending as another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A match was found.
    Found,
    /// No match was found.
    NotFound,
    /// The lookup was refused. The refusal's `Display` gives the reason. For a 400 it names the violated
    /// rule, and never a value from the request.
    Refused(Refusal),
    /// The lookup had a test key. This is its ending with any reply.
    Test {
        /// The HTTP status.
        status: u16,
        /// The [reason](Refusal::reason) of a refusal.
        reason: Option<&'static str>,
    },
    /// The future was dropped before it completed. Held credits stay held until the hold expires. If the step is
    /// [`Step::Settle`], they may have been spent.
    Abandoned,
}

impl Ending {
    /// Returns the `status` of a result or the `error` of a refusal, `test` for a test key, and `abandoned` if
    /// there is no reply.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::NotFound => "not_found",
            Self::Refused(refusal) => refusal.code(),
            Self::Test { .. } => "test",
            Self::Abandoned => "abandoned",
        }
    }

    /// Returns the HTTP status (specification 4), if there is a reply.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Found => Some(200),
            Self::NotFound => Some(404),
            Self::Refused(refusal) => Some(refusal.status()),
            Self::Test { status, .. } => Some(*status),
            Self::Abandoned => None,
        }
    }

    fn of(reply: &Reply) -> Self {
        match &reply.result {
            result if reply.is_test => {
                let reason = result.as_ref().err().and_then(Refusal::reason);
                Self::Test { status: reply.status(), reason }
            }
            Ok(Outcome::Found(_)) => Self::Found,
            Ok(Outcome::NotFound) => Self::NotFound,
            Err(refusal) => Self::Refused(*refusal),
        }
    }
}

/// The steps of a lookup, in order: the transitions of [`crate::lookup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Checks the form of the key.
    Receive,
    /// Finds the workspace of the key; calls [`crate::ports::Keys`].
    Identify,
    /// Checks the burst limit; calls [`crate::ports::Windows`].
    Admit,
    /// Parses and checks the body.
    Validate,
    /// Holds the credits; calls [`crate::ports::Credits::hold`].
    Fund,
    /// Finds the person; calls [`crate::ports::Resolver`].
    Resolve,
    /// Settles the hold; calls [`crate::ports::Credits::settle`].
    Settle,
}

impl Step {
    /// Returns the name of the transition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Identify => "identify",
            Self::Admit => "admit",
            Self::Validate => "validate",
            Self::Fund => "fund",
            Self::Resolve => "resolve",
            Self::Settle => "settle",
        }
    }
}

/// The duration of each port call. `None` for ports that did not end, were not called, or are not
/// [timed](Observer::times_ports).
///
/// A duration starts when the previous port answered. It includes the library's own work between the two
/// calls, which takes less than a microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durations {
    /// The duration of [`crate::ports::Keys`].
    pub keys: Option<Duration>,
    /// The duration of [`crate::ports::Windows`].
    pub windows: Option<Duration>,
    /// The duration of [`crate::ports::Credits::hold`].
    pub hold: Option<Duration>,
    /// The duration of [`crate::ports::Resolver`].
    pub resolver: Option<Duration>,
    /// The duration of [`crate::ports::Credits::settle`].
    pub settle: Option<Duration>,
    /// The duration of the whole lookup.
    pub total: Duration,
}

/// Collects one lookup's event and reports it to the observer, at the latest on drop.
pub(crate) struct Recorder<'o, O: Observer + ?Sized> {
    observer: &'o O,
    lookup_id: LookupId,
    context: Option<Arc<RequestContext>>,
    step: Step,
    durations: Durations,
    times_ports: bool,
    started_at: Duration,
    /// The time at which a timed port last answered.
    answered_at: Duration,
    is_finished: bool,
}

impl<'o, O: Observer + ?Sized> Recorder<'o, O> {
    pub(crate) fn start(observer: &'o O, lookup_id: LookupId, context: Option<Arc<RequestContext>>) -> Self {
        let now = catch_panic(|| observer.now()).unwrap_or_default();
        let times_ports = catch_panic(|| observer.times_ports(now)).unwrap_or_default();
        let (step, durations) = (Step::Receive, Durations::default());
        Self {
            observer,
            lookup_id,
            context,
            step,
            durations,
            times_ports,
            started_at: now,
            answered_at: now,
            is_finished: false,
        }
    }

    /// Sets the step that determines the ending.
    pub(crate) fn enter(&mut self, step: Step) {
        self.step = step;
    }

    /// Calls a port in this step, awaits its answer and records the duration. A port that panics has failed.
    pub(crate) fn call<T, F>(
        &mut self,
        step: Step,
        port: impl FnOnce() -> F,
    ) -> impl Future<Output = Result<T, PortError>>
    where
        F: Future<Output = Result<T, PortError>> + Unpin,
    {
        self.enter(step);
        let mut call = catch_panic(port);
        async move {
            let polled = poll_fn(|cx| {
                let polled = call.as_mut().and_then(|call| catch_panic(|| Pin::new(call).poll(cx)));
                // The message of the panic is discarded, because it could contain the email.
                polled.unwrap_or_else(|| Poll::Ready(Err(PortError::new("the port panicked"))))
            });
            let answer = polled.await;
            catch_panic(|| drop(call.take()));
            if !self.times_ports {
                return answer;
            }
            let now = self.now();
            let called_at = std::mem::replace(&mut self.answered_at, now);
            let Durations { keys, windows, hold, resolver, settle, .. } = &mut self.durations;
            let duration = match step {
                Step::Receive | Step::Validate => return answer, // no port call
                Step::Identify => keys,
                Step::Admit => windows,
                Step::Fund => hold,
                Step::Resolve => resolver,
                Step::Settle => settle,
            };
            *duration = Some(self.answered_at.saturating_sub(called_at));
            answer
        }
    }

    pub(crate) fn finish(mut self, reply: &Reply) {
        self.is_finished = true;
        let ending = Ending::of(reply);
        if ending == Ending::Refused(Refusal::LookupError) {
            self.step = Step::Resolve; // the release of the hold came after it
        }
        if !self.times_ports || matches!(self.step, Step::Receive | Step::Validate) {
            self.answered_at = self.now();
        }
        self.report(&LookupEvent {
            workspace: reply.workspace.as_ref(),
            key: reply.key,
            credits_spent: reply.credits_spent,
            paid_by: reply.paid_by,
            source: reply.source.as_ref(),
            is_cached: reply.is_cached,
            error: reply.error.as_ref(),
            ..self.event(ending)
        });
    }

    fn now(&self) -> Duration {
        catch_panic(|| self.observer.now()).unwrap_or(self.answered_at)
    }

    fn report(&self, event: &LookupEvent<'_>) {
        catch_panic(|| self.observer.finished(event));
    }

    fn event(&self, ending: Ending) -> LookupEvent<'_> {
        let total = self.answered_at.saturating_sub(self.started_at);
        LookupEvent {
            context: self.context.as_deref(),
            step: self.step,
            durations: Durations { total, ..self.durations },
            ..LookupEvent::new(self.lookup_id, ending)
        }
    }
}

impl<O: Observer + ?Sized> Drop for Recorder<'_, O> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        self.answered_at = self.now();
        self.report(&self.event(Ending::Abandoned));
    }
}

/// Calls an observer or a port and returns `None` if it panics. The panic must not reach the lookup, which may
/// hold or have spent credits. During unwinding, it would abort the process.
#[doc(hidden)]
pub fn catch_panic<T>(call: impl FnOnce() -> T) -> Option<T> {
    // The payload of a panic may itself panic when it is dropped.
    let drop_caught = |payload| catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(mem::forget);
    catch_unwind(AssertUnwindSafe(call)).map_err(drop_caught).ok()
}
