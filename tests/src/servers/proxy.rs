//! A TCP proxy whose connections can be delayed, lost or closed.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// A proxy on a port of this machine. It stops when this value is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    script: watch::Sender<Script>,
    accepting: JoinHandle<()>,
}

/// The faults of the connections, which are numbered from 0.
#[derive(Clone, Debug)]
struct Script {
    /// The ports that new connections lead to, in turn.
    targets: Vec<u16>,
    /// The number of connections accepted so far.
    accepted: u64,
    /// Added to each piece of data.
    delay: Duration,
    /// Connections with a smaller number stay open, but their data is lost.
    lost: u64,
    /// Connections with a smaller number are closed.
    closed: u64,
    /// Whether the data of clients and of servers is lost. A connection that has lost some loses all later data.
    loses: [bool; 2],
}

impl Proxy {
    /// Starts a proxy that leads to a port of this machine.
    pub async fn start(target: u16) -> Self {
        Self::balance(vec![target]).await
    }

    /// Starts a proxy that leads to ports of this machine in turn, and skips those that refuse connections.
    pub async fn balance(targets: Vec<u16>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script =
            Script { targets, accepted: 0, delay: Duration::ZERO, lost: 0, closed: 0, loses: [false; 2] };
        let script = watch::Sender::new(script);
        let accepting = tokio::spawn(accept(listener, script.clone()));
        Self { port, script, accepting }
    }

    /// Returns the port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.script.borrow().accepted
    }

    /// Returns whether any connection is open.
    pub fn is_used(&self) -> bool {
        self.script.receiver_count() > 0 // those of each connection
    }

    /// Leads new connections to another port.
    pub fn lead_to(&self, target: u16) {
        self.balance_over(vec![target]);
    }

    /// Leads new connections to other ports in turn.
    pub fn balance_over(&self, targets: Vec<u16>) {
        self.script.send_modify(|script| script.targets = targets);
    }

    /// Delays all data in both directions.
    pub fn delay(&self, delay: Duration) {
        self.script.send_modify(|script| script.delay = delay);
    }

    /// Loses the data of all open connections without closing them. New connections work.
    pub fn lose_open(&self) {
        self.script.send_modify(|script| script.lost = script.lost.max(script.accepted));
    }

    /// Loses the data of all connections, also of new ones.
    pub fn lose_all(&self) {
        self.script.send_modify(|script| script.lost = u64::MAX);
    }

    /// Loses the data of clients. The data of servers still arrives.
    pub fn lose_requests(&self) {
        self.script.send_modify(|script| script.loses[0] = true);
    }

    /// Loses the data of servers. The data of clients still arrives.
    pub fn lose_replies(&self) {
        self.script.send_modify(|script| script.loses[1] = true);
    }

    /// Makes new connections work again. Closes all connections after [`Proxy::lose_all`].
    pub fn heal(&self) {
        self.script.send_modify(|script| {
            script.loses = [false; 2];
            if script.lost == u64::MAX {
                (script.lost, script.closed) = (0, script.accepted);
            }
        });
    }

    /// Closes all open connections. New connections work.
    pub fn close_open(&self) {
        self.script.send_modify(|script| script.closed = script.accepted);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.script.send_modify(|script| script.closed = u64::MAX);
    }
}

async fn accept(listener: TcpListener, script: watch::Sender<Script>) {
    while let Ok((client, _)) = listener.accept().await {
        let mut number = 0;
        script.send_modify(|script| {
            number = script.accepted;
            script.accepted += 1;
        });
        tokio::spawn(serve(number, client, script.subscribe()));
    }
}

async fn serve(number: u64, client: TcpStream, script: watch::Receiver<Script>) {
    let (mut losses, mut closes) = (script.clone(), script.clone());
    let mut relaying = pin!(relay(number, client, script));
    tokio::select! {
        biased;
        _ = losses.wait_for(|script| number < script.lost.max(script.closed)) => {}
        () = &mut relaying => return,
    }
    // Both connections stay open, and their data is not read.
    let _ = closes.wait_for(|script| number < script.closed).await;
}

async fn relay(number: u64, client: TcpStream, script: watch::Receiver<Script>) {
    let mut targets = script.borrow().targets.clone();
    let first = number as usize % targets.len();
    targets.rotate_left(first);
    let addresses: Vec<_> = targets.into_iter().map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect();
    let Ok(server) = TcpStream::connect::<&[SocketAddr]>(&addresses).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = copy(from_client, to_server, 0, &script) => {}
        () = copy(from_server, to_client, 1, &script) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: usize,
    script: &watch::Receiver<Script>,
) {
    let (mut bytes, mut is_lost) = (vec![0; 16 * 1024], false);
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        is_lost |= script.borrow().loses[direction];
        if is_lost {
            continue;
        }
        let delay = script.borrow().delay;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
