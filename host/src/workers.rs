//! One server on several threads: each connection is served by one of them, from its first byte to its last.
//!
//! One task accepts, and hands each connection to the thread that has the fewest. Sockets that share a port (`SO_REUSEPORT`)
//! would spare the hand-over, but the kernel spreads connections by a hash: of a few that stay, as load balancers keep
//! them, one thread may get most. And a second server on the port, started by mistake, would get half of them instead of
//! an error.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::listener::{self, Listener};
use crate::log::Log;
use crate::{Services, run_logged};

/// Threads that serve. They end when this is dropped, and with them whatever was spawned there: a store's connection, for
/// example, so this is to outlive the stores.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<Handle>,
    _end: DropGuard,
}

impl Workers {
    /// Starts `count` threads. Errors: the system's, when it has none left.
    pub fn start(count: NonZeroUsize) -> io::Result<Self> {
        let end = CancellationToken::new();
        let start = |nth| {
            let (runtime, end) = (Builder::new_current_thread().enable_all().build()?, end.clone());
            let handle = runtime.handle().clone();
            let thread = thread::Builder::new().name(format!("worker-{nth}"));
            thread.spawn(move || runtime.block_on(end.cancelled_owned()))?;
            Ok(handle)
        };
        let threads = (0..count.get()).map(start).collect::<io::Result<_>>()?;
        Ok(Self { threads, _end: end.drop_guard() })
    }

    /// Does what [`run`](crate::run) does, on all threads together: [`Limits`](crate::Limits) are those of the whole server.
    pub async fn run(
        &self,
        mut listener: TcpListener,
        services: Services,
        shutdown: impl Future<Output = ()>,
    ) {
        let places = Arc::new(Semaphore::new(services.limits.connections_max.min(Semaphore::MAX_PERMITS)));
        let (stop, log) = (CancellationToken::new(), Log::new());
        let mut running = JoinSet::new();
        let workers: Vec<_> = self
            .threads
            .iter()
            .map(|thread| {
                let (hand, handed) = unbounded_channel();
                let stopped = stop.clone().cancelled_owned();
                let worker = run_logged(Handed(handed), services.clone(), log.clone(), stopped);
                running.spawn_on(worker, thread);
                Worker { hand, open: Arc::new(()) }
            })
            .collect();
        let stop = stop.drop_guard();

        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = async {
                // It fails only when it is closed, which nobody does.
                let place = places.clone().acquire_owned().await.ok();
                (listener::accept(&mut listener).await, place)
            };
            tokio::select! { biased;
                () = &mut shutdown => break,
                Some(ended) = running.join_next() => pass_panic_on(ended),
                ((stream, peer), place) = accepted => hand_over(&workers, stream, peer, place),
            }
        }
        drop((listener, stop));
        while let Some(ended) = running.join_next().await {
            pass_panic_on(ended);
        }
    }
}

/// One of the threads while it serves.
struct Worker {
    hand: UnboundedSender<Accepted>,
    /// Each open connection of the thread has a clone.
    open: Arc<()>,
}

struct Accepted {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    place: Place,
}

/// A connection's place in the server and on its thread, until it is dropped.
#[derive(Debug)]
struct Place {
    _in_server: Option<OwnedSemaphorePermit>,
    _on_thread: Arc<()>,
}

fn hand_over(workers: &[Worker], stream: TcpStream, peer: SocketAddr, place: Option<OwnedSemaphorePermit>) {
    let Some(worker) = workers.iter().min_by_key(|worker| Arc::strong_count(&worker.open)) else { return };
    match stream.into_std() {
        Ok(stream) => {
            let place = Place { _in_server: place, _on_thread: worker.open.clone() };
            // It fails once the thread is about to end.
            let _ = worker.hand.send(Accepted { stream, peer, place });
        }
        Err(error) => tracing::warn!(%error, "can't hand a connection over"),
    }
}

/// A thread's share of the server panicked, not a connection: nobody may think that it serves.
fn pass_panic_on(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// What a thread was handed.
struct Handed(UnboundedReceiver<Accepted>);

impl Listener for Handed {
    type Io = Placed;

    async fn accept(&mut self) -> io::Result<(Placed, SocketAddr)> {
        let Some(Accepted { stream, peer, place }) = self.0.recv().await else {
            return std::future::pending().await;
        };
        Ok((Placed { stream: TcpStream::from_std(stream)?, _place: place }, peer))
    }
}

/// A connection in its place.
#[derive(Debug)]
struct Placed {
    stream: TcpStream,
    _place: Place,
}

impl AsyncRead for Placed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Placed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, out)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
