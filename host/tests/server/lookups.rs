//! Lookups under failures, and their log: slow or panicking resolvers, clients that leave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use enrich_host::ClientAddress;
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::memory::KeyTable;
use enrich_lib::model::LookupId;
use enrich_lib::observe::{LookupEvent, Observer};
use enrich_lib::ports::Keys;
use enrich_lib::refusal::{PortError, Rejection};
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Quota, Workspace};
use tokio::time::sleep;

use crate::client::{Version, request_head, request_with_body, request_with_headers, valid_request};
use crate::log::{Log, field};
use crate::test_server::{Kind, PAGE_REQUEST, TestServer, key, resolver};

/// Collects the ids of all requests, in order.
#[derive(Default)]
struct Ids(Mutex<Vec<LookupId>>);

impl Observer for Ids {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        self.0.lock().unwrap().push(event.lookup_id);
    }

    fn rejected(&self, request_id: LookupId, _: Rejection) {
        self.0.lock().unwrap().push(request_id);
    }
}

#[tokio::test(start_paused = true)]
async fn settles_lookup_whose_client_disconnects() {
    for (version, is_only_reset) in [(Version::Http1, false), (Version::Http2, false), (Version::Http2, true)]
    {
        let name = format!("{version:?}, {is_only_reset}");
        let (mut server, gate) = TestServer::gated(|_| {});
        let mut client = Kind::Lookups.connect(&server, version).await;
        client.start_lookup(&gate).await;
        let reset_stream = is_only_reset.then(|| {
            client.reset_streams();
            client
        });
        sleep(Duration::from_secs(1)).await;
        assert_eq!((server.held(), server.spent()), (1, 0), "{name}");
        drop(reset_stream);
        server.stop.cancel();
        sleep(Duration::from_secs(5)).await;
        assert!(!server.task.is_finished(), "{name}: the shutdown did not wait for the lookup");
        gate.open();
        server.stopped().await;
        assert_eq!((server.held(), server.spent()), (0, 1), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_reply_has_the_id_of_its_event_and_log_line() {
    let ids = Arc::new(Ids::default());
    let server = TestServer::with(|services| services.observer = ids.clone());
    let valid = valid_request();
    let both = &Version::ALL[..];
    let requests = [
        (both, valid.clone(), 200),
        (both, valid.replace("ada.", "eva."), 404),
        (both, valid.replace("enr_", "enr-"), 401),
        (both, valid.replace("application/json", "text/plain"), 400),
        (both, valid.replace("/enrich", "/"), 404),
        (both, valid.replace("POST", "GET"), 405),
        (both, request_with_body(&" ".repeat(99_999)), 400),
        (both, format!("{}x: {}\r\n\r\n", request_head(), "y".repeat(20_000)), 400),
        (&[Version::Http1], valid.replace("host: ", "no-host: "), 400),
        (&[Version::Http1], "no HTTP\r\n\r\n".to_owned(), 400),
        (&[Version::Http1], format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(70_000)), 400),
    ];
    let mut replies = 0;
    for (versions, request, status) in requests {
        for version in versions {
            let (log, _guard) = Log::capture_debug();
            let reply = Kind::Lookups.connect(&server, *version).await.send(&request).await;
            let name = format!("{version:?}, {request:.300}: {reply:?}");
            assert_eq!(reply.status, status, "{name}");
            let id = ids.0.lock().unwrap().get(replies).expect("one event per request").to_string();
            assert_eq!(reply.header("request-id"), Some(&*id), "{name}");
            assert!(!reply.body.contains("lookup_") || reply.body.contains(&id), "{name}");
            let lines = log.lines();
            let has_both =
                |line: &&str| line.contains(&id) && field(line, "status") == Some(&status.to_string());
            assert_eq!(lines.lines().filter(has_both).count(), 1, "{name}: {lines}");
            replies += 1;
        }
    }
    assert_eq!(ids.0.lock().unwrap().len(), replies);
}

#[tokio::test(start_paused = true)]
async fn panic_of_the_resolver_becomes_502_and_keeps_the_connection_open() {
    let (log, _guard) = Log::capture();
    let has_panicked = AtomicBool::new(false);
    let panics_once = resolver(move |query| {
        assert!(has_panicked.swap(true, Ordering::Relaxed), "cannot look up {}", query.email.canonical());
        Ok(Answer::default())
    });
    let server = TestServer::with(|services| services.service.resolver = panics_once);
    let mut client = server.connect();
    let reply = client.send(valid_request()).await;
    assert_eq!((reply.status, reply.body.as_str()), (502, r#"{"error":"lookup_error"}"#));
    assert_eq!(client.send(valid_request()).await.status, 404);
    let logged = log.lines();
    assert!(
        logged.contains("WARN enrich::lookup") && logged.contains(r#"error="the port panicked""#),
        "{logged}"
    );
    assert!(logged.contains(&format!("lookup_id={}", reply.header("request-id").unwrap())), "{logged}");
    assert!(!logged.contains("ada"), "{logged}");
}

#[tokio::test(start_paused = true)]
async fn logs_one_event_per_lookup_without_personal_data() {
    let (log, _guard) = Log::capture();
    let server = TestServer::new();
    let mut client = server.connect();
    client.send(valid_request()).await;
    client.send(valid_request().replace("enr_", "enr-")).await;
    let logged = log.lines();
    let events: Vec<_> = logged.lines().collect();
    let key_id = key().digest().key_id();
    let starts = [
        format!(
            r#" INFO enrich::lookup: lookup_id=lookup_018bcfe5680070008000000000000000 workspace="demo" key={key_id} outcome="found" status=200 credits=1 duration_us="#
        ),
        r#" INFO enrich::lookup: lookup_id=lookup_018bcfe5680070008000000000000001 outcome="unauthorized" status=401 credits=0 duration_us="#.to_owned(),
    ];
    assert!(events.iter().zip(&starts).all(|(event, start)| event.starts_with(start)), "{logged}");
    assert!(events[1].ends_with(r#" reason="key-missing-or-malformed""#), "{logged}");
    assert_eq!(events.len(), 2);
    for secret in ["ada", "gmail", "linkedin", &key().reveal().to_string()[5..]] {
        assert!(!logged.contains(secret), "{logged}");
    }
}

#[tokio::test(start_paused = true)]
async fn logs_lookups_over_the_burst_limit_once_in_5_s_for_each_workspace() {
    let (log, _guard) = Log::capture();
    let limited = |name: &str| Workspace::new(name.parse().unwrap(), Quota::new(1, 3_600).unwrap());
    let keys = [("one", 8), ("two", 9)].map(|(name, seed)| (limited(name), ApiKey::generate(|| seed)));
    let table = KeyTable::default();
    keys.iter().for_each(|(workspace, key)| table.insert(key.digest(), workspace.clone()));
    let server = TestServer::with(|services| services.service.keys = Arc::new(table));
    let mut client = server.connect();
    for _ in 0..2 {
        for (_, key) in &keys {
            for _ in 0..10 {
                client.send(valid_request().replace(crate::test_server::key().reveal(), key.reveal())).await;
            }
        }
        sleep(Duration::from_secs(6)).await;
    }
    let logged = log.lines();
    for name in ["one", "two"] {
        let is_limited =
            |line: &&str| line.contains(&format!("workspace={name:?} ")) && line.contains("rate_limited");
        let lines: Vec<_> = logged.lines().filter(is_limited).collect();
        let counts: Vec<_> = lines.iter().filter_map(|line| field(line, "count")).collect();
        assert_eq!((lines.len(), &counts[..]), (4, &["8", "9"][..]), "{logged}");
    }
}

#[tokio::test(start_paused = true)]
async fn logs_a_port_error_with_its_sources() {
    let (log, _guard) = Log::capture();
    let failing =
        resolver(|_| Err(PortError::new(std::io::Error::other(PortError::new("the vendor is unavailable")))));
    let server = TestServer::with(|services| services.service.resolver = failing);
    assert_eq!(server.connect().send(valid_request()).await.status, 502);
    let logged = log.lines();
    let parts = [" WARN enrich::lookup", "the vendor is unavailable"];
    assert!(parts.iter().all(|part| logged.contains(part)), "{logged}");
}

#[tokio::test(start_paused = true)]
async fn logs_the_reason_of_an_invalid_request_without_its_values() {
    let server = TestServer::new();
    for (body, reason) in [
        ("{secret", "malformed-json"),
        (r#"{"email":"ada@gmail.com","secret":1}"#, "unknown-field"),
        (r#"{"email":["secret"]}"#, "email-missing"),
        (r#"{"email":"secret"}"#, "email-syntax"),
        (r#"{"email":"secret@-.com"}"#, "email-syntax"),
        (r#"{"email":"secret@mailinator.com"}"#, "disposable-domain"),
    ] {
        let (log, _guard) = Log::capture();
        assert_eq!(server.connect().send(request_with_body(body)).await.status, 400);
        let logged = log.lines();
        assert!(logged.contains(&format!("reason=\"{reason}\"")), "{logged}");
        assert!(!logged.contains("secret") && !logged.contains("gmail"), "{logged}");
    }
}

/// Strangers can send any number of requests, also while keys cannot be read.
#[tokio::test(start_paused = true)]
async fn logs_lookups_without_a_valid_key_once_per_interval_with_a_count() {
    let unknown = valid_request().replace(&key().reveal().to_string(), ApiKey::generate(|| 9).reveal());
    for (can_read, status) in [(true, "status=401"), (false, "status=500")] {
        let (log, _guard) = Log::capture();
        let mut server = TestServer::with(|services| {
            let keys = services.service.keys.clone();
            services.service.keys = Arc::new(OthersUnread { keys, can_read });
        });
        let mut client = server.connect();
        for (lookups, counts) in [(3, &["2"][..]), (1, &["2"]), (5, &["2", "4"])] {
            for _ in 0..lookups {
                client.send(&unknown).await;
                client.send(valid_request()).await;
            }
            tokio::time::sleep(Duration::from_secs(6)).await;
            let logged = log.lines();
            let reports: Vec<_> = logged.lines().filter_map(|line| field(line, "count")).collect();
            assert_eq!(reports, counts, "{logged}");
        }
        let logged = log.lines();
        assert_eq!(logged.matches(status).count(), 3, "{logged}");
        assert_eq!(logged.matches("workspace=\"demo\"").count(), 9, "{logged}");
        for _ in 0..4 {
            client.send(&unknown).await;
        }
        server.stop.cancel();
        server.stopped().await;
        assert!(
            log.lines().lines().filter_map(|line| field(line, "count")).eq(["2", "4", "3"]),
            "at the end"
        );
    }
}

/// Keys of which only the known one may be readable.
struct OthersUnread {
    keys: Arc<dyn Keys>,
    can_read: bool,
}

#[async_trait]
impl Keys for OthersUnread {
    async fn find(&self, digest: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        if self.can_read || *digest == key().digest() {
            return self.keys.find(digest).await;
        }
        Err(PortError::new("the store is down"))
    }
}

#[tokio::test(start_paused = true)]
async fn log_line_has_the_client_and_the_trace() {
    const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let trace = format!("traceparent: 00-{TRACE_ID}-00f067aa0ba902b7-01\r\n");
    let forwarded = "x-forwarded-for: 203.0.113.9, 10.1.1.1\r\n";
    let proxies = || vec!["10.0.0.0/8".parse().unwrap()];
    for (setting, client) in [
        (None, None),
        (Some(ClientAddress::Peer), Some("10.9.9.9")),
        (Some(ClientAddress::XForwardedFor(proxies())), Some("203.0.113.9")),
        (Some(ClientAddress::Forwarded(proxies())), Some("10.9.9.9")),
    ] {
        let server = TestServer::with(|services| services.client_address = setting);
        for (headers, trace_id) in
            [(format!("{forwarded}{trace}"), Some(TRACE_ID)), (forwarded.to_owned(), None)]
        {
            let (log, _guard) = Log::capture();
            let request = request_with_headers(&headers);
            for request in [request.replace("enr_", "enr-"), request] {
                server.connect_from("10.9.9.9").send(request).await;
            }
            let lines = log.lines();
            for line in lines.lines() {
                assert_eq!((field(line, "client"), field(line, "trace_id")), (client, trace_id), "{line}");
            }
            assert!(lines.contains("status=200"), "{lines}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_have_the_address_of_the_client_and_may_be_empty() {
    let server = Kind::Pages.start(|_| {});
    let mut client = server.connect_from("192.0.2.2");
    assert_eq!(client.send(PAGE_REQUEST).await.body, "page of 192.0.2.2");
    let reply = client.send(PAGE_REQUEST.replace("/ ", "/empty ")).await;
    assert_eq!((reply.status, reply.header("content-length"), reply.body.as_str()), (303, Some("0"), ""));
    assert_eq!(client.send(PAGE_REQUEST).await.status, 200);
}
