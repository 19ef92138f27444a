//! `enrich config`: errors in a configuration file, and the effective settings.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{Enrich, Ran, Server, eventually};
use crate::transcripts::transcript;

fn path(file: std::path::PathBuf) -> String {
    file.to_str().unwrap().to_owned()
}

#[test]
fn example_file_has_no_mistakes() {
    let enrich = Enrich::new();
    let file = path(enrich.file("enrich.toml", enrich.ok(&["config", "example"])));
    let output = enrich.ok(&["config", "check", &file]);
    assert!(output.starts_with(&format!("{file}: no mistakes\nlisten: http://127.0.0.1:8080\n")), "{output}");
    assert!(output.ends_with("1  people  –      –         –            –      –      –"), "{output}");
}

#[test]
fn prints_effective_settings_without_secrets() {
    let enrich = Enrich::new();
    enrich.certificate("127.0.0.1");
    Vendor::that(Behavior::NoMatch).describe(&enrich, "acme", "s3cret");
    enrich.file(
        "enrich.toml",
        "listen = \"0.0.0.0:443\"\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n[cache]\n\
         [[vendors]]\nfile = \"acme.toml\"\nqueue = 77\n[[vendors]]\nuse = \"people\"\n",
    );
    let output = transcript(&enrich, &["config check enrich.toml"]);
    assert!(!output.contains("s3cret"), "{output}");
    insta::assert_snapshot!(output);
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
    // A new thread has its name only after it has started to run.
    eventually("two workers", || (server.threads("worker-") == 2).then_some(()));
    let log = server.stop();
    assert!(log.contains(&format!("\"accounts\":\"SQLite in {dir}\"")), "{log}");

    // The directory of the file is no longer used.
    let server = serve(&["--data", &dir, "--log-format", "text", "--listen", "0"]);
    let log = server.stop();
    assert!(log.contains(&format!("accounts=\"SQLite in {dir}\"")), "{log}");

    // An environment variable takes precedence over the file.
    let output = enrich.ok(&["config", "check", &file]);
    assert!(output.contains(&format!("accounts: SQLite in {}\n", enrich.data().display())), "{output}");
}

/// A settings file in a directory of its own, and the files that it names.
fn world() -> (Enrich, String) {
    let enrich = Enrich::new();
    std::fs::create_dir(enrich.path("settings")).unwrap();
    let text = "data = \"d\"\n[console]\nlisten = 8081\nurl = \"https://enrich.example.com\"\n";
    let file = path(enrich.file("settings/enrich.toml", text));
    (enrich, file)
}

/// Runs a command without ENRICH_DATA, unless an argument sets it.
fn run(enrich: &Enrich, args: &[&str]) -> (Option<i32>, String) {
    let mut command = enrich.command(args);
    if !args.iter().any(|arg| arg.starts_with("ENRICH_DATA=")) {
        command.env_remove("ENRICH_DATA");
    }
    let Ran { stdout, stderr, code, .. } = Ran::of(command.output().unwrap());
    (code, stdout + &stderr)
}

#[test]
fn commands_use_the_settings_file() {
    let (enrich, file) = world();
    let people = path(enrich.file("people.csv", "email,linkedin_url\n"));
    let in_file = &*format!("ENRICH_CONFIG={file}");
    for args in [
        &[in_file, "workspace", "create", "acme"][..],
        &["workspace", "create", "beta", "--config", &file],
        &[in_file, "key", "create", "acme", "test"],
        &[in_file, "people", "import", &people],
        &[in_file, "people", "stats"],
        &[in_file, "check"],
        &[in_file, "backup", "backup"],
        &[in_file, "restore", "backup", "--data", "restored"],
    ] {
        let (code, text) = run(&enrich, args);
        assert_eq!(code, Some(0), "{args:?}: {text}");
    }
    assert!(enrich.path("settings/d/accounts.db").exists() && enrich.path("settings/d/people.db").exists());
    assert!(!enrich.path("enrich-data").exists());

    let (_, link) = run(&enrich, &[in_file, "user", "invite", "acme", "eva@example.com"]);
    assert!(link.starts_with("https://enrich.example.com/join/"), "{link}");

    // The variable and the flag take precedence over the file.
    let data = path(enrich.path("settings/d"));
    let names = |args: &[&str]| run(&enrich, &[&[in_file, "workspace", "list"], args].concat()).1;
    assert!(names(&["ENRICH_DATA=nowhere"]).contains("there is no data in nowhere"));
    assert!(names(&["ENRICH_DATA=nowhere", "--data", &data]).contains("acme"));
    let database = "database = { env = \"ACCOUNTS\" }\nwindows = \"memory\"\n";
    enrich.file("settings/enrich.toml", database);
    let accounts = "ACCOUNTS=postgres://127.0.0.1:1/enrich";
    assert!(names(&[accounts]).contains("postgres://127.0.0.1:1/enrich"));
    assert!(names(&[accounts, "--data", &data]).contains("acme"));
    let (code, text) = run(&enrich, &[in_file, accounts, "migrate", "--check"]);
    assert!(code == Some(4) && text.contains("postgres://127.0.0.1:1/enrich"), "{text}");
    for args in [["backup", "other"], ["restore", "backup"]] {
        let (code, text) = run(&enrich, &[&[in_file, accounts][..], &args].concat());
        assert!(code == Some(2) && text.contains("are in postgres://127.0.0.1:1/enrich"), "{args:?}: {text}");
    }
    assert_eq!(run(&enrich, &[in_file, accounts, "backup", "other", "--data", &data]).0, Some(0));

    // Mistakes in the file are reported, but its other files are not read.
    enrich.file("settings/enrich.toml", "dtaa = \"d\"\n");
    let (code, text) = run(&enrich, &[in_file, "workspace", "create", "new"]);
    assert!(code == Some(2) && text.contains("did you mean `data`?"), "{text}");
    assert!(!enrich.path("enrich-data").exists());
    enrich.file("settings/enrich.toml", "data = \"d\"\n[[vendors]]\nuse = \"hunter\"\n");
    assert_eq!(run(&enrich, &[in_file, "workspace", "list"]).0, Some(0));
}

#[test]
fn links_begin_with_the_address_of_the_web_application() {
    let (enrich, key) = (Enrich::with_key(1, 500).0, "settings/key.pem");
    let invite = ["user", "invite", "demo", "eva@example.com", "--config", "enrich.toml"];
    for (text, expected) in [
        ("", "http://127.0.0.1:8081/join/"),
        ("[console]\nlisten = 9000\n", "http://127.0.0.1:9000/join/"),
        (
            &format!("tls = {{ cert = \"{key}\", key = \"{key}\" }}\n[console]\nlisten = 9000\n"),
            "https://127.0.0.1:9000/",
        ),
    ] {
        enrich.file("enrich.toml", text);
        let link = enrich.ok(&invite);
        assert!(link.starts_with(expected), "{link}");
    }
    for listen in ["0.0.0.0:9000", "192.0.2.1:9000", "fd://console"] {
        enrich.file("enrich.toml", format!("plaintext = true\n[console]\nlisten = \"{listen}\"\n"));
        let error = enrich.err(&invite);
        assert!(error.contains("console.url: must be set") && error.contains(listen), "{error}");
    }
}

#[test]
fn checks_what_serve_would_use() {
    let (enrich, file) = world();
    let (plain, config) = ("ENRICH_PLAINTEXT=true", &*format!("ENRICH_CONFIG={file}"));
    for (args, expected) in [
        (&[&file, "ENRICH_LISTEN=0.0.0.0:8080", plain][..], "listen: http://0.0.0.0:8080\n"),
        (&[&file, "--listen", "0.0.0.0:8080", plain], "listen: http://0.0.0.0:8080\n"),
        (&[&file, "--listen", "fd://enrich"], "listen: fd://enrich\n"),
        (&[config], "web application: https://enrich.example.com\n"),
        (&[&file, "ENRICH_CONFIG=nowhere.toml"], "web application: https://enrich.example.com\n"),
        (&[&file, "ENRICH_CONSOLE_URL=https://other.name"], "web application: https://other.name\n"),
        (&["ENRICH_CONSOLE_LISTEN=9000"], "web application: http://127.0.0.1:9000\n"),
        (&["ENRICH_CONSOLE_LISTEN=0.0.0.0:8081", plain], "console.url is not set"),
        (&[config], "console.api_url is not set"),
        (&["ENRICH_CONSOLE_LISTEN=9000", "ENRICH_LISTEN=0.0.0.0:8080", plain], "console.api_url is not set"),
        (&["ENRICH_ADMIN_LISTEN=9464"], "admin listener: http://127.0.0.1:9464\n"),
        (
            &["ENRICH_EMAILS_PROVIDERS_ALLOWED=outlook.com, GMail.com"],
            "emails: only at gmail.com, outlook.com\n",
        ),
        (&["--windows", "redis://redis"], "rate limits: Redis at redis://redis\n"),
        (&["ENRICH_DATABASE=postgres://a@b/c", "--data", "x"], "accounts: SQLite in x\n"),
    ] {
        let (code, text) = run(&enrich, &[&["config", "check"], args].concat());
        assert!(code == Some(0) && text.contains(expected), "{args:?}: {text}");
    }
}

#[test]
fn accepts_variables_of_vendors_and_of_kubernetes() {
    let (enrich, file) = world();
    enrich.file("settings/acme.toml", Vendor::that(Behavior::NoMatch).description("acme"));
    let vendors = "windows = { env = \"ENRICH_REDIS\" }\n[[vendors]]\nfile = \"acme.toml\"\nsecret = { env = \"ENRICH_ACME_KEY\" }\n";
    enrich.file("settings/enrich.toml", vendors);
    let variables = [
        "ENRICH_REDIS=redis://redis",
        "ENRICH_ACME_KEY=s3cret",
        "ENRICH_LAYER_API_KEY=s3cret",
        "ENRICH_SERVICE_HOST=10.0.0.1",
        "ENRICH_SERVICE_PORT_HTTP=80",
        "ENRICH_PORT=tcp://10.0.0.1:80",
        "ENRICH_PORT_80_TCP_ADDR=10.0.0.1",
    ];
    let (code, text) = run(&enrich, &[&variables[..], &["config", "check", &file]].concat());
    assert!(code == Some(0) && text.contains("Redis at redis://redis"), "{text}");
    let (_, text) = run(&enrich, &[&variables[..], &["workspace", "list", "--config", &file]].concat());
    assert!(text.contains("there is no data") && !text.contains("warning"), "{text}");
}

#[test]
fn empty_variables_and_tildes_are_mistakes() {
    let enrich = Enrich::new();
    let list = enrich.ok(&["config", "example", "--variables"]);
    let names = list.split_whitespace().filter(|word| word.starts_with("ENRICH_"));
    let names: std::collections::BTreeSet<_> = names.collect();
    assert!(names.len() > 30, "{list}");
    for name in names
        .into_iter()
        .filter(|name| !["ENRICH_CONFIG", "ENRICH_LOG", "ENRICH_KEY", "ENRICH_URL"].contains(name))
    {
        let (code, text) = run(&enrich, &[&format!("{name}="), "workspace", "create", "acme"]);
        assert_eq!(code, Some(2), "{name}: {text}");
        assert!(text.contains(&format!("{name}: is empty; set a value, or unset it")), "{name}: {text}");
    }
    enrich.file("enrich.toml", "data = \"~/data\"\n");
    for args in [
        &["ENRICH_DATA=~/data", "workspace", "create", "acme"][..],
        &["workspace", "create", "acme", "--data", "~/data"],
        &["workspace", "create", "acme", "--config", "enrich.toml"],
        &["ENRICH_TLS_CERT=~/data", "ENRICH_TLS_KEY=key.pem", "config", "check"],
        &["ENRICH_EMAILS_DISPOSABLE_FILE=~/data", "serve"],
        &["ENRICH_CONFIG=~/data", "config", "check"],
        &["backup", "~/data"],
        &["people", "import", "~/data"],
        &["bulk", "in.csv", "--output", "~/data"],
    ] {
        let (code, text) = run(&enrich, &[&["HOME=/home/ada"], args].concat());
        assert!([Some(1), Some(2)].contains(&code), "{args:?}: {text}");
        assert!(text.contains("only a shell replaces ~; write /home/ada/data"), "{args:?}: {text}");
    }
    let mut create = enrich.command(&["workspace", "create", "acme"]);
    let out = create.env("ENRICH_LOG_FORMAT", OsStr::from_bytes(b"\xff")).output().unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.code() == Some(2) && text.contains("ENRICH_LOG_FORMAT: is not UTF-8"), "{text}");
    let (code, text) = run(&enrich, &["workspace", "create", "acme", "--data", ""]);
    assert!(code == Some(2) && text.contains("--data"), "{text}");
    let files: Vec<_> =
        std::fs::read_dir(enrich.path("")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["enrich.toml"], "nothing is written");
}
