//! What a connection is doing and since when, and the alarm that goes off when it takes too long.
//!
//! Everything that happens on the connection moves its [`Pulse`]; that is all that a request pays. The [`Alarm`] looks
//! at it every few seconds, and never sleeps longer than the shortest wait: what begins after it has looked can't be due
//! before it looks again.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::limits::Limits;

/// The shared state of one connection.
#[derive(Debug)]
pub(crate) struct Pulse(Mutex<State>);

#[derive(Debug)]
struct State {
    requests: u32,
    /// What the connection waits for when no request is in flight.
    wait: Wait,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For the rest of a head, or the first byte on the connection.
    Head,
    /// For the next request.
    Idle,
    /// For the client to take note of the end.
    Close,
}

impl Pulse {
    /// A connection that is open now and has to send its first head.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { requests: 0, wait: Wait::Head, since: Instant::now() }))
    }

    /// Bytes came: of a head that begins, unless they are of a request that has begun.
    pub(crate) fn begin_head(&self) {
        let mut state = self.lock();
        if state.wait == Wait::Idle {
            state.wait_for(Wait::Head);
        }
    }

    /// The connection is in order and may stay without a request for a while: HTTP/2 after its preface.
    pub(crate) fn begin_idle(&self) {
        self.lock().wait_for(Wait::Idle);
    }

    /// The connection is about to end: nothing but requests in flight keeps it up.
    pub(crate) fn begin_close(&self) {
        let mut state = self.lock();
        if state.wait != Wait::Close {
            state.wait_for(Wait::Close);
        }
    }

    /// A request is in flight until the guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> InFlight {
        self.lock().requests += 1;
        InFlight(self.clone())
    }

    fn end_request(&self) {
        let mut state = self.lock();
        state.requests -= 1;
        let next = if state.wait == Wait::Close { Wait::Close } else { Wait::Idle };
        state.wait_for(next);
    }

    /// When the connection has waited too long, and for what; `None` while a request is in flight.
    fn due(&self, limits: &Limits) -> Option<(Instant, Wait)> {
        let state = self.lock();
        let time_max = match state.wait {
            Wait::Head => limits.head_time_max,
            Wait::Idle => limits.idle_time_max,
            Wait::Close => limits.close_time_max,
        };
        (state.requests == 0).then(|| (state.since + time_max, state.wait))
    }

    /// Every critical section here leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait_for(&mut self, wait: Wait) {
        self.wait = wait;
        self.since = Instant::now();
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Pulse>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.end_request();
    }
}

/// Ready when the connection has waited too long, with what for. May be awaited again.
#[derive(Debug)]
pub(crate) struct Alarm<'a> {
    pulse: &'a Pulse,
    limits: &'a Limits,
    timer: Pin<Box<Sleep>>,
}

impl<'a> Alarm<'a> {
    pub(crate) fn new(pulse: &'a Pulse, limits: &'a Limits) -> Self {
        Self { pulse, limits, timer: Box::pin(sleep_until(Instant::now() + time_min(limits))) }
    }
}

/// The shortest wait there is.
fn time_min(limits: &Limits) -> Duration {
    limits.head_time_max.min(limits.idle_time_max).min(limits.close_time_max)
}

impl Future for Alarm<'_> {
    type Output = Wait;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Wait> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            let next_look = now + time_min(self.limits);
            let deadline = match self.pulse.due(self.limits) {
                Some((deadline, wait)) if deadline <= now => return Poll::Ready(wait),
                Some((deadline, _)) => deadline.min(next_look),
                None => next_look,
            };
            self.timer.as_mut().reset(deadline);
        }
    }
}
