//! Malformed HTTP requests and request smuggling: the server replies in JSON or closes the connection, but
//! never replies without a body, and never takes a part of one request for another.

use self::Reaction::{Closes, StaysOpen};
use crate::client::{Client, Version, request_head, request_with_body, request_with_headers, valid_request};
use crate::test_server::{BODY, Kind, PAGE_REQUEST, TestServer};

/// The reply to a request, and whether the server then answers a valid request that the client sends with it.
#[derive(Clone, Copy, Debug)]
enum Reaction {
    StaysOpen(u16),
    Closes(u16),
}

/// Request lines before the header lines and the body of a valid request.
#[rustfmt::skip]
const REQUEST_LINES: [(&str, &str, Reaction); 26] = [
    ("the usual form", "POST /api/v1/person/enrich HTTP/1.1", StaysOpen(200)),
    ("a query", "POST /api/v1/person/enrich?x=1 HTTP/1.1", StaysOpen(200)),
    ("the absolute form", "POST http://api.example/api/v1/person/enrich HTTP/1.1", StaysOpen(200)),
    ("the absolute form with another host", "POST http://x.example/api/v1/person/enrich HTTP/1.1", StaysOpen(200)),
    ("an empty line before it", "\r\nPOST /api/v1/person/enrich HTTP/1.1", StaysOpen(200)),
    ("the absolute form without a host", "POST http:// HTTP/1.1", Closes(400)),
    ("no slash before the path", "POST api/v1/person/enrich HTTP/1.1", Closes(400)),
    ("a method with a colon", "POST: /api/v1/person/enrich HTTP/1.1", Closes(400)),
    ("no method", "/api/v1/person/enrich HTTP/1.1", Closes(400)),
    ("a space before the method", " POST /api/v1/person/enrich HTTP/1.1", Closes(400)),
    ("two spaces before the path", "POST  /api/v1/person/enrich HTTP/1.1", Closes(400)),
    ("two spaces after the path", "POST /api/v1/person/enrich  HTTP/1.1", Closes(400)),
    ("a tab after the method", "POST\t/api/v1/person/enrich HTTP/1.1", Closes(400)),
    ("a tab after the path", "POST /api/v1/person/enrich\tHTTP/1.1", Closes(400)),
    ("a NUL in the path", "POST /api/v1/person/enrich\0 HTTP/1.1", Closes(400)),
    ("a carriage return in the path", "POST /api/v1/person/enrich\r HTTP/1.1", Closes(400)),
    ("version 1.2", "POST /api/v1/person/enrich HTTP/1.2", Closes(400)),
    ("version 1.10", "POST /api/v1/person/enrich HTTP/1.10", Closes(400)),
    ("a version in lower case", "POST /api/v1/person/enrich http/1.1", Closes(400)),
    ("a version without a slash", "POST /api/v1/person/enrich HTTP1.1", Closes(400)),
    ("a space after the version", "POST /api/v1/person/enrich HTTP/1.1 ", Closes(400)),
    ("a carriage return after the version", "POST /api/v1/person/enrich HTTP/1.1\r", Closes(400)),
    ("a second version", "POST /api/v1/person/enrich HTTP/1.1 HTTP/1.1", Closes(400)),
    ("a method in lower case", "post /api/v1/person/enrich HTTP/1.1", Closes(405)),
    ("the asterisk form", "POST * HTTP/1.1", Closes(404)),
    ("an escaped NUL in the path", "POST /api/v1/person/enrich%00 HTTP/1.1", Closes(404)),
];

/// Header lines beside those of a valid request.
#[rustfmt::skip]
const HEADER_LINES: [(&str, &str, Reaction); 26] = [
    ("an empty value", "x:", StaysOpen(200)),
    ("a tab in the value", "x: a\tb", StaysOpen(200)),
    ("spaces around the value", "x: \t y \t ", StaysOpen(200)),
    ("letters outside ASCII in the value", "x: é", StaysOpen(200)),
    ("an underscore instead of a hyphen", "transfer_encoding: chunked", StaysOpen(200)),
    ("the length declared as a header of the connection", "connection: content-length", StaysOpen(200)),
    ("an upgrade to HTTP/2", "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk", StaysOpen(200)),
    ("an unknown expectation", "expect: x", StaysOpen(200)),
    ("the end of the connection", "connection: close", Closes(200)),
    ("a tab before the colon", "x\t: y", Closes(400)),
    ("a parenthesis in the name", "x(: y", Closes(400)),
    ("a control character in the name", "x\x01: y", Closes(400)),
    ("a NUL in the name", "x\0: y", Closes(400)),
    ("letters outside ASCII in the name", "é: y", Closes(400)),
    ("a DEL in the value", "x: a\x7fb", Closes(400)),
    ("a header after a carriage return", "x: a\rtransfer-encoding: chunked", Closes(400)),
    ("a line feed in the value", "x: a\nb", Closes(400)),
    ("a value folded with a tab", "x: y\r\n\tz", Closes(400)),
    ("a value folded after a line feed", "x: y\n z", Closes(400)),
    ("an empty folded value", "x: y\r\n ", Closes(400)),
    ("a folded transfer encoding", "transfer-encoding:\r\n chunked", Closes(400)),
    ("a space before the transfer encoding's colon", "transfer-encoding : chunked", Closes(400)),
    ("a NUL in the transfer encoding's name", "transfer-encoding\0: chunked", Closes(400)),
    ("a second host", "host: x.example", Closes(400)),
    ("a second length of zero", "content-length: 0", Closes(400)),
    ("a space before the length's colon", "content-length : 33", Closes(400)),
];

/// Hosts instead of the one in a valid request.
const HOSTS: [(&str, &str, Reaction); 12] = [
    ("an IPv6 address", "host: [::1]:8080", StaysOpen(200)),
    ("an empty host", "host:", StaysOpen(200)),
    ("two hosts", "host: api.example\r\nhost: x.example", Closes(400)),
    ("a path", "host: api.example/x", Closes(400)),
    ("a user", "host: x@api.example", Closes(400)),
    ("a list", "host: api.example,x.example", Closes(400)),
    ("a space", "host: api example", Closes(400)),
    ("a tab", "host: api\texample", Closes(400)),
    ("a query", "host: api.example?x", Closes(400)),
    ("a quote", "host: \"api.example\"", Closes(400)),
    ("a backslash", "host: api.example\\x", Closes(400)),
    ("letters outside ASCII", "host: apí.example", Closes(400)),
];

/// Lengths and transfer encodings in place of the length, before a body with this length.
const LENGTHS: [(&str, &str, Reaction); 12] = [
    ("a length", "content-length: 33", StaysOpen(200)),
    ("two equal lengths", "content-length: 33\r\ncontent-length: 33", StaysOpen(200)),
    ("a length with a leading zero", "content-length: 033", StaysOpen(200)),
    ("an empty length", "content-length:", Closes(400)),
    ("a hexadecimal length", "content-length: 0x21", Closes(400)),
    ("a length with a decimal point", "content-length: 33.0", Closes(400)),
    ("a length with a space", "content-length: 3 3", Closes(400)),
    ("a length with a unit", "content-length: 33;", Closes(400)),
    ("a length with a vertical tab", "content-length: \x0b33", Closes(400)),
    ("a length with digits outside ASCII", "content-length: ３３", Closes(400)),
    ("a list of lengths", "content-length: 33, 33", Closes(400)),
    ("lengths in another order", "content-length: 34\r\ncontent-length: 33", Closes(400)),
];

/// Transfer encodings before a chunked body.
const TRANSFER_ENCODINGS: [(&str, Reaction); 19] = [
    ("transfer-encoding: chunked", Closes(200)),
    ("TRANSFER-ENCODING:\tChunKed ", Closes(200)),
    ("content-length: 500\r\ntransfer-encoding: chunked", Closes(200)),
    ("transfer-encoding: chunked\r\ncontent-length: 500", Closes(200)),
    ("transfer-encoding: chunked\r\ncontent-length: 0", Closes(200)),
    ("transfer-encoding: gzip, chunked", Closes(400)),
    ("transfer-encoding: chunked, chunked", Closes(400)),
    ("transfer-encoding: , chunked", Closes(400)),
    ("transfer-encoding: identity", Closes(400)),
    ("transfer-encoding: identity, chunked", Closes(400)),
    ("transfer-encoding: xchunked", Closes(400)),
    ("transfer-encoding: \"chunked\"", Closes(400)),
    ("transfer-encoding: chunked;q=1", Closes(400)),
    ("transfer-encoding: \x0bchunked", Closes(400)),
    ("transfer-encoding:", Closes(400)),
    ("transfer-encoding: chunked\r\ntransfer-encoding: chunked", Closes(400)),
    ("transfer-encoding: gzip\r\nTransfer-Encoding: chunked", Closes(400)),
    ("transfer-encoding: chunked\r\nTransfer-Encoding:", Closes(400)),
    ("content-length: 33\r\ntransfer-encoding: gzip, chunked", Closes(400)),
];

/// Chunked bodies. `{}` stands for the JSON object, which has 33 bytes.
const CHUNKS: [(&str, &str, Reaction); 22] = [
    ("one chunk", "21\r\n{}\r\n0\r\n\r\n", Closes(200)),
    ("leading zeros", "0000000000000021\r\n{}\r\n000\r\n\r\n", Closes(200)),
    ("extensions", "21;x;y=z\r\n{}\r\n0;x=\"y\"\r\n\r\n", Closes(200)),
    ("a trailer", "21\r\n{}\r\n0\r\nx: y\r\n\r\n", Closes(200)),
    ("a length as a trailer", "21\r\n{}\r\n0\r\ncontent-length: 500\r\n\r\n", Closes(200)),
    ("no size", "\r\n{}\r\n0\r\n\r\n", Closes(400)),
    ("a size with a sign", "+21\r\n{}\r\n0\r\n\r\n", Closes(400)),
    ("a size with a prefix", "0x21\r\n{}\r\n0\r\n\r\n", Closes(400)),
    ("a size with an underscore", "2_1\r\n{}\r\n0\r\n\r\n", Closes(400)),
    ("the largest size", "ffffffffffffffff\r\n{}\r\n0\r\n\r\n", Closes(400)),
    ("a space before the size", " 21\r\n{}\r\n0\r\n\r\n", Closes(400)),
    ("a line feed after the size", "21\n{}\r\n0\r\n\r\n", Closes(400)),
    ("a carriage return after the size", "21\r{}\r\n0\r\n\r\n", Closes(400)),
    ("two carriage returns after the size", "21\r\r\n{}\r\n0\r\n\r\n", Closes(400)),
    ("a line feed in an extension", "21;x\ny\r\n{}\r\n0\r\n\r\n", Closes(400)),
    ("a chunk shorter than its size", "22\r\n{}\r\n0\r\n\r\n", Closes(400)),
    ("no line break after the chunk", "21\r\n{}0\r\n\r\n", Closes(400)),
    ("a line feed after the chunk", "21\r\n{}\n0\r\n\r\n", Closes(400)),
    ("a carriage return after the chunk", "21\r\n{}\r0\r\n\r\n", Closes(400)),
    ("a line feed at the end", "21\r\n{}\r\n0\n\n", Closes(400)),
    ("a line feed after the last size", "21\r\n{}\r\n0\n\r\n", Closes(400)),
    ("no line break at the end", "21\r\n{}\r\n0\r\nPOST", Closes(400)),
];

#[tokio::test(start_paused = true)]
async fn rejects_malformed_request_lines_hosts_and_lengths() {
    let tables: [(_, &[_]); 3] = [
        ("POST /api/v1/person/enrich HTTP/1.1", &REQUEST_LINES),
        ("host: api.example", &HOSTS),
        ("content-length: 33", &LENGTHS),
    ];
    for (replaced, rows) in tables {
        for (name, lines, expected) in rows {
            check(name, valid_request().replacen(replaced, lines, 1), *expected).await;
        }
    }
    // A stream of HTTP/2 ends alone.
    let mut client = TestServer::new().connect_http2().await;
    let without_authority = valid_request().replace("HTTP/1.1", "HTTP/1.0");
    for (name, lines, Closes(status) | StaysOpen(status)) in HOSTS {
        let reply = client.send(without_authority.replacen("host: api.example", lines, 1)).await;
        assert_eq!(reply.status, status, "{name} over HTTP/2: {reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_malformed_header_lines() {
    for (name, lines, expected) in HEADER_LINES {
        check(name, valid_request().replacen("host:", &format!("{lines}\r\nhost:"), 1), expected).await;
        if !lines.contains('\n') || !lines.contains(' ') {
            // As the last line of the head too.
            check(name, valid_request().replacen("\r\n\r\n", &format!("\r\n{lines}\r\n\r\n"), 1), expected)
                .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_every_transfer_encoding_except_chunked() {
    for (lines, expected) in TRANSFER_ENCODINGS {
        check(lines, format!("{}{lines}\r\n\r\n21\r\n{BODY}\r\n0\r\n\r\n", request_head()), expected).await;
    }
    let http_1_0 = format!("{}transfer-encoding: chunked\r\n\r\n21\r\n{BODY}\r\n0\r\n\r\n", request_head());
    check("HTTP/1.0", http_1_0.replace("HTTP/1.1", "HTTP/1.0"), Closes(400)).await;
}

#[tokio::test(start_paused = true)]
async fn rejects_malformed_chunks() {
    let chunked = |body: &str| format!("{}transfer-encoding: chunked\r\n\r\n{body}", request_head());
    for (name, body, expected) in CHUNKS {
        check(name, chunked(&body.replace("{}", BODY)), expected).await;
    }
    let extension = format!("21;{}\r\n{BODY}\r\n0\r\n\r\n", "x".repeat(20_000));
    check("20 KB of extensions", chunked(&extension), Closes(400)).await;
}

#[tokio::test(start_paused = true)]
async fn rejects_oversized_heads_and_other_protocols() {
    let line = |line: &str| valid_request().replacen("host:", &format!("{line}host:"), 1);
    check("16 KiB of a header name", line(&format!("{}: y\r\n", "x".repeat(16 * 1_024))), Closes(400)).await;
    check("two hosts in HTTP/1.0", line("host: x\r\n").replace("HTTP/1.1", "HTTP/1.0"), Closes(400)).await;
    for other_protocol in ["\x16\x03\x01\x02\x00\x01\x00", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"] {
        check(other_protocol, other_protocol.to_owned(), Closes(400)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_body_over_the_limit_without_waiting_for_its_end() {
    let server = TestServer::new();
    let sized = "content-length: 5000\r\n\r\n".to_owned();
    let chunked = format!("transfer-encoding: chunked\r\n\r\n1388\r\n{}", " ".repeat(4_097));
    for body in [sized, chunked] {
        let reply = server.connect().send(request_head() + &body).await;
        reply.assert_last(400, &body);
        assert!(reply.is_invalid_request(), "{reply:?}");
    }
    assert_eq!(server.elapsed_seconds(), 0);
}

/// The server closes no connection of HTTP/2 because of a request. The first reply to a head above 64 KiB is
/// the only one that it does not generate itself: see `connection::http2`.
#[tokio::test(start_paused = true)]
async fn rejects_invalid_requests_over_http2() {
    let host = |host: &str| valid_request().replace("host: api.example", &format!("host: {host}"));
    let lines = |count: usize, bytes: usize| {
        let lines = (0..count).map(|line| format!("x-{line}: {}\r\n", "y".repeat(bytes)));
        request_with_headers(&lines.collect::<String>())
    };
    let query =
        |bytes: usize| valid_request().replacen("enrich ", &format!("enrich?{} ", "y".repeat(bytes)), 1);
    let mut client = TestServer::new().connect_http2().await;
    for (name, request, status) in [
        ("an unknown path", PAGE_REQUEST.to_owned(), 404),
        // RFC 9113, 8.3.1.
        ("the authority in upper case as the host", host("API.example"), 200),
        ("another host than the authority", host("other.example"), 400),
        ("an empty host", host(""), 400),
        ("a second host", request_with_headers("host: other.example\r\n"), 400),
        ("64 lines", lines(60, 1), 200),
        ("65 lines", lines(61, 1), 400),
        ("almost 16 KiB of lines", lines(8, 1_900), 200),
        ("more than 16 KiB of lines", lines(8, 2_100), 400),
        ("almost 16 KiB of a query", query(15_800), 200),
        ("more than 16 KiB of a query", query(16_400), 400),
        ("more than 64 KiB of lines", lines(40, 1_900), 431),
        ("a body of 4,097 bytes", request_with_body(&" ".repeat(4_097)), 400),
        ("a body of 1 MB", request_with_body(&" ".repeat(1_000_000)), 400),
    ] {
        let reply = client.send(request).await;
        assert_eq!(reply.status, status, "{name}: {reply:?}");
        if let 400 | 404 = status {
            assert_eq!(reply.body, r#"{"error":"invalid_request"}"#, "{name}");
        }
        assert_eq!(client.send(valid_request()).await.status, 200, "after {name}");
    }
}

/// RFC 9110, 9.3.2. A client of HTTP/2 reports a body as a protocol error (RFC 9113, 8.1).
#[tokio::test(start_paused = true)]
async fn reply_to_head_has_no_body_over_http2() {
    let other_host = "GET / HTTP/1.1\r\nhost: other.example\r\n\r\n";
    for (kind, request, status, length) in [
        (Kind::Lookups, &*valid_request().replace("POST", "GET"), 405, Some("27")),
        (Kind::Lookups, PAGE_REQUEST, 404, Some("27")),
        (Kind::Lookups, other_host, 400, Some("27")),
        (Kind::Pages, other_host, 400, None),
    ] {
        let mut client = kind.connect(&kind.start(|_| {}), Version::Http2).await;
        let reply = client.send(request.replace("GET", "HEAD")).await;
        assert_eq!((reply.status, reply.header("content-length")), (status, length), "{reply:?}");
        assert_eq!(reply.body, "");
    }
}

#[tokio::test(start_paused = true)]
async fn server_of_pages_rejects_ambiguous_and_large_heads() {
    let server = Kind::Pages.start(|_| {});
    for (head, status) in [
        ("\r\n".to_owned(), 400),
        ("host: a.example\r\nhost: a.example\r\n\r\n".to_owned(), 400),
        ("host: a.example/x\r\n\r\n".to_owned(), 400),
        ("host: a.example, b.example\r\n\r\n".to_owned(), 400),
        ("host: a.example\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n".to_owned(), 400),
        // A proxy in front may have taken the length for the end of the body.
        (
            "host: a.example\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n".to_owned(),
            200,
        ),
        // Incomplete.
        (format!("host: a.example\r\ncookie: {}", "x".repeat(16 * 1_024)), 431),
    ] {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\n{head}")).await.assert_last(status, &head);
        assert_eq!(client.read_to_end().await, "", "{head}");
    }
    assert_eq!(server.elapsed_seconds(), 0);
}

/// Sends a request and, at the same time, a valid one. Checks the replies, and that credits are spent only
/// for replies.
async fn check(name: &str, request: String, expected: Reaction) {
    let server = TestServer::new();
    let mut client = server.connect();
    client.write(request + &valid_request()).await;
    let reply = client.read_reply().await;
    let (Closes(status) | StaysOpen(status)) = expected;
    assert_eq!(reply.status, status, "{name}: {reply:?}");
    assert!(status != 400 || reply.is_invalid_request(), "{name}: {reply:?}");
    let mut replies = u64::from(status == 200);
    if let StaysOpen(_) = expected {
        assert_eq!(reply.header("connection"), None, "{name}");
        assert_eq!(client.read_reply().await.status, 200, "{name}");
        replies += 1;
    } else {
        assert_eq!(reply.header("connection"), Some("close"), "{name}");
        assert_eq!(client.read_to_end().await, "", "{name}");
    }
    assert_eq!(server.spent(), replies, "{name}");
    assert!(server.elapsed_seconds() <= 5, "{name}: the timeout of the body");
}

#[tokio::test(start_paused = true)]
async fn writes_the_complete_error_reply_through_small_buffers() {
    let server = TestServer::new();
    for room_bytes in 1..20 {
        let mut client = Client::http1(server.connect_raw(room_bytes));
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
