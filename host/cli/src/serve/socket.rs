//! Listening sockets: bound by this process, or passed by the process that started it.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;
use tokio::net::TcpSocket;
use tracing::warn;

use crate::failure::Failure;
use crate::listen::Listen;

/// The sockets that systemd or another parent process passes: see sd_listen_fds(3).
pub struct PassedSockets {
    sockets: ListenFd,
    names: Vec<String>,
}

impl PassedSockets {
    /// Takes the sockets from the environment, and removes the variables. Call it before the process starts a thread, and
    /// before it opens a file.
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
    /// The flag that sets the address.
    flag: &'static str,
    socket: Socket,
}

enum Socket {
    /// The process has not bound the address.
    Unbound { address: SocketAddr, is_shared: bool },
    /// Connections wait until they are accepted.
    Listening(TcpListener),
}

impl Endpoint {
    /// Creates an endpoint. A passed socket already listens. An address with `is_shared` may be bound by several processes.
    pub fn new(
        listen: &Listen,
        flag: &'static str,
        passed: &mut PassedSockets,
        is_shared: bool,
    ) -> Result<Self, Failure> {
        let socket = match listen {
            Listen::Address(address) => Socket::Unbound { address: *address, is_shared },
            Listen::Passed(socket) => Socket::Listening(passed.listener(socket).map_err(|error| {
                Failure::usage(format!("cannot use {flag} {listen}: {error}")).advise(
                    "systemd passes the sockets of a socket unit; another process passes them from descriptor 3 on and sets \
                     LISTEN_FDS to their number",
                )
            })?),
        };
        Ok(Self { flag, socket })
    }

    /// Returns the address of a socket that listens.
    pub fn listening(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Unbound { .. } => None,
            Socket::Listening(listener) => listener.local_addr().ok(),
        }
    }

    /// Checks that the address can be bound.
    pub fn check(&self) -> Result<(), Failure> {
        match self.socket {
            Socket::Unbound { address, is_shared } => self.bind(address, is_shared).map(drop),
            Socket::Listening(_) => Ok(()),
        }
    }

    /// Listens. Connections wait until they are accepted. An address that another process shares receives all new
    /// connections from now on.
    pub fn listen(&mut self) -> Result<(), Failure> {
        let Socket::Unbound { address, is_shared } = self.socket else { return Ok(()) };
        let socket = self.bind(address, is_shared)?;
        let listener = socket.listen(WAITING_MAX).and_then(tokio::net::TcpListener::into_std);
        let listener = listener.map_err(|error| self.cannot_listen(address, &error))?;
        if is_shared {
            direct_to_newest(&listener);
        }
        self.socket = Socket::Listening(listener);
        Ok(())
    }

    /// Listens, if it does not yet, and returns the listener.
    pub fn into_listener(mut self) -> Result<TcpListener, Failure> {
        self.listen()?;
        match self.socket {
            Socket::Listening(listener) => Ok(listener),
            Socket::Unbound { address, .. } => {
                Err(self.cannot_listen(address, &io::Error::other("not bound")))
            }
        }
    }

    fn bind(&self, address: SocketAddr, is_shared: bool) -> Result<TcpSocket, Failure> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let bound = socket.and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.set_reuseport(is_shared)?;
            socket.bind(address)?;
            Ok(socket)
        });
        bound.map_err(|error| self.cannot_listen(address, &error))
    }

    fn cannot_listen(&self, address: SocketAddr, why: &io::Error) -> Failure {
        let other = format!("choose another address with {}; port 0 selects a free port", self.flag);
        let is_shared = matches!(self.socket, Socket::Unbound { is_shared: true, .. });
        let failure = Failure::new(format!("cannot listen on {address}: {why}"));
        failure.advise(if is_shared && why.kind() == io::ErrorKind::AddrInUse {
            format!(
                "a server that shares its address runs with --reuse-port and as the same user; or {other}"
            )
        } else {
            other
        })
    }
}

/// Backlog of connections to accept. A client that finds the backlog full retries only after a second, and the 128 entries
/// that std uses fill up within a few milliseconds of a burst.
const WAITING_MAX: u32 = 4_096;

/// Listens on a passed socket, or only sets its backlog if it listens already.
///
/// The kernel reduces a backlog that is too large. `nix` would refuse more than `SOMAXCONN`, which is 128 with musl.
fn listen(socket: &TcpListener) -> io::Result<()> {
    SockRef::from(socket).listen(WAITING_MAX as i32)
}

/// Directs new connections to the newest of two processes that share the address.
///
/// The kernel numbers the sockets of an address in the order in which they began to listen. By default it selects one by a
/// hash of the client's address. Connections that wait in the backlog of the old process are then reset when it ends. A filter
/// that returns 1 selects the second socket. If there is only one, the kernel ignores the result.
#[cfg(target_os = "linux")]
fn direct_to_newest(listener: &TcpListener) {
    /// The instruction `BPF_RET | BPF_K`: returns the constant `k`.
    const RETURN: u16 = 0x06;
    let mut program = [nix::libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 1 }];
    let filter = nix::libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    if let Err(error) = setsockopt(listener, sockopt::AttachReusePortCbpf, &filter) {
        warn!(%error, "cannot direct all new connections to this server; some can be lost when the other one stops");
    }
}

/// Other systems direct new connections to the newest socket, or have no such filter.
#[cfg(not(target_os = "linux"))]
fn direct_to_newest(_listener: &TcpListener) {}
