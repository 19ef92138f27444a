//! `enrich conform` against servers that conform, and against a proxy that changes their replies.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use serde_json::Value;

use crate::enrich::{EMAIL, Enrich, Ran, Server};

/// A person with an email of another length than those of the transcripts.
const OTHER: &str = "xi@longer-domain.acme.org";

/// A server with all that a deployment can have, and the flags that name it.
struct World {
    enrich: Enrich,
    server: Server,
    key: String,
    data: Vec<String>,
}

impl World {
    fn new(settings: impl Fn(&Enrich) -> Vec<String>) -> Self {
        let enrich = Enrich::new();
        for (name, credits, limit) in
            [("paid", "1000", "100000"), ("empty", "0", "100000"), ("slow", "9", "5")]
        {
            let settings = ["--credits", credits, "--limit", limit, "--window", "86400"];
            enrich.ok(&[&["workspace", "create", name], &settings[..]].concat());
        }
        let key = |workspace, label| enrich.ok(&["key", "create", workspace, label]);
        let revoked = key("paid", "revoked");
        enrich.ok(&["key", "revoke", &enrich.key_id("paid", 0)]);
        let profile = "https://www.linkedin.com/in/ada-marlowe";
        enrich.import(&format!("{EMAIL},{profile}\n{OTHER},{profile}\n"));
        let data = [
            ("--second-key", key("paid", "second")),
            ("--revoked-key", revoked),
            ("--empty-key", key("empty", "only")),
            ("--limited-key", key("slow", "first")),
            ("--second-limited-key", key("slow", "second")),
            ("--found", EMAIL.to_owned()),
        ];
        let data = data.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        let key = key("paid", "first");
        let settings = settings(&enrich);
        let server = enrich.serve(&settings.iter().map(String::as_str).collect::<Vec<_>>());
        Self { enrich, server, key, data }
    }

    /// Runs the command with all data and these flags.
    fn conform(&self, url: &str, flags: &[&str]) -> Ran {
        let data: Vec<_> = self.data.iter().map(String::as_str).collect();
        self.conform_with(url, &[&data[..], flags].concat())
    }

    fn conform_with(&self, url: &str, flags: &[&str]) -> Ran {
        self.enrich.run(&[&["conform", url, "--key", &self.key][..], flags].concat())
    }
}

#[test]
fn accepts_a_server_that_conforms() {
    let world = World::new(|_| Vec::new());
    let ran = world.conform(&world.server.url, &["--json", "--junit", "report.xml"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let cases = report["cases"].as_array().unwrap();
    // The reasons for what cannot be tested on another server.
    let reason = |case: &Value| case["reason"].as_str().map(str::to_owned);
    let reasons: std::collections::BTreeSet<_> = cases.iter().filter_map(reason).collect();
    let expected = [
        "a gateway serves other paths itself",
        "a port of the server must fail",
        "needs a test key",
        "needs people who opted out",
        "needs the person of the transcript",
        "other servers do not answer after the client shut down its sending side",
        "other servers handle malformed HTTP in their own way",
        "other servers have their own limits",
        "other servers may keep no receipts",
        "other servers may read the rest of the body",
    ];
    assert_eq!(reasons.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    assert!(report["passed"].as_u64().unwrap() >= 267, "{}", report["passed"]);

    let xml = std::fs::read_to_string(world.enrich.path("report.xml")).unwrap();
    let count = |text: &str| xml.matches(text).count() as u64;
    assert_eq!(count("<testcase "), cases.len() as u64);
    assert_eq!(count("<skipped "), report["skipped"].as_u64().unwrap());
    assert_eq!(count("<failure "), 0);
}

/// A gateway with keys, credits and a database of its own.
#[cfg(feature = "servers")]
#[test]
fn accepts_the_example_gateway() {
    use enrich_lib::key::KeyDigest;
    use enrich_lib::receipt::ReceiptKey;
    use enrich_lib::window::Quota;
    use own_gateway::credits::CreditTable;
    use own_gateway::database::{Database, SCHEMA, connect_to};
    use own_gateway::keys::ApiKeys;

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let key = |name: &str| format!("sk_live_{name:0>32}");
    let (address, gateway) = runtime.block_on(async {
        let postgres = enrich_tests::servers::Postgres::shared();
        let name = postgres.create_empty_database().await;
        postgres.sql(&name, SCHEMA).await;
        let database = std::sync::Arc::new(Database::new(connect_to(postgres.tcp_url(&name))));
        let (credits, keys) = (CreditTable(database.clone()), ApiKeys(database.clone()));
        for (workspace, limit, granted) in [("paid", 100_000, 1_000), ("empty", 100_000, 0), ("slow", 5, 9)] {
            let id = workspace.parse().unwrap();
            credits.grant(&id, Quota::new(limit, 86_400).unwrap(), granted).await.unwrap();
            for number in [1, 2] {
                let digest = KeyDigest::from_token(key(&format!("{workspace}{number}")).as_bytes());
                keys.create(&digest, &id).await.unwrap();
            }
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = async {
            own_gateway::run(listener, database, ReceiptKey::new([7; 16]), std::future::pending())
                .await
                .unwrap()
        };
        (address, tokio::spawn(serving))
    });
    let [paid, second, revoked, empty, slow, second_slow] =
        ["paid1", "paid2", "revoked", "empty1", "slow1", "slow2"].map(key);
    let line = format!(
        "conform http://{address} --key {paid} --second-key {second} --revoked-key {revoked} --empty-key {empty} \
         --limited-key {slow} --second-limited-key {second_slow} --found {EMAIL} --json"
    );
    let ran = Enrich::new().run_line(&line);
    gateway.abort();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(report["passed"].as_u64().unwrap() >= 240, "{}", report["passed"]);
}

#[test]
fn a_key_is_enough() {
    let world = World::new(|_| Vec::new());
    let ran = world.conform_with(&world.server.url, &[]);
    assert!(ran.success, "{}{}", ran.stdout, ran.stderr);
    for line in [
        "ok       malformed-keys: 9",
        "ok       unauthorized: 15",
        "ok       supported-email: 7",
        "skipped  unauthorized: 1: needs a revoked key",
        "skipped  rate-limited: 3: needs a key of a workspace with a low limit",
        "skipped  insufficient-credits: 2: needs a key of a workspace without credits",
        "skipped  found: 2: needs the email of a person who is found",
    ] {
        assert!(ran.stdout.lines().any(|printed| printed == line), "{line}\n{}", ran.stdout);
    }
    assert!(ran.stdout.ends_with(" 0 failed; 0 matches received\n"), "{}", ran.stdout);
}

#[test]
fn tests_a_deployment_with_tls_and_other_people() {
    let world = World::new(|enrich| {
        enrich.certificate("localhost");
        ["ENRICH_TLS_CERT=cert.pem", "ENRICH_TLS_KEY=key.pem"].map(str::to_owned).to_vec()
    });
    let url = world.server.url.replace("127.0.0.1", "localhost");
    let people = ["--found", OTHER, "--not-found", "no@body.name"];
    let ran = world.conform_with(&url, &[&people[..], &["--tls-ca", "cert.pem"]].concat());
    assert!(ran.success, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.lines().any(|line| line == "ok       not-found: 3"), "{}", ran.stdout);
    let ran = world.conform_with(&url, &[]);
    assert!(ran.code == Some(4) && ran.stderr.contains("use --tls-ca FILE"), "{}", ran.stderr);
}

/// Each change of a reply, with the transcripts that must fail and what their message says.
#[test]
fn names_each_difference_of_a_wrong_server() {
    let world = World::new(|_| Vec::new());
    let address = world.server.address();
    let mut secrets: Vec<_> =
        world.data.iter().skip(1).step_by(2).map(|secret| secret.to_uppercase()).collect();
    secrets.push(world.key.to_uppercase());
    let echo: &str = format!("allow: {}", secrets.join(" ")).leak();
    for (from, to, transcript, message) in [
        (
            "www-authenticate: Bearer",
            "www-authenticate: bearer",
            "malformed-keys",
            "www-authenticate: bearer",
        ),
        ("retry-after: ", "retry-aftex: ", "rate-limited", "retry-after: {seconds}"),
        ("error-reason: email-", "error-reason: e-mail-", "invalid-email", "error-reason: e-mail-"),
        ("allow: POST", "allow: PUT", "methods", "allow: PUT"),
        ("allow: POST", echo, "methods", "allow: {redacted} {redacted} {redacted} {r"),
        ("ratelimit-limit: ", "ratelimit-limix: ", "found", "ratelimit-limit: "),
        ("ratelimit-reset: ", "ratelimit-resex: ", "found", "ratelimit-reset: "),
        (r#"{"error":"invalid_email"}"#, r#"{"error":"invalid_Email"}"#, "invalid-email", "invalid_Email"),
        ("content-type: application/json", "content-type: application/xxxx", "found", "application/xxxx"),
        ("HTTP/1.1 402 Payment Required", "HTTP/1.1 403 Payment Required", "insufficient-credits", "403"),
        ("request-id: lookup_", "request-id: Lookup_", "query", "Lookup_"),
        ("429 Too Many Requests", "404 Too Many Requests", "rate-limited", "over the limit"),
        (r#""status":"not_found""#, "\"status\":\"<\u{1b}&_>_not\"", "not-found", "<"),
    ] {
        let proxy = proxy(address, move |reply| replace(reply, from, to));
        let ran = world.conform(&proxy, &["--junit", "report.xml"]);
        assert_eq!(ran.code, Some(1), "{to}: {}{}", ran.stdout, ran.stderr);
        let failed = ran.stdout.split("FAILED   ").find(|text| text.starts_with(transcript));
        assert!(failed.is_some_and(|text| text.contains(message)), "{to}: {}", ran.stdout);
        assert!(ran.stderr.contains("differ from the interface"), "{}", ran.stderr);
        let xml = std::fs::read_to_string(world.enrich.path("report.xml")).unwrap();
        let printed = [ran.stdout.as_str(), &ran.stderr, &xml].concat().to_uppercase();
        assert!(!secrets.iter().any(|secret| printed.contains(secret)), "{to}: {printed}");
        assert_eq!(xml.matches("<failure ").count(), ran.stdout.matches("FAILED").count(), "{xml}");
        assert!(!xml.contains('\u{1b}') && !xml.contains("&_"), "{xml}");
    }
}

#[test]
fn detects_a_401_that_reveals_a_revoked_key() {
    let world = World::new(|_| Vec::new());
    let revoked = world.data[3].clone();
    // An additional header is not compared, unless it differs between two 401 replies.
    let proxy = proxy_of_both(world.server.address(), move |request, reply| {
        let known =
            if request.windows(revoked.len()).any(|part| part == revoked.as_bytes()) { "1" } else { "0" };
        replace(reply, "\r\ndate: ", &format!("\r\nx-key-known: {known}\r\ndate: "))
    });
    world.enrich.file("revoked.key", world.data[3].clone() + "\n");
    let ran = world.conform_with(&proxy, &["--revoked-key", "@revoked.key"]);
    let failed: Vec<_> = ran.stdout.lines().filter(|line| line.starts_with("FAILED")).collect();
    let difference = "the header x-key-known differs from that of the reply to a request without a key";
    assert!(failed.len() == 2 && failed.iter().all(|line| line.ends_with(difference)), "{}", ran.stdout);
}

#[test]
fn detects_a_count_that_does_not_change() {
    let world = World::new(|_| Vec::new());
    let proxy = proxy(world.server.address(), |reply| {
        let reply = String::from_utf8_lossy(reply);
        let lines = reply.split_inclusive('\n').map(|line| match line.starts_with("ratelimit-remaining: ") {
            true => "ratelimit-remaining: 7\r\n",
            false => line,
        });
        lines.collect::<String>().into_bytes()
    });
    let ran = world.conform_with(&proxy, &[]);
    let failed: Vec<_> = ran.stdout.lines().filter(|line| line.starts_with("FAILED")).collect();
    let difference = "ratelimit-remaining: 7 of 100000 after 7; nothing else may use the workspace";
    assert!(failed.len() > 100 && failed.iter().all(|line| line.ends_with(difference)), "{}", ran.stdout);
}

#[test]
fn reports_servers_that_cannot_be_tested() {
    let world = World::new(|_| Vec::new());
    let url = &world.server.url;
    let page = proxy(world.server.address(), |_| {
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p>\n".to_vec()
    });
    for (url, key, code, message) in [
        ("http://127.0.0.1:1", world.key.as_str(), 4, "cannot reach http://127.0.0.1:1"),
        ("ftp://127.0.0.1", &world.key, 2, "is not an http or https URL"),
        ("http://192.0.2.1", &world.key, 2, "unencrypted"),
        ("http://127.0.0.1:99999", &world.key, 2, "http://127.0.0.1:99999 has an invalid port"),
        ("http://[::1]x:1", &world.key, 2, "an invalid port"),
        ("https://enr:/hunter2@127.0.0.1", &world.key, 2, "error: the URL has an invalid port"),
        ("https://127.0.0.1/?key=hunter2", &world.key, 2, "error: the URL has a user name, a query or"),
        ("https://:1", &world.key, 2, "is not an http or https URL"),
        (url, "enr_none", 3, "does not accept the key of the workspace with credits"),
        (&page, &world.key, 1, "is not the service"),
    ] {
        let ran = world.enrich.run(&["conform", url, "--key", key]);
        assert!(
            ran.code == Some(code) && ran.stderr.contains(message),
            "{url}: {:?} {}",
            ran.code,
            ran.stderr
        );
    }
    // Before the first request.
    let ran = world.conform("http://127.0.0.1:1", &["--junit", "missing/report.xml"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("missing/report.xml"), "{}", ran.stderr);
}

/// Starts a proxy that changes each reply, and returns its URL.
fn proxy(server: SocketAddr, change: impl Fn(&[u8]) -> Vec<u8> + Clone + Send + 'static) -> String {
    proxy_of_both(server, move |_, reply| change(reply))
}

/// Starts a proxy that changes each reply by the bytes that the client has sent before, and returns its URL.
fn proxy_of_both(
    server: SocketAddr,
    change: impl Fn(&[u8], &[u8]) -> Vec<u8> + Clone + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let change = change.clone();
            std::thread::spawn(move || forward(client.unwrap(), server, change));
        }
    });
    url
}

/// Forwards one connection. Both directions alternate, as the exchanges of the transcripts do.
fn forward(mut client: TcpStream, server: SocketAddr, change: impl Fn(&[u8], &[u8]) -> Vec<u8>) {
    let mut server = TcpStream::connect(server).unwrap();
    server.set_nodelay(true).unwrap();
    client.set_nodelay(true).unwrap();
    let sent = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (mut requests, mut to_server, log) =
        (client.try_clone().unwrap(), server.try_clone().unwrap(), sent.clone());
    std::thread::spawn(move || {
        let mut bytes = [0; 16_384];
        while let Ok(count @ 1..) = requests.read(&mut bytes) {
            *log.lock().unwrap() = bytes[..count].to_vec();
            if to_server.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = server.read(&mut bytes) {
        let reply = change(&sent.lock().unwrap(), &bytes[..count]);
        if client.write_all(&reply).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

fn replace(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    String::from_utf8_lossy(bytes).replace(from, to).into_bytes()
}
