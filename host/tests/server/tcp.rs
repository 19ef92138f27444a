//! Behaviour that only real sockets show.

use std::io;
use std::net::SocketAddr;

use enrich_host::{Listener, run};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, request_head, valid_request};
use crate::test_server::services;

/// A size in bytes that exceeds all buffers between client and server.
const HUGE: usize = 32_000_000;

#[tokio::test]
async fn client_that_sends_a_huge_body_receives_400() {
    let (address, stop) = serve().await;
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    let request = format!("{}content-length: {HUGE}\r\n\r\n{}", request_head(), " ".repeat(HUGE));
    client.try_write(request.as_bytes()).await.unwrap();
    let reply = client.read_reply().await;
    assert!(reply.is_invalid_request(), "{reply:?}");
    assert_eq!(client.read_to_end().await, "");
    stop.cancel();
}

#[tokio::test]
async fn client_that_sends_a_huge_malformed_request_receives_400() {
    let (address, stop) = serve().await;
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    client.try_write(" x".repeat(HUGE / 2).as_bytes()).await.unwrap();
    assert!(client.read_reply().await.is_invalid_request());
    stop.cancel();
}

#[tokio::test]
async fn retries_accept_after_errors() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let failing = FailingListener { listener, failures: 3 };
    tokio::spawn(run(failing, services().0, std::future::pending()));
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
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

async fn serve() -> (SocketAddr, CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    tokio::spawn(run(listener, services().0, stop.clone().cancelled_owned()));
    (address, stop)
}
