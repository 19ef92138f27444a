//! Limits, credits, and servers that fail.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{bulk, lines, table, with_people};
use crate::enrich::Enrich;
use crate::fake::{FakeServer, Reply, error, found};

/// The 21st request receives this error. Concurrent requests receive their replies a second later, after the
/// client has received the error.
#[test]
fn pauses_all_requests_after_429_and_503() {
    for (status, code) in [(429, "rate_limited"), (503, "rate_limit_unavailable")] {
        let count = AtomicUsize::new(0);
        let server = FakeServer::start(move |email, _| match count.fetch_add(1, Ordering::SeqCst) {
            20 => error(status, code, "retry-after: 2\r\n"),
            21..=23 => {
                std::thread::sleep(Duration::from_secs(1));
                found(email)
            }
            _ => found(email),
        });
        let enrich = Enrich::new();
        enrich.file("crm.csv", table(60));
        let out = enrich.ok(&bulk(&server.url, "enr_x", &["crm.csv", "--concurrency", "4"]));
        assert_eq!(out.matches(",found,").count(), 60, "{status}");
        let requests = server.request_times();
        assert_eq!(requests.len(), 61, "{status}: one request was repeated");
        let mut gaps = requests.windows(2).map(|pair| pair[1] - pair[0]);
        let pause = gaps.position(|gap| gap >= Duration::from_millis(1_900)).expect("a pause");
        // Only requests that were in flight arrived before the pause.
        assert!((20..=23).contains(&pause), "{status}: {pause}");
    }
}

/// The reply for the second row is held back, so that all rows after it wait, and fails. The server reports no limit.
#[test]
fn long_rows_that_wait_take_bounded_memory() {
    let (replied, overtaken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let server = FakeServer::start({
        let overtaken = overtaken.clone();
        move |email, _| {
            match email {
                "p1@gmail.com" => {
                    let deadline = Instant::now() + Duration::from_secs(3);
                    while !overtaken.load(Ordering::SeqCst) && Instant::now() < deadline {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    replied.store(true, Ordering::SeqCst);
                    return error(502, "lookup_error", "");
                }
                "p50@gmail.com" if !replied.load(Ordering::SeqCst) => overtaken.store(true, Ordering::SeqCst),
                _ => {}
            }
            found(email)
        }
    });
    let enrich = Enrich::new();
    let note = "x".repeat(1_000_000);
    let rows: String = (0..60).map(|n| format!("p{n}@gmail.com,{note}\n")).collect();
    enrich.file("crm.csv", format!("email,note\n{rows}"));
    enrich.run(&bulk(&server.url, "enr_x", &["crm.csv", "-o", "out.csv", "--concurrency", "4"]));
    assert_eq!((lines(&enrich.path("out.csv")), server.requests().len()), (61, 64), "p1 has 5 tries");
    assert!(!overtaken.load(Ordering::SeqCst), "50 MB of rows waited for the result of an earlier row");
}

/// The server says with the last request of a window how long the next one must wait.
#[test]
fn reports_pauses_and_continues_in_the_next_window() {
    let enrich = Enrich::new();
    enrich.ok(&["workspace", "create", "demo", "--credits", "99", "--limit", "20", "--window", "8"]);
    let key = enrich.ok(&["key", "create", "demo", "test"]);
    let server = enrich.serve(&[]);
    enrich.file("crm.csv", table(50));
    let args = bulk(&server.url, &key, &["crm.csv", "-o", "out.csv", "--concurrency", "1", "--json"]);
    let ran = enrich.run(&args);
    assert!(ran.success, "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let [paused, seconds] = ["paused_seconds", "seconds"].map(|name| summary[name].as_f64().unwrap());
    assert!(
        (7.0..=seconds).contains(&paused),
        "two pauses, of which the second is a whole window: {summary}"
    );
    assert_eq!(summary["not_found"], 50);
    assert!(
        ran.stderr
            .lines()
            .last()
            .is_some_and(|line| line.starts_with("paused ") && line.ends_with(" s: burst limit")),
        "{}",
        ran.stderr
    );
    let log = server.stop();
    assert!(!log.contains("rate_limited"), "{log}");
}

/// Pauses are reported once they add up to 5 s.
#[test]
fn reports_short_pauses_that_add_up() {
    let refuse = |status, code, headers: &'static str, reason: &str| {
        let first = OnceLock::new();
        let server =
            FakeServer::start(move |email, _| match first.get_or_init(Instant::now).elapsed().as_secs() {
                0..8 => error(status, code, headers),
                _ => found(email),
            });
        let enrich = Enrich::new();
        enrich.file("crm.csv", table(1));
        let ran = enrich.run(&bulk(&server.url, "enr_x", &["crm.csv"]));
        let expected = format!(" s: {reason}");
        assert_eq!(ran.stderr.matches(&expected).count(), 1, "{}", ran.stderr);
        assert!(ran.success && ran.stderr.starts_with("paused "), "{}", ran.stderr);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| refuse(429, "rate_limited", "retry-after: 1\r\n", "burst limit"));
        let held = "error-reason: credits-held\r\n";
        refuse(402, "insufficient_credits", held, "other lookups hold the last credits");
    });
}

/// The first row is refused after the others have their answers.
#[test]
fn keeps_answers_behind_a_row_without_credits() {
    const ROWS: usize = 100;
    let answered = AtomicUsize::new(0);
    let server = FakeServer::start(move |email, _| {
        if email != "p0@gmail.com" {
            answered.fetch_add(1, Ordering::SeqCst);
            return found(email);
        }
        crate::enrich::eventually("the answers", || {
            (answered.load(Ordering::SeqCst) == ROWS - 1).then_some(())
        });
        error(402, "insufficient_credits", "request-id: lookup_1\r\n")
    });
    let enrich = Enrich::new();
    enrich.file("crm.csv", table(ROWS));
    for run in 0..2 {
        let ran = enrich.run(&bulk(&server.url, "enr_x", &["crm.csv", "-o", "out.csv", "--json"]));
        let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((ran.code, &summary["stopped"]), (Some(3), &"insufficient_credits".into()));
        for expected in [
            "stopped after 100 rows",
            "no credits left",
            "request id lookup_1",
            "enrich credits grant",
            "run the same command again to resume",
        ] {
            assert!(ran.stderr.contains(expected), "{}", ran.stderr);
        }
        let out = std::fs::read_to_string(enrich.path("out.csv")).unwrap();
        assert!(out.contains("\n0,p0@gmail.com,,no_answer,,\n"), "{out}");
        assert_eq!(out.matches(",found,").count(), ROWS - 1);
        assert_eq!(server.requests().len(), ROWS + run, "only the first row is looked up again");
    }
}

#[test]
fn waits_for_held_credits_before_stopping_on_402() {
    let (enrich, key) = with_people(1, 3, 500);
    let server = enrich.serve(&[]);
    let file = enrich.file("crm.csv", table(200));
    let out = enrich.ok(&bulk(&server.url, &key, &[file.to_str().unwrap(), "--concurrency", "100"]));
    assert_eq!((out.matches(",found,").count(), out.matches(",not_found,").count()), (1, 199));
}

/// Rows without an answer are not written.
#[test]
fn stops_if_no_row_can_be_answered() {
    let answers = |reply: fn(&str) -> Reply| FakeServer::start(move |email, _| reply(email));
    let refusing = answers(|_| error(401, "unauthorized", "request-id: lookup_1\r\n"));
    let failing = answers(|email| match email {
        "p0@gmail.com" => found(email),
        _ => error(502, "lookup_error", ""),
    });
    let other = answers(|_| error(404, "invalid_request", ""));
    for (url, code, expected, rows) in [
        (&*refusing.url, 3, "the server refused the API key (request id lookup_1)", 0),
        (&failing.url, 1, "20 lookups in a row failed", 1),
        (&other.url, 1, "check --url", 0),
        ("http://127.0.0.1:1", 4, "cannot reach", 0),
    ] {
        let enrich = Enrich::new();
        enrich.file("crm.csv", table(100));
        let ran = enrich.run(&bulk(url, "enr_x", &["crm.csv", "-o", "out.csv"]));
        assert!(ran.code == Some(code) && ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
        assert!(!ran.stderr.contains("gmail") && !ran.stderr.contains("enr_x"), "{expected}: {}", ran.stderr);
        assert_eq!(super::lines(&enrich.path("out.csv")), 1 + rows, "{expected}");
    }
}

/// The server answers one other lookup after each last request for a failing person.
#[test]
fn continues_if_failed_lookups_do_not_follow_one_another() {
    const FAILING: usize = 25;
    let failed = AtomicUsize::new(0);
    let server = FakeServer::start(move |email, before| {
        let number: usize = email[1..].split('@').next().unwrap().parse().unwrap();
        if number < FAILING {
            failed.fetch_add(usize::from(before == 4), Ordering::SeqCst);
            return error(502, "lookup_error", "");
        }
        crate::enrich::eventually("failures", || {
            (failed.load(Ordering::SeqCst) > number - FAILING).then_some(())
        });
        found(email)
    });
    let enrich = Enrich::new();
    enrich.file("crm.csv", table(2 * FAILING));
    let ran = enrich.run(&bulk(&server.url, "enr_x", &["crm.csv", "--concurrency", "50"]));
    let count = |status: &str| ran.stdout.matches(&format!(",{status},")).count();
    assert_eq!((count("lookup_error"), count("found")), (FAILING, FAILING), "{}", ran.stderr);
}
