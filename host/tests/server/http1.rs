//! What the golden transcripts do not show of HTTP/1: optional headers, and replies that wait for nothing.

use crate::client::{request_head, valid_request};
use crate::test_server::TestServer;

#[tokio::test(start_paused = true)]
async fn date_header_is_optional() {
    let server = TestServer::with(|services| services.date_header = true);
    assert!(server.connect().send(valid_request()).await.header("date").is_some());
    assert!(server.connect().send("garbage\r\n\r\n").await.header("date").is_some());
}

#[tokio::test(start_paused = true)]
async fn rejects_body_over_the_limit_without_waiting_for_its_end() {
    let server = TestServer::new();
    let sized = "content-length: 5000\r\n\r\n".to_owned();
    let chunked = format!("transfer-encoding: chunked\r\n\r\n1388\r\n{}", " ".repeat(4_097));
    for body in [sized, chunked] {
        let reply = server.connect().send(request_head() + &body).await;
        assert!(reply.is_invalid_request() && reply.header("connection") == Some("close"), "{reply:?}");
    }
    assert_eq!(server.elapsed_seconds(), 0);
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
