//! Timeouts of slow clients.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::sleep;

use crate::client::{Client, good, head};
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn closes_a_silent_connection_after_10_s() {
    let world = World::new();
    assert_eq!(world.connect().rest().await, "");
    assert_eq!(world.seconds(), 10);
}

#[tokio::test(start_paused = true)]
async fn closes_a_slow_head_after_10_s() {
    let world = World::new();
    let mut client = world.connect();
    for byte in good().bytes() {
        if client.try_send(&[byte]).await.is_err() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 10 + 1, "the write that failed was the next after the end");
}

#[tokio::test(start_paused = true)]
async fn closes_a_stalled_http2_preface_after_10_s() {
    let world = World::new();
    let mut client = world.connect();
    client.send("PRI * HTTP/2.0\r\n").await;
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 10);
}

#[tokio::test(start_paused = true)]
async fn closes_an_idle_connection_after_75_s() {
    let world = World::new();
    let mut client = world.connect();
    assert_eq!(client.ask(good()).await.status, 200);
    sleep(Duration::from_secs(74)).await;
    assert_eq!(client.ask(good()).await.status, 200);
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 74 + 75);
}

#[tokio::test(start_paused = true)]
async fn later_head_times_out_10_s_after_its_first_byte() {
    let world = World::new();
    let mut client = world.connect();
    assert_eq!(client.ask(good()).await.status, 200);
    sleep(Duration::from_secs(60)).await;
    client.send("POST /").await;
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 60 + 10);
}

#[tokio::test(start_paused = true)]
async fn accepts_a_later_head_within_9_s() {
    let world = World::new();
    let mut client = world.connect();
    assert_eq!(client.ask(good()).await.status, 200);
    let (first, second) = (&good()[..20], &good()[20..]);
    client.send(first).await;
    sleep(Duration::from_secs(9)).await;
    assert_eq!(client.ask(second).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn missing_body_is_400_after_5_s() {
    let world = World::new();
    let mut client = world.connect();
    let reply = client.ask(format!("{}content-length: 40\r\n\r\n{{", head())).await;
    assert!(reply.is_invalid_request(), "{reply:?}");
    assert_eq!(reply.header("connection"), Some("close"));
    assert_eq!(world.seconds(), 5);
    assert_eq!(client.rest().await, "");
}

#[tokio::test(start_paused = true)]
async fn slow_body_is_400_after_5_s() {
    let world = World::new();
    let mut client = world.connect();
    client.send(format!("{}transfer-encoding: chunked\r\n\r\n", head())).await;
    for _ in 0..6 {
        client.send("1\r\n \r\n").await;
        sleep(Duration::from_millis(900)).await;
    }
    assert!(client.reply().await.is_invalid_request());
    assert_eq!(world.seconds(), 5);
}

#[tokio::test(start_paused = true)]
async fn reads_the_body_without_a_key_so_that_401_replies_are_indistinguishable() {
    let world = World::new();
    let mut client = world.connect();
    let stranger = "POST /api/v1/person/enrich HTTP/1.1\r\nhost: x\r\ncontent-length: 40\r\n\r\n";
    let reply = client.ask(stranger).await;
    assert_eq!((reply.status, reply.header("connection")), (401, Some("close")));
    assert_eq!(world.seconds(), 5);
}

#[tokio::test(start_paused = true)]
async fn closes_a_client_that_never_reads_after_the_idle_timeout() {
    let world = World::new();
    let mut io = world.dial(64);
    let (mut reader, writer) = tokio::io::split(&mut io);
    Client::new(tokio::io::join(tokio::io::empty(), writer)).send(good()).await;
    sleep(Duration::from_secs(200)).await;
    let mut came = Vec::new();
    reader.read_to_end(&mut came).await.unwrap();
    assert_eq!(came.len(), 64, "the rest of the reply had no room");
}

#[tokio::test(start_paused = true)]
async fn drops_a_client_that_ignores_the_close_after_5_s() {
    let world = World::with_limits(|limits| limits.connections_max = 1);
    let mut deaf = world.connect();
    assert!(deaf.ask("garbage\r\n\r\n").await.is_invalid_request());
    assert_eq!(world.connect().ask(good()).await.status, 200); // accepted once the previous connection is closed
    assert_eq!(world.seconds(), 5);
    drop(deaf);
}

#[tokio::test(start_paused = true)]
async fn accepts_at_most_connections_max() {
    let world = World::with_limits(|limits| limits.connections_max = 2);
    let (mut first, mut second) = (world.connect(), world.connect());
    assert_eq!(first.ask(good()).await.status, 200);
    assert_eq!(second.ask(good()).await.status, 200);

    let mut third = world.connect();
    third.send(good()).await;
    tokio::select! {
        _ = third.reply() => panic!("a third connection was accepted"),
        () = sleep(Duration::from_secs(30)) => {}
    }
    drop(first);
    assert_eq!(third.reply().await.status, 200);
    assert_eq!(world.seconds(), 30);
}
