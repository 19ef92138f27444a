//! The gateway's replies to clients.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod client;
mod golden;
mod world;

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::key::ApiKey;

use crate::world::{HungWindows, KNOWN, KNOWN_URL, POISON, Settings, UNKNOWN, World, eventually, with_body};

#[test]
fn match_is_200_and_costs_one_credit() {
    let world = World::open();
    let reply = world.look_up(KNOWN);
    let (before, after) = reply.body.split_at(r#"{"lookup_id":"lookup_"#.len() + 32);
    assert!(before.starts_with(r#"{"lookup_id":"lookup_"#), "{reply:?}");
    assert_eq!(after, format!(r#"","status":"found","profile":{{"linkedin_url":"{KNOWN_URL}"}}}}"#));
    assert_eq!(reply.header("ratelimit-limit"), Some("1000"));
    assert_eq!(reply.header("ratelimit-remaining"), Some("999"));
    let balance = world.balance();
    assert_eq!((balance.spent, balance.held), (1, 0));
}

#[test]
fn reply_head_equals_hosts_except_for_pingora_headers() {
    let world = World::open();
    let reply = world.connect().ask(world.lookup(UNKNOWN));
    let varies = ["ratelimit-reset: ", "request-id: lookup_", "Date: "];
    let (varying, lines): (Vec<_>, Vec<_>) =
        reply.head.lines().partition(|line| varies.iter().any(|name| line.starts_with(name)));
    for name in varies {
        assert_eq!(varying.iter().filter(|line| line.starts_with(name)).count(), 1, "{name}");
    }
    assert_eq!(
        lines,
        [
            "HTTP/1.1 404 Not Found",
            "content-type: application/json",
            "ratelimit-limit: 1000",
            "ratelimit-remaining: 999",
            "content-length: 76",
            "Connection: keep-alive",
            "",
        ]
    );
}

#[test]
fn no_match_is_404_and_free() {
    let world = World::open();
    let reply = world.look_up(UNKNOWN);
    assert_eq!(reply.status(), 404);
    assert!(reply.body.ends_with(r#"","status":"not_found"}"#), "{reply:?}");
    let balance = world.balance();
    assert_eq!((balance.spent, balance.held), (0, 0));
}

#[test]
fn all_401_replies_are_identical() {
    let world = World::open();
    let known = world.lookup(KNOWN);
    let bearer = format!("authorization: Bearer {}\r\n", world.key);
    let unknown = format!("authorization: Bearer {}\r\n", ApiKey::generate(rand::random).reveal());
    let replies = ["", "authorization: Bearer enr_x\r\n", &unknown].map(|header| {
        let mut reply = world.connect().ask(known.replace(&bearer, header));
        reply.assert_error(401, "unauthorized");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        let varies = |line: &&str| line.starts_with("Date: ") || line.starts_with("request-id: ");
        reply.head = reply.head.lines().filter(|line| !varies(line)).collect();
        reply
    });
    assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
}

#[test]
fn burst_is_429_with_retry_after() {
    let world = World::with(Settings { limit: 1, ..Settings::default() });
    assert_eq!(world.look_up(KNOWN).status(), 200);
    let reply = world.look_up(KNOWN);
    reply.assert_error(429, "rate_limited");
    assert_eq!(reply.header("ratelimit-remaining"), Some("0"));
    assert_eq!(reply.header("retry-after"), reply.header("ratelimit-reset"));
    assert_eq!(world.balance().spent, 1);
}

#[test]
fn no_credits_is_402() {
    let world = World::with(Settings { credits: 0, ..Settings::default() });
    world.look_up(KNOWN).assert_error(402, "insufficient_credits");
    assert_eq!(world.people.lookups(), 0);
}

#[test]
fn invalid_body_is_400() {
    let world = World::open();
    for (body, code) in [
        ("{", "invalid_request"),
        ("", "invalid_request"),
        (r#"{"email":"ada.marlowe@gmail.com","phone":"1"}"#, "invalid_request"),
        (r#"{"email":"ada"}"#, "invalid_email"),
        (r#"{"email":"info@gmail.com"}"#, "unsupported_email"),
    ] {
        world.connect().ask(with_body(&world.head(), body)).assert_error(400, code);
    }
    let text = world.lookup(KNOWN).replace("application/json", "text/plain");
    world.connect().ask(text).assert_error(400, "invalid_request");
    let nameless = world.lookup(KNOWN).replace("host: api.example\r\n", "");
    world.connect().ask(nameless).assert_error(400, "invalid_request");
    assert_eq!(world.people.lookups(), 0);
}

#[test]
fn other_methods_are_405_with_allow() {
    let world = World::open();
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let reply = world.connect().ask(world.lookup(KNOWN).replacen("POST", method, 1));
        reply.assert_error(405, "invalid_request");
        assert_eq!(reply.header("allow"), Some("POST"));
    }
    assert_eq!(world.people.lookups(), 0);
}

#[test]
fn passes_other_requests_to_upstream() {
    let world = World::open();
    for path in ["/", "/api/v1/person/enrich/", "/api/v1/person", "/shop?page=2"] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: api.example\r\n");
        let reply = world.connect().ask(with_body(&head, "{}"));
        assert_eq!((reply.status(), reply.body), (203, format!("POST {path} HTTP/1.1\n{{}}")));
    }
    assert_eq!(world.look_up(KNOWN).status(), 200);
}

#[test]
fn keeps_connection_alive() {
    let world = World::open();
    let mut client = world.connect();
    for _ in 0..5 {
        assert_eq!(client.ask(world.lookup(KNOWN)).status(), 200);
        assert_eq!(client.ask(world.lookup(UNKNOWN)).status(), 404);
    }
    let reply = client.ask(world.lookup(KNOWN).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n"));
    assert_eq!(reply.header("connection"), Some("close"));
    client.assert_ended();
}

#[test]
fn answers_pipelined_requests_in_order() {
    let world = World::open();
    let mut client = world.connect();
    client.send([world.lookup(KNOWN), world.lookup(UNKNOWN), world.lookup(KNOWN)].concat());
    assert_eq!([(); 3].map(|()| client.reply().status()), [200, 404, 200]);
}

#[test]
fn answers_http_1_0() {
    let world = World::open();
    let mut client = world.connect();
    let reply = client.ask(world.lookup(KNOWN).replace("HTTP/1.1", "HTTP/1.0"));
    assert!(reply.head.starts_with("HTTP/1.0 200 OK\r\n"), "{reply:?}");
    client.assert_ended();
}

#[test]
fn settles_hold_of_disconnected_client() {
    let world = World::open();
    world.people.close_gate();
    let mut client = world.connect();
    client.send(world.lookup(KNOWN));
    eventually("the resolver is called", || world.people.lookups() == 1);
    assert_eq!(world.balance().held, 1);
    drop(client);
    world.people.open_gate();
    eventually("the hold is settled", || world.balance().held == 0);
    assert_eq!(world.balance().spent, 1);
}

#[test]
fn rejects_oversized_content_length_without_reading() {
    let world = World::open();
    let mut client = world.connect();
    let reply = client.ask(format!("{}content-length: 4097\r\n\r\n", world.head()));
    reply.assert_error(400, "invalid_request");
    assert_eq!(reply.header("connection"), Some("close"));
    client.assert_ended();
}

#[test]
fn rejects_oversized_chunked_body() {
    let world = World::open();
    let head = format!("{}transfer-encoding: chunked\r\n\r\n", world.head());
    let mut client = world.connect();
    let reply = client.ask(format!("{head}1000\r\n{}\r\n1\r\n \r\n", " ".repeat(4_096)));
    reply.assert_error(400, "invalid_request");
    assert_eq!(reply.header("connection"), Some("close"));
    client.assert_ended();
}

/// Closing a connection with unread bytes would reset it, and the reset could reach the client before the reply (RFC 9112,
/// 9.6).
#[test]
fn reads_rest_of_body_after_early_reply() {
    let world = World::open();
    let request = with_body(&world.head(), &" ".repeat(1_000_000));
    let (first, rest) = request.split_at(100_000);
    let mut client = world.connect();
    client.ask(first).assert_error(400, "invalid_request");
    client.send(rest);
    client.assert_ended();
}

#[test]
fn accepts_chunked_body_of_4096_bytes() {
    let world = World::open();
    let head = format!("{}transfer-encoding: chunked\r\n\r\n", world.head());
    let json = format!(r#"{{"email":"{KNOWN}"}}"#);
    let spaces = 4_096 - json.len();
    let reply = world.connect().ask(format!(
        "{head}{:x}\r\n{json}\r\n{spaces:x}\r\n{}\r\n0\r\n\r\n",
        json.len(),
        " ".repeat(spaces)
    ));
    assert_eq!(reply.status(), 200);
}

#[test]
fn rejects_slow_body() {
    let world = World::with(Settings { body_timeout: Duration::from_millis(50), ..Settings::default() });
    let mut client = world.connect();
    let reply = client.ask(format!("{}content-length: 40\r\n\r\n{{", world.head()));
    reply.assert_error(400, "invalid_request");
    assert_eq!(reply.header("connection"), Some("close"));
    client.assert_ended();
}

#[test]
fn rejects_incomplete_body() {
    let world = World::open();
    let mut client = world.connect();
    client.send(format!("{}content-length: 40\r\n\r\n{{", world.head()));
    client.end_sending();
    client.reply().assert_error(400, "invalid_request");
    client.assert_ended();
}

#[test]
fn sends_100_continue_if_body_is_accepted() {
    let world = World::open();
    let body = format!(r#"{{"email":"{KNOWN}"}}"#);
    let expects = |bytes| format!("{}expect: 100-continue\r\ncontent-length: {bytes}\r\n\r\n", world.head());
    let mut client = world.connect();
    assert_eq!(client.ask(expects(body.len())).head, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(client.ask(&body).status(), 200);
    client.ask(expects(4_097)).assert_error(400, "invalid_request");
    client.assert_ended();
}

#[test]
fn times_out_hanging_store() {
    let world = World::with(Settings { windows: Some(Arc::new(HungWindows)), ..Settings::default() });
    world.look_up(KNOWN).assert_error(503, "rate_limit_unavailable");
    assert_eq!(world.people.lookups(), 0);
}

#[test]
fn store_panic_is_500_and_next_client_is_served() {
    let world = World::open();
    world.look_up(POISON).assert_error(500, "server_error");
    assert_eq!(world.look_up(KNOWN).status(), 200);
}
