//! A server on several threads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use async_trait::async_trait;
use enrich_host::workers::Workers;
use enrich_host::{Services, SystemArrivals};
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use tokio::io::{AsyncWriteExt, empty, join};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, valid_request};
use crate::lookups::Gate;
use crate::test_server::{profile, services, workspace};

#[tokio::test]
async fn distributes_open_connections_evenly_over_the_threads() {
    let calls = CallsPerThread::default();
    let server = Server::start(|services| services.service.resolver = Arc::new(calls.clone())).await;
    let mut clients = Vec::new();
    for _ in 0..9 {
        let mut client = server.connect().await;
        assert_eq!(client.send(valid_request()).await.status, 200);
        clients.push(client);
    }
    let counts: Vec<_> = calls.0.lock().unwrap().values().copied().collect();
    assert_eq!(counts, [3, 3, 3]);
}

#[tokio::test]
async fn connections_max_applies_to_all_threads_together() {
    let server = Server::start(|services| services.limits.connections_max = 6).await;
    let mut customer = server.connect().await;
    assert_eq!(customer.send(valid_request()).await.status, 200);
    let mut idle = Vec::new();
    for _ in 0..6 + 60 {
        idle.push(server.connect().await);
    }
    // Sooner than the server closes connections that send nothing.
    let mut new = server.connect().await;
    assert_eq!(timeout(Duration::from_secs(5), new.send(valid_request())).await.unwrap().status, 200);
    assert_eq!(customer.send(valid_request()).await.status, 200);
    let (still_open, mut clients) = (CancellationToken::new(), JoinSet::new());
    for mut client in idle {
        let still_open = still_open.clone();
        clients.spawn(async move {
            tokio::select! {
                rest = client.read_to_end() => assert_eq!(rest, ""),
                () = still_open.cancelled() => assert_eq!(client.send(valid_request()).await.status, 200),
            }
        });
    }
    for _ in 0..6 + 60 - 4 {
        clients.join_next().await.unwrap().unwrap();
    }
    still_open.cancel();
    clients.join_all().await;
}

/// The replies do not fit into the buffers of the sockets.
#[tokio::test]
async fn client_that_reads_late_receives_all_replies() {
    const REQUESTS: usize = 60_000;

    let server = Server::start(|services| services.arrivals = Arc::new(SystemArrivals)).await;
    server.accounts.grant(&workspace(), 1_000_000).unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let (input, mut output) = socket.connect(server.address).await.unwrap().into_split();
    let mut sending = tokio::spawn(async move {
        output.write_all(valid_request().repeat(REQUESTS).as_bytes()).await.unwrap();
        output
    });
    let sent_at_once = timeout(Duration::from_millis(500), &mut sending).await;
    assert!(sent_at_once.is_err(), "the server reads requests although it cannot send the replies");
    let mut client = Client::new(join(input, empty()));
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

    // The other source repeats its ids.
    let server = Server::start(|services| services.arrivals = Arc::new(SystemArrivals)).await;
    server.accounts.grant(&workspace(), 1_000_000).unwrap();
    let (replied, mut replies) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (mut client, replied) = (server.connect().await, replied.clone());
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
    server.running.await.unwrap();
}

#[tokio::test]
async fn shutdown_waits_for_lookups_of_disconnected_clients() {
    let gate = Gate::default();
    let server = Server::start(|services| services.service.resolver = Arc::new(gate.clone())).await;
    let mut client = server.connect().await;
    client.write(valid_request()).await;
    gate.called().await;
    drop(client);
    server.stop.cancel();
    let mut running = server.running;
    assert!(
        timeout(Duration::from_millis(200), &mut running).await.is_err(),
        "the shutdown did not wait for the lookup"
    );
    gate.open();
    running.await.unwrap();
    let balance = server.accounts.balance(&workspace());
    assert_eq!((balance.held, balance.spent), (0, 1));
}

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    running: JoinHandle<()>,
    accounts: Arc<enrich_lib::memory::AccountTable>,
}

impl Server {
    /// Starts a server on three threads.
    async fn start(change: impl FnOnce(&mut Services)) -> Self {
        let (mut services, accounts) = services();
        change(&mut services);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let workers = Workers::start(NonZeroUsize::new(3).unwrap()).unwrap();
        let stopped = stop.clone().cancelled_owned();
        let running = tokio::spawn(async move { workers.run(listener, services, stopped).await });
        Self { address, stop, running, accounts }
    }

    async fn connect(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.address).await.unwrap())
    }
}

/// A resolver that matches every email and counts the lookups of each thread.
#[derive(Clone, Default)]
struct CallsPerThread(Arc<Mutex<BTreeMap<String, usize>>>);

#[async_trait]
impl Resolver for CallsPerThread {
    async fn find(&self, _: &Query) -> Result<Answer, PortError> {
        let thread: ThreadId = thread::current().id();
        *self.0.lock().unwrap().entry(format!("{thread:?}")).or_default() += 1;
        Ok(profile().into())
    }
}
