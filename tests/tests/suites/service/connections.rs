//! Bytes that are not HTTP/1.1 on either port: TLS, HTTP/2 frames, a large body while the server replies.

use enrich_tests::blackbox::{KNOWN, RawConnection, RawReply, RawRequest, TestServer, client_hello};

/// Checks that other clients are served over every transport.
async fn assert_serves(server: &TestServer) {
    for client in server.clients(1).await {
        client.look_up(KNOWN).await.assert_status(200);
    }
}

/// Sends `bytes`, shuts down the sending side, and returns what the server sends until it closes the connection.
async fn exchange(mut connection: RawConnection, bytes: impl AsRef<[u8]>) -> (Vec<RawReply>, Vec<u8>) {
    connection.send(bytes).await;
    connection.end_sending().await;
    connection.rest().await
}

/// Closing a connection with unread bytes causes a TCP reset, in which the reply could be lost (RFC 9112, 9.6).
#[tokio::test]
async fn client_that_sends_1_mb_before_reading_gets_its_400() {
    let server = TestServer::start().await;
    let request = server.raw_request(KNOWN, 1_000).await;
    let mb = " ".repeat(1_000_000);
    let sized = RawRequest { body: mb.clone(), ..request.clone() }.text();
    let chunked = format!("{}transfer-encoding: chunked\r\n\r\nf4240\r\n{mb}\r\n0\r\n\r\n", request.head());
    for request in [&sized, &chunked].repeat(10) {
        let mut connection = server.connect_raw().await;
        for part in request.as_bytes().chunks(16_384) {
            assert!(connection.send(part).await, "the server closed the connection before it read all bytes");
            tokio::task::yield_now().await; // lets the server reply and close before all is sent
        }
        connection.reply().await.assert_invalid_request("1 MB");
        assert_eq!(connection.rest().await, (vec![], vec![]));
    }
    assert_serves(&server).await;
}

#[tokio::test]
async fn tls_on_the_plain_port_gets_a_400() {
    let server = TestServer::start().await;
    let (replies, rest) = exchange(server.connect_raw().await, client_hello()).await;
    assert_eq!((replies.len(), rest.len()), (1, 0));
    replies[0].assert_invalid_request("TLS");
    assert_serves(&server).await;
}

#[tokio::test]
async fn plain_http_on_the_tls_port_gets_no_plain_reply() {
    let server = TestServer::start().await;
    let request = server.raw_request(KNOWN, 1_000).await.text();
    for bytes in [request.into_bytes(), b"\x16\x03\x01\xff\xff".repeat(9_000), client_hello()[..100].to_vec()]
    {
        let (replies, alert) = exchange(RawConnection::open(server.tls).await, bytes).await;
        assert_eq!(replies, []);
        assert!(alert.is_empty() || alert[0] == 0x15, "{}", alert.escape_ascii()); // a TLS alert
    }
    assert_serves(&server).await;
}

#[tokio::test]
async fn malformed_http2_closes_only_its_own_connection() {
    let server = TestServer::start().await;
    let preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..];
    let settings = &b"\0\0\0\x04\0\0\0\0\0"[..];
    for (name, bytes) in [
        ("text", &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..]),
        ("zeros", &[0; 4_096]),
        ("ones", &[0xff; 4_096]),
        ("DATA for an idle stream", b"\0\0\x01\0\0\0\0\0\x01x"),
        ("HEADERS for stream 0", b"\0\0\x01\x01\x04\0\0\0\0\x82"),
        ("HEADERS with invalid HPACK", b"\0\0\x04\x01\x05\0\0\0\x01\xff\xff\xff\xff"),
        ("PUSH_PROMISE from the client", b"\0\0\x04\x05\x04\0\0\0\x01\0\0\0\x02"),
        ("WINDOW_UPDATE that overflows", b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\xff\xff"),
        ("a frame larger than allowed", b"\x01\0\0\0\0\0\0\0\x01"),
        ("no frame", b""),
    ] {
        let (replies, frames) =
            exchange(server.connect_raw().await, [preface, settings, bytes].concat()).await;
        assert_eq!(replies, [], "{name}");
        assert!(!frames.starts_with(b"HTTP/"), "{name}: {}", frames.escape_ascii());
        assert_serves(&server).await;
    }
}
