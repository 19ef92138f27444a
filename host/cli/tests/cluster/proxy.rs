//! A TCP proxy whose link can be cut silently. It then accepts bytes without forwarding them, as in a network
//! partition.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// A port that forwards to another one.
pub struct Proxy {
    address: SocketAddr,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Passes,
    Cut,
}

impl Proxy {
    /// Starts a proxy that forwards connections to `targets` in turn, and skips targets that cannot be
    /// reached.
    pub fn start(runtime: &Handle, targets: Vec<SocketAddr>) -> Self {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (state, _) = watch::channel(State::Passes);
        let targets_changed = state.clone();
        runtime.spawn(async move {
            let targets = Arc::new(targets);
            for first in 0.. {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(link(client, targets.clone(), first, targets_changed.subscribe()));
            }
        });
        Self { address, state }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops forwarding. Connections stay open.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// Resets the connections of the cut link and forwards new ones.
    pub fn heal(&self) {
        self.state.send_replace(State::Passes);
    }
}

async fn link(
    client: TcpStream,
    targets: Arc<Vec<SocketAddr>>,
    first: usize,
    mut state: watch::Receiver<State>,
) {
    if *state.borrow() == State::Cut {
        // The connection is not forwarded, and is closed when the link is restored.
        return reached(&mut state, State::Passes).await;
    }
    for nth in 0..targets.len() {
        if let Ok(server) = TcpStream::connect(targets[(first + nth) % targets.len()]).await {
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            tokio::join!(pass(from_client, to_server, state.clone()), pass(from_server, to_client, state),);
            return;
        }
    }
}

/// Forwards bytes until one side closes, or until the link has been cut and restored.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<State>,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            biased;
            () = reached(&mut state, State::Cut) => return reached(&mut state, State::Passes).await,
            read = from.read(&mut bytes) => {
                let Ok(count @ 1..) = read else { return };
                if to.write_all(&bytes[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn reached(state: &mut watch::Receiver<State>, wanted: State) {
    let _ = state.wait_for(|state| *state == wanted).await;
}
