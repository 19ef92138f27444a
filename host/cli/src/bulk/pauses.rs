//! Pauses of a run: the server's rate-limit headers state until when it refuses requests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use tokio::time::{Instant, sleep_until};

use crate::client::Response;

/// Minimum pause after a 429.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum pause: the longest window.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A time in which no request is sent.
#[derive(Clone, Copy)]
pub struct Pause {
    pub began_at: Instant,
    pub ends_at: Instant,
    pub reason: &'static str,
}

/// The pauses of a run. All its lookups share them.
#[derive(Default)]
pub struct Pauses(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<Pause>,
    /// The length of the pauses before the last one, by their reasons.
    totals: BTreeMap<&'static str, Duration>,
}

impl Pauses {
    /// Waits until a request may be sent. Cancel safe.
    pub async fn ended(&self) {
        while let Some(pause) = self.current() {
            sleep_until(pause.ends_at).await;
        }
    }

    /// Returns the current pause.
    pub fn current(&self) -> Option<Pause> {
        self.lock().last.filter(|pause| Instant::now() < pause.ends_at)
    }

    /// Returns the length of all pauses so far, by their reasons.
    pub fn totals(&self) -> BTreeMap<&'static str, Duration> {
        let (state, now) = (self.lock(), Instant::now());
        let mut totals = state.totals.clone();
        if let Some(pause) = &state.last {
            *totals.entry(pause.reason).or_default() += pause.ends_at.min(now) - pause.began_at;
        }
        totals
    }

    /// Pauses if the response says that the server refuses requests.
    pub fn update(&self, response: &Response) {
        if let Some((length, reason)) = refusal(response.status.as_u16(), &response.headers) {
            self.pause(length, reason);
        }
    }

    /// Pauses for this time from now on.
    pub fn pause(&self, length: Duration, reason: &'static str) {
        self.lock().pause(length, reason, Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pause(&mut self, length: Duration, reason: &'static str, now: Instant) {
        let ends_at = now + length;
        match &mut self.last {
            Some(pause) if now < pause.ends_at => pause.ends_at = pause.ends_at.max(ends_at),
            last => {
                if let Some(pause) = last {
                    *self.totals.entry(pause.reason).or_default() += pause.ends_at - pause.began_at;
                }
                *last = Some(Pause { began_at: now, ends_at, reason });
            }
        }
    }
}

/// Returns for how long the server refuses requests after this response (specification 8.2), and why.
fn refusal(status: u16, headers: &HeaderMap) -> Option<(Duration, &'static str)> {
    const LIMIT: &str = "burst limit";
    let reset = || integer(headers, "ratelimit-reset").map(duration_from_now);
    match status {
        429 => Some((retry_after(headers).or_else(reset).unwrap_or_default().max(PAUSE_MIN), LIMIT)),
        503 => Some((retry_after(headers)?, "the server is unavailable")),
        _ if integer(headers, "ratelimit-remaining")? == 0 => Some((reset()?, LIMIT)),
        _ => None,
    }
}

/// Parses `Retry-After` (RFC 9110, 10.2.3), which is a date or a number.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let date = |name: HeaderName| httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok();
    if let Some(end) = date(RETRY_AFTER) {
        // The server's clock may differ from the local one.
        let now = date(DATE).unwrap_or_else(SystemTime::now);
        return Some(end.duration_since(now).unwrap_or_default().min(PAUSE_MAX));
    }
    integer(headers, RETRY_AFTER.as_str()).map(duration_from_now)
}

/// Parses the integer at the start of a header. Some servers append parameters to it.
fn integer(headers: &HeaderMap, name: &str) -> Option<u64> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Converts a time in a header to a duration from now. The specification leaves the unit open: small numbers
/// are seconds from now, large ones are Unix time in seconds or milliseconds.
fn duration_from_now(number: u64) -> Duration {
    const UNIX_SECONDS_MIN: u64 = 1_000_000_000;
    const UNIX_MILLIS_MIN: u64 = 1_000 * UNIX_SECONDS_MIN;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let length = match number {
        UNIX_MILLIS_MIN.. => Duration::from_millis(number).saturating_sub(now),
        UNIX_SECONDS_MIN.. => Duration::from_secs(number).saturating_sub(now),
        _ => Duration::from_secs(number),
    };
    length.min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn paused_seconds(status: u16, headers: &[(&'static str, &str)]) -> Option<u64> {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"))
        });
        refusal(status, &headers.collect()).map(|(length, _)| length.as_secs())
    }

    #[test]
    fn reads_the_pause_from_the_headers() {
        const DATES: [&str; 2] = ["Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:41 GMT"];
        let in_a_minute = SystemTime::now() + Duration::from_mins(1);
        let unix = in_a_minute.duration_since(UNIX_EPOCH).unwrap();
        for (status, headers, expected) in [
            (200, &[][..], None),
            (200, &[("ratelimit-remaining", "1"), ("ratelimit-reset", "9")], None),
            (200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "9")], Some(9)),
            (404, &[("ratelimit-remaining", "0;w=60"), ("ratelimit-reset", "9;w=60")], Some(9)),
            (429, &[], Some(1)),
            (429, &[("retry-after", "0")], Some(1)),
            (429, &[("ratelimit-reset", "7")], Some(7)),
            (429, &[("retry-after", "5"), ("ratelimit-reset", "7")], Some(5)),
            (503, &[], None),
            (503, &[("retry-after", "3")], Some(3)),
            (503, &[("retry-after", "100000")], Some(86_400)),
            (503, &[("date", DATES[0]), ("retry-after", DATES[1])], Some(4)),
            (503, &[("date", DATES[1]), ("retry-after", DATES[0])], Some(0)),
            (429, &[("retry-after", DATES[0])], Some(1)),
            (429, &[("ratelimit-reset", &u64::MAX.to_string())], Some(86_400)),
        ] {
            assert_eq!(paused_seconds(status, headers), expected, "{status} {headers:?}");
        }
        for (name, end) in [
            ("ratelimit-reset", unix.as_secs().to_string()),
            ("ratelimit-reset", unix.as_millis().to_string()),
            ("retry-after", httpdate::fmt_http_date(in_a_minute)),
        ] {
            let seconds = paused_seconds(429, &[(name, &end)]).unwrap();
            assert!((55..=60).contains(&seconds), "{end}: {seconds} s");
        }
    }

    #[test]
    fn overlapping_pauses_count_once() {
        let (start, mut state) = (Instant::now(), State::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (now, length) in [(0, 4), (2, 1), (3, 3), (10, 2), (20, 1)] {
            state.pause(Duration::from_secs(length), "", at(now));
        }
        let last = state.last.unwrap();
        assert_eq!((state.totals[""].as_secs(), last.began_at, last.ends_at), (8, at(20), at(21)));
    }
}
