//! A client-side rate limit: sends each request as soon as the server's rate-limit headers permit it.
//!
//! Requests of the workspace's other clients are not visible here. If they exhaust the limit, the server responds with 429,
//! and all requests wait.

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
    /// True if no other request is in flight until this one finishes.
    is_exclusive: bool,
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
                Ok(is_exclusive) => return Permit { limiter: self, started_at, is_exclusive },
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

    /// Returns how long no request will be sent, if none is in flight.
    pub fn pause(&self) -> Option<Duration> {
        let (state, now) = (self.lock(), Instant::now());
        match state.clone().start(now) {
            Err(Wait::Until(time)) if state.in_flight == 0 => Some(time - now),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// Updates the rate limit from the headers of the response, and releases the permit.
    pub fn complete(self, response: &Response) {
        let reported = ReportedLimit::read(response.status.as_u16(), &response.headers);
        self.limiter.lock().update(&reported, Instant::now());
    }

    /// Halves the number of requests in flight after a 402. Returns whether the 402 means that the workspace is out of
    /// credits. This is certain only if no other request was in flight: others hold credits, which they may release.
    pub fn credits_refused(&self) -> bool {
        self.limiter.lock().reduce_concurrency(self.started_at, Instant::now());
        self.is_exclusive
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
        }
    }
}

/// Parses the integer at the start of a header. Some servers append parameters to it.
fn integer(headers: &HeaderMap, name: &str) -> Option<u64> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Converts a time in a header to a duration from now. The specification leaves the unit open: small numbers are seconds
/// from now, large ones are Unix time.
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

/// Tolerance between the reset times that responses report for one window. They differ by rounding and network delay.
const RESET_TOLERANCE: Duration = Duration::from_secs(2);

impl State {
    /// Starts a request. Returns whether no other request is in flight until it finishes.
    ///
    /// # Errors
    ///
    /// Returns the event to wait for if the request may not start now.
    fn start(&mut self, now: Instant) -> Result<bool, Wait> {
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
        self.in_flight += 1;
        Ok(in_flight_max == 1 || matches!(self.window, Window::Unknown))
    }

    /// Halves the number of requests in flight. Requests that were in flight together reduce it only once.
    fn reduce_concurrency(&mut self, started_at: Instant, now: Instant) {
        if self.concurrency_max.is_none_or(|(_, since)| started_at >= since) {
            self.concurrency_max = Some(((self.in_flight / 2).max(1), now));
        }
    }

    /// Updates the window and the pause from a response.
    fn update(&mut self, reported: &ReportedLimit, now: Instant) {
        if let Some(pause) = reported.pause {
            self.paused_until = self.paused_until.max(Some(now + pause));
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
mod tests {
    use super::*;

    fn reported(remaining: u64, reset_s: u64) -> ReportedLimit {
        let reset = Some(Duration::from_secs(reset_s));
        ReportedLimit { limit: Some(5), remaining: Some(remaining), reset, pause: None }
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Starts as many requests as may be in flight. Returns their number and the event to wait for.
    fn start_all(state: &mut State, now: Instant) -> (u64, Wait) {
        let before = state.in_flight;
        loop {
            if let Err(wait) = state.start(now) {
                return (state.in_flight - before, wait);
            }
        }
    }

    fn complete(state: &mut State, reported: &ReportedLimit, now: Instant) {
        state.in_flight -= 1;
        state.update(reported, now);
    }

    #[test]
    fn sends_one_request_first_and_then_at_most_the_remaining_number() {
        let (mut state, now) = (State::default(), Instant::now());
        assert_eq!(start_all(&mut state, now), (1, Wait::Response));
        complete(&mut state, &reported(4, 10), now);
        assert_eq!(start_all(&mut state, now), (4, Wait::Until(now + seconds(10.0))));
        // Responses arrive out of order: the lowest number counts.
        complete(&mut state, &reported(1, 10), now);
        complete(&mut state, &reported(3, 10), now);
        assert_eq!(start_all(&mut state, now).0, 0);
    }

    #[test]
    fn starts_a_new_window_at_the_reset_and_ignores_responses_of_the_previous_one() {
        let (mut state, now) = (State::default(), Instant::now());
        assert_eq!(start_all(&mut state, now).0, 1);
        complete(&mut state, &reported(2, 10), now);
        assert_eq!(start_all(&mut state, now).0, 2);
        complete(&mut state, &reported(0, 10), now);
        let next = now + seconds(10.0);
        assert_eq!(start_all(&mut state, next).0, 4, "one request is still in flight");
        complete(&mut state, &reported(3, 60), next);
        complete(&mut state, &reported(0, 1), next);
        assert_eq!(start_all(&mut state, next).0, 0);
        complete(&mut state, &reported(2, 60), next);
        complete(&mut state, &reported(2, 60), next);
        assert_eq!(state.in_flight, 1);
        assert_eq!(start_all(&mut state, next).0, 1);
    }

    #[test]
    fn pauses_all_requests_after_429_and_none_without_a_limit() {
        let (mut state, now) = (State::default(), Instant::now());
        assert!(state.start(now).is_ok());
        complete(&mut state, &ReportedLimit::default(), now);
        for _ in 0..100 {
            assert!(state.start(now).is_ok());
        }
        complete(&mut state, &ReportedLimit { pause: Some(seconds(3.0)), ..ReportedLimit::default() }, now);
        complete(&mut state, &ReportedLimit { pause: Some(seconds(1.0)), ..ReportedLimit::default() }, now);
        assert_eq!(state.start(now + seconds(2.9)), Err(Wait::Until(now + seconds(3.0))));
        assert!(state.start(now + seconds(3.0)).is_ok());
    }

    #[test]
    fn halves_concurrency_once_for_402s_of_concurrent_requests() {
        let (mut state, now) = (State { window: Window::Unlimited, ..State::default() }, Instant::now());
        for _ in 0..8 {
            assert_eq!(state.start(now), Ok(false));
        }
        let later = now + seconds(1.0);
        state.reduce_concurrency(now, later);
        state.reduce_concurrency(now, later);
        state.in_flight = 0;
        assert_eq!(start_all(&mut state, later), (4, Wait::Response));
        state.in_flight = 1;
        state.reduce_concurrency(later, later);
        state.in_flight = 0;
        assert_eq!(state.start(later), Ok(true), "no other request is in flight");
    }

    #[test]
    fn parses_headers_with_parameters_and_unix_times() {
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit-limit", "100, 100;w=60".parse().unwrap());
        headers.insert("ratelimit-reset", "7".parse().unwrap());
        let parsed = ReportedLimit::read(429, &headers);
        assert_eq!((parsed.limit, parsed.pause), (Some(100), Some(seconds(7.0))));
        assert_eq!(ReportedLimit::read(429, &HeaderMap::new()).pause, Some(ReportedLimit::PAUSE_MIN));
        let in_an_hour = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600;
        assert!((3590..=3600).contains(&duration_from_now(in_an_hour).as_secs()));
    }
}
