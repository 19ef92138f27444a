//! Behaviour that only real sockets and threads show.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use enrich_host::{Listener, Services, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt, empty, join};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, request_head, valid_request};
use crate::test_server::{TestServer, profile, resolver, services};

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Listens with a long queue, also on an address that was in use a moment ago.
fn listen(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket.listen(4_096).unwrap()
}

/// Starts a server on three threads.
fn start(change: impl FnOnce(&mut Services)) -> TestServer {
    TestServer::on_tcp(listen(ANY), 3, change)
}

#[tokio::test]
async fn client_that_sends_more_than_all_buffers_receives_400() {
    const HUGE: usize = 32_000_000;

    let body = format!("{}content-length: {HUGE}\r\n\r\n{}", request_head(), " ".repeat(HUGE));
    for (name, request) in [("a body", body), ("a malformed head", " x".repeat(HUGE / 2))] {
        let server = TestServer::on_tcp(listen(ANY), 0, |_| {});
        let mut client = server.connect();
        client.try_write(request.as_bytes()).await.unwrap();
        let reply = client.read_reply().await;
        assert!(reply.is_invalid_request(), "{name}: {reply:?}");
        assert_eq!(client.read_to_end().await, "", "{name}");
    }
}

#[tokio::test]
async fn retries_accept_after_errors() {
    let listener = listen(ANY);
    let address = listener.local_addr().unwrap();
    let failing = FailingListener { listener, failures: 3 };
    tokio::spawn(run(failing, services().0, std::future::pending()));
    let mut client = Client::http1(TcpStream::connect(address).await.unwrap());
    assert_eq!(client.send(valid_request()).await.status, 200);
}

struct FailingListener {
    listener: TcpListener,
    failures: u32,
}

impl Listener for FailingListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        match self.failures.checked_sub(1) {
            None => Listener::accept(&mut self.listener).await,
            Some(left) => {
                self.failures = left;
                Err(io::Error::other("too many open files"))
            }
        }
    }
}

#[tokio::test]
async fn distributes_open_connections_evenly_over_the_threads() {
    let calls = Arc::new(Mutex::new(HashMap::<ThreadId, usize>::new()));
    let counting = calls.clone();
    let resolver = resolver(move |_| {
        *counting.lock().unwrap().entry(thread::current().id()).or_default() += 1;
        Ok(profile().into())
    });
    let server = start(|services| services.service.resolver = resolver);
    let mut clients = Vec::new();
    for _ in 0..9 {
        let mut client = server.connect();
        assert_eq!(client.send(valid_request()).await.status, 200);
        clients.push(client);
    }
    let counts: Vec<_> = calls.lock().unwrap().values().copied().collect();
    assert_eq!(counts, [3, 3, 3]);
}

#[tokio::test]
async fn connections_max_applies_to_all_threads_together() {
    let server = start(|services| services.limits.connections_max = 6);
    let mut customer = server.connect();
    assert_eq!(customer.send(valid_request()).await.status, 200);
    let mut idle: Vec<_> = (0..6 + 60).map(|_| server.connect()).collect();
    // Sooner than the server closes connections that send nothing.
    let mut new = server.connect();
    assert_eq!(timeout(Duration::from_secs(5), new.send(valid_request())).await.unwrap().status, 200);
    assert_eq!(customer.send(valid_request()).await.status, 200);
    let (closed, open) = idle.split_at_mut(60 + 2);
    for client in closed {
        assert_eq!(timeout(Duration::from_secs(5), client.read_to_end()).await.unwrap(), "");
    }
    for client in open {
        assert_eq!(client.send(valid_request()).await.status, 200);
    }
}

/// The replies do not fit into the buffers of the sockets.
#[tokio::test]
async fn client_that_reads_late_receives_all_replies() {
    const REQUESTS: usize = 60_000;

    let server = start(|_| {});
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let (input, mut output) = socket.connect(server.address()).await.unwrap().into_split();
    let mut sending = tokio::spawn(async move {
        output.write_all(valid_request().repeat(REQUESTS).as_bytes()).await.unwrap();
        output
    });
    let sent_at_once = timeout(Duration::from_millis(500), &mut sending).await;
    assert!(sent_at_once.is_err(), "the server reads requests although it cannot send the replies");
    let mut client = Client::http1(join(input, empty()));
    for n in 0..REQUESTS {
        let reply = client.read_reply().await;
        assert!([200, 429].contains(&reply.status), "reply {n}: {reply:?}");
    }
    drop(sending.await.unwrap());
    assert_eq!(client.read_to_end().await, "");
}

/// A client that receives no announcement may send a request at any time.
#[tokio::test]
async fn shutdown_replies_to_all_requests_until_it_announces_the_close() {
    const CLIENTS: usize = 100;

    let mut server = start(|_| {});
    let (replied, mut replies) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (mut client, replied) = (server.connect(), replied.clone());
        clients.spawn(async move {
            loop {
                let reply = client.send(valid_request()).await; // fails if the connection is closed
                assert!([200, 429].contains(&reply.status), "{reply:?}");
                let _ = replied.send(());
                if reply.header("connection") == Some("close") {
                    return client.read_to_end().await;
                }
            }
        });
    }
    drop(replied);
    for _ in 0..10 * CLIENTS {
        replies.recv().await.unwrap();
    }
    server.stop.cancel();
    while let Some(rest) = clients.join_next().await {
        assert_eq!(rest.unwrap(), "");
    }
    server.stopped().await;
}

/// A node restarts while clients connect. Nearly every request that a client sends is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_reset_few_connections() {
    const RESTARTS: usize = 50;

    for threads in [0, 1] {
        let mut listener = listen(ANY);
        let address = listener.local_addr().unwrap();
        let done = CancellationToken::new();
        let load = tokio::spawn(send_requests(address, done.clone()));
        for _ in 0..RESTARTS {
            let mut server = TestServer::on_tcp(listener, threads, |services| {
                services.limits.drain_timeout = Duration::from_millis(10);
            });
            sleep(Duration::from_millis(10)).await;
            server.stop.cancel();
            server.stopped().await;
            listener = listen(address);
        }
        drop(listener);
        done.cancel();
        let (answered, failed) = load.await.unwrap();
        assert!(answered > 5 * RESTARTS, "{threads} threads: {answered} answers");
        // Those that arrive at the moment at which the socket closes.
        let failures = failed.len();
        assert!(failures <= RESTARTS / 5, "{threads} threads: {failures} of {answered}: {failed:?}");
    }
}

/// Sends a request a millisecond, on connections of their own, until `done`. Returns the number of answers, and
/// the errors of requests on established connections.
async fn send_requests(address: SocketAddr, done: CancellationToken) -> (usize, Vec<io::Error>) {
    let (mut answered, mut failed, mut requests) = (0, Vec::new(), JoinSet::new());
    while !done.is_cancelled() {
        requests.spawn(async move {
            match TcpStream::connect(address).await {
                Ok(stream) => Some(answer(stream).await),
                Err(_) => None, // between two servers
            }
        });
        sleep(Duration::from_millis(1)).await;
    }
    while let Some(result) = requests.join_next().await {
        match result.unwrap() {
            Some(Ok(())) => answered += 1,
            Some(Err(error)) => failed.push(error),
            None => {}
        }
    }
    (answered, failed)
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(valid_request().as_bytes()).await?;
    let mut reply = [0; 13];
    stream.read_exact(&mut reply).await?;
    // The burst limit answers most requests.
    assert!([b"HTTP/1.1 200 ", b"HTTP/1.1 429 "].contains(&&reply), "{}", reply.escape_ascii());
    Ok(())
}
