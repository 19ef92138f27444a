//! The limits on the number of connections.

use std::time::Duration;

use enrich_host::{ConnectionMonitor, ConnectionStatistics};
use tokio::time::sleep;

use crate::client::{HANDSHAKE, PREFACE, Version, request_with_body, valid_request};
use crate::log::{Log, field};
use crate::test_server::{Kind, PAGE_REQUEST, TestServer};

const NO_BODY: &str = "POST /api/v1/person/enrich HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n";

const UNAUTHENTICATED: &str = "POST /api/v1/person/enrich HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";

/// The bytes of connections without a complete request.
const INCOMPLETE: [&str; 5] = ["", "POST /", NO_BODY, PREFACE, HANDSHAKE];

/// Requests without a key. A server of pages answers them.
const WITHOUT_KEY: [&str; 2] = [UNAUTHENTICATED, PAGE_REQUEST];

#[tokio::test(start_paused = true)]
async fn serves_clients_beside_more_connections_without_a_key_than_the_limit() {
    const MAX: usize = 20;

    for kind in Kind::ALL {
        let more = if kind == Kind::Pages { &[][..] } else { &WITHOUT_KEY };
        for attack in [&INCOMPLETE, more].concat() {
            let server = kind.start(|limits| limits.connections_max = MAX);
            let name = format!("{kind:?}: {attack:?}");
            let mut clients = Vec::new();
            for version in Version::ALL {
                clients.push(kind.connect(&server, version).await);
            }
            for client in &mut clients {
                assert_eq!(client.send(kind.request()).await.status, 200, "{name}");
            }
            // They are idle for a longer time than the others.
            sleep(Duration::from_secs(9)).await;
            let mut attackers = Vec::new();
            for _ in 0..MAX + 60 {
                let mut attacker = server.connect();
                attacker.write(attack).await;
                attackers.push(attacker);
            }
            for version in Version::ALL {
                clients.push(kind.connect(&server, version).await);
            }
            for client in &mut clients {
                assert_eq!(client.send(kind.request()).await.status, 200, "{name}");
            }
            assert_eq!(server.elapsed_seconds(), 9, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn serves_new_clients_beside_clients_with_a_key_that_send_no_body() {
    const MAX: usize = 20;

    for kind in Kind::ALL {
        let server = kind.start(|limits| limits.connections_max = MAX);
        let mut attackers = Vec::new();
        for _ in 0..MAX {
            let mut attacker = kind.connect(&server, Version::Http1).await;
            assert_eq!(attacker.send(kind.request()).await.status, 200, "{kind:?}");
            attacker.write(NO_BODY).await;
            attackers.push(attacker);
        }
        for version in [Version::ALL, Version::ALL].concat() {
            let mut client = kind.connect(&server, version).await;
            assert_eq!(client.send(kind.request()).await.status, 200, "{kind:?}, {version:?}");
        }
        assert_eq!(server.elapsed_seconds(), 0, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn closes_the_connection_that_is_idle_for_the_longest_time() {
    let server = TestServer::with_limits(|limits| limits.connections_max = 3);
    let (mut a, mut b, mut c) = (server.connect(), server.connect(), server.connect_http2().await);
    for client in [&mut a, &mut b, &mut c] {
        assert_eq!(client.send(valid_request()).await.status, 200);
    }
    sleep(Duration::from_secs(5)).await;
    for client in [&mut a, &mut c] {
        assert_eq!(client.send(valid_request()).await.status, 200);
    }
    sleep(Duration::from_secs(5)).await;

    let mut d = server.connect();
    assert_eq!(d.send(valid_request()).await.status, 200);
    assert_eq!(b.read_to_end().await, "");
    for client in [&mut a, &mut d] {
        assert_eq!(client.send(valid_request()).await.status, 200);
    }
    let mut e = server.connect();
    assert_eq!(e.send(valid_request()).await.status, 200);
    assert_ne!(c.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 10);
}

#[tokio::test(start_paused = true)]
async fn keeps_a_connection_with_a_key_whose_last_request_had_none() {
    let server = TestServer::with_limits(|limits| limits.connections_max = 2);
    let (mut with_key, mut without) = (server.connect(), server.connect());
    assert_eq!(with_key.send(valid_request()).await.status, 200);
    for client in [&mut with_key, &mut without] {
        assert_eq!(client.send(UNAUTHENTICATED).await.status, 401);
    }
    assert_eq!(server.connect().send(valid_request()).await.status, 200);
    assert_eq!(without.read_to_end().await, "");
    assert_eq!(with_key.send(valid_request()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn replaces_an_idle_connection_beside_an_older_one_with_its_first_lookup_in_flight() {
    let (server, gate) = TestServer::gated(|limits| limits.connections_max = 2);
    let mut first = server.connect();
    first.start_lookup(&gate).await;
    let no_email = request_with_body("{}");
    let mut second = server.connect();
    assert_eq!(second.send(&no_email).await.status, 400);
    assert_eq!(server.connect().send(&no_email).await.status, 400);
    assert_eq!(second.read_to_end().await, "");
    gate.open();
    assert_eq!(first.read_reply().await.status, 200);
    assert!(server.started.elapsed() < Duration::from_millis(10), "without a sweep");
}

#[tokio::test(start_paused = true)]
async fn keeps_connections_with_a_request_in_flight() {
    for version in Version::ALL {
        let (server, gate) = TestServer::gated(|limits| {
            limits.connections_max = 1;
            limits.lookup_timeout = Duration::from_secs(200);
        });
        let mut first = Kind::Lookups.connect(&server, version).await;
        first.start_lookup(&gate).await;
        if version == Version::Http2 {
            // One of two requests ends.
            first.start_lookup(&gate).await;
            gate.open();
            assert_eq!(first.read_reply().await.status, 200);
        }
        let mut second = server.connect();
        second.write(valid_request()).await;
        tokio::select! {
            () = gate.called() => panic!("{version:?}: a second connection was accepted"),
            () = sleep(Duration::from_secs(150)) => {}
        }
        gate.open();
        assert_eq!(first.read_reply().await.status, 200, "{version:?}");
        gate.called().await; // the second connection replaces the first one, which is now idle
        gate.open();
        assert_eq!(second.read_reply().await.status, 200, "{version:?}");
        first.read_to_end().await;
        assert_eq!(server.elapsed_seconds(), 150, "{version:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_at_the_same_time_prevents_the_close() {
    let server = TestServer::with_limits(|limits| limits.connections_max = 1);
    let mut first = server.connect();
    for _ in 0..3 {
        assert_eq!(first.send(valid_request()).await.status, 200);
        let mut second = server.connect();
        second.write(valid_request()).await;
        assert_eq!(first.send(valid_request()).await.status, 200);
        assert_eq!(second.read_reply().await.status, 200);
        first = second;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_starts_at_the_same_time_prevents_the_close() {
    let (server, gate) = TestServer::gated(|limits| limits.connections_max = 1);
    let mut first = server.connect();
    gate.open();
    assert_eq!(first.send(valid_request()).await.status, 200);
    gate.called().await;

    let mut second = server.connect();
    first.start_lookup(&gate).await;
    second.start_lookup(&gate).await;
    gate.open();
    assert_eq!(first.read_reply().await.status, 200);
    gate.open();
    assert_eq!(second.read_reply().await.status, 200);
    // A third connection restores the limit.
    gate.open();
    assert_eq!(server.connect().send(valid_request()).await.status, 200);
    for client in [&mut first, &mut second] {
        assert_eq!(client.read_to_end().await, "");
    }
    assert_eq!(server.elapsed_seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn refuses_connections_of_an_address_above_its_limit() {
    for kind in [Kind::Lookups, Kind::Pages] {
        let server = kind.start(|limits| limits.connections_per_address_max = 2);
        for (address, same_network, other) in [
            ("203.0.113.5", "::ffff:203.0.113.5", "203.0.113.6"),
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1"),
        ] {
            let mut first = server.connect_from(address);
            let mut second = server.connect_from(same_network);
            for client in [&mut first, &mut second] {
                assert_eq!(client.send(kind.request()).await.status, 200, "{kind:?}");
            }
            assert_eq!(server.connect_from(address).read_to_end().await, "", "{kind:?}");
            assert_eq!(server.connect_from(same_network).read_to_end().await, "", "{kind:?}");
            assert_eq!(server.connect_from(other).send(kind.request()).await.status, 200, "{kind:?}");
            assert_eq!(first.send(kind.request()).await.status, 200, "{kind:?}");
            drop(first);
            sleep(Duration::from_millis(1)).await;
            assert_eq!(server.connect_from(address).send(kind.request()).await.status, 200, "{kind:?}");
        }
        for loopback in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let mut clients = [(); 3].map(|()| server.connect_from(loopback));
            for client in &mut clients {
                assert_eq!(client.send(kind.request()).await.status, 200, "{kind:?}: {loopback}");
            }
        }
        assert_eq!(server.elapsed_seconds(), 0, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn warns_at_most_once_a_minute() {
    let (log, _guard) = Log::capture();
    let server = TestServer::with_limits(|limits| {
        limits.connections_max = 4;
        limits.connections_per_address_max = 2;
    });
    let mut clients = Vec::new();
    for second in 0..150 {
        clients.push(server.connect());
        if second % 2 == 0 {
            clients.extend([(); 3].map(|()| server.connect_from("203.0.113.5")));
        }
        sleep(Duration::from_secs(1)).await;
    }
    let logged = log.lines();
    let warnings: Vec<_> = logged.lines().filter(|line| line.contains("too many connections")).collect();
    assert_eq!(warnings.len(), 3, "{logged}");
    assert!(warnings.iter().all(|line| line.contains("WARN") && line.contains("connections_max=4")));
    let number = |line, name| field(line, name).unwrap().parse::<u64>().unwrap();
    let closed: Vec<_> = warnings.iter().map(|line| number(line, "closed")).collect();
    assert!(closed[1] > 30 && closed[2] > 30, "{logged}");
    assert!(number(warnings[1], "refused") > 0, "{logged}");
}

#[tokio::test(start_paused = true)]
async fn statistics_count_open_evicted_and_refused_connections() {
    let mut monitor = ConnectionMonitor::default();
    let server = TestServer::with(|services| {
        services.limits.connections_max = 2;
        services.limits.connections_per_address_max = 1;
        monitor = services.connections.clone();
    });
    let mut first = server.connect_from("203.0.113.5");
    assert_eq!(first.send(valid_request()).await.status, 200);
    assert_eq!(server.connect_from("203.0.113.5").read_to_end().await, "");
    let mut others = Vec::new();
    for address in ["203.0.113.6", "203.0.113.7"] {
        let mut client = server.connect_from(address);
        assert_eq!(client.send(valid_request()).await.status, 200);
        others.push(client);
    }
    sleep(Duration::from_millis(1)).await;
    let expected = ConnectionStatistics { active: 0, idle: 2, accepted: 3, evicted: 1, refused: 1 };
    assert_eq!(monitor.statistics(), expected);
}
