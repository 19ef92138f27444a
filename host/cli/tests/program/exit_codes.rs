//! The exit codes of `enrich`, as `enrich --help` documents them.

use crate::enrich::Enrich;
use crate::fake::{FakeServer, Reply, error, found};

const EMAIL: &str = "ada.marlowe@gmail.com";

/// Returns the exit code and the error output of a command line whose arguments have no spaces.
fn run(enrich: &Enrich, line: &str) -> (i32, String) {
    let ran = enrich.run(&line.split(' ').collect::<Vec<_>>());
    (ran.code.unwrap(), ran.stderr)
}

#[test]
fn lookup_exit_code_depends_on_the_reply() {
    let enrich = Enrich::new();
    let replies: [(Reply, i32); 10] = [
        (found(EMAIL), 0),
        (Some((404, String::new(), r#"{"lookup_id":"x","status":"not_found"}"#.to_owned())), 0),
        (error(400, "invalid_email", ""), 1),
        (error(401, "unauthorized", ""), 3),
        (error(402, "insufficient_credits", ""), 3),
        (error(429, "rate_limited", "retry-after: 7\r\n"), 3),
        (error(500, "server_error", ""), 1),
        (error(502, "lookup_error", ""), 1),
        (error(404, "invalid_request", ""), 1),
        (None, 1),
    ];
    for (reply, code) in replies {
        let text = format!("{reply:?}");
        let server = FakeServer::start(move |_, _| reply.clone());
        let (exit, stderr) = run(&enrich, &format!("lookup {EMAIL} --key enr_x --url {}", server.url));
        assert_eq!(exit, code, "{text}: {stderr}");
    }
}

#[test]
fn lookup_exits_with_4_without_a_connection() {
    let (exit, stderr) = run(&Enrich::new(), &format!("lookup {EMAIL} --key enr_x --url http://127.0.0.1:1"));
    assert_eq!(exit, 4, "{stderr}");
}

#[test]
fn invalid_flags_variables_and_settings_exit_with_2() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let config = enrich.file("bad.toml", "[price]\nfuond = 1\n");
    let pem = enrich.file("not.pem", "hello");
    for line in [
        "serve --port 80",
        "serve --listen 0.0.0.0:0",
        "serve --config nowhere.toml",
        &format!("serve --config {}", config.display()),
        &format!("serve ENRICH_TLS_CERT={0} ENRICH_TLS_KEY={0}", pem.display()),
        "serve --windows redis:",
        "workspace list --data x --database postgres://db/enrich",
        "workspace list --database mysql://db",
        "migrate",
        "workspace create new --limit 0",
        "people opt-out ada",
        "people opt-out",
        "people opt-out --show --withdraw ada@gmail.com",
        "workspace set demo",
        "workspace set demo --suspend --resume",
        "key set key_00000000",
        "usage demo --csv --json",
        "people publish",
        "people fetch",
        "people opt-out --withdraw ada",
        "people opt-out --show ada",
        "people opt-out --show ada@gmail.com --database mysql://db",
        "lookup ada@gmail.com --key enr_x --url ftp://x",
        "lookup ada@gmail.com --key é",
        "lookup ada@gmail.com --key enr_x --tls-ca nowhere.pem",
    ] {
        let (exit, stderr) = run(&enrich, line);
        assert_eq!(exit, 2, "{line}: {stderr}");
    }
}

#[test]
fn other_failures_exit_with_1() {
    let (enrich, _) = Enrich::with_key(1, 500);
    enrich.file("bad.toml", "[price]\nfuond = 1\n");
    for line in [
        "config check bad.toml",
        "workspace create demo",
        "credits ledger missing",
        "people import nowhere.csv",
        "bulk nowhere.csv --key enr_x",
    ] {
        let (exit, stderr) = run(&enrich, line);
        assert_eq!(exit, 1, "{line}: {stderr}");
    }
}
