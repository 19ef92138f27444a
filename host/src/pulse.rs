//! What a connection waits for, and the alarm that goes off when it has waited long enough.
//!
//! Whatever happens on the connection moves its [`Pulse`], which knows no time: that is all that a request pays. The
//! [`Alarm`] is polled after each move, as it is a part of the same task, and reads the clock if nothing is in flight then.
//! What is due it looks for every few seconds only, and never sleeps longer than the shortest wait: what begins after it
//! has looked can't be due before it looks again.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::aside::Aside;
use crate::limits::Limits;

/// How long a connection is idle before it may rest.
const REST_AFTER: Duration = Duration::from_secs(1);

/// The shared state of one connection.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// In flight. Whoever ends one has noted the move before, so that nobody sees the end without it.
    requests: AtomicU32,
    /// From a head's first byte to the end of its request.
    is_busy: AtomicBool,
    is_closing: AtomicBool,
    can_rest: AtomicBool,
    /// Since the alarm read the clock.
    has_moved: AtomicBool,
}

/// What a connection waits for while no request is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For the rest of a head, or the first byte on the connection.
    Head,
    /// For the next request.
    Idle,
    /// For the client to take note of the end.
    Close,
}

impl Wait {
    pub(crate) fn time_max(self, limits: &Limits) -> Duration {
        match self {
            Self::Head => limits.head_time_max,
            Self::Idle => limits.idle_time_max,
            Self::Close => limits.close_time_max,
        }
    }
}

impl Pulse {
    /// A connection that has to send its first head.
    pub(crate) fn new() -> Self {
        Self {
            requests: AtomicU32::new(0),
            is_busy: AtomicBool::new(true),
            is_closing: AtomicBool::new(false),
            can_rest: AtomicBool::new(false),
            has_moved: AtomicBool::new(false),
        }
    }

    /// Bytes came: of a head that begins, unless they are of a request that has begun.
    pub(crate) fn begin_head(&self) {
        if !self.is_busy.load(Ordering::Relaxed) && !self.is_closing.load(Ordering::Relaxed) {
            self.move_to(&self.is_busy, true);
        }
    }

    /// The connection is in order and may stay without a request for a while.
    pub(crate) fn begin_idle(&self) {
        self.move_to(&self.is_busy, false);
    }

    /// The connection is about to end: nothing but requests in flight keeps it up.
    pub(crate) fn begin_close(&self) {
        if !self.is_closing.load(Ordering::Relaxed) {
            self.move_to(&self.is_closing, true);
        }
    }

    /// Whether nothing would be lost if the connection's HTTP ended here: all that was written is on its way.
    pub(crate) fn let_rest(&self, can_rest: bool) {
        self.can_rest.store(can_rest, Ordering::Relaxed);
    }

    pub(crate) fn can_rest(&self) -> bool {
        self.can_rest.load(Ordering::Relaxed)
    }

    fn move_to(&self, state: &AtomicBool, is_in: bool) {
        state.store(is_in, Ordering::Relaxed);
        self.has_moved.store(true, Ordering::Relaxed);
    }

    /// What the connection waits for; `None` while a request is in flight.
    fn wait(&self) -> Option<Wait> {
        match (self.requests.load(Ordering::Acquire), self.is_closing.load(Ordering::Relaxed)) {
            (1.., _) => None,
            (0, true) => Some(Wait::Close),
            (0, false) if self.is_busy.load(Ordering::Relaxed) => Some(Wait::Head),
            (0, false) => Some(Wait::Idle),
        }
    }
}

/// A request in flight, until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<P: Deref<Target = Pulse>>(P);

impl<P: Deref<Target = Pulse>> InFlight<P> {
    pub(crate) fn new(pulse: P) -> Self {
        pulse.requests.fetch_add(1, Ordering::Relaxed);
        Self(pulse)
    }
}

impl<P: Deref<Target = Pulse>> Drop for InFlight<P> {
    fn drop(&mut self) {
        self.0.begin_idle();
        self.0.requests.fetch_sub(1, Ordering::Release);
    }
}

/// Ready when the connection has waited too long, or long enough to rest, with what for. May be awaited again.
#[derive(Debug)]
pub(crate) struct Alarm<'a> {
    pulse: &'a Pulse,
    limits: &'a Limits,
    since: Instant,
    timer: Aside<Pin<Box<Sleep>>>,
}

impl<'a> Alarm<'a> {
    /// Of a connection that has waited since then.
    pub(crate) fn new(pulse: &'a Pulse, since: Instant, limits: &'a Limits) -> Self {
        let timer = Aside::new(Box::pin(sleep_until(Instant::now() + time_min(limits))));
        Self { pulse, limits, since, timer }
    }

    /// When the wait began that it went off for.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// What the connection waits for. Notes since when.
    fn look(&mut self) -> Option<Wait> {
        let wait = self.pulse.wait()?;
        if self.pulse.has_moved.load(Ordering::Relaxed) {
            // Before the clock is read: what moves meanwhile is noted again.
            self.pulse.has_moved.store(false, Ordering::Relaxed);
            self.since = Instant::now();
        }
        Some(wait)
    }

    /// When the connection has waited long enough, and for what; `None` while a request is in flight.
    fn due(&mut self) -> Option<(Instant, Wait)> {
        let wait = self.look()?;
        let time_max = wait.time_max(self.limits);
        let can_rest = wait == Wait::Idle && self.pulse.can_rest();
        Some((self.since + if can_rest { REST_AFTER.min(time_max) } else { time_max }, wait))
    }
}

/// The shortest wait there is.
fn time_min(limits: &Limits) -> Duration {
    limits.head_time_max.min(limits.idle_time_max).min(limits.close_time_max)
}

impl Future for Alarm<'_> {
    type Output = Wait;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Wait> {
        self.look();
        loop {
            ready!(Pin::new(&mut self.timer).poll(cx));
            let now = Instant::now();
            let next_look = now + time_min(self.limits);
            let deadline = match self.due() {
                Some((deadline, wait)) if deadline <= now => return Poll::Ready(wait),
                Some((deadline, _)) => deadline.min(next_look),
                None => next_look,
            };
            self.timer.future().as_mut().reset(deadline);
        }
    }
}
