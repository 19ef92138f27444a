//! Graceful shutdown.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::good;
use crate::lookups::Gate;
use crate::world::{World, demo};

#[tokio::test(start_paused = true)]
async fn closes_idle_and_silent_connections_immediately() {
    let world = World::new();
    let (mut idle, mut silent) = (world.connect(), world.connect());
    assert_eq!(idle.ask(good()).await.status, 200);
    world.stop.cancel();
    assert_eq!(idle.rest().await, "");
    assert_eq!(silent.rest().await, "");
    drop((idle, silent));
    let started = world.started;
    world.host.await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn closes_resting_connections_immediately() {
    let world = World::new();
    let mut client = world.connect();
    assert_eq!(client.ask(good()).await.status, 200);
    sleep(Duration::from_secs(30)).await;
    world.stop.cancel();
    assert_eq!(client.rest().await, "");
    drop(client);
    let started = world.started;
    world.host.await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(30_100));
}

#[tokio::test(start_paused = true)]
async fn completes_requests_in_flight_and_closes_their_connections() {
    let gate = Gate::default();
    let world = World::with_resolver(gate.clone());
    let mut client = world.connect();
    client.send(good()).await;
    gate.asked().await;
    world.stop.cancel();
    sleep(Duration::from_secs(9)).await;
    assert!(!world.host.is_finished());
    gate.open();
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert_eq!(client.rest().await, "");
    drop(client);
    world.host.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn drops_everything_after_10_s() {
    let gate = Gate::default();
    let world = World::with_resolver(gate.clone());
    let mut client = world.connect();
    client.send(good()).await;
    gate.asked().await;
    world.stop.cancel();
    assert_eq!(client.rest().await, "");
    assert_eq!(world.seconds(), 10);
    world.host.await.unwrap();

    // The process would exit here. While it does not, the lookup still settles.
    gate.open();
    sleep(Duration::from_secs(1)).await;
    let balance = world.accounts.balance(&demo());
    assert_eq!((balance.held, balance.spent), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn accepts_no_further_connection() {
    let world = World::new();
    world.stop.cancel();
    assert_eq!(world.connect().rest().await, "");
    world.host.await.unwrap();
}
