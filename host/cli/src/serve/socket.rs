//! Listening sockets: bound by this process, or passed by the process that started it.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use socket2::SockRef;
use tokio::net::TcpSocket;

use crate::failure::Failure;
use crate::listen::Listen;

/// The sockets that systemd or another parent process passes: see sd_listen_fds(3).
pub struct PassedSockets {
    sockets: ListenFd,
    names: Vec<String>,
}

impl PassedSockets {
    /// Takes the sockets from the environment, and removes the variables. Call it before the process starts a
    /// thread.
    pub fn take() -> Self {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        Self { names: names.split(':').map(str::to_owned).collect(), sockets: ListenFd::from_env() }
    }

    fn listener(&mut self, socket: &str) -> io::Result<TcpListener> {
        // The first descriptor after stdin, stdout and stderr.
        let index = match socket.parse::<usize>() {
            Ok(descriptor) => descriptor.checked_sub(3),
            Err(_) => self.names.iter().position(|name| name == socket),
        };
        let listener = index.and_then(|index| self.sockets.take_tcp_listener(index).transpose());
        let listener = listener.unwrap_or_else(|| Err(io::Error::other("it was not passed")))?;
        listen(&listener)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

/// A place where this process listens, or is going to listen.
pub struct Endpoint {
    /// The setting of the address.
    setting: &'static str,
    socket: Socket,
}

enum Socket {
    /// The process has not bound the address.
    Unbound(SocketAddr),
    /// Connections wait until they are accepted.
    Listening(TcpListener),
}

impl Endpoint {
    /// Creates an endpoint. A passed socket already listens.
    pub fn new(listen: &Listen, setting: &'static str, passed: &mut PassedSockets) -> Result<Self, Failure> {
        let socket = match listen {
            Listen::Address(address) => Socket::Unbound(*address),
            Listen::Passed(socket) => Socket::Listening(passed.listener(socket).map_err(|error| {
                Failure::usage(format!("cannot use {listen} for {setting}: {error}")).advise(
                    "systemd passes the sockets of a socket unit; another process passes them from descriptor 3 on and sets \
                     LISTEN_FDS to their number",
                )
            })?),
        };
        Ok(Self { setting, socket })
    }

    /// Returns the address of a socket that listens.
    pub fn listening(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Unbound(_) => None,
            Socket::Listening(listener) => listener.local_addr().ok(),
        }
    }

    /// Checks that the address can be bound.
    pub fn check(&self) -> Result<(), Failure> {
        match self.socket {
            Socket::Unbound(address) => self.bind(address).map(drop),
            Socket::Listening(_) => Ok(()),
        }
    }

    /// Listens, if it does not yet, and returns the listener.
    pub fn into_listener(self) -> Result<TcpListener, Failure> {
        match self.socket {
            Socket::Listening(listener) => Ok(listener),
            Socket::Unbound(address) => {
                let listener = self.bind(address)?.listen(WAITING_MAX);
                let listener = listener.and_then(tokio::net::TcpListener::into_std);
                listener.map_err(|error| self.cannot_listen(address, &error))
            }
        }
    }

    fn bind(&self, address: SocketAddr) -> Result<TcpSocket, Failure> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let bound = socket.and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        });
        bound.map_err(|error| self.cannot_listen(address, &error))
    }

    fn cannot_listen(&self, address: SocketAddr, why: &io::Error) -> Failure {
        let advice = format!("set another address in {}; port 0 selects a free port", self.setting);
        Failure::new(format!("cannot listen on {address}: {why}")).advise(advice)
    }
}

/// Backlog of connections to accept. A client that finds the backlog full retries only after a second, and
/// the 128 entries that std uses fill up within a few milliseconds of a burst.
const WAITING_MAX: u32 = 4_096;

/// Listens on a passed socket, or only sets its backlog if it listens already.
///
/// The kernel reduces a backlog that is too large.
fn listen(socket: &TcpListener) -> io::Result<()> {
    SockRef::from(socket).listen(WAITING_MAX as i32)
}
