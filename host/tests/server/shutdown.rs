//! Graceful shutdown.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::valid_request;
use crate::http2;
use crate::lookups::Gate;
use crate::test_server::{TestServer, workspace};

/// The clients keep their connections open, as a pool does that does not read before its next request.
#[tokio::test(start_paused = true)]
async fn waits_for_no_client_without_a_request_in_flight() {
    let (head, page) = (valid_request(), "GET / HTTP/1.1\r\nhost: pages.example\r\n\r\n".to_owned());
    for (serve, request) in [(TestServer::new as fn() -> _, head), (|| TestServer::of_pages(|_| {}), page)] {
        for (first, age, rest) in [
            ("", 0, ""),
            (&request[..], 0, ""),
            (&request, 30, ""),
            ("", 0, &request[..20]),
            (&request, 0, &request[..20]),
            (&request, 30, &request[..20]),
            ("", 0, http2::PREFACE),
        ] {
            let server: TestServer = serve();
            let mut client = server.connect();
            if !first.is_empty() {
                assert_eq!(client.send(first).await.header("connection"), None);
            }
            sleep(Duration::from_secs(age)).await;
            client.write(rest).await;
            sleep(Duration::from_millis(1)).await;
            let stopped_at = Instant::now();
            server.stop.cancel();
            server.task.await.unwrap();
            let stopped = stopped_at.elapsed().as_millis();
            assert!(stopped <= 1_350, "{first:?}, {age} s, {rest:?}: {stopped} ms");
            client.try_write(b"x").await.unwrap_err();
        }
    }
}

/// The next connection may be on its way.
#[tokio::test(start_paused = true)]
async fn accepts_for_1_s_without_connections() {
    let server = TestServer::new();
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.status, 200);
    drop(client);
    let started = server.started;
    server.stop.cancel();
    sleep(Duration::from_millis(900)).await;
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.header("connection"), Some("close"));
    drop(client);
    server.task.await.unwrap();
    assert!((1_000..1_100).contains(&started.elapsed().as_millis()));
}

#[tokio::test(start_paused = true)]
async fn answers_connections_that_wait_in_the_queue_when_the_listener_closes() {
    let server = TestServer::with_limits(|limits| limits.drain_timeout = Duration::ZERO);
    server.stop.cancel();
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    sleep(Duration::from_millis(200)).await;
    assert!(!server.is_listening());
    for client in &mut clients {
        assert_eq!(client.send(valid_request()).await.header("connection"), Some("close"));
    }
    drop(clients);
    server.task.await.unwrap();
}

/// The handshake of the connection ends just after the listener has begun to refuse others.
#[tokio::test(start_paused = true)]
async fn answers_a_connection_that_arrives_at_the_end_of_a_drain() {
    let server = TestServer::with_limits(|limits| limits.drain_timeout = Duration::ZERO);
    server.stop.cancel();
    sleep(Duration::from_millis(10)).await;
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.header("connection"), Some("close"));
    drop(client);
    server.task.await.unwrap();
}

/// Another process accepts the next connection.
#[tokio::test(start_paused = true)]
async fn ends_at_once_on_a_shared_socket_without_connections() {
    let server = TestServer::with(|services| services.is_socket_shared = true);
    let started = server.started;
    server.stop.cancel();
    server.task.await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn replies_to_http2_requests_that_are_sent_before_the_goaway_frame_arrives() {
    let server = TestServer::new();
    let mut client = http2::Client::connect(&server).await;
    assert_eq!(client.send(http2::valid_request()).await.0, 200);
    let (reply, ()) = tokio::join!(client.send(http2::valid_request()), async { server.stop.cancel() });
    assert_eq!(reply.0, 200);
    client.closed().await.unwrap();
    assert_eq!(server.elapsed_seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn drops_connections_after_16_s() {
    let gate = Gate::default();
    let server = TestServer::with_resolver(gate.clone());
    let mut client = server.connect();
    client.write(valid_request()).await;
    gate.called().await;
    server.stop.cancel();
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 1 + 15);
    server.task.await.unwrap();

    // The process would exit here. While it does not, the lookup still settles.
    gate.open();
    sleep(Duration::from_secs(1)).await;
    let balance = server.accounts.balance(&workspace());
    assert_eq!((balance.held, balance.spent), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn leaves_new_connections_of_a_shared_socket_to_other_processes() {
    let server = TestServer::with(|services| services.is_socket_shared = true);
    let mut accepted = server.connect();
    sleep(Duration::from_millis(1)).await;
    server.stop.cancel();
    sleep(Duration::from_millis(1)).await;
    assert!(!server.is_listening());
    sleep(Duration::from_millis(900)).await;
    let reply = accepted.send(valid_request()).await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    drop(accepted);
    server.task.await.unwrap();
}
