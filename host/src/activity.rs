//! The state of a connection and its timeouts.
//!
//! Each event on a connection updates its [`ConnectionActivity`] without reading the clock, which keeps the
//! cost per request low. The [`ConnectionTimeout`] runs in the same task, so it is polled after each update,
//! and reads the clock only if no request is in flight.
//!
//! The deadline is computed only when the timer fires. The timer never sleeps longer than the shortest
//! timeout, so a wait that starts after one check cannot be due before the next.

use std::net::IpAddr;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use enrich_lib::model::LookupId;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::limits::Limits;
use crate::wake::WakeGated;

/// Idle time after which a connection is suspended: its HTTP state is dropped.
const SUSPEND_AFTER: Duration = Duration::from_secs(1);

/// The shared state of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    /// Number of requests in flight. A request updates `has_changed` before it decrements this counter, so a
    /// reader that sees the decrement also sees the update.
    requests: AtomicU32,
    /// Set from the first byte of a head to the end of its request.
    is_busy: AtomicBool,
    is_closing: AtomicBool,
    can_suspend: AtomicBool,
    /// Set by each state change. Cleared when the timeout reads the clock.
    has_changed: AtomicBool,
    lookups_started: AtomicU32,
    lookups_finished: AtomicU32,
    /// The lookup in flight has timed out.
    has_lookup_timed_out: AtomicBool,
    /// Set by the first lookup with a valid key, or by the first request for a page.
    is_authenticated: AtomicBool,
    /// The other end: the client, or a proxy.
    pub(crate) peer: IpAddr,
    opened: Instant,
    /// Start of the last wait that the timeout observed, in milliseconds after `opened`.
    waiting_since_ms: AtomicU64,
    /// Notified when the connection is evicted in favour of another one.
    pub(crate) evicted: Notify,
}

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The rest of a head, or the first byte on the connection.
    Head,
    /// The next request.
    Idle,
    /// The end of the client's half of the connection.
    Close,
    /// A lookup whose outcome may be unknown.
    Lookup,
}

impl Wait {
    pub(crate) fn timeout(self, limits: &Limits) -> Duration {
        match self {
            Self::Head => limits.head_timeout,
            Self::Idle => limits.idle_timeout,
            Self::Close => limits.close_timeout,
            Self::Lookup => limits.lookup_timeout,
        }
    }
}

impl ConnectionActivity {
    /// Returns the state of a new connection from `peer`, which waits for its first head.
    pub(crate) fn new(peer: IpAddr) -> Self {
        Self {
            requests: AtomicU32::new(0),
            is_busy: AtomicBool::new(true),
            is_closing: AtomicBool::new(false),
            can_suspend: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            lookups_started: AtomicU32::new(0),
            lookups_finished: AtomicU32::new(0),
            has_lookup_timed_out: AtomicBool::new(false),
            is_authenticated: AtomicBool::new(false),
            peer,
            opened: Instant::now(),
            waiting_since_ms: AtomicU64::new(0),
            evicted: Notify::new(),
        }
    }

    /// Counts a lookup as in flight until the guard is dropped.
    pub(crate) fn begin_lookup(&self, id: LookupId) -> LookupInFlight<'_> {
        self.lookups_started.fetch_add(1, Ordering::Relaxed);
        LookupInFlight { activity: self, id }
    }

    /// Reports that the connection is closed because of the lookup in flight, which is then logged.
    pub(crate) fn set_lookup_timed_out(&self) {
        self.has_lookup_timed_out.store(true, Ordering::Relaxed);
    }

    /// Returns the number of the last lookup that started, or `None` if no lookup is in flight.
    fn lookup_in_flight(&self) -> Option<u32> {
        let finished = self.lookups_finished.load(Ordering::Relaxed);
        Some(self.lookups_started.load(Ordering::Relaxed)).filter(|started| *started != finished)
    }

    /// Reports a lookup with a valid key.
    pub(crate) fn set_authenticated(&self) {
        self.is_authenticated.store(true, Ordering::Relaxed);
    }

    /// Returns whether the connection can be closed without interrupting a client with a valid key. A request
    /// without a key is not protected while its body is missing.
    pub(crate) fn can_evict(&self) -> bool {
        if self.is_authenticated.load(Ordering::Relaxed) {
            self.requests.load(Ordering::Relaxed) == 0
        } else {
            self.lookup_in_flight().is_none()
        }
    }

    /// Returns whether a request is in flight.
    pub(crate) fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the connection is authenticated, and the start of its idle time. Connections are
    /// evicted in this order. An unauthenticated connection is idle from the start.
    pub(crate) fn eviction_order(&self) -> (bool, Instant) {
        match self.is_authenticated.load(Ordering::Relaxed) {
            false => (false, self.opened),
            true => {
                let waited = Duration::from_millis(self.waiting_since_ms.load(Ordering::Relaxed));
                (true, self.opened + waited)
            }
        }
    }

    /// Reports received bytes. They start a head unless a request is already in progress.
    pub(crate) fn begin_head(&self) {
        if !self.is_busy.load(Ordering::Relaxed) && !self.is_closing.load(Ordering::Relaxed) {
            self.set(&self.is_busy, true);
        }
    }

    /// Reports that the connection is between requests and may stay idle.
    pub(crate) fn begin_idle(&self) {
        self.set(&self.is_busy, false);
    }

    /// Reports that the connection is closing and is kept open only by requests in flight.
    pub(crate) fn begin_close(&self) {
        if !self.is_closing.load(Ordering::Relaxed) {
            self.set(&self.is_closing, true);
        }
    }

    /// Sets whether the HTTP state can be dropped without losing data, which requires that all output is
    /// flushed.
    pub(crate) fn set_can_suspend(&self, can_suspend: bool) {
        self.can_suspend.store(can_suspend, Ordering::Relaxed);
    }

    pub(crate) fn can_suspend(&self) -> bool {
        self.can_suspend.load(Ordering::Relaxed)
    }

    fn set(&self, state: &AtomicBool, value: bool) {
        state.store(value, Ordering::Relaxed);
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// Returns the event that the connection waits for, or `None` while a request is in flight.
    fn wait(&self) -> Option<Wait> {
        match (self.requests.load(Ordering::Acquire), self.is_closing.load(Ordering::Relaxed)) {
            (1.., _) => None,
            (0, true) => Some(Wait::Close),
            (0, false) if self.is_busy.load(Ordering::Relaxed) => Some(Wait::Head),
            (0, false) => Some(Wait::Idle),
        }
    }
}

/// A guard that counts a request as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<P: Deref<Target = ConnectionActivity>>(P);

impl<P: Deref<Target = ConnectionActivity>> InFlight<P> {
    pub(crate) fn new(activity: P) -> Self {
        activity.requests.fetch_add(1, Ordering::Relaxed);
        Self(activity)
    }

    pub(crate) fn activity(&self) -> &ConnectionActivity {
        &self.0
    }
}

impl<P: Deref<Target = ConnectionActivity>> Drop for InFlight<P> {
    fn drop(&mut self) {
        self.0.begin_idle();
        self.0.requests.fetch_sub(1, Ordering::Release);
    }
}

/// A guard that counts a lookup as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct LookupInFlight<'a> {
    activity: &'a ConnectionActivity,
    id: LookupId,
}

impl LookupInFlight<'_> {
    /// Logs that the client receives no reply.
    pub(crate) fn log_timeout(&self) {
        tracing::warn!(
            lookup_id = %self.id,
            "closed a connection or stream without a reply: the lookup timed out; its outcome is unknown"
        );
    }
}

impl Drop for LookupInFlight<'_> {
    fn drop(&mut self) {
        self.activity.lookups_finished.fetch_add(1, Ordering::Relaxed);
        if self.activity.has_lookup_timed_out.load(Ordering::Relaxed) {
            self.log_timeout();
        }
    }
}

/// Resolves to the kind of wait when a connection has timed out or has been idle long enough to be suspended.
/// It can be awaited again after it has completed.
#[derive(Debug)]
pub(crate) struct ConnectionTimeout<'a> {
    activity: &'a ConnectionActivity,
    limits: &'a Limits,
    since: Instant,
    /// The lookup that was in flight at the last check, and the time of the first check that found it.
    lookup: Option<(u32, Instant)>,
    timer: WakeGated<Pin<Box<Sleep>>>,
}

impl<'a> ConnectionTimeout<'a> {
    /// Creates the timeout of a connection that has been waiting since `since`.
    pub(crate) fn new(activity: &'a ConnectionActivity, since: Instant, limits: &'a Limits) -> Self {
        let timer = WakeGated::new(Box::pin(sleep_until(Instant::now() + shortest_timeout(limits))));
        Self { activity, limits, since, lookup: None, timer }
    }

    /// Returns the start of the current wait.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Returns the event that the connection waits for, and updates the start of the wait after a state
    /// change.
    fn current_wait(&mut self) -> Option<Wait> {
        let wait = self.activity.wait()?;
        if self.activity.has_changed.load(Ordering::Relaxed) {
            // Cleared before the clock is read, so that a concurrent change sets it again.
            self.activity.has_changed.store(false, Ordering::Relaxed);
            self.since = Instant::now();
            let waited = self.since.duration_since(self.activity.opened);
            let waited_ms = waited.as_secs() * 1_000 + u64::from(waited.subsec_millis());
            self.activity.waiting_since_ms.store(waited_ms, Ordering::Relaxed);
        }
        Some(wait)
    }

    /// Returns the deadline of the lookup in flight. A timer per lookup would cost 3 % of a request, so the
    /// timeout is measured from the first check that finds the lookup, and is late by up to the time between
    /// two checks.
    fn lookup_deadline(&mut self, now: Instant) -> Option<(Instant, Wait)> {
        let current = self.activity.lookup_in_flight()?;
        let found_at = self.lookup.filter(|(number, _)| *number == current).map_or(now, |(_, at)| at);
        self.lookup = Some((current, found_at));
        Some((found_at + self.limits.lookup_timeout, Wait::Lookup))
    }

    /// Returns the deadline of the current wait and its kind, or `None` while the body of a request is read.
    fn deadline(&mut self, now: Instant) -> Option<(Instant, Wait)> {
        let Some(wait) = self.current_wait() else { return self.lookup_deadline(now) };
        let timeout = wait.timeout(self.limits);
        let can_suspend = wait == Wait::Idle && self.activity.can_suspend();
        Some((self.since + if can_suspend { SUSPEND_AFTER.min(timeout) } else { timeout }, wait))
    }
}

/// Returns the shortest timeout.
fn shortest_timeout(limits: &Limits) -> Duration {
    limits.head_timeout.min(limits.idle_timeout).min(limits.close_timeout)
}

impl Future for ConnectionTimeout<'_> {
    type Output = Wait;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Wait> {
        self.current_wait();
        loop {
            ready!(Pin::new(&mut self.timer).poll(cx));
            let now = Instant::now();
            let next_check = now + shortest_timeout(self.limits);
            let deadline = match self.deadline(now) {
                Some((deadline, wait)) if deadline <= now => return Poll::Ready(wait),
                Some((deadline, _)) => deadline.min(next_check),
                None => next_check,
            };
            self.timer.future().as_mut().reset(deadline);
        }
    }
}
