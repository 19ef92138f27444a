use super::*;

fn reported(remaining: u64, reset_s: u64) -> ReportedLimit {
    let reset = Some(Duration::from_secs(reset_s));
    ReportedLimit { limit: Some(5), remaining: Some(remaining), reset, ..ReportedLimit::default() }
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
    state.update(reported, Kind::Normal, now);
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

/// Returns a state without requests in flight whose window ends at `now` + 60 s.
fn exhausted(now: Instant) -> State {
    let mut state = State::default();
    assert!(state.start(now).is_ok());
    complete(&mut state, &reported(0, 60), now);
    state
}

#[test]
fn probes_whether_the_limit_was_raised() {
    let now = Instant::now();
    let (mut state, at) = (exhausted(now), |s| now + seconds(s));
    assert_eq!(state.start(now), Err(Wait::Until(at(10.0))));
    assert_eq!(state.start(at(10.0)), Ok(Kind::Probe));
    assert_eq!(state.start(at(10.0)), Err(Wait::Until(at(60.0))), "one at a time");
    state.in_flight = 0;
    let refused = ReportedLimit { pause: Some(seconds(50.0)), is_limited: true, ..reported(0, 50) };
    state.update(&refused, Kind::Probe, at(10.0));
    assert_eq!(state.start(at(10.0)), Err(Wait::Until(at(20.0))));
    assert_eq!(state.start(at(20.0)), Ok(Kind::Probe));
    state.in_flight = 0;
    state.update(&ReportedLimit { limit: Some(9), ..reported(7, 40) }, Kind::Probe, at(20.0));
    assert_eq!(start_all(&mut state, at(20.0)).0, 7);
    assert_eq!(state.paused, seconds(20.0));
}

#[test]
fn uses_a_raised_limit_before_the_old_one_is_exhausted() {
    let (mut state, now) = (State::default(), Instant::now());
    assert!(state.start(now).is_ok());
    complete(&mut state, &reported(1, 60), now);
    assert!(state.start(now).is_ok());
    complete(&mut state, &ReportedLimit { limit: Some(9), ..reported(4, 60) }, now);
    assert_eq!(start_all(&mut state, now).0, 4);
}

#[test]
fn does_not_probe_an_unavailable_server() {
    let now = Instant::now();
    let mut state = exhausted(now);
    state.update(
        &ReportedLimit { pause: Some(seconds(30.0)), ..ReportedLimit::default() },
        Kind::Normal,
        now,
    );
    assert_eq!(state.start(now), Err(Wait::Until(now + seconds(30.0))));
    assert_eq!(state.start(now + seconds(20.0)), Err(Wait::Until(now + seconds(30.0))));
}

#[test]
fn halves_concurrency_once_for_402s_of_concurrent_requests() {
    let (mut state, now) = (State { window: Window::Unlimited, ..State::default() }, Instant::now());
    for _ in 0..8 {
        assert_eq!(state.start(now), Ok(Kind::Normal));
    }
    let later = now + seconds(1.0);
    state.reduce_concurrency(now, later);
    state.reduce_concurrency(now, later);
    state.in_flight = 0;
    assert_eq!(start_all(&mut state, later), (4, Wait::Response));
    state.in_flight = 1;
    state.reduce_concurrency(later, later);
    state.in_flight = 0;
    assert_eq!(state.start(later), Ok(Kind::Exclusive));
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
