//! A node restarts while clients connect. Nearly every request that a client sends is answered.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_host::workers::Workers;
use enrich_host::{Services, SystemArrivals, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::client::valid_request;
use crate::test_server::{services, workspace};

const RESTARTS: usize = 50;

/// The time between two requests. They do not wait for each other.
const INTERVAL: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_workers_reset_few_connections() {
    restart_under_load(async |listener, services, stop: CancellationToken| {
        let workers = Workers::start(NonZeroUsize::MIN).unwrap();
        workers.run(listener, services, stop.cancelled()).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_one_thread_reset_few_connections() {
    restart_under_load(async |listener, services, stop: CancellationToken| {
        run(listener, services, stop.cancelled()).await;
    })
    .await;
}

async fn restart_under_load(serve: impl AsyncFn(TcpListener, Services, CancellationToken)) {
    let mut listener = listen(([127, 0, 0, 1], 0).into());
    let address = listener.local_addr().unwrap();
    let done = CancellationToken::new();
    let load: JoinHandle<Load> = tokio::spawn(send_requests(address, done.clone()));
    for _ in 0..RESTARTS {
        let (mut services, accounts) = services();
        accounts.grant(&workspace(), 1_000_000).unwrap();
        // The other source repeats its ids.
        services.arrivals = Arc::new(SystemArrivals);
        services.limits.drain_timeout = Duration::from_millis(10);
        let stop = CancellationToken::new();
        let stopping = async {
            sleep(Duration::from_millis(10)).await;
            stop.cancel();
        };
        tokio::join!(serve(listener, services, stop.clone()), stopping);
        listener = listen(address);
    }
    drop(listener);
    done.cancel();
    let Load { answered, failed } = load.await.unwrap();
    assert!(answered > 5 * RESTARTS, "{answered} answers");
    // Those that arrive at the moment at which the socket closes.
    assert!(failed.len() <= RESTARTS / 5, "{} of {answered}: {failed:?}", failed.len());
}

/// Listens with a long queue on an address that was in use a moment ago.
fn listen(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket.listen(4_096).unwrap()
}

#[derive(Default)]
struct Load {
    answered: usize,
    /// The errors of requests on established connections.
    failed: Vec<String>,
}

/// Sends requests on connections of their own until `done`.
async fn send_requests(address: SocketAddr, done: CancellationToken) -> Load {
    let (mut load, mut requests) = (Load::default(), JoinSet::new());
    while !done.is_cancelled() {
        requests.spawn(async move {
            match TcpStream::connect(address).await {
                Ok(stream) => Some(answer(stream).await),
                Err(_) => None, // between two servers
            }
        });
        sleep(INTERVAL).await;
    }
    while let Some(answered) = requests.join_next().await {
        match answered.unwrap() {
            Some(Ok(())) => load.answered += 1,
            Some(Err(error)) => load.failed.push(error.to_string()),
            None => {}
        }
    }
    load
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(valid_request().as_bytes()).await?;
    let mut reply = [0; 13];
    stream.read_exact(&mut reply).await?;
    // The burst limit answers most requests.
    assert!([b"HTTP/1.1 200 ", b"HTTP/1.1 429 "].contains(&&reply), "{}", reply.escape_ascii());
    Ok(())
}
