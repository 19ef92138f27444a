//! HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::lookups::Gate;
use crate::world::{BODY, World, demo, key};

pub struct Client {
    send: SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Client {
    async fn connect(world: &World) -> Self {
        Self::over(world.dial(64 * 1_024)).await
    }

    pub async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (send, connection) = handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
        Self { send, connection: tokio::spawn(connection) }
    }

    pub async fn ask(&mut self, request: Request<Full<Bytes>>) -> (u16, String) {
        let response = self.send.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.into()).unwrap())
    }

    /// Sends a lookup and resets its stream while the resolver is running.
    async fn ask_and_reset(&mut self, gate: &Gate) {
        tokio::select! {
            reply = self.ask(good()) => panic!("answered {reply:?}"),
            () = gate.asked() => {}
        }
    }
}

pub fn good() -> Request<Full<Bytes>> {
    with_body(BODY)
}

fn with_body(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post("http://api.example/api/v1/person/enrich")
        .header("authorization", format!("Bearer {}", key().reveal()))
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

fn with_headers(lines: usize, value: &str) -> Request<Full<Bytes>> {
    let mut request = good();
    for line in 0..lines {
        let name: http::HeaderName = format!("x-{line}").parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

fn invalid_request() -> (u16, String) {
    (400, r#"{"error":"invalid_request"}"#.to_owned())
}

#[tokio::test(start_paused = true)]
async fn answers_lookups_on_one_connection() {
    let world = World::new();
    let mut client = Client::connect(&world).await;
    for _ in 0..3 {
        let (status, body) = client.ask(good()).await;
        assert!(status == 200 && body.contains("/in/ada-marlowe"), "{status} {body}");
    }
    assert_eq!(world.balance().spent, 3);
}

#[tokio::test(start_paused = true)]
async fn unknown_path_is_404_in_json() {
    let world = World::new();
    let request = Request::get("http://api.example/").body(Full::default()).unwrap();
    let reply = Client::connect(&world).await.ask(request).await;
    assert_eq!(reply, (404, invalid_request().1));
}

#[tokio::test(start_paused = true)]
async fn oversized_head_is_400_in_json() {
    let world = World::new();
    let mut client = Client::connect(&world).await;
    assert_eq!(client.ask(with_headers(60, "y")).await.0, 200);
    assert_eq!(client.ask(with_headers(64, "y")).await, invalid_request());
    assert_eq!(client.ask(with_headers(8, &"y".repeat(1_900))).await.0, 200);
    assert_eq!(client.ask(with_headers(8, &"y".repeat(2_100))).await, invalid_request());
}

/// The only reply that the server does not generate itself: see `connection::http2`.
#[tokio::test(start_paused = true)]
async fn head_over_64_kib_is_431_and_keeps_the_connection() {
    let world = World::new();
    let mut client = Client::connect(&world).await;
    assert_eq!(client.ask(with_headers(40, &"y".repeat(1_900))).await.0, 431);
    assert_eq!(client.ask(good()).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn oversized_body_is_400_and_keeps_the_connection() {
    let world = World::new();
    let mut client = Client::connect(&world).await;
    assert_eq!(client.ask(with_body(vec![b' '; 4_097])).await, invalid_request());
    assert_eq!(client.ask(with_body(vec![b' '; 1_000_000])).await, invalid_request());
    assert_eq!(client.ask(good()).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn closes_an_idle_connection_after_75_s() {
    let world = World::new();
    let mut client = Client::connect(&world).await;
    sleep(Duration::from_secs(70)).await;
    assert_eq!(client.ask(good()).await.0, 200);
    client.connection.await.unwrap().unwrap();
    assert_eq!(world.seconds(), 70 + 75);
}

#[tokio::test(start_paused = true)]
async fn connection_with_a_request_in_flight_is_not_idle() {
    let gate = Gate::default();
    let world = World::with_resolver(gate.clone());
    let mut client = Client::connect(&world).await;
    let asked = client.ask(good());
    let opened = async {
        sleep(Duration::from_secs(100)).await;
        gate.open();
    };
    assert_eq!(tokio::join!(asked, opened).0.0, 200);
}

#[tokio::test(start_paused = true)]
async fn settles_a_lookup_whose_stream_was_reset() {
    let gate = Gate::default();
    let world = World::with_resolver(gate.clone());
    let mut client = Client::connect(&world).await;
    client.ask_and_reset(&gate).await;
    sleep(Duration::from_secs(1)).await; // gives the reset time to arrive
    assert_eq!(world.balance().held, 1);
    gate.open();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((world.balance().held, world.balance().spent), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_lookups_of_disconnected_clients() {
    let gate = Gate::default();
    let world = World::with_resolver(gate.clone());
    let mut client = Client::connect(&world).await;
    client.ask_and_reset(&gate).await;
    drop(client);
    world.stop.cancel();
    sleep(Duration::from_secs(5)).await;
    assert!(!world.host.is_finished());
    gate.open();
    world.host.await.unwrap();
    assert_eq!(world.accounts.balance(&demo()).spent, 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_completes_requests_in_flight() {
    let gate = Gate::default();
    let world = World::with_resolver(gate.clone());
    let mut client = Client::connect(&world).await;
    let asked = client.ask(good());
    let stopped = async {
        gate.asked().await;
        world.stop.cancel();
        sleep(Duration::from_secs(5)).await;
        gate.open();
    };
    assert_eq!(tokio::join!(asked, stopped).0.0, 200);
    drop(client);
    world.host.await.unwrap();
}
