//! Suspended connections: the server drops the HTTP state of an idle connection and recreates it for the next
//! request. This is not visible to clients.

use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::time::sleep;

use crate::client::{Client, valid_request};
use crate::test_server::TestServer;

/// Longer than the idle time after which a connection is suspended.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Returns a client whose connection is suspended after its first reply.
async fn connect_and_suspend(server: &TestServer) -> Client<DuplexStream> {
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.status, 200);
    sleep(IDLE_TIME).await;
    client
}

#[tokio::test(start_paused = true)]
async fn replies_to_each_later_request() {
    let server = TestServer::new();
    let mut client = server.connect();
    for _ in 0..3 {
        let reply = client.send(valid_request()).await;
        assert_eq!((reply.status, reply.header("connection")), (200, None));
        sleep(IDLE_TIME).await;
    }
    assert_eq!(server.balance().spent, 3);
}

#[tokio::test(start_paused = true)]
async fn replies_to_pipelined_requests_in_order() {
    let server = TestServer::new();
    let mut client = connect_and_suspend(&server).await;
    let unknown_path = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    client.write(format!("{}{unknown_path}{}", valid_request(), valid_request())).await;
    for status in [200, 404, 200] {
        assert_eq!(client.read_reply().await.status, status);
    }
}

#[tokio::test(start_paused = true)]
async fn accepts_a_head_that_takes_9_s() {
    let server = TestServer::new();
    let mut client = connect_and_suspend(&server).await;
    client.write(&valid_request()[..1]).await;
    sleep(Duration::from_secs(9)).await;
    assert_eq!(client.send(&valid_request()[1..]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn closes_connection_whose_head_takes_more_than_10_s() {
    let server = TestServer::new();
    let mut client = connect_and_suspend(&server).await;
    client.write("P").await;
    sleep(Duration::from_secs(6)).await;
    client.write("OST").await;
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 30 + 10);
}

#[tokio::test(start_paused = true)]
async fn times_out_an_incomplete_pipelined_head() {
    let server = TestServer::new();
    let mut client = server.connect();
    let (first, second) = (&valid_request()[..20], &valid_request()[20..]);
    assert_eq!(client.send(format!("{}{first}", valid_request())).await.status, 200);
    sleep(Duration::from_secs(9)).await;
    assert_eq!(client.send(second).await.status, 200);

    assert_eq!(client.send(format!("{}{first}", valid_request())).await.status, 200);
    let start = server.elapsed_seconds();
    assert_eq!(client.read_to_end().await, "");
    assert!(
        (10..=16).contains(&(server.elapsed_seconds() - start)),
        "{} s",
        server.elapsed_seconds() - start
    );
}

#[tokio::test(start_paused = true)]
async fn ignores_empty_lines_after_a_request() {
    let server = TestServer::new();
    let mut client = server.connect();
    assert_eq!(client.send(format!("{}\r\n\r\n", valid_request())).await.status, 200);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(client.send(valid_request()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn rejects_malformed_request() {
    let server = TestServer::new();
    let mut client = connect_and_suspend(&server).await;
    assert!(client.send("garbage\r\n\r\n").await.is_invalid_request());
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 30);
}

#[tokio::test(start_paused = true)]
async fn closes_when_the_client_shuts_down() {
    let server = TestServer::with_limits(|limits| limits.connections_max = 1);
    let mut client = connect_and_suspend(&server).await;
    client.shut_down_sending().await;
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.connect().send(valid_request()).await.status, 200);
    assert_eq!(server.elapsed_seconds(), 30);
}

#[tokio::test(start_paused = true)]
async fn closes_instead_of_suspending_with_a_short_idle_timeout() {
    let server = TestServer::with_limits(|limits| limits.idle_timeout = Duration::from_millis(500));
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.status, 200);
    assert_eq!(client.read_to_end().await, "");
    assert!(server.started.elapsed() < Duration::from_secs(1));
}
