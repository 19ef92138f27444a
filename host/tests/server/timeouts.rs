//! Timeouts of slow clients.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::sleep;

use crate::client::{Client, request_head, valid_request};
use crate::http2;
use crate::lookups::{Gate, Log};
use crate::test_server::{BODY, TestServer};

#[tokio::test(start_paused = true)]
async fn closes_connection_whose_head_takes_more_than_10_s() {
    let server = TestServer::new();
    let mut client = server.connect();
    for byte in valid_request().bytes() {
        if client.try_write(&[byte]).await.is_err() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 10 + 1, "the first write after the close fails");
}

#[tokio::test(start_paused = true)]
async fn closes_idle_connection_after_75_s() {
    let server = TestServer::new();
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.status, 200);
    sleep(Duration::from_secs(74)).await;
    assert_eq!(client.send(valid_request()).await.status, 200);
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 74 + 75);
}

#[tokio::test(start_paused = true)]
async fn times_a_later_head_from_its_first_byte() {
    let server = TestServer::new();
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.status, 200);
    sleep(Duration::from_secs(60)).await;
    client.write("POST /").await;
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 60 + 10);
}

#[tokio::test(start_paused = true)]
async fn accepts_a_later_head_that_takes_9_s() {
    let server = TestServer::new();
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.status, 200);
    let (first, second) = (&valid_request()[..20], &valid_request()[20..]);
    client.write(first).await;
    sleep(Duration::from_secs(9)).await;
    assert_eq!(client.send(second).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn rejects_missing_body_after_5_s() {
    let server = TestServer::new();
    let mut client = server.connect();
    let reply = client.send(format!("{}content-length: 40\r\n\r\n{{", request_head())).await;
    assert!(reply.is_invalid_request(), "{reply:?}");
    assert_eq!(reply.header("connection"), Some("close"));
    assert_eq!(server.elapsed_seconds(), 5);
    assert_eq!(client.read_to_end().await, "");
}

#[tokio::test(start_paused = true)]
async fn rejects_slow_body_after_5_s() {
    let server = TestServer::new();
    let mut client = server.connect();
    client.write(format!("{}transfer-encoding: chunked\r\n\r\n", request_head())).await;
    for _ in 0..6 {
        client.write("1\r\n \r\n").await;
        sleep(Duration::from_millis(900)).await;
    }
    assert!(client.read_reply().await.is_invalid_request());
    assert_eq!(server.elapsed_seconds(), 5);
}

#[tokio::test(start_paused = true)]
async fn waits_5_s_for_the_body_before_401_too() {
    let server = TestServer::new();
    let mut client = server.connect();
    let without_key = "POST /api/v1/person/enrich HTTP/1.1\r\nhost: x\r\ncontent-length: 40\r\n\r\n";
    let reply = client.send(without_key).await;
    assert_eq!((reply.status, reply.header("connection")), (401, Some("close")));
    assert_eq!(server.elapsed_seconds(), 5);
}

#[tokio::test(start_paused = true)]
async fn closes_connection_whose_client_reads_no_reply_after_idle_timeout() {
    let server = TestServer::new();
    let mut io = server.connect_raw(64);
    let (mut reader, writer) = tokio::io::split(&mut io);
    Client::new(tokio::io::join(tokio::io::empty(), writer)).write(valid_request()).await;
    sleep(Duration::from_secs(200)).await;
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), 64, "only the bytes that fit into the buffer");
}

#[tokio::test(start_paused = true)]
async fn drops_connection_that_the_client_does_not_close_within_5_s() {
    let server = TestServer::new();
    let mut client = server.connect();
    assert!(client.send("garbage\r\n\r\n").await.is_invalid_request());
    sleep(Duration::from_millis(4_900)).await;
    assert!(client.try_write(b"x").await.is_ok());
    sleep(Duration::from_millis(201)).await; // timeouts are up to 100 ms late
    assert!(client.try_write(b"x").await.is_err());
}

/// The outcome of the lookup is unknown, so that every reply could be wrong.
#[tokio::test(start_paused = true)]
async fn closes_connection_without_a_reply_when_the_lookup_takes_more_than_60_s() {
    let (gate, log) = (Gate::default(), Log::default());
    let _guard = log.capture();
    let server = TestServer::with_resolver(gate.clone());
    let mut client = server.connect();
    assert_eq!(client.send(valid_request().replace("enr_", "enr-")).await.status, 401);
    sleep(Duration::from_secs(20)).await;
    client.write(valid_request()).await;
    assert_eq!(client.read_to_end().await, "");
    let seconds = server.elapsed_seconds() - 20;
    assert!((60..=65).contains(&seconds), "{seconds} s");
    assert_eq!(log.unanswered(), ["lookup_018bcfe5680071018101010101010101"]);

    gate.open();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.balance().held, server.balance().spent), (0, 1), "the lookup completes nevertheless");
}

#[tokio::test(start_paused = true)]
async fn lookup_timeout_applies_to_each_lookup_of_a_connection() {
    let gate = Gate::default();
    let server = TestServer::with(|services| {
        services.limits.lookup_timeout = Duration::from_secs(8);
        services.service.resolver = Arc::new(gate.clone());
    });
    let mut client = server.connect();
    for _ in 0..5 {
        client.write(valid_request()).await;
        sleep(Duration::from_secs(7)).await;
        gate.open();
        assert_eq!(client.read_reply().await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn lookup_timeout_starts_after_the_body() {
    let server = TestServer::with_limits(|limits| {
        limits.lookup_timeout = Duration::from_secs(6);
        limits.body.timeout = Duration::from_secs(100);
    });
    let mut client = server.connect();
    client.write(format!("{}content-length: {}\r\n\r\n", request_head(), BODY.len())).await;
    sleep(Duration::from_secs(90)).await;
    assert_eq!(client.send(BODY).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn resets_stream_when_the_lookup_takes_more_than_60_s() {
    let (gate, log) = (Gate::default(), Log::default());
    let _guard = log.capture();
    let server = TestServer::with_resolver(gate.clone());
    let mut client = http2::Client::connect(&server).await;
    let error = client.try_send(http2::valid_request()).await.unwrap_err();
    assert!(format!("{error:?}").contains("INTERNAL_ERROR"), "{error:?}");
    assert_eq!(server.elapsed_seconds(), 60);
    assert_eq!(log.unanswered(), ["lookup_018bcfe5680070008000000000000000"]);
    gate.open();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.balance().held, server.balance().spent), (0, 1), "the lookup completes nevertheless");
    gate.open();
    assert_eq!(client.send(http2::valid_request()).await.0, 200, "the connection stays open");
}
