//! Standard output that cannot be written, and machine-readable output.

use std::fs::File;
use std::net::{Shutdown, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::enrich::{Enrich, TIMEOUT, within};
use crate::fake::{FakeServer, found};
use serde_json::{Value, json};

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

/// Returns the JSON object that a failed command prints to standard error.
fn json_error(enrich: &Enrich, line: &str) -> (i32, Value) {
    let ran = enrich.run(&line.split(' ').collect::<Vec<_>>());
    let error = serde_json::from_str(&ran.stderr).unwrap_or_else(|e| panic!("{line}: {e}: {}", ran.stderr));
    (ran.code.unwrap(), error)
}

/// Returns the number of usable keys of workspace `demo`.
fn usable_keys(enrich: &Enrich) -> usize {
    let keys = enrich.json(&["key", "list", "demo", "--json"]);
    keys.as_array().unwrap().iter().filter(|key| key["revoked_at"].is_null()).count()
}

mod unwritable {
    use super::*;

    #[test]
    fn fails_each_command_except_for_a_closed_pipe() {
        let (enrich, _) = Enrich::with_key(9, 500);
        enrich.file("people.csv", "email,linkedin_url\nada@gmail.com,https://www.linkedin.com/in/ada\n");
        enrich.file("enrich.toml", "");
        let server = FakeServer::start(|email, _| found(email));
        let id = enrich.json(&["key", "list", "demo", "--json"])[0]["id"].as_str().unwrap().to_owned();
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
        assert!(run_to(full(), &enrich, "credits grant demo 1").1.contains("do not grant them again"));
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
        let cases = outputs().map(|to| (to, "")).into_iter().chain(outputs().map(|to| (to, " --json")));
        for (stdout, json) in cases {
            let (code, stderr) = run_to(stdout, &enrich, &format!("key create demo lost{json}"));
            assert_eq!(code, 1, "{stderr}");
            let keys = enrich.json(&["key", "list", "demo", "--json"]);
            let lost = keys.as_array().unwrap().iter().rev().find(|key| key["label"] == "lost").unwrap();
            let id = lost["id"].as_str().unwrap();
            assert!(stderr.contains("cannot write the key to standard output"), "{stderr}");
            assert!(stderr.contains(id) && stderr.contains("was revoked"), "{stderr}");
            assert!(!stderr.contains("enr_"), "{stderr}");
            assert_eq!(usable_keys(&enrich), 1);
        }
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

#[test]
fn port_in_use_creates_no_sample() {
    let enrich = Enrich::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = enrich.err(&["serve", "--sample", "--listen", &taken.local_addr().unwrap().to_string()]);
    assert!(error.contains("cannot listen on") && !enrich.data().exists(), "{error}");
}

mod for_programs {
    use super::*;

    #[test]
    fn config_check_reports_an_error() {
        let enrich = Enrich::new();
        let check = |text: &str| {
            let file = enrich.file("enrich.toml", text);
            let ran = enrich.run(&["config", "check", file.to_str().unwrap(), "--json"]);
            (ran.code.unwrap(), serde_json::from_str::<Value>(&ran.stdout).unwrap(), ran.stderr)
        };
        let fine = json!({"ok": true, "errors": [], "warnings": []});
        assert_eq!(check(""), (0, fine, String::new()));

        let (code, report, stderr) = check("[price]\nfuond = 1");
        assert_eq!((code, &report["ok"]), (1, &json!(false)));
        let [error] = &report["errors"].as_array().unwrap()[..] else { panic!("{report}") };
        assert_eq!((&error["line"], &error["setting"]), (&json!(2), &json!("price.fuond")), "{error}");
        assert!(error["file"].as_str().unwrap().ends_with("enrich.toml"), "{error}");
        assert!(error["error"].as_str().unwrap().contains("`found`"), "{error}");
        assert!(serde_json::from_str::<Value>(&stderr).unwrap()["error"].is_string(), "{stderr}");
    }

    #[test]
    fn errors_are_one_object_on_standard_error() {
        let (enrich, _) = Enrich::with_key(1, 500);
        assert_eq!(
            json_error(&enrich, "usage missing --json"),
            (
                1,
                json!({
                    "error": "there is no workspace missing",
                    "advice": "list the workspaces with `enrich workspace list`",
                })
            )
        );
        let (code, error) = json_error(&enrich, "people opt-out ada --json");
        assert_eq!((code, &error["advice"]), (2, &Value::Null));
        let (code, error) = json_error(&enrich, "key create demo --json");
        assert_eq!(code, 2);
        assert!(error["error"].as_str().unwrap().contains("<LABEL>"), "{error}");
        assert!(error["advice"].as_str().unwrap().starts_with("Usage: enrich key create"), "{error}");
        let line = "lookup ada@gmail.com --json --key enr_x --url http://127.0.0.1:1";
        assert_eq!(json_error(&enrich, line).0, 4);
    }
}
