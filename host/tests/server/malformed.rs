//! Malformed HTTP requests: the server replies in JSON or closes the connection, but never replies without a body.

use crate::client::{Client, request_head, request_with_headers, valid_request};
use crate::test_server::{BODY, TestServer};

#[tokio::test(start_paused = true)]
async fn rejects_malformed_request_with_400_in_json_and_closes() {
    let server = TestServer::new();
    let lengths =
        |a, b| format!("{}content-length: {a}\r\ncontent-length: {b}\r\n\r\n{BODY}", request_head());
    for (name, request) in [
        ("a method that is not a token", request_head().replace("POST", "PO(ST") + "\r\n"),
        ("an unsupported version", request_head().replace("HTTP/1.1", "HTTP/3.7") + "\r\n"),
        ("no version", "POST /api/v1/person/enrich\r\n\r\n".into()),
        ("two spaces after the path", request_head().replace(" HTTP", "  HTTP") + "\r\n"),
        ("a path with a control character", request_head().replace("/person", "/\x01") + "\r\n"),
        ("a header without a colon", request_with_headers("oops\r\n")),
        ("a header name with a space", request_with_headers("o ops: x\r\n")),
        ("a header value with a control character", request_with_headers("x: \x01\r\n")),
        ("a folded header", request_with_headers("x: y\r\n z\r\n")),
        ("16 KiB of headers", request_with_headers(&format!("x: {}\r\n", "y".repeat(16 * 1_024)))),
        ("16 KiB of path", request_head().replace("/person", &"/p".repeat(8 * 1_024)) + "\r\n"),
        ("65 header lines", request_with_headers(&"x: y\r\n".repeat(65 - 4))),
        ("no host", request_with_headers("").replace("host: api.example\r\n", "")),
        ("two hosts", request_with_headers("host: api.example\r\n")),
        (
            "two hosts in HTTP/1.0",
            request_with_headers("host: api.example\r\n").replace("HTTP/1.1", "HTTP/1.0"),
        ),
        ("an invalid host", request_with_headers("").replace("api.example", "api.example/x")),
        ("conflicting lengths", lengths(33, 34)),
        ("a length that is not a number", lengths(33, 33).replace(": 33", ": x")),
        ("a negative length", lengths(33, 33).replace(": 33", ": -1")),
        ("a length out of range", lengths(33, 33).replace(": 33", ": 99999999999999999999999")),
        ("an unknown transfer encoding", format!("{}transfer-encoding: gzip\r\n\r\n", request_head())),
        ("a bad chunk size", format!("{}transfer-encoding: chunked\r\n\r\nxyz\r\n", request_head())),
        (
            "a chunk longer than its size",
            format!("{}transfer-encoding: chunked\r\n\r\n1\r\nabc\r\n", request_head()),
        ),
        ("binary data", "\x16\x03\x01\x02\x00\x01\x00".into()),
        ("a line that is not a request line", "hello\r\n\r\n".into()),
    ] {
        let mut client = server.connect();
        let reply = client.send(request).await;
        assert!(reply.is_invalid_request(), "{name}: {reply:?}");
        assert_eq!(reply.header("connection"), Some("close"), "{name}");
        assert_eq!(client.read_to_end().await, "", "{name}");
    }
    assert_eq!(server.elapsed_seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn rejects_truncated_body() {
    let server = TestServer::new();
    for body in ["content-length: 40\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n5\r\nab"] {
        let mut client = server.connect();
        client.write(request_head() + body).await;
        client.shut_down_sending().await;
        let reply = client.read_reply().await;
        assert!(reply.is_invalid_request(), "{reply:?}");
        assert_eq!(client.read_to_end().await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_the_complete_error_reply_through_small_buffers() {
    let server = TestServer::new();
    for room_bytes in 1..20 {
        let mut client = Client::new(server.connect_raw(room_bytes));
        let reply = client.send("garbage\r\n\r\n").await;
        assert!(reply.is_invalid_request(), "{reply:?}");
        assert_eq!(client.read_to_end().await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn error_reply_has_the_http_version_of_the_previous_request() {
    let server = TestServer::new();
    let mut client = server.connect();
    assert_eq!(client.send("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await.status, 404);
    let reply = client.send("garbage\r\n\r\n").await;
    assert!(reply.is_invalid_request() && reply.head.starts_with("HTTP/1.0 400"), "{reply:?}");
}

/// A request with a chunked body and these header lines.
fn chunked(lines: &str) -> String {
    format!("{}{lines}\r\n{:x}\r\n{BODY}\r\n0\r\n\r\n", request_head(), BODY.len())
}

#[tokio::test(start_paused = true)]
async fn rejects_every_transfer_encoding_except_chunked() {
    let server = TestServer::new();
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
        let mut client = server.connect();
        let reply = client.send(chunked(encoding)).await;
        assert!(reply.is_invalid_request(), "{encoding:?}: {reply:?}");
        assert_eq!(reply.header("connection"), Some("close"), "{encoding:?}");
        assert_eq!(client.read_to_end().await, "", "{encoding:?}");
    }
    let mut client = server.connect();
    let http_1_0 = chunked("transfer-encoding: chunked\r\n").replace("HTTP/1.1", "HTTP/1.0");
    assert!(client.send(http_1_0).await.is_invalid_request(), "HTTP/1.0 has no transfer encodings");
    assert_eq!(server.balance().spent, 0);
}

#[tokio::test(start_paused = true)]
async fn closes_after_chunked_request_to_prevent_request_smuggling() {
    let server = TestServer::new();
    for lines in [
        "transfer-encoding: chunked\r\n",
        "TRANSFER-ENCODING:\tChunKed \r\n",
        "content-length: 500\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 500\r\n",
    ] {
        let mut client = server.connect();
        client.write(chunked(lines) + &valid_request()).await;
        let reply = client.read_reply().await;
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")), "{lines:?}");
        assert_eq!(client.read_to_end().await, "", "{lines:?}");
    }
}
