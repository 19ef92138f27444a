//! The limits on the number of connections.

use std::sync::Arc;
use std::time::Duration;

use enrich_host::{ConnectionMonitor, ConnectionStatistics};
use tokio::time::sleep;

use crate::client::{Client, request_head, valid_request};
use crate::http2;
use crate::lookups::{Gate, Log};
use crate::test_server::TestServer;

const MAX: usize = 20;

const NO_KEY: &str = "POST /api/v1/person/enrich HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n";

const UNAUTHENTICATED: &str = "POST /api/v1/person/enrich HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";

/// The bytes that the connections without a key send, by name.
const ATTACKS: [(&str, &str); 6] = [
    ("nothing", ""),
    ("an incomplete head", "POST /"),
    ("a head without a body", NO_KEY),
    ("a request without a key", UNAUTHENTICATED),
    ("an unknown path", "GET / HTTP/1.1\r\nhost: x\r\n\r\n"),
    ("an HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
];

fn server() -> TestServer {
    TestServer::with_limits(|limits| limits.connections_max = MAX)
}

#[tokio::test(start_paused = true)]
async fn serves_new_clients_beside_more_connections_without_a_key_than_the_limit() {
    for (name, bytes) in ATTACKS {
        let server = server();
        let mut attackers = Vec::new();
        for _ in 0..MAX + 60 {
            let mut attacker = server.connect();
            attacker.write(bytes).await;
            attackers.push(attacker);
        }
        assert_eq!(server.connect().send(valid_request()).await.status, 200, "{name}");
        assert_eq!(http2::Client::connect(&server).await.send(http2::valid_request()).await.0, 200, "{name}");
        assert!(server.started.elapsed() < Duration::from_secs(1), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_connections_with_a_key_when_others_reach_the_limit() {
    let server = server();
    let (mut http1, mut http2) = (server.connect(), http2::Client::connect(&server).await);
    for _ in 0..3 {
        assert_eq!(http1.send(valid_request()).await.status, 200);
        assert_eq!(http2.send(http2::valid_request()).await.0, 200);
        sleep(Duration::from_secs(9)).await;
        let mut attackers = Vec::new();
        for (_, bytes) in ATTACKS.into_iter().cycle().take(3 * MAX) {
            let mut attacker = server.connect();
            attacker.write(bytes).await;
            attackers.push(attacker);
        }
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn closes_the_connection_that_is_idle_for_the_longest_time() {
    let server = TestServer::with_limits(|limits| limits.connections_max = 3);
    let (mut a, mut b, mut c) = (server.connect(), server.connect(), http2::Client::connect(&server).await);
    assert_eq!(a.send(valid_request()).await.status, 200);
    assert_eq!(b.send(valid_request()).await.status, 200);
    assert_eq!(c.send(http2::valid_request()).await.0, 200);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(a.send(valid_request()).await.status, 200);
    assert_eq!(c.send(http2::valid_request()).await.0, 200);
    sleep(Duration::from_secs(5)).await;

    let mut d = server.connect();
    assert_eq!(d.send(valid_request()).await.status, 200);
    assert_eq!(b.read_to_end().await, "");
    for client in [&mut a, &mut d] {
        assert_eq!(client.send(valid_request()).await.status, 200);
    }
    let mut e = server.connect();
    assert_eq!(e.send(valid_request()).await.status, 200);
    c.closed().await.unwrap_err();
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
    let gate = Gate::default();
    let server = TestServer::with(|services| {
        services.limits.connections_max = 2;
        services.service.resolver = Arc::new(gate.clone());
    });
    let mut first = server.connect();
    first.write(valid_request()).await;
    gate.called().await;
    let no_email = format!("{}content-length: 2\r\n\r\n{{}}", request_head());
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
    let gate = Gate::default();
    let server = TestServer::with(|services| {
        services.limits.connections_max = 1;
        services.service.resolver = Arc::new(gate.clone());
    });
    let mut first = server.connect();
    first.write(valid_request()).await;
    gate.called().await;
    let mut second = server.connect();
    second.write(valid_request()).await;
    tokio::select! {
        () = gate.called() => panic!("a second connection was accepted"),
        () = sleep(Duration::from_secs(30)) => {}
    }
    gate.open();
    assert_eq!(first.read_reply().await.status, 200);
    gate.called().await; // the second connection replaces the first one, which is now idle
    gate.open();
    assert_eq!(second.read_reply().await.status, 200);
    assert_eq!(first.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 30);
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
    let gate = Gate::default();
    let server = TestServer::with(|services| {
        services.limits.connections_max = 1;
        services.service.resolver = Arc::new(gate.clone());
    });
    let mut first = server.connect();
    gate.open();
    assert_eq!(first.send(valid_request()).await.status, 200);
    gate.called().await;

    let mut second = server.connect();
    first.write(valid_request()).await;
    gate.called().await;
    second.write(valid_request()).await;
    gate.called().await;
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
    let server = TestServer::with_limits(|limits| limits.connections_per_address_max = 2);
    for (address, same_network, other) in [
        ("203.0.113.5", "::ffff:203.0.113.5", "203.0.113.6"),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1"),
    ] {
        let mut first = server.connect_from(address);
        let mut second = server.connect_from(same_network);
        for client in [&mut first, &mut second] {
            assert_eq!(client.send(valid_request()).await.status, 200);
        }
        assert_eq!(server.connect_from(address).read_to_end().await, "");
        assert_eq!(server.connect_from(same_network).read_to_end().await, "");
        assert_eq!(server.connect_from(other).send(valid_request()).await.status, 200);
        assert_eq!(first.send(valid_request()).await.status, 200);
        drop(first);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(server.connect_from(address).send(valid_request()).await.status, 200);
    }
    assert_eq!(server.elapsed_seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn loopback_addresses_have_no_limit() {
    let server = TestServer::with_limits(|limits| limits.connections_per_address_max = 1);
    let mut clients: Vec<Client<_>> = Vec::new();
    for address in ["127.0.0.1", "127.0.0.1", "::1", "::1", "::ffff:127.0.0.1"] {
        clients.push(server.connect_from(address));
    }
    for client in &mut clients {
        assert_eq!(client.send(valid_request()).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn warns_at_most_once_a_minute() {
    let log = Log::default();
    let _guard = log.capture();
    let server = TestServer::with_limits(|limits| {
        limits.connections_max = 4;
        limits.connections_per_address_max = 2;
    });
    let mut clients = Vec::new();
    for second in 0..150 {
        clients.push(server.connect());
        if second % 2 == 0 {
            let of_one_address = [(); 3].map(|()| server.connect_from("203.0.113.5"));
            clients.extend(of_one_address);
        }
        sleep(Duration::from_secs(1)).await;
    }
    let logged = log.lines();
    let warnings: Vec<_> = logged.lines().filter(|line| line.contains("too many connections")).collect();
    assert_eq!(warnings.len(), 3, "{logged}");
    assert!(warnings.iter().all(|line| line.contains("WARN") && line.contains("connections_max=4")));
    let closed: Vec<u64> = warnings.iter().map(|line| number(line, "closed=")).collect();
    assert!(closed[1] > 30 && closed[2] > 30, "{logged}");
    assert!(number(warnings[1], "refused=") > 0, "{logged}");
}

fn number(line: &str, name: &str) -> u64 {
    line.split(' ').find_map(|word| word.strip_prefix(name)).unwrap().parse().unwrap()
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
