//! Timeouts of slow clients.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use crate::client::{HANDSHAKE, PING, PREFACE, Version, request_head, valid_request};
use crate::log::{Log, field};
use crate::test_server::{BODY, Kind, TestServer};

#[tokio::test(start_paused = true)]
async fn closes_connection_without_a_complete_head_after_10_s() {
    for kind in Kind::ALL {
        // The client sends the second part every second.
        for (start, more) in [
            ("", ""),
            ("G", "E"),
            ("GET / HTTP/1.1\r\nhost: x\r\n", "x: y\r\n"),
            (HANDSHAKE, ""),
            (&PREFACE[..16], ""),
            (&PREFACE[..23], ""),
            (PREFACE, PING),
        ] {
            let server = kind.start(|_| {});
            let mut client = match (kind, start) {
                (Kind::LookupsOverTls, HANDSHAKE) => server.connect(),
                (_, HANDSHAKE) => continue,
                _ => kind.connect(&server, Version::Http1).await,
            };
            client.write(start).await;
            for _ in 0..9 {
                sleep(Duration::from_secs(1)).await;
                client.write(more).await;
            }
            client.read_to_end().await;
            assert_eq!(server.elapsed_seconds(), 10, "{kind:?}: {start:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn serves_with_the_maximum_of_each_limit() {
    const NEVER: Duration = Duration::MAX;
    for (kind, version) in Kind::ALL.into_iter().zip([Version::Http1, Version::Http2, Version::Http1]) {
        let server = kind.start(|limits| {
            (limits.connections_max, limits.connections_per_address_max) = (usize::MAX, usize::MAX);
            (limits.streams_max, limits.head_bytes_max, limits.head_lines_max) =
                (u32::MAX, usize::MAX, usize::MAX);
            (limits.body.bytes_max, limits.body.timeout) = (usize::MAX, NEVER);
            (limits.handshake_timeout, limits.head_timeout, limits.idle_timeout) = (NEVER, NEVER, NEVER);
            (limits.close_timeout, limits.lookup_timeout) = (NEVER, NEVER);
            (limits.drain_timeout, limits.shutdown_timeout) = (NEVER, NEVER);
        });
        let mut client = kind.connect(&server, version).await;
        for _ in 0..2 {
            assert_eq!(client.send(kind.request()).await.status, 200, "{kind:?}");
            sleep(Duration::from_secs(1)).await; // the waits are compared with their limits
        }
    }
}

#[tokio::test(start_paused = true)]
async fn times_a_later_head_from_its_first_byte() {
    let server = TestServer::new();
    let mut client = server.connect();
    assert_eq!(client.send(valid_request()).await.status, 200);
    let request = valid_request();
    let (start, rest) = request.split_at(20);
    client.write(start).await;
    sleep(Duration::from_secs(9)).await;
    assert_eq!(client.send(rest).await.status, 200);
    sleep(Duration::from_secs(60)).await;
    client.write(start).await;
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 9 + 60 + 10);
}

#[tokio::test(start_paused = true)]
async fn closes_idle_connection() {
    for kind in Kind::ALL {
        for version in Version::ALL {
            let server = kind.start(|_| {});
            let mut client = kind.connect(&server, version).await;
            for pause in [0, 74] {
                sleep(Duration::from_secs(pause)).await;
                assert_eq!(client.send(kind.request()).await.status, 200, "{kind:?}, {version:?}");
            }
            assert_eq!(client.read_to_end().await, "", "{kind:?}, {version:?}");
            assert_eq!(server.elapsed_seconds(), 74 + 75, "{kind:?}, {version:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_slow_body_after_5_s() {
    let without_key = "POST /api/v1/person/enrich HTTP/1.1\r\nhost: x\r\n";
    let length = "content-length: 40\r\n\r\n{";
    for (head, body, piece, status) in [
        (request_head(), length, "", 400),
        (request_head(), "transfer-encoding: chunked\r\n\r\n", "1\r\n \r\n", 400),
        (without_key.to_owned(), length, "", 401),
    ] {
        let server = TestServer::new();
        let mut client = server.connect();
        client.write(head + body).await;
        for _ in 0..6 {
            client.write(piece).await;
            sleep(Duration::from_millis(800)).await;
        }
        let reply = client.read_reply().await;
        reply.assert_last(status, body);
        assert_eq!(reply.is_invalid_request(), status == 400, "{body}");
        let reason = (status == 400).then_some("body-too-slow");
        assert_eq!(reply.header("error-reason"), reason, "{body}");
        assert_eq!(server.elapsed_seconds(), 5, "{body}");
        assert_eq!(client.read_to_end().await, "", "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn closes_connection_whose_client_reads_no_reply_after_idle_timeout() {
    for (kind, request) in [
        (Kind::Lookups, valid_request()),
        (Kind::Pages, "GET /large HTTP/1.1\r\nhost: api.example\r\n\r\n".to_owned()),
    ] {
        let server = kind.start(|_| {});
        let mut io = server.connect_raw(64);
        io.write_all(request.as_bytes()).await.unwrap();
        sleep(Duration::from_secs(75 + 5 + 1)).await;
        let mut received = Vec::new();
        io.read_to_end(&mut received).await.unwrap();
        assert_eq!(received.len(), 64, "{kind:?}: only the bytes that fit into the buffer");
    }
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
async fn sends_no_reply_when_the_lookup_takes_more_than_60_s() {
    for version in Version::ALL {
        let (log, _guard) = Log::capture();
        let (server, gate) = TestServer::gated(|_| {});
        let mut client = Kind::Lookups.connect(&server, version).await;
        assert_eq!(client.send(valid_request().replace("enr_", "enr-")).await.status, 401);
        sleep(Duration::from_secs(20)).await;
        client.write(valid_request()).await;
        client.read_no_reply().await;
        assert_eq!(server.elapsed_seconds(), 20 + 60, "{version:?}");
        let lines = log.lines();
        let unanswered = lines.lines().filter(|line| line.contains("without a reply"));
        let ids: Vec<_> = unanswered.map(|line| field(line, "lookup_id").unwrap()).collect();
        assert_eq!(ids, ["lookup_018bcfe5680070008000000000000001"], "{version:?}");

        gate.called().await;
        gate.open();
        sleep(Duration::from_secs(1)).await;
        assert_eq!((server.held(), server.spent()), (0, 1), "{version:?}: the lookup completes nevertheless");
        if version == Version::Http2 {
            client.start_lookup(&gate).await;
            gate.open();
            assert_eq!(client.read_reply().await.status, 200, "the connection stays open");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lookup_timeout_starts_after_the_body() {
    let (server, gate) = TestServer::gated(|limits| {
        limits.lookup_timeout = Duration::from_secs(6);
        limits.body.timeout = Duration::from_secs(100);
    });
    let mut client = server.connect();
    client.write(format!("{}content-length: {}\r\n\r\n", request_head(), BODY.len())).await;
    sleep(Duration::from_secs(90)).await;
    client.write(BODY).await;
    sleep(Duration::from_secs(3)).await;
    gate.open();
    assert_eq!(client.read_reply().await.status, 200);
}
