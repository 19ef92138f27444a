//! Listening sockets.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::failure::Failure;

/// Listens on an address, which `flag` sets.
pub fn listen(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    bind(address, flag)?.listen(WAITING_MAX).map_err(|e| cannot_listen(address, flag, &e))
}

/// Backlog of connections to accept. A client that finds the backlog full retries only after a second, and the 128 entries
/// that std uses fill up within a few milliseconds of a burst.
const WAITING_MAX: u32 = 4_096;

/// Binds an address, which `flag` sets.
pub fn bind(address: SocketAddr, flag: &str) -> Result<TcpSocket, Failure> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bound = socket.and_then(|socket| {
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    });
    bound.map_err(|e| cannot_listen(address, flag, &e))
}

fn cannot_listen(address: SocketAddr, flag: &str, why: &io::Error) -> Failure {
    Failure::new(format!("cannot listen on {address}: {why}"))
        .advise(format!("choose another address with {flag}; port 0 selects a free port"))
}
