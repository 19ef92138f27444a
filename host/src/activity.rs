//! The state of a connection, and the event that ends its current wait.
//!
//! Each event updates the state, stamped with the time of the last sweep, so that a request reads no clock
//! and sets no timer. Every 100 ms the [`Registry`](crate::registry::Registry) sweeps all connections and
//! wakes the task of each one whose wait is over.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use enrich_lib::model::LookupId;

use crate::limits::Limits;
use crate::shutdown::{Phase, Shutdown};

/// Time for an HTTP/2 client without a request in flight to acknowledge that the connection closes.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for a client to read a reply, and to close its half of the connection, while the server stops.
const LAST_CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// The time of the sweeps. It is at most one [`Clock::STEP`] behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    /// The interval of the sweeps.
    pub(crate) const STEP: Duration = Duration::from_millis(100);

    /// Advances the clock. Sweeps that are late on a busy machine delay timeouts, so that a connection is not
    /// closed for time in which its request could not be read.
    pub(crate) fn advance(&self, elapsed: Duration) {
        let elapsed = elapsed.min(2 * Self::STEP);
        self.0.fetch_add(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the time of the last sweep.
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    /// Returns the time of the next sweep, from which waits are measured: no timeout is early.
    fn next(&self) -> Duration {
        self.now() + Self::STEP
    }
}

/// One connection, shared by its task, its requests and the registry.
#[derive(Debug)]
pub(crate) struct Activity {
    /// The other end: the client, or a proxy.
    pub(crate) peer: IpAddr,
    clock: Clock,
    state: Mutex<State>,
    /// Whether all output is flushed.
    is_flushed: AtomicBool,
    /// Set when the task has to call [`State::verdict`].
    is_due: AtomicBool,
    /// Wakes the task. A connection stays on one task, whose waker does not change.
    task: OnceLock<Waker>,
}

#[derive(Debug)]
struct State {
    /// The event that the connection waits for while no request is in flight.
    wait: Wait,
    /// The start of the wait or, during requests, of the first one or of the last lookup on HTTP/1.
    since: Duration,
    /// The time from which no further request was accepted.
    ended_at: Option<Duration>,
    /// The number of requests in flight.
    requests: usize,
    /// The number of lookups in flight.
    lookups: usize,
    /// The lookup in flight on HTTP/1. Lookups on HTTP/2 have a timer each.
    http1_lookup: Option<LookupId>,
    /// Set by the first lookup with a valid key, or by the first request for a page.
    is_authenticated: bool,
    /// Whether the requests are for pages, which limit their own time.
    has_pages: bool,
    /// Set if the connection is closed in favour of a new one.
    evicted: Option<Evicted>,
    is_http2: bool,
}

/// When a connection that was evicted closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    /// When no request with a key is in flight.
    Idle,
    /// When no lookup is in flight: the body of each request is missing, or the requests are for pages.
    WithoutLookup,
}

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The TLS handshake.
    Handshake,
    /// The rest of a head, or the first byte on the connection.
    Head,
    /// The next request.
    Idle,
    /// The end of the HTTP connection, after the requests in flight.
    Finish,
    /// The end of the client's half of the connection.
    Close,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Handshake => "the TLS handshake",
            Self::Head => "the head of a request",
            Self::Idle => "a request",
            Self::Finish => "the client to read the last replies",
            Self::Close => "the client to close its half of the connection",
        })
    }
}

impl Wait {
    fn timeout(self, limits: &Limits) -> Duration {
        match self {
            Self::Handshake => limits.handshake_timeout,
            Self::Head => limits.head_timeout,
            Self::Idle => limits.idle_timeout,
            Self::Finish | Self::Close => limits.close_timeout,
        }
    }
}

/// The next action of a connection whose wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It closes after the requests in flight, and after the client has closed its half.
    Finish,
    /// It closes at once, because the client waits for nothing.
    Close,
    /// It closes at once, for this reason.
    Abort(Reason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Timeout(Wait),
    /// The outcome of this lookup is unknown.
    Lookup(LookupId),
    Evicted,
}

impl State {
    /// Starts a wait.
    fn begin(&mut self, wait: Wait, clock: &Clock) {
        (self.wait, self.since) = (wait, clock.next());
        if self.is_ending() {
            self.ended_at.get_or_insert(self.since);
        }
    }

    /// Returns whether no further request is accepted.
    fn is_ending(&self) -> bool {
        matches!(self.wait, Wait::Finish | Wait::Close)
    }

    /// Returns whether the connection can be closed without interrupting a client with a valid key. A request
    /// without a key is not protected while its body is missing.
    fn can_evict(&self, evicted: Evicted) -> bool {
        let is_interruptible = !self.is_authenticated || evicted == Evicted::WithoutLookup;
        if is_interruptible { self.lookups == 0 } else { self.requests == 0 }
    }

    /// Returns how the connection ends. HTTP/2 announces it to the client.
    fn end(&self, is_flushed: bool) -> Verdict {
        let is_awaited = self.requests > 0 || !is_flushed || self.is_http2;
        if is_awaited { Verdict::Finish } else { Verdict::Close }
    }

    fn verdict(&self, now: Duration, limits: &Limits, phase: Phase, is_flushed: bool) -> Option<Verdict> {
        let has_waited = |timeout| now >= self.since.saturating_add(timeout);
        if self.evicted.is_some_and(|evicted| self.can_evict(evicted)) {
            return Some(Verdict::Abort(Reason::Evicted));
        }
        // A graceful shutdown of HTTP/2 still accepts the streams that the client opened before it received
        // the GOAWAY frame.
        let closes_in = if self.is_http2 { Phase::Draining } else { Phase::Closing };
        if !self.is_ending() && phase >= closes_in {
            return Some(self.end(is_flushed));
        }
        // A client could send requests without bodies for as long as it does not acknowledge the end.
        let is_over = self.ended_at.is_some_and(|at| now >= at.saturating_add(limits.close_timeout));
        let last_reply = if is_flushed { LAST_CLOSE_TIMEOUT } else { limits.close_timeout };
        if is_over && self.lookups == 0 && !self.has_pages && has_waited(last_reply) {
            return Some(Verdict::Abort(Reason::Timeout(self.wait)));
        }
        if self.requests > 0 {
            let lookup = self.http1_lookup.filter(|_| has_waited(limits.lookup_timeout))?;
            return Some(Verdict::Abort(Reason::Lookup(lookup)));
        }
        match self.wait {
            Wait::Finish if is_flushed && has_waited(GOAWAY_TIMEOUT) => Some(Verdict::Close),
            Wait::Close if phase >= Phase::Closing && has_waited(LAST_CLOSE_TIMEOUT) => Some(Verdict::Close),
            wait if has_waited(wait.timeout(limits)) => Some(match wait {
                Wait::Idle => self.end(is_flushed),
                wait => Verdict::Abort(Reason::Timeout(wait)),
            }),
            _ => None,
        }
    }
}

impl Activity {
    /// Returns the state of a new connection from `peer`.
    pub(crate) fn new(peer: IpAddr, clock: Clock) -> Self {
        let state = State {
            wait: Wait::Head,
            since: clock.next(),
            ended_at: None,
            requests: 0,
            lookups: 0,
            http1_lookup: None,
            is_authenticated: false,
            has_pages: false,
            evicted: None,
            is_http2: false,
        };
        // A shutdown may have begun.
        let is_due = AtomicBool::new(true);
        Self {
            peer,
            clock,
            state: Mutex::new(state),
            is_flushed: AtomicBool::new(true),
            is_due,
            task: OnceLock::new(),
        }
    }

    /// Reports that the connection waits for another event.
    pub(crate) fn begin(&self, wait: Wait) {
        self.lock().begin(wait, &self.clock);
    }

    /// Reports that the connection uses HTTP/2.
    pub(crate) fn set_http2(&self) {
        self.lock().is_http2 = true;
        // A shutdown may have begun.
        self.wake();
    }

    /// Reports received bytes. They start a head unless a request is already in progress.
    pub(crate) fn begin_head(&self) {
        let mut state = self.lock();
        if state.wait == Wait::Idle && state.requests == 0 {
            state.begin(Wait::Head, &self.clock);
        }
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> InFlight {
        let mut state = self.lock();
        if state.requests == 0 && !state.is_ending() {
            state.since = self.clock.next();
        }
        state.requests += 1;
        drop(state);
        InFlight(self.clone())
    }

    /// Counts a lookup as in flight until the guard is dropped.
    pub(crate) fn begin_lookup(&self, id: LookupId, is_http1: bool) -> LookupInFlight<'_> {
        let mut state = self.lock();
        state.lookups += 1;
        if is_http1 {
            (state.http1_lookup, state.since) = (Some(id), self.clock.next());
        }
        LookupInFlight { activity: self, is_authenticated: false }
    }

    /// Reports a request for a page, and whether it is complete.
    pub(crate) fn set_page(&self, is_complete: bool) {
        let mut state = self.lock();
        state.has_pages = true;
        state.is_authenticated |= is_complete;
    }

    /// Sets whether all output is flushed.
    pub(crate) fn set_flushed(&self, is_flushed: bool) {
        self.is_flushed.store(is_flushed, Ordering::Relaxed);
    }

    /// Resolves when the connection has to be closed.
    pub(crate) async fn verdict(&self, limits: &Limits, shutdown: &Shutdown) -> Verdict {
        std::future::poll_fn(|cx| {
            self.task.get_or_init(|| cx.waker().clone());
            // Acquire: a verdict follows from changes before the flag was set.
            if !self.is_due.load(Ordering::Acquire) {
                return Poll::Pending;
            }
            self.is_due.store(false, Ordering::Relaxed);
            self.current_verdict(limits, shutdown.phase()).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn current_verdict(&self, limits: &Limits, phase: Phase) -> Option<Verdict> {
        let is_flushed = self.is_flushed.load(Ordering::Relaxed);
        self.lock().verdict(self.clock.now(), limits, phase, is_flushed)
    }

    /// Wakes the task if the wait is over.
    pub(crate) fn sweep(&self, limits: &Limits, phase: Phase) {
        if self.current_verdict(limits, phase).is_some() {
            self.wake();
        }
    }

    fn wake(&self) {
        self.is_due.store(true, Ordering::Release);
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    /// Closes the connection as soon as it can be evicted. Returns `false` if it cannot now, or is evicted already.
    pub(crate) fn evict(&self, evicted: Evicted) -> bool {
        let mut state = self.lock();
        let is_new = state.evicted.is_none() && state.can_evict(evicted);
        if is_new {
            state.evicted = Some(evicted);
        }
        drop(state);
        if is_new {
            self.wake();
        }
        is_new
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.lock().evicted.is_some()
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.lock().is_authenticated
    }

    pub(crate) fn has_requests(&self) -> bool {
        self.lock().requests > 0
    }

    /// Returns the time since when the connection can be evicted. `None` if it cannot now, or is evicted already.
    pub(crate) fn evictable_since(&self, evicted: Evicted) -> Option<Duration> {
        let state = self.lock();
        (state.evicted.is_none() && state.can_evict(evicted)).then_some(state.since)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that counts a request as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Activity>);

impl InFlight {
    pub(crate) fn activity(&self) -> &Activity {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.requests -= 1;
        let wait = if state.is_ending() { state.wait } else { Wait::Idle };
        state.begin(wait, &self.0.clock);
    }
}

/// A guard that counts a lookup as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct LookupInFlight<'a> {
    activity: &'a Activity,
    /// Whether the lookup has a valid key.
    pub(crate) is_authenticated: bool,
}

impl Drop for LookupInFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        state.is_authenticated |= self.is_authenticated;
        state.lookups -= 1;
        state.http1_lookup = None;
    }
}
