//! Graceful shutdown.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::valid_request;
use crate::lookups::Gate;
use crate::test_server::{TestServer, workspace};

#[tokio::test(start_paused = true)]
async fn closes_idle_and_unused_connections_immediately() {
    let server = TestServer::new();
    let (mut idle, mut silent) = (server.connect(), server.connect());
    assert_eq!(idle.send(valid_request()).await.status, 200);
    server.stop.cancel();
    assert_eq!(idle.read_to_end().await, "");
    assert_eq!(silent.read_to_end().await, "");
    drop((idle, silent));
    let started = server.started;
    server.task.await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn closes_suspended_connections_immediately() {
    let server = TestServer::new();
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.status, 200);
    sleep(Duration::from_secs(30)).await;
    server.stop.cancel();
    assert_eq!(client.read_to_end().await, "");
    drop(client);
    let started = server.started;
    server.task.await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(30_100));
}

#[tokio::test(start_paused = true)]
async fn replies_to_requests_in_flight_and_closes_their_connections() {
    let gate = Gate::default();
    let server = TestServer::with_resolver(gate.clone());
    let mut client = server.connect();
    client.write(valid_request()).await;
    gate.called().await;
    server.stop.cancel();
    sleep(Duration::from_secs(9)).await;
    assert!(!server.task.is_finished());
    gate.open();
    let reply = client.read_reply().await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert_eq!(client.read_to_end().await, "");
    drop(client);
    server.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn drops_connections_after_10_s() {
    let gate = Gate::default();
    let server = TestServer::with_resolver(gate.clone());
    let mut client = server.connect();
    client.write(valid_request()).await;
    gate.called().await;
    server.stop.cancel();
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 10);
    server.task.await.unwrap();

    // The process would exit here. While it does not, the lookup still settles.
    gate.open();
    sleep(Duration::from_secs(1)).await;
    let balance = server.accounts.balance(&workspace());
    assert_eq!((balance.held, balance.spent), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn accepts_no_more_connections() {
    let server = TestServer::new();
    server.stop.cancel();
    assert_eq!(server.connect().read_to_end().await, "");
    server.task.await.unwrap();
}
