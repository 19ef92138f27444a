//! A server restarts on a socket that its parent process keeps, while clients connect. No connection is
//! refused.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::enrich::{Client, EMAIL, Enrich, Server, TIMEOUT, beside, eventually};

const CLIENTS: usize = 4;

/// The outcomes of clients that connect for each lookup.
#[derive(Default)]
struct Clients {
    replies: AtomicU64,
    /// Connections that the server closed without a reply.
    closed: AtomicU64,
}

impl Clients {
    fn look_up(&self, address: SocketAddr, key: &str) {
        let mut client = Client::connect(address).expect("a connection is refused");
        let count = match client.enrich(key, EMAIL) {
            Ok(reply) => {
                assert_eq!(reply.status, 404);
                &self.replies
            }
            Err(_) => &self.closed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(1));
    }

    /// Waits until the clients have received more replies.
    fn wait_for_more(&self) {
        let now = self.replies.load(Ordering::Relaxed);
        eventually("replies", || (self.replies.load(Ordering::Relaxed) > now + 100).then_some(()));
    }
}

#[test]
fn new_server_continues_on_a_passed_socket() {
    let (enrich, key) = Enrich::with_key(5, 1_000_000_000);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut server = serve_on(&enrich, &socket, "fd://3");
    assert_eq!(server.address(), address);
    let clients = Clients::default();
    let _server = beside([(); CLIENTS].map(|()| || clients.look_up(address, &key)), || {
        clients.wait_for_more();
        for name in ["fd://3", "fd://api"] {
            server.stop(); // connections wait in the backlog of the passed socket
            server = serve_on(&enrich, &socket, name);
            clients.wait_for_more();
        }
        server
    });
    assert_eq!(clients.closed.into_inner(), 0, "no connection is lost");
}

#[test]
fn rejects_a_passed_socket_of_a_network_without_tls() {
    let (enrich, _) = Enrich::with_key(5, 500);
    let socket = TcpListener::bind("0.0.0.0:0").unwrap();
    let error = try_serve_on(&enrich, &socket, "fd://3").err().unwrap();
    assert!(error.contains("would receive keys and emails unencrypted"), "{error}");
}

#[test]
fn notifies_the_service_manager() {
    let (enrich, _) = Enrich::with_key(5, 500);
    let path = enrich.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let receive = || {
        let mut state = [0; 100];
        let bytes = manager.recv(&mut state).unwrap();
        String::from_utf8(state[..bytes].to_vec()).unwrap()
    };
    let server = enrich.serve(&[&format!("NOTIFY_SOCKET={}", path.display())]);
    assert_eq!(receive(), "READY=1\n");
    server.stop();
    assert_eq!(receive(), "STOPPING=1\n");
}

/// Starts a server with the socket as descriptor 3.
fn serve_on(enrich: &Enrich, socket: &TcpListener, listen: &str) -> Server {
    try_serve_on(enrich, socket, listen).unwrap()
}

fn try_serve_on(enrich: &Enrich, socket: &TcpListener, listen: &str) -> Result<Server, String> {
    // The shell moves its standard input to descriptor 3.
    let script = "exec \"$0\" serve --listen \"$@\" 3<&0 </dev/null";
    let args = [listen, "ENRICH_LOG=info", "LISTEN_FDS=1", "LISTEN_FDNAMES=api"];
    let socket = OwnedFd::from(socket.try_clone().unwrap());
    Server::start(enrich.shell(script, &args).stdin(Stdio::from(socket)))
}
