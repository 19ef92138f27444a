//! The header `Request-Id` of every reply, the events and log lines with the same id, and the context of a
//! request in its line.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use enrich_host::ClientAddress;
use enrich_lib::model::LookupId;
use enrich_lib::observe::{LookupEvent, Observer};
use enrich_lib::refusal::Rejection;

use crate::client::{request_head, request_with_headers, valid_request};
use crate::lookups::Log;
use crate::test_server::TestServer;

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

/// Requests for every reply that this server sends over HTTP/1, with their statuses.
fn requests() -> Vec<(String, u16)> {
    let valid = valid_request();
    vec![
        (valid.clone(), 200),
        (valid.replace("ada.", "eva."), 404),
        (valid.replace("enr_", "enr-"), 401),
        (valid.replace("application/json", "text/plain"), 400),
        (valid.replace("/enrich", "/"), 404),
        (valid.replace("POST", "GET"), 405),
        (valid.replace("host: ", "no-host: "), 400),
        ("no HTTP\r\n\r\n".to_owned(), 400),
        (format!("{}x: {}\r\n", request_head(), "y".repeat(20_000)), 400),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(70_000)), 400),
        (format!("{}content-length: 99999\r\n\r\n", request_head()), 400),
    ]
}

#[tokio::test(start_paused = true)]
async fn every_reply_has_the_id_of_its_event() {
    let ids = Arc::new(Ids::default());
    let server = TestServer::with(|services| services.observer = ids.clone());
    for (number, (request, status)) in requests().into_iter().enumerate() {
        let reply = server.connect().send(request).await;
        assert_eq!(reply.status, status, "{reply:?}");
        let id = ids.0.lock().unwrap().get(number).expect("one event per request").to_string();
        assert_eq!(reply.header("request-id"), Some(&*id), "{reply:?}");
        assert!(!reply.body.contains("lookup_") || reply.body.contains(&id), "{reply:?}");
    }
    assert_eq!(ids.0.lock().unwrap().len(), requests().len());
}

#[tokio::test(start_paused = true)]
async fn every_reply_has_the_id_of_its_log_line() {
    let server = TestServer::new();
    for (request, status) in requests() {
        let log = Log::default();
        let _guard = log.capture_debug();
        let reply = server.connect().send(request).await;
        let id = reply.header("request-id").expect("an id");
        let lines = log.lines();
        let ends = |line: &&str| line.contains(&format!("status={status}"));
        let lines: Vec<_> = lines.lines().filter(|line| line.contains(id)).filter(ends).collect();
        assert_eq!(lines.len(), 1, "{reply:?}: {lines:?}");
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
            let log = Log::default();
            let _guard = log.capture();
            for request in
                [request_with_headers(&headers), request_with_headers(&headers).replace("enr_", "enr-")]
            {
                server.connect_from("10.9.9.9").send(request).await;
            }
            let lines = log.lines();
            for line in lines.lines() {
                let field = |name: &str| {
                    line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
                };
                assert_eq!((field("client"), field("trace_id")), (client, trace_id), "{line}");
            }
            assert!(lines.contains("status=200"), "{lines}");
        }
    }
}
