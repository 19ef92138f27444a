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
fn a_match_is_a_200_and_costs_a_credit() {
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
fn the_head_is_the_hosts_but_for_what_pingora_adds() {
    let world = World::open();
    let reply = world.connect().ask(world.lookup(UNKNOWN));
    let lines: Vec<_> = reply.head.lines().filter(|line| !line.starts_with("ratelimit-reset: ")).collect();
    let (date, lines): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.starts_with("Date: "));
    assert_eq!(date.len(), 1);
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
fn no_match_is_a_404_and_free() {
    let world = World::open();
    let reply = world.look_up(UNKNOWN);
    assert_eq!(reply.status(), 404);
    assert!(reply.body.ends_with(r#"","status":"not_found"}"#), "{reply:?}");
    let balance = world.balance();
    assert_eq!((balance.spent, balance.held), (0, 0));
}

#[test]
fn a_key_that_is_missing_malformed_or_unknown_is_a_401_by_the_same_bytes() {
    let world = World::open();
    let known = world.lookup(KNOWN);
    let bearer = format!("authorization: Bearer {}\r\n", world.key);
    let unknown = format!("authorization: Bearer {}\r\n", ApiKey::generate(rand::random).reveal());
    let replies = ["", "authorization: Bearer enr_x\r\n", &unknown].map(|header| {
        let mut reply = world.connect().ask(known.replace(&bearer, header));
        reply.assert_error(401, "unauthorized");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        reply.head = reply.head.lines().filter(|line| !line.starts_with("Date: ")).collect();
        reply
    });
    assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
}

#[test]
fn a_burst_is_a_429_that_says_when_to_come_back() {
    let world = World::with(Settings { limit: 1, ..Settings::default() });
    assert_eq!(world.look_up(KNOWN).status(), 200);
    let reply = world.look_up(KNOWN);
    reply.assert_error(429, "rate_limited");
    assert_eq!(reply.header("ratelimit-remaining"), Some("0"));
    assert_eq!(reply.header("retry-after"), reply.header("ratelimit-reset"));
    assert_eq!(world.balance().spent, 1);
}

#[test]
fn without_credits_it_is_a_402() {
    let world = World::with(Settings { credits: 0, ..Settings::default() });
    world.look_up(KNOWN).assert_error(402, "insufficient_credits");
    assert_eq!(world.people.asked(), 0);
}

#[test]
fn a_body_that_asks_for_nobody_is_a_400() {
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
    assert_eq!(world.people.asked(), 0);
}

#[test]
fn another_method_is_a_405_that_says_which_one_is_allowed() {
    let world = World::open();
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let reply = world.connect().ask(world.lookup(KNOWN).replacen("POST", method, 1));
        reply.assert_error(405, "invalid_request");
        assert_eq!(reply.header("allow"), Some("POST"));
    }
    assert_eq!(world.people.asked(), 0);
}

#[test]
fn everything_else_is_passed_on_to_the_upstream() {
    let world = World::open();
    for path in ["/", "/api/v1/person/enrich/", "/api/v1/person", "/shop?page=2"] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: api.example\r\n");
        let reply = world.connect().ask(with_body(&head, "{}"));
        assert_eq!((reply.status(), reply.body), (203, format!("POST {path} HTTP/1.1\n{{}}")));
    }
    assert_eq!(world.look_up(KNOWN).status(), 200);
}

#[test]
fn a_connection_is_kept_for_as_many_requests_as_come() {
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
fn pipelined_requests_are_answered_in_their_order() {
    let world = World::open();
    let mut client = world.connect();
    client.send([world.lookup(KNOWN), world.lookup(UNKNOWN), world.lookup(KNOWN)].concat());
    assert_eq!([(); 3].map(|()| client.reply().status()), [200, 404, 200]);
}

#[test]
fn http_1_0_is_answered_in_kind() {
    let world = World::open();
    let mut client = world.connect();
    let reply = client.ask(world.lookup(KNOWN).replace("HTTP/1.1", "HTTP/1.0"));
    assert!(reply.head.starts_with("HTTP/1.0 200 OK\r\n"), "{reply:?}");
    client.assert_ended();
}

#[test]
fn a_client_that_hangs_up_strands_no_hold() {
    let world = World::open();
    world.people.close_gate();
    let mut client = world.connect();
    client.send(world.lookup(KNOWN));
    eventually("the resolver is asked", || world.people.asked() == 1);
    assert_eq!(world.balance().held, 1);
    drop(client);
    world.people.open_gate();
    eventually("the hold is settled", || world.balance().held == 0);
    assert_eq!(world.balance().spent, 1);
}

#[test]
fn a_body_that_says_that_it_is_too_large_is_refused_unread() {
    let world = World::open();
    let mut client = world.connect();
    let reply = client.ask(format!("{}content-length: 4097\r\n\r\n", world.head()));
    reply.assert_error(400, "invalid_request");
    assert_eq!(reply.header("connection"), Some("close"));
    client.assert_ended();
}

#[test]
fn a_body_that_turns_out_too_large_is_refused() {
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
fn a_client_that_is_answered_in_the_middle_of_its_body_may_send_the_rest() {
    let world = World::open();
    let request = with_body(&world.head(), &" ".repeat(1_000_000));
    let (first, rest) = request.split_at(100_000);
    let mut client = world.connect();
    client.ask(first).assert_error(400, "invalid_request");
    client.send(rest);
    client.assert_ended();
}

#[test]
fn a_body_of_4096_bytes_in_chunks_is_a_body() {
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
fn a_body_that_does_not_come_in_time_is_refused() {
    let world = World::with(Settings { body_time_max: Duration::from_millis(50), ..Settings::default() });
    let mut client = world.connect();
    let reply = client.ask(format!("{}content-length: 40\r\n\r\n{{", world.head()));
    reply.assert_error(400, "invalid_request");
    assert_eq!(reply.header("connection"), Some("close"));
    client.assert_ended();
}

#[test]
fn a_body_that_is_cut_off_is_refused() {
    let world = World::open();
    let mut client = world.connect();
    client.send(format!("{}content-length: 40\r\n\r\n{{", world.head()));
    client.end_sending();
    client.reply().assert_error(400, "invalid_request");
    client.assert_ended();
}

#[test]
fn a_client_that_expects_100_continue_gets_it_if_its_body_is_wanted() {
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
fn a_store_that_hangs_is_given_up() {
    let world = World::with(Settings { windows: Some(Arc::new(HungWindows)), ..Settings::default() });
    world.look_up(KNOWN).assert_error(503, "rate_limit_unavailable");
    assert_eq!(world.people.asked(), 0);
}

#[test]
fn a_store_that_panics_is_a_500_and_the_next_client_is_served() {
    let world = World::open();
    world.look_up(POISON).assert_error(500, "server_error");
    assert_eq!(world.look_up(KNOWN).status(), 200);
}
