//! Behaviour that only real sockets show.

use std::io;
use std::net::SocketAddr;

use enrich_host::{Listener, run};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, good, head};
use crate::world::services;

/// A size in bytes that exceeds all buffers between client and server.
const MUCH: usize = 32_000_000;

#[tokio::test]
async fn oversized_body_gets_its_400_before_the_close() {
    let (address, stop) = serve().await;
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    let request = format!("{}content-length: {MUCH}\r\n\r\n{}", head(), " ".repeat(MUCH));
    client.try_send(request.as_bytes()).await.unwrap();
    let reply = client.reply().await;
    assert!(reply.is_invalid_request(), "{reply:?}");
    assert_eq!(client.rest().await, "");
    stop.cancel();
}

#[tokio::test]
async fn oversized_malformed_bytes_get_their_400_before_the_close() {
    let (address, stop) = serve().await;
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    client.try_send(" x".repeat(MUCH / 2).as_bytes()).await.unwrap();
    assert!(client.reply().await.is_invalid_request());
    stop.cancel();
}

#[tokio::test]
async fn serves_on_a_tcp_listener() {
    let (address, stop) = serve().await;
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    assert_eq!(client.ask(good()).await.status, 200);
    assert_eq!(client.ask(good()).await.status, 200);
    stop.cancel();
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn retries_a_failing_listener() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let out_of_files = Faulty { listener, failures: 3 };
    tokio::spawn(run(out_of_files, services().0, std::future::pending()));
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    assert_eq!(client.ask(good()).await.status, 200);
}

struct Faulty {
    listener: TcpListener,
    failures: u32,
}

impl Listener for Faulty {
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

async fn serve() -> (SocketAddr, CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    tokio::spawn(run(listener, services().0, stop.clone().cancelled_owned()));
    (address, stop)
}
