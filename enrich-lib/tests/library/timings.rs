//! The clock readings of a lookup, and the names of endings and steps in log lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use enrich_lib::lookup::{Policy, Request};
use enrich_lib::observe::{Durations, Ending, LookupEvent, Observer, Step};
use enrich_lib::refusal::Refusal;

use crate::scripted::{Script, answer_with, api_key};

const GOES_WELL: Script = Script::GOES_WELL;

#[test]
fn total_ends_with_last_check_or_port_call() {
    let tick = Some(Duration::from_millis(1));
    let durations = |ports: [Option<Duration>; 5], total| {
        let mut durations = total_of(total);
        let Durations { keys, windows, hold, resolver, settle, .. } = &mut durations;
        [*keys, *windows, *hold, *resolver, *settle] = ports;
        durations
    };
    let all = durations([tick; 5], ms(5));
    let good = || request(r#"{"email":"ada@gmail.com"}"#);
    assert_eq!(Ticking::new(true).durations(good()), all);
    let to_body = durations([tick, tick, None, None, None], ms(3));
    assert_eq!(Ticking::new(true).durations(request("{")), to_body);
    let mut without_key = good();
    without_key.key = None;
    assert_eq!(Ticking::new(true).durations(without_key), total_of(ms(1)));
}

#[test]
fn untimed_lookup_reads_clock_twice() {
    let total = total_of(ms(1));
    for body in [r#"{"email":"ada@gmail.com"}"#, "{"] {
        assert_eq!(Ticking::new(false).durations(request(body)), total, "{body}");
    }
}

#[test]
fn unit_observer_does_not_time_ports() {
    assert!(!().times_ports(Duration::ZERO));
    assert_eq!(().now(), Duration::ZERO);
}

#[test]
fn ending_has_outcome_and_status_of_reply() {
    for (ending, outcome, status) in [
        (Ending::Found, "found", Some(200)),
        (Ending::NotFound, "not_found", Some(404)),
        (Ending::Refused(Refusal::RateLimited), "rate_limited", Some(429)),
        (Ending::Panicked, "panicked", None),
        (Ending::Abandoned, "abandoned", None),
    ] {
        assert_eq!((ending.outcome(), ending.status()), (outcome, status));
    }
}

#[test]
fn step_has_name_of_transition() {
    use Step::*;
    let names = [Receive, Identify, Admit, Validate, Fund, Resolve, Settle].map(Step::as_str);
    assert_eq!(names, ["receive", "identify", "admit", "validate", "fund", "resolve", "settle"]);
}

/// An observer whose clock advances by 1 ms with each reading.
struct Ticking {
    times_ports: bool,
    readings: AtomicU64,
    durations: Mutex<Option<Durations>>,
}

impl Ticking {
    fn new(times_ports: bool) -> Self {
        Self { times_ports, readings: AtomicU64::new(0), durations: Mutex::default() }
    }

    /// Returns the durations of one lookup.
    fn durations(self, request: Request) -> Durations {
        answer_with(&Arc::new(Policy::default()), GOES_WELL, request, &self);
        self.durations.into_inner().expect("no panic").expect("one event")
    }
}

impl Observer for Ticking {
    fn now(&self) -> Duration {
        ms(self.readings.fetch_add(1, Ordering::Relaxed))
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        *self.durations.lock().expect("no panic") = Some(event.durations);
    }

    fn times_ports(&self, _: Duration) -> bool {
        self.times_ports
    }
}

fn request(body: &'static str) -> Request {
    Request::new(Some(api_key().digest()), Ok(body.into()))
}

fn total_of(total: Duration) -> Durations {
    let mut durations = Durations::default();
    durations.total = total;
    durations
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
