//! HTTP/1.1 and HTTP/1.0.

use crate::client::{request_head, request_with_headers, valid_request};
use crate::test_server::{BODY, TestServer, key};

#[tokio::test(start_paused = true)]
async fn replies_to_lookups_and_keeps_the_connection_open() {
    let server = TestServer::new();
    let mut client = server.connect();
    for id in ["lookup_018bcfe5680070008000000000000000", "lookup_018bcfe5680071018101010101010101"] {
        let reply = client.send(valid_request()).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
        assert!(reply.body.contains(id) && reply.body.contains("/in/ada-marlowe"), "{reply:?}");
        assert_eq!(reply.header("connection"), None);
        assert_eq!(reply.header("date"), None);
    }
    assert_eq!((server.balance().spent, server.balance().held), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn date_header_is_optional() {
    let server = TestServer::with(|services| services.date_header = true);
    assert!(server.connect().send(valid_request()).await.header("date").is_some());
    assert!(server.connect().send("garbage\r\n\r\n").await.header("date").is_some());
}

#[tokio::test(start_paused = true)]
async fn rejects_unknown_path_with_404_and_unknown_method_with_405() {
    let server = TestServer::new();
    let mut client = server.connect();
    for (request, status, allow) in [
        ("GET / HTTP/1.1", 404, None),
        ("OPTIONS * HTTP/1.1", 404, None),
        ("CONNECT api.example:443 HTTP/1.1", 404, None),
        ("GET /api/v1/person/enrich?x=1 HTTP/1.1", 405, Some("POST")),
        ("DELETE http://api.example/api/v1/person/enrich HTTP/1.1", 405, Some("POST")),
    ] {
        let reply = client.send(format!("{request}\r\nhost: api.example\r\n\r\n")).await;
        assert_eq!((reply.status, reply.header("allow")), (status, allow), "{request}");
        assert_eq!(reply.body, r#"{"error":"invalid_request"}"#, "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn accepts_chunked_body() {
    let server = TestServer::new();
    let (a, b) = BODY.split_at(9);
    let chunks = format!("9\r\n{a}\r\n{:x};x=y\r\n{b}\r\n0\r\ntrailer: x\r\n\r\n", b.len());
    let reply =
        server.connect().send(format!("{}transfer-encoding: chunked\r\n\r\n{chunks}", request_head())).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn accepts_body_of_4096_bytes_and_rejects_4097() {
    let server = TestServer::new();
    let padded = |bytes: usize| format!("{BODY}{}", " ".repeat(bytes - BODY.len()));
    let sized = |bytes| format!("{}content-length: {bytes}\r\n\r\n{}", request_head(), padded(bytes));
    let chunked = |bytes| {
        format!(
            "{}transfer-encoding: chunked\r\n\r\n{bytes:x}\r\n{}\r\n0\r\n\r\n",
            request_head(),
            padded(bytes)
        )
    };
    assert_eq!(server.connect().send(sized(4_096)).await.status, 200);
    assert_eq!(server.connect().send(chunked(4_096)).await.status, 200);
    for request in [sized(4_097), chunked(4_097)] {
        let reply = server.connect().send(request).await;
        assert!(reply.is_invalid_request(), "{reply:?}");
        assert_eq!(reply.header("connection"), Some("close"));
    }
    assert_eq!(server.elapsed_seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn keeps_the_connection_open_after_wrong_content_type() {
    let server = TestServer::new();
    let mut client = server.connect();
    let reply = client.send(valid_request().replace("application/json", "text/plain")).await;
    assert!(reply.is_invalid_request() && reply.header("connection").is_none(), "{reply:?}");
    assert_eq!(client.send(valid_request()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn sends_100_continue_before_the_body() {
    let server = TestServer::new();
    let mut client = server.connect();
    client
        .write(format!("{}expect: 100-continue\r\ncontent-length: {}\r\n\r\n", request_head(), BODY.len()))
        .await;
    assert_eq!(client.read_reply().await.head, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(client.send(BODY).await.status, 200);
    assert_eq!(client.send(valid_request()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn sends_no_100_continue_for_a_rejected_request() {
    let server = TestServer::new();
    for (expected, status) in [
        (format!("{}expect: 100-continue\r\ncontent-length: 5000\r\n\r\n", request_head()), 400),
        ("POST /x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n".into(), 404),
    ] {
        let mut client = server.connect();
        let reply = client.send(expected).await;
        assert_eq!((reply.status, reply.header("connection")), (status, Some("close")));
        assert_eq!(client.read_to_end().await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn accepts_http_1_0_without_host() {
    let server = TestServer::new();
    let mut client = server.connect();
    client
        .write(format!(
            "POST /api/v1/person/enrich HTTP/1.0\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{BODY}",
            key().reveal(),
            BODY.len()
        ))
        .await;
    let reply = client.read_reply().await;
    assert!(reply.status == 200 && reply.head.starts_with("HTTP/1.0"), "{reply:?}");
    assert_eq!(client.read_to_end().await, "");
}

#[tokio::test(start_paused = true)]
async fn replies_after_client_shuts_down_its_sending_half() {
    let server = TestServer::new();
    let mut client = server.connect();
    client.write(valid_request()).await;
    client.shut_down_sending().await;
    assert_eq!(client.read_reply().await.status, 200);
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn replies_to_pipelined_requests_in_order_until_the_first_malformed_one() {
    let server = TestServer::new();
    let mut client = server.connect();
    client
        .write(
            [valid_request().as_str(), "GET / HTTP/1.1\r\nhost: x\r\n\r\n", "bad\r\n\r\n", &valid_request()]
                .concat(),
        )
        .await;
    assert_eq!(client.read_reply().await.status, 200);
    assert_eq!(client.read_reply().await.status, 404);
    assert!(client.read_reply().await.is_invalid_request());
    assert_eq!(client.read_to_end().await, "");
}

#[tokio::test(start_paused = true)]
async fn accepts_64_header_lines() {
    let server = TestServer::new();
    assert_eq!(server.connect().send(request_with_headers(&"x: y\r\n".repeat(64 - 4))).await.status, 200);
}
