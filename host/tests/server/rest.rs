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
async fn it_answers_the_next_request_each_time() {
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
async fn it_answers_requests_that_come_at_once_in_their_order() {
    let world = World::new();
    let mut client = resting(&world).await;
    let unknown = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    client.send(format!("{}{unknown}{}", good(), good())).await;
    for status in [200, 404, 200] {
        assert_eq!(client.reply().await.status, status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_may_take_its_time_on_it() {
    let world = World::new();
    let mut client = resting(&world).await;
    client.send(&good()[..1]).await;
    sleep(Duration::from_secs(9)).await;
    assert_eq!(client.ask(&good()[1..]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_goes_on_after_10_s_is_cut_off() {
    let world = World::new();
    let mut client = resting(&world).await;
    client.send("P").await;
    sleep(Duration::from_secs(6)).await;
    client.send("OST").await;
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 30 + 10);
}

#[tokio::test(start_paused = true)]
async fn half_a_head_behind_a_request_is_waited_for_no_longer_than_another() {
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
async fn empty_lines_behind_a_request_begin_no_head() {
    let world = World::new();
    let mut client = world.connect();
    assert_eq!(client.ask(format!("{}\r\n\r\n", good())).await.status, 200);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(client.ask(good()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_request_is_answered_on_it() {
    let world = World::new();
    let mut client = resting(&world).await;
    assert!(client.ask("garbage\r\n\r\n").await.is_invalid_request());
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 30);
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_the_client_does() {
    let world = World::with_limits(|limits| limits.connections_max = 1);
    let mut client = resting(&world).await;
    client.end_sending().await;
    assert_eq!(client.rest().await, "");
    assert_eq!(world.connect().ask(good()).await.status, 200);
    assert_eq!(world.seconds(), 30);
}

#[tokio::test(start_paused = true)]
async fn it_ends_before_it_rests_if_it_may_be_idle_for_less() {
    let world = World::with_limits(|limits| limits.idle_time_max = Duration::from_millis(500));
    let mut client = world.connect();
    assert_eq!(client.ask(good()).await.status, 200);
    assert_eq!(client.rest().await, "");
    assert!(world.started.elapsed() < Duration::from_secs(1));
}
