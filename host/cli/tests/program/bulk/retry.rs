//! A resumed run repeats the lookups of failed rows but never those of rows with a result.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use serde_json::{Value, json};

use super::{bulk, start, table, wait};
use crate::enrich::{Enrich, Ran, Signal, TIMEOUT, send};
use crate::fake::{FakeServer, error, found};

const HEADER: &str = "row,email,linkedin_url,status,lookup_id,reason\n";

/// Returns the output line that an earlier run wrote for row `i`.
fn line(i: usize, status: &str) -> String {
    match status {
        "found" => format!("{i},p{i}@gmail.com,https://www.linkedin.com/in/p{i},found,id-p{i},\n"),
        _ => format!("{i},p{i}@gmail.com,,{status},,\n"),
    }
}

/// Returns the output for the rows of [`table`] with these statuses.
fn output<'a>(statuses: impl IntoIterator<Item = &'a str>) -> String {
    statuses.into_iter().enumerate().fold(HEADER.to_owned(), |text, (i, status)| text + &line(i, status))
}

/// Runs `bulk` on a table with `rows` rows and the output `out.csv`.
fn run(enrich: &Enrich, server: &FakeServer, rows: usize, args: &[&str]) -> Ran {
    let file = enrich.file("crm.csv", table(rows));
    let args = [&[file.to_str().unwrap(), "-o", "out.csv", "--json"], args].concat();
    enrich.run(&bulk(&server.url, "enr_x", &args))
}

fn read(enrich: &Enrich) -> String {
    std::fs::read_to_string(enrich.path("out.csv")).unwrap()
}

/// Returns the names of the files in the directory of the input.
fn names(enrich: &Enrich) -> BTreeSet<String> {
    let entries = std::fs::read_dir(enrich.path("")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn summary(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn temporary_errors_are_looked_up_again_and_other_errors_on_demand() {
    let is_well = Arc::new(AtomicBool::new(false));
    let server = FakeServer::start({
        let is_well = is_well.clone();
        move |email, _| match email {
            "p1@gmail.com" if !is_well.load(Ordering::SeqCst) => error(502, "lookup_error", ""),
            "p2@gmail.com" if !is_well.load(Ordering::SeqCst) => error(400, "invalid_email", ""),
            _ => found(email),
        }
    });
    let enrich = Enrich::new();
    let ran = run(&enrich, &server, 4, &[]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("run the same command again to retry temporary errors"), "{}", ran.stderr);
    assert_eq!(read(&enrich), output(["found", "lookup_error", "invalid_email", "found"]));

    is_well.store(true, Ordering::SeqCst);
    let before = server.requests().len();
    let ran = run(&enrich, &server, 4, &[]);
    assert!(
        ran.stderr.contains("resuming after 3 completed rows\nretrying 1 row with an error\n"),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.code, Some(1), "invalid_email is an error still");
    assert_eq!(read(&enrich), output(["found", "found", "invalid_email", "found"]));
    let counts = summary(&ran);
    assert_eq!((&counts["rows"], &counts["resumed"], &counts["found"]), (&json!(4), &json!(3), &json!(3)));
    assert_eq!((&counts["errors"], &counts["matches"]), (&json!({"invalid_email": 1}), &json!(1)));

    let ran = run(&enrich, &server, 4, &["--retry-errors"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(read(&enrich), output(["found"; 4]));
    assert_eq!(server.requests()[before..], ["p1@gmail.com", "p2@gmail.com"]);
    assert_eq!(names(&enrich), ["crm.csv", "out.csv"].map(str::to_owned).into());
}

#[test]
fn json_lines_are_corrected_in_place() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    let file = enrich.file("crm.jsonl", "{\"email\":\"p0@gmail.com\"}\n{}\n{\"email\":\"p1@gmail.com\"}\n");
    let args = bulk(&server.url, "enr_x", &[file.to_str().unwrap(), "-o", "out.jsonl", "--retry-errors"]);
    enrich.run(&args);
    let out = enrich.path("out.jsonl");
    let whole = std::fs::read_to_string(&out).unwrap();
    let first_end = whole.find('\n').unwrap();
    let failed =
        r#"{"email":"p0@gmail.com","linkedin_url":null,"status":"no_answer","lookup_id":null,"reason":null}"#;
    std::fs::write(&out, format!("{failed}{}", &whole[first_end..])).unwrap();
    enrich.run(&args);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), whole);
    assert_eq!(server.requests().len(), 3, "a row without an email is never looked up");
}

#[test]
fn looks_up_repeated_emails_once() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    let emails = ["p0", "P0", "p1", "p0", "p1", "p2"].map(|name| format!("{name}@gmail.com"));
    let file = enrich.file("crm.csv", format!("email\n{}\n", emails.join("\n")));
    let args = bulk(&server.url, "enr_x", &[file.to_str().unwrap(), "-o", "out.csv"]);
    let header = "email,linkedin_url,status,lookup_id,reason\n";
    // p1 was found in the row that is in OUT twice.
    let p1 = "p1@gmail.com,https://www.linkedin.com/in/p1,found,id-p1,\n";
    let start =
        ["p0@gmail.com,,no_answer,,\n", "P0@gmail.com,,server_error,,\n", "p1@gmail.com,,lookup_error,,\n"];
    let rest = ["p0@gmail.com,,no_answer,,\n", p1];
    enrich.file("out.csv", [&[header][..], &start, &rest].concat().concat());
    enrich.ok(&args);
    let rows = emails.map(|email| {
        let name = email[..2].to_lowercase();
        format!("{email},https://www.linkedin.com/in/{name},found,id-{name},\n")
    });
    assert_eq!(read(&enrich), format!("{header}{}", rows.concat()));
    assert_eq!(server.requests().into_iter().collect::<BTreeSet<_>>().len(), 2);
    assert_eq!(server.requests().len(), 2, "p2 is new, p0 failed: {:?}", server.requests());
}

#[test]
fn leaves_the_output_unchanged_when_rows_fail_again() {
    let server = FakeServer::start(|email, _| match email {
        "p1@gmail.com" => error(502, "lookup_error", ""),
        _ => found(email),
    });
    let enrich = Enrich::new();
    let before = output(["found", "lookup_error", "found"]);
    enrich.file("out.csv", &before);
    let ran = run(&enrich, &server, 3, &[]);
    assert_eq!((ran.code, read(&enrich)), (Some(1), before));
    let counts = summary(&ran);
    assert_eq!((&counts["rows"], &counts["errors"]), (&json!(3), &json!({"lookup_error": 1})));
}

#[test]
fn failing_retries_do_not_stop_new_rows() {
    let server = FakeServer::start(|email, _| match email {
        "p50@gmail.com" => found(email),
        _ => error(502, "lookup_error", ""),
    });
    let enrich = Enrich::new();
    enrich.file("out.csv", output(["lookup_error"; 50]));
    let ran = run(&enrich, &server, 51, &[]);
    assert!(ran.stderr.contains("50 rows have an error status"), "{}", ran.stderr);
    let counts = summary(&ran);
    assert_eq!((&counts["rows"], &counts["found"]), (&json!(51), &json!(1)));
    assert_eq!(counts["errors"], json!({"lookup_error": 50}));
    assert_eq!(read(&enrich), output(["lookup_error"; 50]) + &line(50, "found"));
}

#[test]
fn ctrl_c_keeps_received_replies_and_exits_with_130() {
    let (request_sender, request_receiver) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let (request_sender, released) = (Mutex::new(request_sender), Mutex::new(released));
    let server = FakeServer::start(move |email, _| {
        request_sender.lock().unwrap().send(()).unwrap();
        released.lock().unwrap().recv_timeout(TIMEOUT).unwrap();
        found(email)
    });
    let enrich = Enrich::new();
    let statuses = ["found", "server_error", "no_answer", "rate_limit_unavailable", "lookup_error", "found"];
    enrich.file("out.csv", output(statuses));
    let file = enrich.file("crm.csv", table(6));
    let args = [file.to_str().unwrap(), "-o", "out.csv", "--concurrency", "1", "--json"];
    for (signal, code, answered) in [(Signal::INT, 130, 2), (Signal::TERM, 143, 3)] {
        let mut child = start(&enrich, &bulk(&server.url, "enr_x", &args));
        for _ in answered..3 {
            request_receiver.recv_timeout(TIMEOUT).unwrap();
            release.send(()).unwrap();
        }
        request_receiver.recv_timeout(TIMEOUT).unwrap();
        send(signal, &child);
        let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut printed = String::new();
        while !printed.contains("finishing 1 lookup in flight") {
            assert_ne!(std::io::BufRead::read_line(&mut stderr, &mut printed).unwrap(), 0, "{printed}");
        }
        release.send(()).unwrap();
        let ran = wait(child);
        assert_eq!(ran.code, Some(code));
        let counts = summary(&ran);
        assert_eq!((&counts["rows"], &counts["stopped"]), (&json!(6), &json!("interrupted")));
        assert_eq!(counts["found"], 2 + answered);
        assert_eq!(read(&enrich).lines().filter(|line| line.contains(",found,")).count(), 2 + answered);
        assert_eq!(read(&enrich).lines().count(), 7);
    }
    (0..2).for_each(|_| release.send(()).unwrap());
    assert_eq!(run(&enrich, &server, 6, &[]).code, Some(0));
    assert_eq!(read(&enrich), output(["found"; 6]));
    assert_eq!(server.requests().len(), 4, "each row once");
    assert_eq!(names(&enrich), ["crm.csv", "out.csv"].map(str::to_owned).into());
}

#[test]
fn rewritten_file_keeps_its_mode_and_symlink() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    std::fs::create_dir(enrich.path("disk")).unwrap();
    let real = enrich.file("disk/real.csv", output(["no_answer", "found"]));
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink(Path::new("disk/real.csv"), enrich.path("out.csv")).unwrap();
    assert_eq!(run(&enrich, &server, 2, &[]).code, Some(0));
    assert_eq!(std::fs::read_to_string(&real).unwrap(), output(["found", "found"]));
    assert!(enrich.path("out.csv").is_symlink());
    assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_dir(enrich.path("disk")).unwrap().count(), 1);
}
