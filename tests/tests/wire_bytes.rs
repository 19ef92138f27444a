//! Unusual requests and malformed bytes on the wire. `tests/golden` compares exact replies; these tests cover the cases that
//! a transcript cannot express.
//!
//! "All responses carry JSON bodies" (specification 4): the server sends a JSON reply or closes the connection, and serves
//! the next client.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use enrich_tests::blackbox::{KNOWN, Lookup, Raw, RawReply, World, client_hello};

/// Starts a test server and creates a lookup request that succeeds with 200.
async fn open() -> (World, Lookup) {
    let world = World::open().await;
    let lookup = world.lookup(KNOWN, 1_000).await;
    (world, lookup)
}

/// Checks that well-behaved clients are served over every transport.
async fn assert_serves(world: &World) {
    for client in world.clients(1).await {
        client.look_up(KNOWN).await.assert_status(200);
    }
}

/// Sends `bytes`, shuts down the sending side, and returns what the server sends until it closes the connection.
async fn say(world: &World, bytes: impl AsRef<[u8]>) -> (Vec<RawReply>, Vec<u8>) {
    let mut client = world.raw().await;
    client.send(bytes).await;
    client.end_sending().await;
    client.rest().await
}

#[tokio::test]
async fn what_is_no_request_is_answered_in_json_and_the_next_client_is_served() {
    let (world, lookup) = open().await;
    let head = lookup.head();
    let lengths = |a, b| format!("{head}content-length: {a}\r\ncontent-length: {b}\r\n\r\n{}", lookup.body);
    let chunked = |body: &str| format!("{head}transfer-encoding: chunked\r\n\r\n{body}");
    for (name, bytes) in [
        ("an empty line and no more", "\r\n\r\n\r\n \r\n\r\n".into()),
        ("a word", "hello\r\n\r\n".into()),
        ("a mail server's client", "EHLO api.example\r\n\r\n".into()),
        ("HTTP/0.9", "GET /api/v1/person/enrich\r\n\r\n".into()),
        ("HTTP/3.7", lookup.whole().replace("HTTP/1.1", "HTTP/3.7")),
        ("HTTP/2.0 on the first line", lookup.whole().replace("HTTP/1.1", "HTTP/2.0")),
        ("no version", lookup.whole().replace(" HTTP/1.1", "")),
        ("a method of no token", lookup.whole().replace("POST", "PO(ST")),
        ("no path", lookup.whole().replace(" /api/v1/person/enrich", "")),
        ("a path with a space", lookup.whole().replace("/person", "/per son")),
        ("a path with a control character", lookup.whole().replace("/person", "/\x01")),
        ("no host", lookup.whole().replace("host: api.example\r\n", "")),
        ("two hosts", lookup.with("host: api.example\r\n")),
        ("two different hosts", lookup.with("host: other.example\r\n")),
        ("a host that is none", lookup.whole().replace("api.example", "api.example/x y")),
        ("a header without a colon", lookup.with("oops\r\n")),
        ("a header without a name", lookup.with(": x\r\n")),
        ("a header name with a space", lookup.with("o ops: x\r\n")),
        ("a space before the colon", lookup.with("oops : x\r\n")),
        ("a header value with a control character", lookup.with("x: \x01\r\n")),
        ("a header value with a NUL", lookup.with("x: \0\r\n")),
        ("a folded header", lookup.with("x: y\r\n z\r\n")),
        ("a carriage return by itself", lookup.with("x: y\rz: a\r\n")),
        ("conflicting lengths", lengths("33", "34")),
        ("a length that is no number", lengths("x", "x")),
        ("a negative length", lengths("-1", "-1")),
        ("a length with a sign", lengths("+33", "+33")),
        ("an endless length", lengths("99999999999999999999999", "99999999999999999999999")),
        ("a list of lengths", lengths("33, 34", "33")),
        ("an unknown transfer encoding", format!("{head}transfer-encoding: gzip\r\n\r\n")),
        ("chunked and then some more", format!("{head}transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n")),
        ("a bad chunk size", chunked("xyz\r\n")),
        ("a negative chunk size", chunked("-1\r\n")),
        ("a huge chunk size", chunked("ffffffffffffffffff\r\n")),
        ("a chunk longer than its size", chunked("1\r\nabc\r\n0\r\n\r\n")),
        ("a body that is cut off", format!("{head}content-length: 40\r\n\r\n{{")),
        ("a chunk that is cut off", chunked("5\r\nab")),
        ("65 header lines", lookup.with(&"x: y\r\n".repeat(65 - 4))),
        ("100,000 header lines", lookup.with(&"x: y\r\n".repeat(100_000))),
        ("a header of 1 MB", lookup.with(&format!("x: {}\r\n", "y".repeat(1_000_000)))),
        ("a header name of 1 MB", lookup.with(&format!("{}: y\r\n", "x".repeat(1_000_000)))),
        ("a path of 1 MB", lookup.whole().replace("/person", &"/p".repeat(500_000))),
        ("a method of 1 MB", lookup.whole().replace("POST", &"P".repeat(1_000_000))),
        ("1 MB of zeros", "\0".repeat(1_000_000)),
    ] {
        let (replies, garbage) = say(&world, bytes).await;
        assert_eq!((replies.len(), garbage.len()), (1, 0), "{name}: {replies:?}");
        replies[0].assert_invalid_request(name);
        assert_eq!(replies[0].header("connection"), Some("close"), "{name}");
        assert_eq!(world.raw().await.ask(lookup.whole()).await.status(), 200, "after {name}");
    }
    assert_serves(&world).await;
}

#[tokio::test]
async fn a_connection_without_a_request_just_ends() {
    let (world, lookup) = open().await;
    for bytes in
        ["", "P", "POST", "\r\n", "POST /api/v1/person/enrich HTTP/1.1\r\nhost: x\r\n", "PRI * HTTP/2.0\r\n"]
    {
        let (replies, garbage) = say(&world, bytes).await;
        // The server may treat the incomplete head as an error or just close the connection.
        assert_eq!(garbage, b"", "{bytes:?}");
        replies.iter().for_each(|reply| reply.assert_invalid_request(bytes));
        assert_eq!(world.raw().await.ask(lookup.whole()).await.status(), 200);
    }
    assert_serves(&world).await;
}

#[tokio::test]
async fn a_connection_is_kept_for_as_many_requests_as_come() {
    let (world, lookup) = open().await;
    let mut client = world.raw().await;
    for _ in 0..20 {
        assert_eq!(client.ask(lookup.whole()).await.status(), 200);
        assert_eq!(client.ask("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.status(), 404);
    }
    let reply = client.ask(lookup.with("connection: close\r\n")).await;
    assert_eq!((reply.status(), reply.header("connection")), (200, Some("close")));
    assert_eq!(client.rest().await, (vec![], vec![]));
}

#[tokio::test]
async fn a_request_that_comes_byte_by_byte_is_a_request() {
    let (world, lookup) = open().await;
    let mut client = world.raw().await;
    for byte in lookup.whole().bytes() {
        client.send([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.reply().await.status(), 200);
}

/// Closing a connection with unread bytes causes a TCP reset, in which the reply could be lost (RFC 9112, 9.6).
#[tokio::test]
async fn a_client_that_sends_all_of_1_mb_still_gets_its_400() {
    let (world, lookup) = open().await;
    let mb = " ".repeat(1_000_000);
    let sized = Lookup { body: mb.clone(), ..lookup.clone() }.whole();
    let chunked = format!("{}transfer-encoding: chunked\r\n\r\nf4240\r\n{mb}\r\n0\r\n\r\n", lookup.head());
    for request in [&sized, &chunked].repeat(10) {
        let mut client = world.raw().await;
        for part in request.as_bytes().chunks(16_384) {
            assert!(client.send(part).await, "the host closed before it had read all");
            tokio::task::yield_now().await; // lets the server reply and close before all is sent
        }
        client.reply().await.assert_invalid_request("1 MB");
        assert_eq!(client.rest().await, (vec![], vec![]));
    }
    assert_serves(&world).await;
}

#[tokio::test]
async fn tls_to_the_plain_port_is_answered_or_ended() {
    let (world, _) = open().await;
    let (replies, garbage) = say(&world, client_hello()).await;
    assert_eq!((replies.len(), garbage.len()), (1, 0));
    replies[0].assert_invalid_request("TLS");
    assert_serves(&world).await;
}

#[tokio::test]
async fn plain_http_to_the_tls_port_is_ended_without_a_plain_reply() {
    let (world, lookup) = open().await;
    for bytes in
        [lookup.whole().into_bytes(), b"\x16\x03\x01\xff\xff".repeat(9_000), client_hello()[..100].to_vec()]
    {
        let mut client = Raw::connect(world.tls).await;
        client.send(&bytes).await;
        client.end_sending().await;
        let (replies, alert) = client.rest().await;
        assert_eq!(replies, []);
        assert!(alert.is_empty() || alert[0] == 0x15, "{}", alert.escape_ascii()); // a TLS alert
    }
    assert_serves(&world).await;
}

#[tokio::test]
async fn garbage_in_http2_ends_its_connection_alone() {
    let (world, _) = open().await;
    let preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..];
    let settings = &b"\0\0\0\x04\0\0\0\0\0"[..];
    for (name, bytes) in [
        ("text", &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..]),
        ("zeros", &[0; 4_096]),
        ("ones", &[0xff; 4_096]),
        ("data of no stream", b"\0\0\x01\0\0\0\0\0\x01x"),
        ("headers of stream 0", b"\0\0\x01\x01\x04\0\0\0\0\x82"),
        ("headers that are no HPACK", b"\0\0\x04\x01\x05\0\0\0\x01\xff\xff\xff\xff"),
        ("a push from the client", b"\0\0\x04\x05\x04\0\0\0\x01\0\0\0\x02"),
        ("a window that overflows", b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\xff\xff"),
        ("a frame larger than allowed", b"\x01\0\0\0\0\0\0\0\x01"),
        ("nothing more", b""),
    ] {
        let (replies, frames) = say(&world, [preface, settings, bytes].concat()).await;
        assert_eq!(replies, [], "{name}");
        assert!(!frames.starts_with(b"HTTP/"), "{name}: {}", frames.escape_ascii());
        assert_serves(&world).await;
    }
}
