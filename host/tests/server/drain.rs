//! Every reply of a drain announces the close of its connection, whatever the request and the state of its
//! connection.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::valid_request;
use crate::http2;
use crate::lookups::Gate;
use crate::test_server::TestServer;

/// The state of a connection when the shutdown begins.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    /// Its last request was answered.
    Idle,
    /// The connection is not open yet.
    New,
    /// The client has sent the first bytes of a head.
    HalfOfTheHead,
    /// The client has sent all but the last byte of the request.
    LastByte,
}

const STATES: [At; 4] = [At::Idle, At::New, At::HalfOfTheHead, At::LastByte];

/// Sends `first` before the shutdown where the state needs a reply, and `request` during it. Checks the reply
/// to `request`.
async fn announces_close(server: TestServer, at: At, first: &str, request: &str, status: u16) {
    let mut client = server.connect();
    if at == At::Idle {
        assert_eq!(client.send(first).await.header("connection"), None);
    }
    let sent = match at {
        At::Idle | At::New => 0,
        At::HalfOfTheHead => 20,
        At::LastByte => request.len() - 1,
    };
    if sent > 0 {
        client.write(&request[..sent]).await;
        sleep(Duration::from_millis(10)).await;
    }
    server.stop.cancel();
    sleep(Duration::from_millis(500)).await;
    if at == At::New {
        client = server.connect();
    }
    let reply = client.send(&request[sent..]).await;
    assert_eq!((reply.status, reply.header("connection")), (status, Some("close")), "{at:?}: {request}");
    assert_eq!(client.read_to_end().await, "", "{at:?}: {request}");
    drop(client);
    server.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn announces_close_in_each_kind_of_reply() {
    let requests = [
        (valid_request(), 200),
        (valid_request().replace("\"ada.", "\"bob."), 404),
        (valid_request().replace("{\"email\"", "{\"emaiL\""), 400),
        (valid_request().replace("Bearer", "Basic"), 401),
        ("GET /api/v1/person/enrich HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), 405),
        ("GET / HTTP/1.1\r\nhost: api.example\r\n\r\n".to_owned(), 404),
    ];
    for (request, status) in requests {
        for at in STATES {
            announces_close(TestServer::new(), at, &valid_request(), &request, status).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn announces_close_in_each_page() {
    let page = "GET / HTTP/1.1\r\nhost: pages.example\r\n\r\n";
    for at in STATES {
        announces_close(TestServer::of_pages(|_| {}), at, page, page, 200).await;
    }
}

/// The client sends it again elsewhere, so it must not be executed here.
#[tokio::test(start_paused = true)]
async fn executes_no_request_after_a_reply_that_announces_the_close() {
    let server = TestServer::new();
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.status, 200);
    server.stop.cancel();
    sleep(Duration::from_millis(500)).await;
    let reply = client.send(valid_request().repeat(3)).await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.balance().spent, 2);
    drop(client);
    server.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn completes_http2_lookups_in_flight() {
    let gate = Gate::default();
    let server = TestServer::with_resolver(gate.clone());
    let mut client = http2::Client::connect(&server).await;
    let (reply, ()) = tokio::join!(client.send(http2::valid_request()), async {
        gate.called().await;
        server.stop.cancel();
        sleep(Duration::from_secs(5)).await;
        gate.open();
    });
    assert_eq!(reply.0, 200);
    client.closed().await.unwrap();
    server.task.await.unwrap();
}

/// A client that leaves, a lookup in flight and a connection that sends nothing, all during one drain.
#[tokio::test(start_paused = true)]
async fn ends_with_the_last_lookup_of_a_drain() {
    let gate = Gate::default();
    let server = TestServer::with_resolver(gate.clone());
    let (mut gone, mut silent) = (server.connect(), server.connect());
    gone.write(valid_request()).await;
    gate.called().await;
    server.stop.cancel();
    sleep(Duration::from_millis(500)).await;
    drop(gone);
    let mut late = server.connect();
    late.write(valid_request()).await;
    gate.called().await;
    assert_eq!(silent.read_to_end().await, "");
    sleep(Duration::from_secs(3)).await;
    assert!(!server.task.is_finished());
    gate.open();
    gate.open();
    let reply = late.read_reply().await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    drop((late, silent));
    let accounts = server.accounts.clone();
    server.task.await.unwrap();
    let balance = accounts.balance(&crate::test_server::workspace());
    assert_eq!((balance.held, balance.spent), (0, 2));
}

/// HTTP/2 announces the close with a frame, and not with a header of the next reply.
#[tokio::test(start_paused = true)]
async fn idle_http2_connection_closes_when_a_drain_begins() {
    let server = TestServer::with(|services| services.limits.drain_timeout = Duration::from_secs(5));
    let mut client = http2::Client::connect(&server).await;
    assert_eq!(client.send(http2::valid_request()).await.0, 200);
    let stopped_at = Instant::now();
    server.stop.cancel();
    client.closed().await.unwrap();
    assert!(stopped_at.elapsed() < Duration::from_secs(1), "{:?}", stopped_at.elapsed());
}
