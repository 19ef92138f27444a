//! A client-side rate limit: sends each request as soon as the server's rate-limit headers permit it.
//!
//! Requests of the workspace's other clients are not visible here. If they exhaust the limit, the server
//! responds with 429, and all requests wait. Meanwhile, single requests probe whether the operator has raised
//! the limit.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{HeaderMap, RETRY_AFTER};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::client::Response;

/// Limits the rate and the number of concurrent requests.
#[derive(Default)]
pub struct RateLimiter {
    state: Mutex<State>,
    /// Notified when a request ends, because waiting requests may now start.
    changed: Notify,
}

/// Permission to send one request. Dropping it marks the request as finished.
pub struct Permit<'a> {
    limiter: &'a RateLimiter,
    started_at: Instant,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Normal,
    /// No other request is in flight until this one finishes.
    Exclusive,
    /// Sent during a pause.
    Probe,
}

/// A time in which no request is sent, because of the burst limit or an unavailable server.
pub struct Pause {
    pub since: Instant,
    pub left: Duration,
    pub reason: &'static str,
}

impl RateLimiter {
    /// Waits until a request may be sent. Cancel safe.
    pub async fn acquire(&self) -> Permit<'_> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registers before the state is checked, so that no notification is missed.
            changed.as_mut().enable();
            let started_at = Instant::now();
            let started = self.lock().start(started_at);
            match started {
                Ok(kind) => return Permit { limiter: self, started_at, kind },
                Err(Wait::Response) => changed.await,
                Err(Wait::Until(time)) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(time) => {}
                },
            }
        }
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> u64 {
        self.lock().in_flight
    }

    /// Returns the current pause.
    pub fn pause(&self) -> Option<Pause> {
        let (mut state, now) = (self.lock(), Instant::now());
        match (state.paused_since, state.check(now)) {
            (Some(since), Err(Wait::Until(time))) => {
                let reason = if state.may_probe(now) { "burst limit" } else { "the server is unavailable" };
                Some(Pause { since, left: time - now, reason })
            }
            _ => None,
        }
    }

    /// Returns the duration of all pauses.
    pub fn paused(&self) -> Duration {
        let state = self.lock();
        state.paused + state.paused_since.map(|since| since.elapsed()).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// Updates the rate limit from the headers of the response, and releases the permit.
    pub fn complete(self, response: &Response) {
        let reported = ReportedLimit::read(response.status.as_u16(), &response.headers);
        self.limiter.lock().update(&reported, self.kind, Instant::now());
    }

    /// Halves the number of requests in flight after a 402. Returns whether the 402 means that the workspace
    /// is out of credits. This is certain only if no other request was in flight: others hold credits, which
    /// they may release.
    pub fn credits_refused(&self) -> bool {
        self.limiter.lock().reduce_concurrency(self.started_at, Instant::now());
        self.kind == Kind::Exclusive
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.limiter.lock().in_flight -= 1;
        self.limiter.changed.notify_waiters();
    }
}

/// The rate limit that a response reports (specification 8.2).
#[derive(Default)]
struct ReportedLimit {
    limit: Option<u64>,
    remaining: Option<u64>,
    reset: Option<Duration>,
    /// How long no request may be sent.
    pause: Option<Duration>,
    /// True if the reason is the limit.
    is_limited: bool,
}

impl ReportedLimit {
    /// Minimum pause after a 429.
    const PAUSE_MIN: Duration = Duration::from_secs(1);

    fn read(status: u16, headers: &HeaderMap) -> Self {
        let reset = integer(headers, "ratelimit-reset").map(duration_from_now);
        let retry_after = integer(headers, RETRY_AFTER.as_str()).map(duration_from_now);
        let pause = match status {
            429 => Some(retry_after.or(reset).unwrap_or_default().max(Self::PAUSE_MIN)),
            503 => retry_after,
            _ => None,
        };
        Self {
            limit: integer(headers, "ratelimit-limit"),
            remaining: integer(headers, "ratelimit-remaining"),
            reset,
            pause,
            is_limited: status == 429,
        }
    }
}

/// Parses the integer at the start of a header. Some servers append parameters to it.
fn integer(headers: &HeaderMap, name: &str) -> Option<u64> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Converts a time in a header to a duration from now. The specification leaves the unit open: small numbers
/// are seconds from now, large ones are Unix time.
fn duration_from_now(number: u64) -> Duration {
    const UNIX_TIME_MIN: u64 = 1_000_000_000;
    if number < UNIX_TIME_MIN {
        return Duration::from_secs(number);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(number).saturating_sub(now)
}

#[derive(Clone, Default)]
struct State {
    in_flight: u64,
    paused_until: Option<Instant>,
    /// True if `paused_until` is not due to the limit.
    is_unavailable: bool,
    /// When the current pause began.
    paused_since: Option<Instant>,
    probed_at: Option<Instant>,
    /// The duration of the earlier pauses.
    paused: Duration,
    window: Window,
    /// Maximum number of requests in flight after a 402, and the time of that response.
    concurrency_max: Option<(u64, Instant)>,
}

#[derive(Clone, Default)]
enum Window {
    /// No response yet. One request is sent, and all others wait for its response.
    #[default]
    Unknown,
    /// The server reports no limit.
    Unlimited,
    Limited {
        limit: u64,
        /// The lowest number of remaining requests reported. Requests in flight may not be counted yet.
        remaining: u64,
        /// `None` if this window has begun and no response has reported its end.
        resets_at: Option<Instant>,
    },
}

#[derive(Debug, PartialEq)]
enum Wait {
    /// Until a request in flight finishes.
    Response,
    Until(Instant),
}

/// Tolerance between the reset times that responses report for one window. They differ by rounding and
/// network delay.
const RESET_TOLERANCE: Duration = Duration::from_secs(2);

/// Interval between two probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

impl State {
    /// Starts a request.
    ///
    /// # Errors
    ///
    /// Returns the event to wait for if the request may not start now.
    fn start(&mut self, now: Instant) -> Result<Kind, Wait> {
        let kind = match self.check(now) {
            Ok(kind) => {
                let since = self.paused_since.take();
                self.paused += since.map(|since| now - since).unwrap_or_default();
                kind
            }
            Err(Wait::Until(time)) if self.in_flight == 0 => {
                let since = *self.paused_since.get_or_insert(now);
                let probe_at = self.probed_at.map_or(since, |at| at.max(since)) + PROBE_INTERVAL;
                if !self.may_probe(now) || now < probe_at {
                    return Err(Wait::Until(if self.may_probe(now) { time.min(probe_at) } else { time }));
                }
                self.probed_at = Some(now);
                Kind::Probe
            }
            Err(wait) => return Err(wait),
        };
        self.in_flight += 1;
        Ok(kind)
    }

    fn may_probe(&self, now: Instant) -> bool {
        !self.is_unavailable || self.paused_until.is_none_or(|time| now >= time)
    }

    /// Returns whether a request may start that is not a probe.
    fn check(&mut self, now: Instant) -> Result<Kind, Wait> {
        if let Some(time) = self.paused_until.filter(|&time| now < time) {
            return Err(Wait::Until(time));
        }
        if let Window::Limited { limit, remaining, resets_at } = &mut self.window
            && resets_at.is_some_and(|time| now >= time)
        {
            (*remaining, *resets_at) = (*limit, None);
        }
        let may_start = match self.window {
            Window::Unknown => self.in_flight == 0,
            Window::Unlimited => true,
            Window::Limited { remaining, resets_at, .. } if self.in_flight >= remaining => {
                return Err(resets_at.map_or(Wait::Response, Wait::Until));
            }
            Window::Limited { .. } => true,
        };
        let in_flight_max = self.concurrency_max.map_or(u64::MAX, |(max, _)| max);
        if !may_start || self.in_flight >= in_flight_max {
            return Err(Wait::Response);
        }
        let is_exclusive = in_flight_max == 1 || matches!(self.window, Window::Unknown);
        Ok(if is_exclusive { Kind::Exclusive } else { Kind::Normal })
    }

    /// Halves the number of requests in flight. Requests that were in flight together reduce it only once.
    fn reduce_concurrency(&mut self, started_at: Instant, now: Instant) {
        if self.concurrency_max.is_none_or(|(_, since)| started_at >= since) {
            self.concurrency_max = Some(((self.in_flight / 2).max(1), now));
        }
    }

    /// Updates the window and the pause from the response to a request of this kind.
    fn update(&mut self, reported: &ReportedLimit, kind: Kind, now: Instant) {
        let is_over = kind == Kind::Probe && reported.pause.is_none();
        if let Some(pause) = reported.pause {
            self.paused_until = self.paused_until.max(Some(now + pause));
            self.is_unavailable = !reported.is_limited;
        } else if is_over {
            self.paused_until = None;
        }
        let (Some(reported_remaining), Some(reset)) = (reported.remaining, reported.reset) else {
            if matches!(self.window, Window::Unknown) {
                self.window = Window::Unlimited;
            }
            return;
        };
        let reset_at = now + reset;
        let limit = reported.limit.unwrap_or(reported_remaining).max(1);
        let remaining = match self.window {
            Window::Limited { .. } if is_over => reported_remaining,
            // the limit was raised
            Window::Limited { limit: before, .. } if limit > before => reported_remaining,
            // a previous window
            Window::Limited { resets_at: Some(time), .. } if reset_at + RESET_TOLERANCE < time => return,
            // the next window
            Window::Limited { resets_at: Some(time), .. } if reset_at > time + RESET_TOLERANCE => {
                reported_remaining
            }
            Window::Limited { remaining, .. } => remaining.min(reported_remaining),
            Window::Unknown | Window::Unlimited => reported_remaining,
        };
        let resets_at = match self.window {
            Window::Limited { resets_at: Some(time), .. } if reset_at <= time + RESET_TOLERANCE => {
                time.min(reset_at)
            }
            _ => reset_at,
        };
        self.window = Window::Limited { limit, remaining, resets_at: Some(resets_at) };
    }
}

#[cfg(test)]
mod tests;
