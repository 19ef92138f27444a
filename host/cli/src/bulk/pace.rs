//! A client-side rate limit: sends each request as soon as the server's rate-limit headers permit it.
//!
//! Requests of the workspace's other clients are not visible here. If they exhaust the limit, the server responds with 429,
//! and all requests wait.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{HeaderMap, RETRY_AFTER};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::client::Answer;

#[derive(Default)]
pub struct Pace {
    state: Mutex<State>,
    /// Notified when a request ends, because waiting requests may now start.
    changed: Notify,
}

/// Permission to send one request. Dropping it marks the request as finished.
pub struct Turn<'a> {
    pace: &'a Pace,
    started_at: Instant,
    is_alone: bool,
}

impl Pace {
    pub async fn turn(&self) -> Turn<'_> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registers before the state is checked, so that no notification is missed.
            changed.as_mut().enable();
            let started_at = Instant::now();
            let started = self.lock().start(started_at);
            match started {
                Ok(is_alone) => return Turn { pace: self, started_at, is_alone },
                Err(Wait::Answer) => changed.await,
                Err(Wait::Until(time)) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(time) => {}
                },
            }
        }
    }

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

impl Turn<'_> {
    /// Updates the rate limit from the response's headers.
    pub fn answered(self, answer: &Answer) {
        let says = Says::read(answer.status.as_u16(), &answer.headers);
        self.pace.lock().learn(&says, Instant::now());
    }

    /// Returns whether a 402 means that the workspace is out of credits. This is certain only if no other lookup was in
    /// flight: others hold credits, which they may release. Also reduces the number of lookups in flight from now on.
    pub fn is_out_of_credits(&self) -> bool {
        self.pace.lock().refuse_credits(self.started_at, Instant::now());
        self.is_alone
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pace.lock().in_flight -= 1;
        self.pace.changed.notify_waiters();
    }
}

/// The rate limit as reported by a response (specification 8.2).
#[derive(Default)]
struct Says {
    limit: Option<u64>,
    remaining: Option<u64>,
    reset: Option<Duration>,
    /// How long no request may be sent.
    pause: Option<Duration>,
}

impl Says {
    /// Minimum pause after a 429.
    const PAUSE: Duration = Duration::from_secs(1);

    fn read(status: u16, headers: &HeaderMap) -> Self {
        let reset = integer(headers, "ratelimit-reset").map(delta);
        let retry_after = integer(headers, RETRY_AFTER.as_str()).map(delta);
        let pause = match status {
            429 => Some(retry_after.or(reset).unwrap_or_default().max(Self::PAUSE)),
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
fn delta(number: u64) -> Duration {
    const SINCE_1970_MIN: u64 = 1_000_000_000;
    if number < SINCE_1970_MIN {
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
    credits: Option<(u64, Instant)>,
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
    Answer,
    Until(Instant),
}

/// Tolerance between the reset times that responses report for one window. They differ by rounding and network delay.
const SLACK: Duration = Duration::from_secs(2);

impl State {
    /// Starts a request. Returns whether it runs alone, with no other request until it finishes.
    ///
    /// Errors: the event to wait for.
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
                return Err(resets_at.map_or(Wait::Answer, Wait::Until));
            }
            Window::Limited { .. } => true,
        };
        let in_flight_max = self.credits.map_or(u64::MAX, |(max, _)| max);
        if !may_start || self.in_flight >= in_flight_max {
            return Err(Wait::Answer);
        }
        self.in_flight += 1;
        Ok(in_flight_max == 1 || matches!(self.window, Window::Unknown))
    }

    fn refuse_credits(&mut self, started_at: Instant, now: Instant) {
        // Requests that were in flight together count as one refusal.
        if self.credits.is_none_or(|(_, since)| started_at >= since) {
            self.credits = Some(((self.in_flight / 2).max(1), now));
        }
    }

    fn learn(&mut self, says: &Says, now: Instant) {
        if let Some(pause) = says.pause {
            self.paused_until = self.paused_until.max(Some(now + pause));
        }
        let (Some(said), Some(reset)) = (says.remaining, says.reset) else {
            if matches!(self.window, Window::Unknown) {
                self.window = Window::Unlimited;
            }
            return;
        };
        let reset_at = now + reset;
        let limit = says.limit.unwrap_or(said).max(1);
        let remaining = match self.window {
            Window::Limited { resets_at: Some(time), .. } if reset_at + SLACK < time => return, // a previous window
            Window::Limited { resets_at: Some(time), .. } if reset_at > time + SLACK => said, // the next window
            Window::Limited { remaining, .. } => remaining.min(said),
            Window::Unknown | Window::Unlimited => said,
        };
        let resets_at = match self.window {
            Window::Limited { resets_at: Some(time), .. } if reset_at <= time + SLACK => time.min(reset_at),
            _ => reset_at,
        };
        self.window = Window::Limited { limit, remaining, resets_at: Some(resets_at) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(remaining: u64, reset_s: u64) -> Says {
        let reset = Some(Duration::from_secs(reset_s));
        Says { limit: Some(5), remaining: Some(remaining), reset, pause: None }
    }

    fn after(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Starts as many requests as may be in flight.
    fn start_all(state: &mut State, now: Instant) -> (u64, Wait) {
        let before = state.in_flight;
        loop {
            if let Err(wait) = state.start(now) {
                return (state.in_flight - before, wait);
            }
        }
    }

    fn answer(state: &mut State, says: &Says, now: Instant) {
        state.in_flight -= 1;
        state.learn(says, now);
    }

    #[test]
    fn one_request_finds_out_and_then_no_more_are_in_flight_than_remain() {
        let (mut state, now) = (State::default(), Instant::now());
        assert_eq!(start_all(&mut state, now), (1, Wait::Answer));
        answer(&mut state, &says(4, 10), now);
        assert_eq!(start_all(&mut state, now), (4, Wait::Until(now + after(10.0))));
        // Responses arrive out of order: the lowest number counts.
        answer(&mut state, &says(1, 10), now);
        answer(&mut state, &says(3, 10), now);
        assert_eq!(start_all(&mut state, now).0, 0);
    }

    #[test]
    fn a_new_window_begins_when_the_old_one_is_over_and_not_with_its_late_answers() {
        let (mut state, now) = (State::default(), Instant::now());
        assert_eq!(start_all(&mut state, now).0, 1);
        answer(&mut state, &says(2, 10), now);
        assert_eq!(start_all(&mut state, now).0, 2);
        answer(&mut state, &says(0, 10), now);
        let next = now + after(10.0);
        assert_eq!(start_all(&mut state, next).0, 4, "one is in flight still");
        answer(&mut state, &says(3, 60), next);
        answer(&mut state, &says(0, 1), next);
        assert_eq!(start_all(&mut state, next).0, 0);
        answer(&mut state, &says(2, 60), next);
        answer(&mut state, &says(2, 60), next);
        assert_eq!(state.in_flight, 1);
        assert_eq!(start_all(&mut state, next).0, 1);
    }

    #[test]
    fn a_refusal_pauses_all_and_a_server_without_a_limit_never() {
        let (mut state, now) = (State::default(), Instant::now());
        assert!(state.start(now).is_ok());
        answer(&mut state, &Says::default(), now);
        for _ in 0..100 {
            assert!(state.start(now).is_ok());
        }
        answer(&mut state, &Says { pause: Some(after(3.0)), ..Says::default() }, now);
        answer(&mut state, &Says { pause: Some(after(1.0)), ..Says::default() }, now);
        assert_eq!(state.start(now + after(2.9)), Err(Wait::Until(now + after(3.0))));
        assert!(state.start(now + after(3.0)).is_ok());
    }

    #[test]
    fn refused_credits_halve_what_is_in_flight_once_for_all_that_were_sent_together() {
        let (mut state, now) = (State { window: Window::Unlimited, ..State::default() }, Instant::now());
        for _ in 0..8 {
            assert_eq!(state.start(now), Ok(false));
        }
        let then = now + after(1.0);
        state.refuse_credits(now, then);
        state.refuse_credits(now, then);
        state.in_flight = 0;
        assert_eq!(start_all(&mut state, then), (4, Wait::Answer));
        state.in_flight = 1;
        state.refuse_credits(then, then);
        state.in_flight = 0;
        assert_eq!(state.start(then), Ok(true), "this one is alone");
    }

    #[test]
    fn numbers_are_read_as_servers_write_them() {
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit-limit", "100, 100;w=60".parse().unwrap());
        headers.insert("ratelimit-reset", "7".parse().unwrap());
        let read = Says::read(429, &headers);
        assert_eq!((read.limit, read.pause), (Some(100), Some(after(7.0))));
        assert_eq!(Says::read(429, &HeaderMap::new()).pause, Some(Says::PAUSE));
        let in_an_hour = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600;
        assert!((3590..=3600).contains(&delta(in_an_hour).as_secs()));
    }
}
