//! An interrupted run resumes where it stopped.

use std::sync::Mutex;
use std::sync::mpsc;

use super::{bulk, start, table};
use crate::enrich::{Enrich, Signal, eventually, send, wait_until_interrupted};
use crate::fake::{FakeServer, error, found};

#[test]
fn failing_retries_do_not_stop_new_rows() {
    let server = FakeServer::start(|email, _| match email {
        "p50@gmail.com" => found(email),
        _ => error(502, "lookup_error", ""),
    });
    let enrich = Enrich::new();
    let failed = table(50).lines().skip(1).map(|row| format!("{row},,lookup_error,,\n")).collect::<String>();
    let failed = format!("row,email,linkedin_url,status,lookup_id,reason\n{failed}");
    let out = enrich.file("out.csv", &failed);
    enrich.file("crm.csv", table(51));
    let error = enrich.run(&bulk(&server.url, "enr_x", &["crm.csv", "-o", "out.csv"])).stderr;
    assert!(error.contains("50 rows have an error status"), "{error}");
    let row = "50,p50@gmail.com,https://www.linkedin.com/in/p50,found,id-p50,\n";
    assert_eq!(std::fs::read_to_string(out).unwrap(), failed + row);
}

/// OUT is replaced first, because it has a row without an answer. No other run can write the new one.
#[test]
fn second_ctrl_c_exits_immediately() {
    let (request_sender, request_receiver) = mpsc::channel();
    let request_sender = Mutex::new(request_sender);
    let server = FakeServer::start(move |email, _| {
        if email == "p0@gmail.com" {
            return found(email);
        }
        request_sender.lock().unwrap().send(()).unwrap();
        std::thread::sleep(crate::enrich::TIMEOUT);
        None
    });
    let enrich = Enrich::new();
    let file = enrich.file("crm.csv", table(3));
    let out = enrich
        .file("out.csv", "row,email,linkedin_url,status,lookup_id,reason\n0,p0@gmail.com,,no_answer,,\n");
    let args = bulk(&server.url, "enr_x", &[file.to_str().unwrap(), "-o", "out.csv"]);
    let mut run = start(&enrich, &args);
    request_receiver.recv().unwrap();
    let has_match = || std::fs::read_to_string(&out).is_ok_and(|rows| rows.contains(",found,"));
    eventually("the correction", || has_match().then_some(()));
    assert!(enrich.err(&args).contains("another run is writing"));
    send(Signal::INT, &run);
    let _stderr = wait_until_interrupted(&mut run);
    send(Signal::INT, &run);
    assert_eq!(run.wait().unwrap().code(), Some(130));
}

/// The emails of both columns are those of different rows.
#[test]
fn refuses_the_output_of_another_column_or_kind_of_key() {
    let server = FakeServer::start(|email, _| found(email));
    let enrich = Enrich::new();
    enrich.file("crm.csv", "home,work\np0@gmail.com,p1@gmail.com\np1@gmail.com,p0@gmail.com\n");
    let args = |key, column| bulk(&server.url, key, &["crm.csv", "-o", "out.csv", "--column", column]);
    enrich.ok(&args("enr_test_x", "home"));
    enrich.ok(&args("enr_test_y", "Home"));
    let out = || std::fs::read_to_string(enrich.path("out.csv")).unwrap();
    let answered = out();
    for (key, column, expected) in [
        (
            "enr_test_x",
            "work",
            "out.csv is the output of --column home with a test key, not of --column work with",
        ),
        ("enr_x", "home", "with a test key, not of --column home with a live key"),
    ] {
        let error = enrich.err(&args(key, column));
        assert!(error.contains(expected) && error.contains("--force"), "{error}");
        assert_eq!((out(), server.requests().len()), (answered.clone(), 2));
    }
    enrich.ok(&[&args("enr_x", "work")[..], &["--force"]].concat());
    assert!(out().contains("\np0@gmail.com,p1@gmail.com,https://www.linkedin.com/in/p1,"), "{}", out());
    for damaged in ["0123456789abcdef0123456789abcdef", "{\"id\":\"0"] {
        enrich.file("out.csv.run", damaged);
        let error = enrich.err(&args("enr_x", "work"));
        assert!(error.contains("out.csv.run, or remove it") && error.contains("billed again"), "{error}");
    }
    let header = out().lines().next().unwrap().to_owned() + "\n";
    enrich.ok(&[&args("enr_test_x", "work")[..], &["--force"]].concat());
    enrich.file("out.csv", &header); // there is nothing to mix
    enrich.ok(&args("enr_x", "home"));
    enrich.file("out.csv", header); // its lookups may have been billed
    assert!(enrich.err(&args("enr_x", "work")).contains("is the output of --column home with a live key"));
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
        (&format!("{},note", answered.trim_end()), "its last row differs"),
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

    let lines = enrich.file("crm.jsonl", "{\"email\":\"p0@gmail.com\"}\n");
    let args = bulk(&server.url, "enr_x", &[lines.to_str().unwrap(), "-o", "out.jsonl"]);
    enrich.ok(&args);
    let out = enrich.path("out.jsonl");
    let content = std::fs::read_to_string(&out).unwrap().trim_end().to_owned() + "note";
    std::fs::write(&out, &content).unwrap();
    assert!(enrich.err(&args).contains("its last row differs"));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), content);

    for (script, suffix) in [
        ("same -o same", ""),
        ("- -o same --force < same", ""),
        ("same >> same", ""),
        ("- < same >> same", ""),
        ("same.run -o same --force", ".run"),
        ("same.run.partial -o same --force", ".run.partial"),
        ("same.rewrite -o same --force", ".rewrite"),
    ] {
        let file = enrich.file(&format!("same{suffix}"), table(5));
        let script = format!("ulimit -f 99; exec \"$0\" bulk \"$@\" {script}");
        let args = ["--key", "enr_x", "--url", &server.url];
        let ran = enrich.shell(&script, &args).output().unwrap();
        let error = String::from_utf8(ran.stderr).unwrap();
        assert!(error.contains(&format!("FILE and OUT{suffix} are the same file")), "{script}: {error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), table(5), "{script}");
        std::fs::remove_file(enrich.path("same")).unwrap();
    }
    for suffix in [".run", ".run.partial", ".rewrite"] {
        let other = format!("other{suffix}");
        enrich.ok(&bulk(&server.url, "enr_x", &[file, "-o", &other]));
        for force in [&[][..], &["--force"]] {
            let error =
                enrich.err(&[&bulk(&server.url, "enr_x", &[file, "-o", "other"])[..], force].concat());
            assert!(error.contains(&format!("{other} is the output of another run")), "{error}");
        }
        assert_eq!(std::fs::read_to_string(enrich.path(&other)).unwrap(), answered);
        for name in [&*other, &format!("{other}.run")] {
            std::fs::remove_file(enrich.path(name)).unwrap();
        }
    }
    let locked = std::fs::File::open(&out).unwrap();
    locked.lock().unwrap();
    assert!(enrich.err(&args).contains("another run is writing"));
}
