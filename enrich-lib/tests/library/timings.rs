//! The clock readings of a lookup, and the length of its hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use enrich_lib::lookup::{Policy, Request};
use enrich_lib::observe::{Durations, LookupEvent, Observer};

use crate::scripted::{Call, Script, answer_with, api_key};

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
fn hold_lasts_as_long_as_the_policy_says() {
    let policy = Arc::new(Policy::default().with_hold_ttl(Duration::from_secs(7)));
    let (_, calls) = answer_with(&policy, GOES_WELL, request(r#"{"email":"ada@gmail.com"}"#), &());
    assert!(matches!(&calls[2], Call::Hold(hold) if hold.ttl == Duration::from_secs(7)), "{calls:?}");
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
