//! Malformed HTTP requests: the server replies in JSON or closes the connection, but never replies without a body.

use crate::client::{Client, good, head, with_headers};
use crate::world::{BODY, World};

#[tokio::test(start_paused = true)]
async fn malformed_request_is_400_in_json_and_closes() {
    let world = World::new();
    let lengths = |a, b| format!("{}content-length: {a}\r\ncontent-length: {b}\r\n\r\n{BODY}", head());
    for (name, request) in [
        ("a method of no token", head().replace("POST", "PO(ST") + "\r\n"),
        ("another version", head().replace("HTTP/1.1", "HTTP/3.7") + "\r\n"),
        ("no version", "POST /api/v1/person/enrich\r\n\r\n".into()),
        ("a space too much", head().replace(" HTTP", "  HTTP") + "\r\n"),
        ("a path with a control character", head().replace("/person", "/\x01") + "\r\n"),
        ("a header without a colon", with_headers("oops\r\n")),
        ("a header name with a space", with_headers("o ops: x\r\n")),
        ("a header value with a control character", with_headers("x: \x01\r\n")),
        ("a folded header", with_headers("x: y\r\n z\r\n")),
        ("16 KiB of headers", with_headers(&format!("x: {}\r\n", "y".repeat(16 * 1_024)))),
        ("16 KiB of path", head().replace("/person", &"/p".repeat(8 * 1_024)) + "\r\n"),
        ("65 header lines", with_headers(&"x: y\r\n".repeat(65 - 4))),
        ("no host", with_headers("").replace("host: api.example\r\n", "")),
        ("two hosts", with_headers("host: api.example\r\n")),
        ("two hosts in HTTP/1.0", with_headers("host: api.example\r\n").replace("HTTP/1.1", "HTTP/1.0")),
        ("a host that is none", with_headers("").replace("api.example", "api.example/x")),
        ("conflicting lengths", lengths(33, 34)),
        ("a length that is no number", lengths(33, 33).replace(": 33", ": x")),
        ("a negative length", lengths(33, 33).replace(": 33", ": -1")),
        ("an endless length", lengths(33, 33).replace(": 33", ": 99999999999999999999999")),
        ("an unknown transfer encoding", format!("{}transfer-encoding: gzip\r\n\r\n", head())),
        ("a bad chunk size", format!("{}transfer-encoding: chunked\r\n\r\nxyz\r\n", head())),
        ("a chunk longer than its size", format!("{}transfer-encoding: chunked\r\n\r\n1\r\nabc\r\n", head())),
        ("garbage", "\x16\x03\x01\x02\x00\x01\x00".into()),
        ("garbage lines", "hello\r\n\r\n".into()),
    ] {
        let mut client = world.connect();
        let reply = client.ask(request).await;
        assert!(reply.is_invalid_request(), "{name}: {reply:?}");
        assert_eq!(reply.header("connection"), Some("close"), "{name}");
        assert_eq!(client.rest().await, "", "{name}");
    }
    assert_eq!(world.seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn truncated_body_is_answered() {
    let world = World::new();
    for body in ["content-length: 40\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n5\r\nab"] {
        let mut client = world.connect();
        client.send(head() + body).await;
        client.end_sending().await;
        let reply = client.reply().await;
        assert!(reply.is_invalid_request(), "{reply:?}");
        assert_eq!(client.rest().await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn reply_to_malformed_bytes_survives_partial_writes() {
    let world = World::new();
    for room_bytes in 1..20 {
        let mut client = Client::new(world.dial(room_bytes));
        let reply = client.ask("garbage\r\n\r\n").await;
        assert!(reply.is_invalid_request(), "{reply:?}");
        assert_eq!(client.rest().await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn reply_to_malformed_bytes_uses_the_previous_http_version() {
    let world = World::new();
    let mut client = world.connect();
    assert_eq!(client.ask("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await.status, 404);
    let reply = client.ask("garbage\r\n\r\n").await;
    assert!(reply.is_invalid_request() && reply.head.starts_with("HTTP/1.0 400"), "{reply:?}");
}

/// A request with a chunked body and these header lines.
fn chunked(lines: &str) -> String {
    format!("{}{lines}\r\n{:x}\r\n{BODY}\r\n0\r\n\r\n", head(), BODY.len())
}

#[tokio::test(start_paused = true)]
async fn rejects_every_transfer_encoding_but_chunked() {
    let world = World::new();
    for encoding in [
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked, gzip\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: , chunked\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: identity, chunked\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked;q=1\r\n",
        "transfer-encoding: \x0bchunked\r\n",
        "transfer-encoding:\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "transfer-encoding: chunked\r\nTransfer-Encoding:\r\n",
        "content-length: 33\r\ntransfer-encoding: gzip, chunked\r\n",
    ] {
        let mut client = world.connect();
        let reply = client.ask(chunked(encoding)).await;
        assert!(reply.is_invalid_request(), "{encoding:?}: {reply:?}");
        assert_eq!(reply.header("connection"), Some("close"), "{encoding:?}");
        assert_eq!(client.rest().await, "", "{encoding:?}");
    }
    let mut client = world.connect();
    let http_1_0 = chunked("transfer-encoding: chunked\r\n").replace("HTTP/1.1", "HTTP/1.0");
    assert!(client.ask(http_1_0).await.is_invalid_request(), "HTTP/1.0 has no transfer encodings");
    assert_eq!(world.balance().spent, 0);
}

#[tokio::test(start_paused = true)]
async fn closes_after_a_chunked_request_with_content_length() {
    let world = World::new();
    for lines in [
        "transfer-encoding: chunked\r\n",
        "TRANSFER-ENCODING:\tChunKed \r\n",
        "content-length: 500\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 500\r\n",
    ] {
        let mut client = world.connect();
        client.send(chunked(lines) + &good()).await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")), "{lines:?}");
        assert_eq!(client.rest().await, "", "{lines:?}");
    }
}
