//! `enrich config`: errors in a configuration file, and the effective settings.

use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{Enrich, Server};

fn path(file: std::path::PathBuf) -> String {
    file.to_str().unwrap().to_owned()
}

#[test]
fn example_file_can_be_served() {
    let enrich = Enrich::new();
    let file = path(enrich.file("enrich.toml", enrich.ok(&["config", "example"])));
    let output = enrich.ok(&["config", "check", &file]);
    assert!(output.starts_with(&format!("{file}: no mistakes\nlisten: http://127.0.0.1:8080\n")), "{output}");
    assert!(output.ends_with("1  people  –      –         –            –      –      –      –"), "{output}");
}

#[test]
fn prints_effective_settings_without_secrets() {
    let enrich = Enrich::new();
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    enrich.file("cert.pem", certified.cert.pem());
    enrich.file("key.pem", certified.signing_key.serialize_pem());
    enrich.file("acme.toml", Vendor::that(Behavior::NoMatch).description("acme"));
    enrich.file("acme.key", "s3cret");
    let file = path(enrich.file(
        "enrich.toml",
        "listen = \"0.0.0.0:443\"\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n[cache]\n\
         [[vendors]]\nfile = \"acme.toml\"\nhedge_ms = 500\n[[vendors]]\nuse = \"people\"\n",
    ));
    let output = enrich.ok(&["config", "check", &file]);
    assert!(output.contains("listen: https://0.0.0.0:443"), "{output}");
    assert!(output.contains("web application: off\n"), "{output}");
    assert!(output.contains("admin listener: off\n"), "{output}");
    assert!(output.contains("rate limits: memory\n"), "{output}");
    assert!(output.contains(&format!("accounts: SQLite in {}\n", enrich.data().display())), "{output}");
    assert!(output.contains("cache: 100000 entries, a match for 86400 s, no match for 3600 s"), "{output}");
    let rows: Vec<_> = output.lines().skip(9).collect();
    let [header, first, second] = rows[..] else { panic!("{output}") };
    assert!(header.trim_start().starts_with("NAME"), "{output}");
    for part in ["1  acme", "matches", "8000 ms", "500 ms", "acme.key"] {
        assert!(first.contains(part), "{part}: {output}");
    }
    assert!(second.starts_with("2  people"), "{output}");
    assert!(!output.contains("s3cret"), "{output}");
}

#[test]
fn reports_an_error_with_its_line() {
    let enrich = Enrich::with_key(1, 500).0;
    enrich.file(
        "bad.toml",
        Vendor::that(Behavior::NoMatch).description("acme").replace("tries = 1", "tries = 9"),
    );
    enrich.file("bad.txt", "throwaway.name\nada@gmail.com\n");
    for (text, expected_text) in [
        ("listen = \"0.0.0.0:443\"", "unencrypted"),
        (
            "\nlisten = 65536",
            "enrich.toml, line 2, listen: expected an address and a port, such as 127.0.0.1:8080",
        ),
        (
            "tls = {}\nlisten = [80]",
            "enrich.toml, line 2, listen: expected an address and a port, got a list",
        ),
        (
            "[price]\nfuond = 1",
            "enrich.toml, line 2, price.fuond: unknown setting `fuond`; did you mean `found`?",
        ),
        ("tls = { cert = \"no.pem\", key = \"no.pem\" }", "no.pem"),
        (
            "[[vendors]]\nuse = \"hunter\"",
            "enrich.toml, line 2, vendors.use: hunter: cannot load the API key from the environment variable HUNTER_API_KEY: it is not set",
        ),
        (
            "[console]\nlisten = \"0.0.0.0:8081\"",
            "line 2, console.listen: 0.0.0.0:8081 would receive passwords",
        ),
        ("[console]\nforwarded = true", "console: needs `listen`"),
        (
            "[console]\nlisten = 8081\nurl = \"http://enrich.example.com\"",
            "line 3, console.url: must begin with https://",
        ),
        ("[console]\nlisten = 8081\nurl = \"https://example.com/x\"", "expected a URL without a path"),
        ("[emails]\ndisposable_file = \"bad.txt\"", "bad.txt, line 2: must be one domain"),
        ("[[vendors]]\nfile = \"bad.toml\"", "bad.toml, line 14, limits.tries: must be from 1 to 5"),
    ] {
        let file = path(enrich.file("enrich.toml", text));
        for command in [&["config", "check", &file][..], &["serve", "--config", &file]] {
            let error = enrich.err(command);
            assert!(error.starts_with("error: ") && error.contains(expected_text), "{error}");
        }
    }
    assert!(enrich.err(&["config", "check", "nowhere.toml"]).contains("cannot read nowhere.toml"));
}

#[test]
fn reports_every_error_with_file_and_line() {
    let enrich = Enrich::with_key(1, 500).0;
    let vendor = Vendor::that(Behavior::NoMatch).description("acme");
    enrich.file("acme.toml", vendor.replace("tries = 1", "tries = \"two\"\nconcurrency = 0"));
    let text = "lisen = 80\nlisten = \"0.0.0.0:80\"\ntls = { cert = \"no.pem\", key = \"no.pem\" }\n\
                windows = \"http://redis\"\n[price]\nfound = \"1\"\n[[vendors]]\nfile = \"acme.toml\"\n";
    let file = path(enrich.file("enrich.toml", text));
    for command in [&["config", "check", &file][..], &["serve", "--config", &file]] {
        let error = enrich.err(command);
        let lines: Vec<_> = error.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
        let place = |line: &str| format!("{}/{line}", enrich.data().parent().unwrap().display());
        let expected = [
            "acme.toml, line 14, limits.tries",
            "acme.toml, line 15, limits.concurrency",
            "enrich.toml, line 1, lisen",
            "enrich.toml, line 3, tls",
            "enrich.toml, line 4, windows",
            "enrich.toml, line 6, price.found",
        ];
        assert_eq!(lines, expected.map(place), "{error}");
        assert!(error.contains("unknown setting `lisen`; did you mean `listen`?\n"), "{error}");
        assert!(error.contains("expected a whole number, got text\n"), "{error}");
    }
}

#[test]
fn reads_data_workers_and_log_format_from_the_file() {
    let enrich = Enrich::new();
    let dir = path(enrich.path("settings/d"));
    std::fs::create_dir(enrich.path("settings")).unwrap();
    enrich.ok(&["workspace", "create", "acme", "--data", &dir]);
    let text = "listen = \":0\"\ndata = \"d\"\nworkers = 2\nlog_format = \"json\"\n";
    let file = path(enrich.file("settings/enrich.toml", text));
    let serve = |args: &[&str]| {
        let mut command = enrich.command(&[&["serve", "--config", &file], args].concat());
        Server::start(command.env_remove("ENRICH_DATA").env("ENRICH_LOG", "info")).unwrap()
    };

    let server = serve(&[]);
    assert!(server.address().ip().is_loopback());
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let names = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap());
    assert_eq!(names.filter(|name| name.starts_with("worker-")).count(), 2);
    enrich.file("settings/enrich.toml", text.replace("\"d\"", "\"e\"").replace('2', "3"));
    server.hang_up();
    server.wait_for_log("need a restart", 1);
    let log = server.stop();
    assert!(log.contains(&format!("\"accounts\":\"SQLite in {dir}\"")), "{log}");
    assert!(log.contains("\"settings\":\"data, workers\""), "{log}");

    // The directory of the file is no longer used.
    let server = serve(&["--data", &dir, "--log-format", "text", "--listen", "0"]);
    let log = server.stop();
    assert!(log.contains(&format!("accounts=\"SQLite in {dir}\"")), "{log}");

    // An environment variable takes precedence over the file.
    let output = enrich.ok(&["config", "check", &file]);
    assert!(output.contains(&format!("accounts: SQLite in {}\n", enrich.data().display())), "{output}");
}

#[test]
fn invalid_address_error_contains_an_example() {
    let enrich = Enrich::new();
    for (args, variable) in [(&["serve", "--listen", "localhost"][..], ""), (&["serve"], "localhost")] {
        let mut command = enrich.command(args);
        if !variable.is_empty() {
            command.env("ENRICH_LISTEN", variable);
        }
        let out = command.output().unwrap();
        let error = String::from_utf8(out.stderr).unwrap();
        assert!(
            !out.status.success() && error.contains("such as 127.0.0.1:8080, localhost:8080 or 8080"),
            "{error}"
        );
    }
}
