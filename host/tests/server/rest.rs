//! Idle connections: the server drops their HTTP state and recreates it with the next byte, which clients do not notice.

use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::time::sleep;

use crate::client::{Client, good};
use crate::world::World;

/// Longer than the time after which the HTTP state is dropped.
const A_WHILE: Duration = Duration::from_secs(30);

/// Returns a client that has received a reply and whose connection is idle.
async fn resting(world: &World) -> Client<DuplexStream> {
    let mut client = world.connect();
    assert_eq!(client.ask(good()).await.status, 200);
    sleep(A_WHILE).await;
    client
}

#[tokio::test(start_paused = true)]
async fn answers_each_later_request() {
    let world = World::new();
    let mut client = world.connect();
    for _ in 0..3 {
        let reply = client.ask(good()).await;
        assert_eq!((reply.status, reply.header("connection")), (200, None));
        sleep(A_WHILE).await;
    }
    assert_eq!(world.balance().spent, 3);
}

#[tokio::test(start_paused = true)]
async fn answers_pipelined_requests_in_order() {
    let world = World::new();
    let mut client = resting(&world).await;
    let unknown = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    client.send(format!("{}{unknown}{}", good(), good())).await;
    for status in [200, 404, 200] {
        assert_eq!(client.reply().await.status, status);
    }
}

#[tokio::test(start_paused = true)]
async fn accepts_a_slow_head_within_the_timeout() {
    let world = World::new();
    let mut client = resting(&world).await;
    client.send(&good()[..1]).await;
    sleep(Duration::from_secs(9)).await;
    assert_eq!(client.ask(&good()[1..]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn closes_a_head_that_exceeds_10_s() {
    let world = World::new();
    let mut client = resting(&world).await;
    client.send("P").await;
    sleep(Duration::from_secs(6)).await;
    client.send("OST").await;
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 30 + 10);
}

#[tokio::test(start_paused = true)]
async fn partial_head_after_a_request_has_the_same_timeout() {
    let world = World::new();
    let mut client = world.connect();
    let (first, second) = (&good()[..20], &good()[20..]);
    assert_eq!(client.ask(format!("{}{first}", good())).await.status, 200);
    sleep(Duration::from_secs(9)).await;
    assert_eq!(client.ask(second).await.status, 200);

    assert_eq!(client.ask(format!("{}{first}", good())).await.status, 200);
    let began = world.seconds();
    assert_eq!(client.rest().await, "");
    assert!((10..=16).contains(&(world.seconds() - began)), "{} s", world.seconds() - began);
}

#[tokio::test(start_paused = true)]
async fn empty_lines_after_a_request_start_no_head() {
    let world = World::new();
    let mut client = world.connect();
    assert_eq!(client.ask(format!("{}\r\n\r\n", good())).await.status, 200);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(client.ask(good()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn malformed_request_is_answered() {
    let world = World::new();
    let mut client = resting(&world).await;
    assert!(client.ask("garbage\r\n\r\n").await.is_invalid_request());
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 30);
}

#[tokio::test(start_paused = true)]
async fn closes_when_the_client_closes() {
    let world = World::with_limits(|limits| limits.connections_max = 1);
    let mut client = resting(&world).await;
    client.end_sending().await;
    assert_eq!(client.rest().await, "");
    assert_eq!(world.connect().ask(good()).await.status, 200);
    assert_eq!(world.seconds(), 30);
}

#[tokio::test(start_paused = true)]
async fn idle_timeout_shorter_than_the_rest_delay_applies() {
    let world = World::with_limits(|limits| limits.idle_time_max = Duration::from_millis(500));
    let mut client = world.connect();
    assert_eq!(client.ask(good()).await.status, 200);
    assert_eq!(client.rest().await, "");
    assert!(world.started.elapsed() < Duration::from_secs(1));
}
