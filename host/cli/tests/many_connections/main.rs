//! 10,000 connections to the real process that send nothing, half a head or half a body.
//!
//! Other clients are served meanwhile, memory stays bounded, and the slow connections are closed by timeouts.
//! Idle connections after a reply take little memory.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
#![allow(clippy::print_stderr, reason = "prints the measurements")]

#[path = "../enrich/mod.rs"]
mod enrich;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;

use enrich::{Client, EMAIL, Enrich, Server, beside, eventually};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CONNECTIONS: u64 = 10_000;
const CONNECTIONS_MIN: u64 = 1_000;
const STAYERS: u64 = 2_000;
const GOOD_CLIENTS: u64 = 16;
/// Head and body timeout. It must be long enough for all connections to be established on a busy machine.
const JOIN_MS_MAX: u64 = 20_000;
/// Other open files, on either side. Includes the connections of the other test, which runs concurrently.
const OTHER_FILES: u64 = STAYERS + 200;
/// Maximum memory of the server with all connections open, in bytes. A debug build takes more than a release
/// build.
const RSS_MAX: u64 = 400_000_000;
/// Maximum memory of an idle connection, in bytes. A debug build takes 17,900, and 20,200 beside other tests.
const IDLE_BYTES_MAX: u64 = 24_000;

#[test]
fn serves_clients_beside_10000_stalled_connections() {
    // The server uses half of the limit for connections.
    let connections = CONNECTIONS.min((files_max() / 2).saturating_sub(OTHER_FILES));
    assert!(connections >= CONNECTIONS_MIN, "`ulimit -n` allows only {connections} connections; raise it");
    let (enrich, key) = Enrich::with_ada(1_000_000_000, 1_000_000_000);
    let max = CONNECTIONS + OTHER_FILES;
    let limits = format!("[connections]\nmax = {max}\nhead_ms = {JOIN_MS_MAX}\nbody_ms = {JOIN_MS_MAX}\n");
    let config = enrich.file("enrich.toml", limits);
    let server = enrich.serve(&["--config", config.to_str().unwrap()]);
    let (files_before, rss_before) = (server.open_files(), server.resident_bytes());

    let answered = AtomicU64::new(0);
    let mut stalled: Vec<_> =
        (0..connections).map(|nth| StalledClient::connect(server.address(), nth, &key)).collect();
    // All connections must be open at the same time. The check fails if some have already timed out.
    eventually("all connections are open", || {
        (server.open_files() >= files_before + connections).then_some(())
    });
    // Started only now, because on a busy machine they would delay the slow connections for too long.
    let good = [(); GOOD_CLIENTS as usize].map(|()| || look_up(&answered, &server, &key));
    let (rss_loaded, answered_loaded) = beside(good, || {
        let before = answered.load(Ordering::SeqCst);
        eventually("replies while the connections are open", || {
            (answered.load(Ordering::SeqCst) > before + 500).then_some(())
        });
        let rss_loaded = server.resident_bytes();

        // The slow connections never close themselves.
        stalled.iter_mut().for_each(StalledClient::assert_closed_by_timeout);
        let answered_loaded = answered.load(Ordering::SeqCst);
        drop(stalled);
        eventually("files are closed", || {
            (server.open_files() <= files_before + 2 * GOOD_CLIENTS).then_some(())
        });
        (rss_loaded, answered_loaded)
    });

    assert_eq!(server.connect().enrich(&key, EMAIL).unwrap().status, 200, "the next one is welcome");
    let bytes_each = rss_loaded.saturating_sub(rss_before) / connections;
    eprintln!(
        "{connections} connections: {} MB became {} MB, {bytes_each} bytes each; {answered_loaded} lookups were answered meanwhile",
        rss_before / 1_000_000,
        rss_loaded / 1_000_000
    );
    assert!(rss_loaded < RSS_MAX, "{rss_loaded} bytes");
    let spent = enrich.credits("demo")["spent"].as_u64().unwrap();
    assert_eq!(spent, answered.load(Ordering::SeqCst) + 1, "the stalled connections spent nothing");
}

#[test]
fn idle_connections_use_little_memory() {
    let (enrich, key) = Enrich::with_key(1_000_000_000, 1_000_000_000);
    let server = enrich.serve(&[]);
    let ask = |client: &mut Client| assert_eq!(client.enrich(&key, EMAIL).unwrap().status, 404);
    // The first clients, one for each worker thread at least, allocate the shared state beforehand.
    let workers = available_parallelism().map_or(1, NonZero::get);
    let mut first: Vec<_> = (0..workers).map(|_| server.connect()).collect();
    first.iter_mut().for_each(|client| (0..1_000).for_each(|_| ask(client)));
    let rss_before = server.resident_bytes();

    let mut stayers: Vec<_> = (0..STAYERS).map(|_| server.connect()).collect();
    stayers.iter_mut().for_each(ask);
    let bytes_each = server.resident_bytes().saturating_sub(rss_before) / STAYERS;
    eprintln!("{STAYERS} idle connections: {bytes_each} bytes each");
    assert!(bytes_each < IDLE_BYTES_MAX, "{bytes_each} bytes");
    stayers.iter_mut().for_each(ask);
}

/// Sends eight sequential lookups on a new connection. All of them must succeed.
fn look_up(answered: &AtomicU64, server: &Server, key: &str) {
    let mut client = server.connect();
    for _ in 0..8 {
        let reply = client.enrich(key, EMAIL).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.body);
        answered.fetch_add(1, Ordering::SeqCst);
    }
}

/// A slow connection.
struct StalledClient {
    stream: TcpStream,
    sent: Sent,
}

#[derive(Clone, Copy, PartialEq)]
enum Sent {
    Nothing,
    HalfOfHead,
    HalfOfBody,
}

impl StalledClient {
    fn connect(address: SocketAddr, nth: u64, key: &str) -> Self {
        let sent = [Sent::Nothing, Sent::HalfOfHead, Sent::HalfOfBody][nth as usize % 3];
        let half_a_head =
            format!("POST /api/v1/person/enrich HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n");
        let half_a_body =
            format!("{half_a_head}Content-Type: application/json\r\nContent-Length: 40\r\n\r\n{{\"email\":");
        let mut stream = TcpStream::connect(address).unwrap();
        match sent {
            Sent::Nothing => {}
            Sent::HalfOfHead => stream.write_all(half_a_head.as_bytes()).unwrap(),
            Sent::HalfOfBody => stream.write_all(half_a_body.as_bytes()).unwrap(),
        }
        Self { stream, sent }
    }

    /// Reads until the server closes the connection. A request whose head is complete receives a reply first.
    fn assert_closed_by_timeout(&mut self) {
        self.stream.set_read_timeout(Some(enrich::TIMEOUT)).unwrap();
        let mut output = String::new();
        // The connection may end with a reset or in order.
        match self.stream.read_to_string(&mut output) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the server holds on"),
            _ => {}
        }
        let (start, end) = match self.sent {
            Sent::HalfOfBody => ("HTTP/1.1 400 ", r#"{"error":"invalid_request"}"#),
            Sent::Nothing | Sent::HalfOfHead => ("", ""),
        };
        assert!(output.starts_with(start) && output.ends_with(end), "{output}");
    }
}

/// Returns the limit on open files of this process and its children, after raising it as far as needed.
fn files_max() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(u64::MAX).min(2 * (CONNECTIONS + OTHER_FILES));
    let raised = current.unwrap_or(u64::MAX).max(wanted);
    setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).unwrap();
    raised
}
