//! Graceful shutdown. Every reply of a drain announces the close of its connection, whatever the request and
//! the state of its connection.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::{HANDSHAKE, PREFACE, Version, request_with_body, valid_request};
use crate::test_server::{Kind, PAGE_REQUEST, TestServer};

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

#[tokio::test(start_paused = true)]
async fn announces_close_in_each_kind_of_reply() {
    for (kind, request, status) in [
        (Kind::Lookups, valid_request(), 200),
        (Kind::Lookups, valid_request().replace("\"ada.", "\"bob."), 404),
        (Kind::Lookups, request_with_body("{}"), 400),
        (Kind::Lookups, valid_request().replace("Bearer", "Basic"), 401),
        (Kind::Lookups, PAGE_REQUEST.replace("/ ", "/api/v1/person/enrich "), 405),
        (Kind::Lookups, PAGE_REQUEST.to_owned(), 404),
        (Kind::LookupsOverTls, valid_request(), 200),
        (Kind::Pages, PAGE_REQUEST.to_owned(), 200),
    ] {
        for at in [At::Idle, At::New, At::HalfOfTheHead, At::LastByte] {
            let name = format!("{kind:?}, {at:?}: {request}");
            let mut server = kind.start(|_| {});
            let mut client = kind.connect(&server, Version::Http1).await;
            if at == At::Idle {
                assert_eq!(client.send(kind.request()).await.header("connection"), None, "{name}");
            }
            let sent = match at {
                At::Idle | At::New => 0,
                At::HalfOfTheHead => 20,
                At::LastByte => request.len() - 1,
            };
            client.write(&request[..sent]).await;
            sleep(Duration::from_millis(10)).await;
            server.stop.cancel();
            sleep(Duration::from_millis(500)).await;
            if at == At::New {
                client = kind.connect(&server, Version::Http1).await;
            }
            client.send(&request[sent..]).await.assert_last(status, &name);
            assert_eq!(client.read_to_end().await, "", "{name}");
            drop(client);
            server.stopped().await;
        }
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
    client.send(valid_request().repeat(3)).await.assert_last(200, "the second request");
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.spent(), 2);
}

/// A client that leaves, a lookup in flight and a connection that sends nothing, all during one drain.
#[tokio::test(start_paused = true)]
async fn ends_with_the_last_lookup_of_a_drain() {
    let (mut server, gate) = TestServer::gated(|_| {});
    let (mut gone, mut silent) = (server.connect(), server.connect());
    gone.start_lookup(&gate).await;
    server.stop.cancel();
    sleep(Duration::from_millis(500)).await;
    drop(gone);
    let mut late = server.connect();
    late.start_lookup(&gate).await;
    assert_eq!(silent.read_to_end().await, "");
    sleep(Duration::from_secs(3)).await;
    assert!(!server.task.is_finished());
    gate.open();
    gate.open();
    late.read_reply().await.assert_last(200, "the lookup in flight");
    drop((late, silent));
    server.stopped().await;
    assert_eq!((server.held(), server.spent()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn completes_page_in_flight() {
    // The page takes 3 s. Its reply follows the close of the listener, or precedes it.
    for stops_at in [1, 2_500] {
        let mut server = Kind::Pages.start(|_| {});
        let mut client = server.connect();
        client.write(PAGE_REQUEST.replace("/ ", "/slow ")).await;
        sleep(Duration::from_millis(stops_at)).await;
        server.stop.cancel();
        client.read_reply().await.assert_last(200, &format!("stopped at {stops_at} ms"));
        assert_eq!(server.elapsed_seconds(), 3);
        drop(client);
        server.stopped().await;
    }
}

/// HTTP/2 announces the close with a frame, and not with a header of the next reply.
#[tokio::test(start_paused = true)]
async fn http2_connections_close_after_their_requests_in_flight() {
    // Without a request, with one that is sent before the frame arrives, and with a lookup of 5 s.
    for (sends, lookup_time) in [(false, 0), (true, 0), (true, 5)] {
        let (mut server, gate) = TestServer::gated(|limits| limits.drain_timeout = Duration::from_secs(5));
        let mut client = server.connect_http2().await;
        gate.open();
        client.start_lookup(&gate).await;
        assert_eq!(client.read_reply().await.status, 200);
        if sends {
            client.write(valid_request()).await;
        }
        server.stop.cancel();
        sleep(Duration::from_secs(lookup_time)).await;
        gate.open();
        if sends {
            assert_eq!(client.read_reply().await.status, 200, "{lookup_time} s");
        }
        assert_eq!(client.read_to_end().await, "", "{sends}, {lookup_time} s");
        assert_eq!(server.elapsed_seconds(), lookup_time, "{sends}");
        server.stopped().await;
    }
}

/// The clients keep their connections open, as a pool does that does not read before its next request.
#[tokio::test(start_paused = true)]
async fn waits_for_no_client_without_a_request_in_flight() {
    for kind in Kind::ALL {
        let request = kind.request();
        // Its reply closes the server's half.
        let closing = request.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        // The number of seconds is the age of a reply, if there was one.
        for (age, rest) in [
            (None, ""),
            (Some(0), ""),
            (Some(30), ""),
            (None, &request[..20]),
            (Some(0), &request[..20]),
            (Some(30), &request[..20]),
            (None, &closing),
            (None, PREFACE),
            (None, HANDSHAKE),
        ] {
            let name = format!("{kind:?}, {age:?}, {rest:?}");
            let mut server = kind.start(|_| {});
            let mut client = match (kind, rest) {
                (Kind::LookupsOverTls, HANDSHAKE) => server.connect(),
                (_, HANDSHAKE) => continue,
                _ => kind.connect(&server, Version::Http1).await,
            };
            if let Some(age) = age {
                assert_eq!(client.send(&request).await.header("connection"), None, "{name}");
                sleep(Duration::from_secs(age)).await;
            }
            client.write(rest).await;
            sleep(Duration::from_millis(1)).await;
            let stopped_at = Instant::now();
            server.stop.cancel();
            server.stopped().await;
            let stopped = stopped_at.elapsed().as_millis();
            assert!(stopped <= 1_350, "{name}: {stopped} ms");
            client.try_write(b"x").await.unwrap_err();
        }
    }
}

/// Each request is a stream without a body. The client acknowledges nothing.
#[tokio::test(start_paused = true)]
async fn ends_beside_an_http2_client_that_goes_on() {
    // `POST`, `https` and the path, in HPACK (RFC 7541).
    let head = [&[0x83, 0x86, 0x04, 21], enrich_lib::wire::PATH.as_bytes()].concat();
    let mut server = TestServer::new();
    let mut client = server.connect();
    client.write(PREFACE).await;
    let stopped_at = Instant::now();
    server.stop.cancel();
    let requests = async {
        for stream in (1_u8..).step_by(2) {
            client.write([&[0, 0, 25, 1, 4, 0, 0, 0, stream], &*head].concat()).await;
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = server.stopped() => {}
        () = requests => panic!("the client has sent all"),
    }
    let stopped = stopped_at.elapsed().as_millis();
    assert!(stopped <= 5_500, "{stopped} ms");
}

/// Times are in milliseconds after the start of the shutdown.
#[tokio::test(start_paused = true)]
async fn answers_connections_that_arrive_during_a_drain() {
    for (name, is_socket_shared, drain, (clients, connects), sends, is_listening, ends) in [
        // It may be on its way when the last one closes.
        ("the next connection", false, 1_000, (1, 900), 900, true, 1_000..1_100),
        ("connections in the queue when the listener closes", false, 0, (100, 0), 200, false, 200..300),
        // The handshake ends just after the listener has begun to refuse others.
        ("a connection at the end", false, 0, (1, 10), 10, true, 10..110),
        // Another process accepts the next one.
        ("a connection that was accepted on a shared socket", true, 1_000, (1, -1), 900, false, 900..1_000),
        ("no connection on a shared socket", true, 1_000, (0, 0), 0, true, 0..100),
    ] {
        let mut server = TestServer::with(|services| {
            services.is_socket_shared = is_socket_shared;
            services.limits.drain_timeout = Duration::from_millis(drain);
        });
        let connects = u64::try_from(connects).ok();
        let connect = || (0..clients).map(|_| server.connect()).collect::<Vec<_>>();
        let mut open = if connects.is_none() { connect() } else { Vec::new() };
        sleep(Duration::from_millis(1)).await;
        let stopped_at = Instant::now();
        server.stop.cancel();
        if let Some(connects) = connects {
            sleep(Duration::from_millis(connects)).await;
            open = connect();
        }
        sleep(Duration::from_millis(sends - connects.unwrap_or(0))).await;
        assert_eq!(server.is_listening(), is_listening, "{name}");
        for client in &mut open {
            client.send(valid_request()).await.assert_last(200, name);
        }
        drop(open);
        server.stopped().await;
        assert!(ends.contains(&stopped_at.elapsed().as_millis()), "{name}: {:?}", stopped_at.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn drops_connections_after_16_s() {
    let (mut server, gate) = TestServer::gated(|_| {});
    let mut client = server.connect();
    client.start_lookup(&gate).await;
    server.stop.cancel();
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 1 + 15);
    server.stopped().await;

    // The process would exit here. While it does not, the lookup still settles.
    gate.open();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((server.held(), server.spent()), (0, 1));
}
