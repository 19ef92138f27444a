//! HTTP/2.

use std::sync::Arc;
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
use crate::test_server::{BODY, TestServer, key, workspace};

/// The first bytes of a client, with an empty SETTINGS frame.
pub const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";

pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Client {
    pub async fn connect(server: &TestServer) -> Self {
        Self::over(server.connect_raw(64 * 1_024)).await
    }

    pub async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
        Self { sender, connection: tokio::spawn(connection) }
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> (u16, String) {
        self.try_send(request).await.unwrap()
    }

    pub async fn try_send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<(u16, String)> {
        let response = self.sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.into()).unwrap()))
    }

    /// Waits until the server closes the connection.
    pub async fn closed(self) -> hyper::Result<()> {
        self.connection.await.unwrap()
    }

    /// Sends a lookup and resets its stream while the resolver is running.
    async fn send_and_reset(&mut self, gate: &Gate) {
        tokio::select! {
            reply = self.send(valid_request()) => panic!("the lookup completed: {reply:?}"),
            () = gate.called() => {}
        }
    }
}

pub fn valid_request() -> Request<Full<Bytes>> {
    request_with_body(BODY)
}

fn request_with_body(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post("http://api.example/api/v1/person/enrich")
        .header("authorization", format!("Bearer {}", key().reveal()))
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

fn request_with_headers(lines: usize, value: &str) -> Request<Full<Bytes>> {
    let mut request = valid_request();
    for line in 0..lines {
        let name: http::HeaderName = format!("x-{line}").parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

fn invalid_request() -> (u16, String) {
    (400, r#"{"error":"invalid_request"}"#.to_owned())
}

/// RFC 9113, 8.3.1. hyper sends the authority of the URL.
#[tokio::test]
async fn rejects_host_that_differs_from_the_authority() {
    let server = TestServer::new();
    let mut client = Client::connect(&server).await;
    for (host, status) in [("api.example", 200), ("API.example", 200), ("other.example", 400), ("", 400)] {
        let mut request = valid_request();
        request.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(client.send(request).await.0, status, "{host}");
    }
    let mut request = valid_request();
    for host in ["api.example", "other.example"] {
        request.headers_mut().append("host", host.parse().unwrap());
    }
    assert_eq!(client.send(request).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn rejects_unknown_path_with_404_in_json() {
    let server = TestServer::new();
    let request = Request::get("http://api.example/").body(Full::default()).unwrap();
    let reply = Client::connect(&server).await.send(request).await;
    assert_eq!(reply, (404, invalid_request().1));
}

#[tokio::test(start_paused = true)]
async fn rejects_head_above_the_limits_with_400_in_json() {
    let server = TestServer::new();
    let mut client = Client::connect(&server).await;
    assert_eq!(client.send(request_with_headers(60, "y")).await.0, 200);
    assert_eq!(client.send(request_with_headers(64, "y")).await, invalid_request());
    assert_eq!(client.send(request_with_headers(8, &"y".repeat(1_900))).await.0, 200);
    assert_eq!(client.send(request_with_headers(8, &"y".repeat(2_100))).await, invalid_request());
}

/// The only reply that the server does not generate itself: see `connection::http2`.
#[tokio::test(start_paused = true)]
async fn rejects_head_above_64_kib_with_431_and_keeps_the_connection_open() {
    let server = TestServer::new();
    let mut client = Client::connect(&server).await;
    assert_eq!(client.send(request_with_headers(40, &"y".repeat(1_900))).await.0, 431);
    assert_eq!(client.send(valid_request()).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn rejects_body_above_the_limit_with_400_in_json_and_keeps_the_connection_open() {
    let server = TestServer::new();
    let mut client = Client::connect(&server).await;
    assert_eq!(client.send(request_with_body(vec![b' '; 4_097])).await, invalid_request());
    assert_eq!(client.send(request_with_body(vec![b' '; 1_000_000])).await, invalid_request());
    assert_eq!(client.send(valid_request()).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn closes_idle_connection_after_75_s() {
    let server = TestServer::new();
    let mut client = Client::connect(&server).await;
    assert_eq!(client.send(valid_request()).await.0, 200);
    sleep(Duration::from_secs(70)).await;
    assert_eq!(client.send(valid_request()).await.0, 200);
    client.closed().await.unwrap();
    assert_eq!(server.elapsed_seconds(), 70 + 75);
}

#[tokio::test(start_paused = true)]
async fn idle_timeout_does_not_apply_while_a_request_is_in_flight() {
    let gate = Gate::default();
    let server = TestServer::with(|services| {
        services.limits.lookup_timeout = Duration::from_secs(200);
        services.service.resolver = Arc::new(gate.clone());
    });
    let mut client = Client::connect(&server).await;
    let lookup = client.send(valid_request());
    let open = async {
        sleep(Duration::from_secs(100)).await;
        gate.open();
    };
    assert_eq!(tokio::join!(lookup, open).0.0, 200);
}

#[tokio::test(start_paused = true)]
async fn connection_is_not_idle_when_one_of_two_requests_has_ended() {
    let gate = Gate::default();
    let server = TestServer::with(|services| {
        services.limits.connections_max = 1;
        services.limits.lookup_timeout = Duration::from_secs(200);
        services.service.resolver = Arc::new(gate.clone());
    });
    let mut client = Client::connect(&server).await;
    let mut sender = client.sender.clone();
    let lookup = client.send(valid_request());
    let others = async {
        gate.called().await;
        assert_eq!(sender.send_request(request_with_body("{}")).await.unwrap().status(), 400);
        let mut second = server.connect();
        second.write(crate::client::valid_request()).await;
        tokio::select! {
            () = gate.called() => panic!("a second connection replaced the first one"),
            () = sleep(Duration::from_secs(150)) => {}
        }
        gate.open();
    };
    assert_eq!(tokio::join!(lookup, others).0.0, 200);
}

#[tokio::test(start_paused = true)]
async fn settles_lookup_whose_stream_is_reset() {
    let gate = Gate::default();
    let server = TestServer::with_resolver(gate.clone());
    let mut client = Client::connect(&server).await;
    client.send_and_reset(&gate).await;
    sleep(Duration::from_secs(1)).await; // gives the reset time to arrive
    assert_eq!(server.balance().held, 1);
    gate.open();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.balance().held, server.balance().spent), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_lookups_of_disconnected_clients() {
    let gate = Gate::default();
    let server = TestServer::with_resolver(gate.clone());
    let mut client = Client::connect(&server).await;
    client.send_and_reset(&gate).await;
    drop(client);
    server.stop.cancel();
    sleep(Duration::from_secs(5)).await;
    assert!(!server.task.is_finished());
    gate.open();
    server.task.await.unwrap();
    assert_eq!(server.accounts.balance(&workspace()).spent, 1);
}
