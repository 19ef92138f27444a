//! An interrupted run resumes where it stopped.

use std::sync::Mutex;
use std::sync::mpsc;

use super::{bulk, lines, spent, start, table, wait, wait_for_rows, with_people};
use crate::enrich::{Enrich, Signal, eventually, send};
use crate::fake::{FakeServer, found};

const ROWS: usize = 2000;

/// Checks that each of `rows` rows is present once, in order, and found.
fn assert_whole(enrich: &Enrich, rows: usize) {
    let out = std::fs::read_to_string(enrich.path("out.csv")).unwrap();
    assert_eq!(out.lines().count(), rows + 1);
    for (i, line) in out.lines().skip(1).enumerate() {
        let start = format!("{i},p{i}@gmail.com,https://www.linkedin.com/in/p-{i},found,lookup_");
        assert!(line.starts_with(&start), "{line}");
    }
    assert!(!enrich.path("out.csv.run").exists());
}

#[test]
fn ctrl_c_finishes_requests_in_flight_and_bills_no_match_twice() {
    let (enrich, key) = with_people(ROWS, ROWS as u64, 1_000_000);
    let server = enrich.serve(&[]);
    let file = enrich.file("crm.csv", table(ROWS));
    let args = bulk(&server.url, &key, &[file.to_str().unwrap(), "-o", "out.csv"]);
    let out = enrich.path("out.csv");
    for round in 0..3 {
        let run = start(&enrich, &args);
        wait_for_rows(&out, lines(&out) + 100 + 10 * round);
        send(Signal::INT, &run);
        let ran = wait(run);
        assert_eq!(ran.code, Some(130));
        assert!(ran.stderr.contains("run the same command again to resume"), "{}", ran.stderr);
        assert!(lines(&out) < ROWS, "it was not in the middle any more");
    }
    let ran = enrich.run(&args);
    assert!(ran.success && ran.stderr.contains("resuming after"), "{}", ran.stderr);
    assert_whole(&enrich, ROWS);
    assert_eq!(spent(&enrich), ROWS as u64);
    assert!(enrich.run(&args).success, "and again there is nothing to do");
    assert_eq!(spent(&enrich), ROWS as u64);
}

/// The first rows have an error, so that the kills interrupt their correction, too. There are no credits for a
/// second spend.
#[test]
fn kill_at_any_moment_bills_each_match_once() {
    const ROWS: usize = 8_000;
    const KILLS: usize = 50;
    let (enrich, key) = with_people(ROWS, ROWS as u64, 1_000_000);
    let server = enrich.serve(&[]);
    let file = enrich.file("crm.csv", table(ROWS));
    let failed = table(60).lines().skip(1).map(|row| format!("{row},,no_answer,,\n")).collect::<String>();
    let out = enrich.file("out.csv", format!("row,email,linkedin_url,status,lookup_id,reason\n{failed}"));
    let args = bulk(&server.url, &key, &[file.to_str().unwrap(), "-o", "out.csv"]);
    let killed = [&args[..], &["--concurrency", "2"]].concat();
    let rewrite = enrich.path("out.csv.rewrite");
    for kill in 0..KILLS {
        let before = lines(&out);
        let mut run = start(&enrich, &killed);
        // From before the first request to the middle of the rows.
        let rows = kill % 5 * 12;
        eventually("rows", || {
            (rows == 0 || lines(&out) > before + rows || lines(&rewrite) > rows).then_some(())
        });
        run.kill().unwrap();
        wait(run);
    }
    assert!(lines(&out) < ROWS, "it was not in the middle any more");
    enrich.ok(&args);
    assert_whole(&enrich, ROWS);
    assert_eq!(spent(&enrich), ROWS as u64);
}

#[test]
fn second_ctrl_c_exits_immediately() {
    let (request_sender, request_receiver) = mpsc::channel();
    let request_sender = Mutex::new(request_sender);
    let server = FakeServer::start(move |_, _| {
        request_sender.lock().unwrap().send(()).unwrap();
        std::thread::sleep(crate::enrich::TIMEOUT);
        None
    });
    let enrich = Enrich::new();
    let file = enrich.file("crm.csv", table(3));
    let mut run = start(&enrich, &bulk(&server.url, "enr_x", &[file.to_str().unwrap()]));
    request_receiver.recv().unwrap();
    send(Signal::INT, &run);
    let mut stderr = std::io::BufReader::new(run.stderr.take().unwrap());
    let mut output = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut output).unwrap();
    assert!(output.contains("Ctrl-C again to exit immediately"), "{output}");
    send(Signal::INT, &run);
    assert_eq!(run.wait().unwrap().code(), Some(130));
}

#[test]
fn resumes_from_output_truncated_at_any_byte() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    for (name, content) in [
        ("crm.csv", "note,email\n\"two\nlines\",p0@gmail.com\n,\n\"a,b\",p1@gmail.com\n"),
        ("crm.jsonl", "{\"email\":\"p0@gmail.com\"}\n{}\n{\"email\":\"p1@gmail.com\",\"n\":null}\n"),
    ] {
        let file = enrich.file(name, content);
        let out = enrich.path("out");
        let args = bulk(&server.url, "enr_x", &[file.to_str().unwrap(), "-o", "out"]);
        enrich.run(&args);
        let whole = std::fs::read(&out).unwrap();
        for cut in 0..=whole.len() {
            // As a power failure may leave them in place of the rest.
            let zeros = if cut > 60 && cut < whole.len() { cut % 2 * 9 } else { 0 };
            std::fs::write(&out, [&whole[..cut], &vec![0; zeros]].concat()).unwrap();
            let before = server.requests().len();
            enrich.run(&args);
            assert_eq!(std::fs::read(&out).unwrap(), whole, "{name} cut at {cut}");
            let whole_rows = [&b"id-p0"[..], b"id-p1"].map(|id| {
                let at = whole.windows(id.len()).position(|part| part == id).unwrap();
                whole[at..].iter().position(|&byte| byte == b'\n').unwrap() + at < cut
            });
            let missing = whole_rows.iter().filter(|is_whole| !**is_whole).count();
            assert_eq!(server.requests().len() - before, missing, "{name} cut at {cut}");
        }
        std::fs::remove_file(&out).unwrap();
    }
}

#[test]
fn refuses_the_output_of_another_input() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    let file = enrich.file("crm.csv", table(5));
    let file = file.to_str().unwrap();
    let args = bulk(&server.url, "enr_x", &[file, "-o", "out.csv"]);
    enrich.ok(&args);
    let out = enrich.path("out.csv");
    let answered = std::fs::read_to_string(&out).unwrap();
    let requests = server.requests().len();
    for (content, expected) in [
        ("dear diary", "its header differs"),
        (&answered.replace("3,p3", "3,q3"), "the row for line 5 differs"),
        (&answered.replace(",found", ",\"found\""), "the row for line 2 differs"),
        (&format!("{answered}5,p5@gmail.com,,not_found,x,\n"), "the number of rows differs"),
    ] {
        std::fs::write(&out, content).unwrap();
        let error = enrich.err(&args);
        assert!(error.contains(expected) && error.contains("--force"), "{expected}: {error}");
        assert!(!error.contains("gmail"), "{error}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), content, "it is as it was");
    }
    assert_eq!(server.requests().len(), requests);
    enrich.ok(&[&args[..], &["--force"]].concat());
    assert_eq!(std::fs::read_to_string(&out).unwrap(), answered);

    let error = enrich.err(&bulk(&server.url, "enr_x", &[file, "-o", file, "--force"]));
    assert!(error.contains("the same file"), "{error}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), table(5));
    let locked = std::fs::File::open(&out).unwrap();
    locked.lock().unwrap();
    assert!(enrich.err(&args).contains("another run is writing"));
}
