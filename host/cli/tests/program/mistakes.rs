//! Transcripts of commands that fail: their messages and exit codes, which `enrich --help` lists.

use crate::enrich::{EMAIL, Enrich};
use crate::fake::{FakeServer, Reply, error, found};
use crate::transcripts::transcript;

#[test]
fn without_data() {
    let lines = ["serve", "workspace list", "credits ledger demo", "people stats", "migrate"];
    insta::assert_snapshot!(transcript(&Enrich::new(), &lines));
}

#[test]
fn of_keys_and_addresses_of_clients() {
    let enrich = Enrich::new();
    enrich.file("crm.csv", "email\n");
    enrich.file("empty.key", "");
    enrich.file("two.key", "enr_one\nenr_two\n");
    enrich.file("long.key", "x".repeat(10_000));
    enrich.file("empty.pem", "");
    enrich.file("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let lookups = [
        "ENRICH_KEY=",
        "ENRICH_KEY=enr_\ta",
        "--key= ENRICH_KEY=enr_env",
        "--key enr_é",
        "--key-file -",
        "--key enr_x ENRICH_URL= --idempotency-key=",
        "--key-file empty.key ENRICH_KEY=enr_env",
        "--key-file two.key",
        "--key-file long.key",
        "--key-file no.key",
        "--key-file two.key --key enr_x",
        "--key enr_x --url http://0.0.0.0:1",
        "--key enr_x --url http://localhost.example:1",
        "--key enr_x --url http://127.0.0.1.example:1",
        "--key enr_x --url https://enr:hunter2@127.0.0.1:1",
        "--key enr_x --url http://[2001:db8::1]:1",
        "--key enr_x --url HTTP://enrich.example:1",
        "--key enr_x --url http://127.8.8.8:1",
        "--key enr_x --url http://localhost:1",
        // The wildcard is not a loopback address, but on Linux it reaches this machine.
        "--key enr_x --url http://0.0.0.0:1 --plaintext",
        "--key enr_x --url https://0.0.0.0:1",
        "--key enr_x --url https://127.0.0.1:1 --tls-ca empty.pem",
        "--key enr_x --url https://127.0.0.1:1 --tls-ca bad.pem",
        "--key enr_x --url https://127.0.0.1:1 --tls-ca no.pem",
    ];
    let lookups = lookups.map(|args| format!("lookup {EMAIL} {args}"));
    let others = [
        "bulk - --key-file -",
        "bulk crm.csv --key enr_x --url http://192.0.2.1:1",
        "bulk crm.csv --key enr_x --url http://127.0.0.1:99999",
        "health --url http://127.0.0.1:99999",
    ];
    let lines: Vec<_> = lookups.iter().map(String::as_str).chain(others).collect();
    insta::assert_snapshot!(transcript(&enrich, &lines));
}

#[test]
fn of_arguments_and_values() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let lines = [
        "workspace create demo",
        "workspace create a/b",
        "workspace create new --limit 0",
        "workspace create new --window 86401",
        "workspace create new --credits 9223372036854775808",
        "workspace list --data x --database postgres://db/enrich",
        "workspace list --database mysql://db",
        "workspace set demo",
        "workspace set demo --suspend --resume",
        "workspace set demo --display-name \u{7f}",
        "workspace delete demo",
        "key create missing label",
        "key create demo two\nlines",
        "key list x\u{1b}[31m\u{7}",
        "key create demo x --expires 90",
        "key set key_00000000",
        "key set key_00000000 --disable",
        "key revoke 17",
        "credits grant demo 0",
        "credits grant demo -5",
        "credits grant demo 9223372036854775807",
        "credits refund lookup_1",
        "credits refund lookup_0123456789ab7fffbfffffffffffffff",
        "usage missing",
        "usage demo --csv --json",
        "usage demo --days 0",
        "usage demo --from 2026-11-22 --to 2026-11-21",
        "user invite demo eva@example.com --role owner",
        "user invite demo eva@example.com --url http://example.com",
        "user reset demo eva",
        "user reset demo eva@example.com",
        "user remove demo eva@example.com",
        "people import nowhere.csv",
        "people opt-out ada",
        "people opt-out --show --withdraw ada@gmail.com",
        "people opt-out --show ada@gmail.com --database mysql://db",
        "copy --from nowhere --to postgres://127.0.0.1:1/enrich",
        "health",
        "lookup ada@gmail.com --key enr_x --url localhost",
        "lookup ada@gmail.com --key enr_x --url http://",
        "lookup ada@gmail.com --key enr_x --url http://127.0.0.1:1",
        "lookup ada@gmail.com --key enr_x --url http://127.0.0.1:1 --json",
        "usage missing --json",
        "people opt-out ada --json",
        "key create demo --json",
        "health --url https://127.0.0.1:1",
        "health ENRICH_ADMIN_LISTEN=fd://admin",
        "usage demo --json ENRICH_DATABSE=postgres://db ENRICH_HOME=/srv",
    ];
    insta::assert_snapshot!(transcript(&enrich, &lines));
    assert_eq!(
        enrich.json(&["workspace", "list", "--json"]).as_array().unwrap().len(),
        1,
        "nothing was made"
    );
}

/// Settings files with a mistake.
const FILES: [(&str, &str); 12] = [
    ("unknown.toml", "[price]\nfuond = 1\n"),
    ("open.toml", "listen = \"0.0.0.0:443\""),
    ("list.toml", "tls = {}\nlisten = [80]"),
    ("certificate.toml", "tls = { cert = \"nowhere.pem\", key = \"nowhere.pem\" }"),
    ("secret.toml", "[[vendors]]\nuse = \"hunter\""),
    ("console.toml", "[console]\nlisten = \"0.0.0.0:8081\""),
    ("closed.toml", "[console]\nurl = \"https://enrich.example.com\""),
    ("plain.toml", "[console]\nlisten = 8081\nurl = \"http://enrich.example.com\""),
    ("redis.toml", "windows = \"http://redis\""),
    ("authority.toml", "windows = \"rediss://redis\"\nwindows_ca = \"not.pem\""),
    ("scheme.toml", "windows = \"redis://redis\"\nwindows_ca = \"not.pem\""),
    ("memory.toml", "windows = \"memory\"\nwindows_ca = \"not.pem\""),
];

#[test]
fn of_settings() {
    let (enrich, _) = Enrich::with_key(1, 500);
    enrich.file("not.pem", "hello");
    enrich.file("fine.toml", "");
    let check = |(name, text): &(&str, &str)| {
        enrich.file(name, text);
        let served = enrich.run_line(&format!("serve --config {name}"));
        assert_eq!(enrich.run_line(&format!("config check {name}")).stderr, served.stderr);
        format!("config check {name}")
    };
    let files = FILES.iter().map(check).collect::<Vec<_>>();
    let lines = [
        "serve --port 80",
        "serve ENRICH_LOG=info,enrich::lookup=dbug",
        "serve ENRICH_LOG=info,=debug",
        "serve --config unknown.toml",
        "config check unknown.toml --json",
        "config check fine.toml --json",
        "serve --listen fd://3",
        "serve --config nowhere.toml",
        "serve --listen 0.0.0.0:0",
        "serve --listen localhost",
        "serve --sample ENRICH_DATABSE=postgres://db",
        "serve ENRICH_PORT=80",
        "serve ENRICH_PRICE=80",
        "serve --listen 127.0.0.1:0 ENRICH_CONSOLE_LISTEN=0.0.0.0:0",
        "serve ENRICH_PLAINTEXT=true --listen 192.0.2.1:1",
        "serve ENRICH_PEOPLE_CONFIDENCE_MIN=nan",
        "serve ENRICH_DATABASE=postgres://db/enrich",
        "serve ENRICH_TLS_CERT=not.pem ENRICH_TLS_KEY=not.pem",
        "serve --config unknown.toml ENRICH_DATABSE=x ENRICH_OF_A_VENDOR=s3cret",
    ];
    let lines: Vec<_> = files.iter().map(String::as_str).chain(lines).collect();
    insta::assert_snapshot!(transcript(&enrich, &lines));
}

#[test]
fn reply_decides_the_exit_code_of_a_lookup() {
    let result = |status, body: &str| Some((status, String::new(), body.to_owned()));
    let replies: [Reply; 16] = [
        found(EMAIL),
        result(404, r#"{"lookup_id":"x","status":"not_found"}"#),
        result(200, r#"{"lookup_id":null,"status":"found","profile":{"linkedin_url":"https://x"}}"#),
        result(200, r#"{"lookup_id":"x","status":"not_found"}"#),
        result(404, r#"{"lookup_id":"x","status":"found","profile":{"linkedin_url":"https://x"}}"#),
        error(400, "invalid_email", "request-id: lookup_1\r\nerror-reason: email-syntax\r\n"),
        error(401, "unauthorized", ""),
        error(402, "insufficient_credits", ""),
        error(400, "invalid_request", "error-reason: idempotency-key\r\n"),
        error(402, "insufficient_credits", "error-reason: credits-held\r\n"),
        error(429, "rate_limited", "retry-after: 7\r\n"),
        error(500, "server_error", ""),
        error(502, "lookup_error", ""),
        error(503, "rate_limit_unavailable", ""),
        error(404, "invalid_request", ""),
        None,
    ];
    let run = |reply: Reply| {
        let server = FakeServer::start(move |_, _| reply.clone());
        let line = format!("lookup {EMAIL} --key enr_x --url {}", server.url);
        transcript(&Enrich::new(), &[&line]).replace(&server.url, "[url]")
    };
    insta::assert_snapshot!(replies.map(run).concat());
}

#[test]
fn failed_command_leaves_nothing() {
    let enrich = Enrich::new();
    enrich.file("no-header.csv", "ada.marlowe@gmail.com,https://www.linkedin.com/in/ada\n");
    enrich.file("no-person.csv", "email,linkedin_url\nada,nowhere\n");
    enrich.file("rejects.csv", "");
    let files = || {
        let entries = std::fs::read_dir(enrich.path("")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    for args in [
        "people import missing.csv",
        "people import no-header.csv",
        "people import no-person.csv --rejects rejects.csv",
        "people opt-out ada@gmail.com",
        "workspace create new --credits 9223372036854775808",
        "workspace create new --limit 0",
        "key create new label",
        "bulk missing.csv --key enr_x -o out.csv",
        "backup copy",
        "restore missing",
    ] {
        assert!(!enrich.run_line(args).success, "{args}");
        assert_eq!(files(), ["no-header.csv", "no-person.csv", "rejects.csv"], "{args}");
    }
}

#[test]
fn no_error_quotes_a_key() {
    let (enrich, key) = Enrich::with_key(1, 1);
    for line in [
        "key revoke KEY",
        "key set KEY --disable",
        "key rotate KEY --json",
        "credits refund KEY",
        "usage KEY",
        "KEY",
        "lookup ada@gmail.com --key-file KEY",
        "lookup ada@gmail.com KEY",
        "bulk KEY --key enr_x",
        "conform http://127.0.0.1:1 --key enr_x --second-key @KEY",
    ] {
        let line = line.replace("KEY", &key);
        let error = enrich.run_line(&line).stderr;
        assert!(error.contains(&key[..8]) && !error.contains(&key), "{error}");
    }
    let list = enrich.ok(&["key", "list", "demo", "--json"]);
    let error = enrich.err(&["key", "revoke", &key]);
    let id = error.split("this is a key, whose id is ").nth(1).and_then(|rest| rest.get(..12));
    assert!(id.is_some_and(|id| list.contains(id)), "{error}");
}
