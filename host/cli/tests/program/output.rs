//! Standard output that cannot be written, and machine-readable output.

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::enrich::{Enrich, TIMEOUT, within};
use crate::fake::{FakeServer, found};

/// Every write fails with `ENOSPC`.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// Every write fails with `EPIPE`, as in a pipe whose reader has exited.
fn closed() -> Stdio {
    let (stream, _) = UnixStream::pair().unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    OwnedFd::from(stream).into()
}

/// Returns the exit code and the standard error of a command line whose arguments have no spaces. Without
/// `stdout`, the descriptor is closed.
fn run_to(stdout: impl Into<Option<Stdio>>, enrich: &Enrich, line: &str) -> (i32, String) {
    let args: Vec<_> = line.split(' ').collect();
    let mut command = match stdout.into() {
        Some(stdout) => {
            let mut command = enrich.command(&args);
            command.stdout(stdout);
            command
        }
        None => enrich.shell("exec \"$0\" \"$@\" >&-", &args),
    };
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    if within(TIMEOUT, || child.try_wait().unwrap()).is_none() {
        child.kill().unwrap(); // a server that did not stop
    }
    let out = child.wait_with_output().unwrap();
    (out.status.code().unwrap_or(-1), String::from_utf8(out.stderr).unwrap())
}

/// Returns the number of usable keys of workspace `demo`.
fn usable_keys(enrich: &Enrich) -> usize {
    let keys = enrich.json(&["key", "list", "demo", "--json"]);
    keys.as_array().unwrap().iter().filter(|key| key["revoked_at"].is_null()).count()
}

#[test]
fn dash_is_standard_output_or_refused() {
    let (enrich, _) = Enrich::with_key(1, 500);
    enrich.file("crm.csv", "email\nada@gmail.com\n");
    let server = FakeServer::start(|email, _| found(email));
    let id = enrich.key_id("demo", 0);
    for (line, expected) in [
        ("key create demo x -o -", "enr_"),
        (&*format!("key rotate {id} --output -"), "enr_"),
        (&format!("bulk crm.csv --key enr_x --url {} -o -", server.url), "ada@gmail.com,"),
    ] {
        let ran = enrich.run_line(line);
        assert!(ran.success && ran.stdout.contains(expected), "{line}: {}", ran.stderr);
    }
    for line in [
        "backup -",
        "config check -",
        "workspace create new --data -",
        "people import crm.csv --rejects -",
        "openapi --html -",
        "conform http://127.0.0.1:1 --junit -",
    ] {
        let ran = enrich.run_line(line);
        assert!(ran.code == Some(2) && ran.stderr.contains("write ./- for"), "{line}: {}", ran.stderr);
    }
    assert!(!enrich.path("-").exists());
}

mod unwritable {
    use super::*;

    #[test]
    fn fails_each_command_except_for_a_closed_pipe() {
        let (enrich, _) = Enrich::with_key(9, 500);
        enrich.file("people.csv", "email,linkedin_url\nada@gmail.com,https://www.linkedin.com/in/ada\n");
        enrich.file("enrich.toml", "");
        let server = FakeServer::start(|email, _| found(email));
        let id = enrich.key_id("demo", 0);
        for line in [
            "people import people.csv",
            "people stats",
            "people opt-out ada@gmail.com",
            "people opt-out --show ada@gmail.com",
            "people import people.csv --replace",
            "people opt-out --withdraw ada@gmail.com",
            "workspace list",
            "workspace list --json",
            "key list demo",
            &format!("key set {id} --disable"),
            &format!("key set {id} --enable"),
            &format!("key revoke {id}"),
            "user list",
            "usage demo",
            "usage demo --csv",
            "credits grant demo 1",
            "credits ledger demo",
            "credits ledger demo --json",
            "check",
            "config example",
            "completions bash",
            "openapi",
            "config check enrich.toml",
            "--version",
            "help lookup",
            &format!("lookup ada@gmail.com --key enr_x --url {}", server.url),
        ] {
            let (code, stderr) = run_to(full(), &enrich, line);
            assert_eq!(code, 1, "{line}: {stderr}");
            assert!(stderr.contains("cannot write to standard output: No space left"), "{line}: {stderr}");
            assert_eq!(run_to(closed(), &enrich, line), (0, String::new()), "{line}");
        }
        for (credits, advice) in [("1", "do not grant them"), ("-1 --reason x", "do not withdraw them")] {
            assert!(run_to(full(), &enrich, &format!("credits grant demo {credits}")).1.contains(advice));
        }
    }

    #[test]
    fn closed_pipe_ends_reading() {
        let (enrich, _) = Enrich::with_key(9, 500);
        let db = rusqlite::Connection::open(enrich.data().join("accounts.db")).unwrap();
        db.execute_batch("DROP TABLE credit_spend; DROP TABLE usage_day").unwrap();
        for line in ["credits ledger demo", "credits ledger demo --csv", "usage demo --csv"] {
            assert_eq!(run_to(Stdio::null(), &enrich, line).0, 1, "{line}");
            assert_eq!(run_to(closed(), &enrich, line), (0, String::new()), "{line}");
        }
    }

    #[test]
    fn fails_bulk_for_a_closed_output_too() {
        let enrich = Enrich::new();
        enrich.file("crm.csv", "email\nada@gmail.com\n");
        let server = FakeServer::start(|email, _| found(email));
        for stdout in [Some(full()), Some(closed()), None] {
            let line = format!("bulk crm.csv --key enr_x --url {}", server.url);
            let (code, stderr) = run_to(stdout, &enrich, &line);
            assert!(code == 1 && stderr.contains("cannot write to standard output"), "{stderr}");
        }
    }

    #[test]
    fn revokes_a_new_key_that_could_not_be_delivered() {
        let (enrich, _) = Enrich::with_key(1, 500);
        let outputs = || [Some(full()), Some(closed()), None];
        let ids = || {
            let keys = enrich.json(&["key", "list", "demo", "--json"]);
            keys.as_array()
                .unwrap()
                .iter()
                .map(|key| key["id"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let first = &ids()[0];
        let lines = [" --json", ""].map(|json| {
            ["create demo lost", &format!("rotate {first}")].map(|line| format!("key {line}{json}"))
        });
        let cases = lines.iter().flatten().flat_map(|line| outputs().map(|to| (to, line)));
        for (stdout, line) in cases {
            let before = ids();
            let (code, stderr) = run_to(stdout, &enrich, line);
            assert_eq!(code, 1, "{stderr}");
            let id = &ids().into_iter().find(|id| !before.contains(id)).unwrap();
            assert!(stderr.contains("cannot write the key to standard output"), "{stderr}");
            assert!(stderr.contains(id) && stderr.contains("was revoked"), "{stderr}");
            assert!(!stderr.contains("enr_"), "{stderr}");
            assert_eq!(usable_keys(&enrich), 1);
        }
        let (code, stderr) = run_to(full(), &enrich, "key create demo kept --json -o kept.key");
        assert!(code == 1 && stderr.contains("the key is in kept.key"), "{stderr}");
        assert_eq!(usable_keys(&enrich), 2);
    }

    #[test]
    fn deletes_an_invitation_that_could_not_be_delivered() {
        let (enrich, _) = Enrich::with_key(1, 500);
        for (stdout, json) in [(Some(full()), ""), (Some(closed()), " --json"), (None, "")] {
            let (code, stderr) = run_to(stdout, &enrich, &format!("user invite demo eva@example.com{json}"));
            assert!(code == 1 && stderr.contains("cannot write the link to standard output"), "{stderr}");
            assert!(stderr.contains("it was deleted"), "{stderr}");
            assert!(!stderr.contains("/join/") && !stderr.contains("eva@"), "{stderr}");
            let db = rusqlite::Connection::open(enrich.data().join("accounts.db")).unwrap();
            let links: u32 = db.query_row("SELECT count(*) FROM member_link", [], |row| row.get(0)).unwrap();
            assert_eq!(links, 0);
        }
    }

    #[test]
    fn stops_a_server_whose_sample_key_could_not_be_delivered() {
        for stdout in [full(), closed()] {
            let enrich = Enrich::new();
            let (code, stderr) = run_to(stdout, &enrich, "serve --sample --listen 127.0.0.1:0");
            assert!(code == 1 && stderr.contains("was revoked"), "{stderr}");
            assert_eq!(usable_keys(&enrich), 0);
        }
    }
}
