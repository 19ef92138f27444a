//! A server on several threads. Each connection is served by one thread from accept to close.
//!
//! One task accepts connections and passes each one to the thread with the fewest connections. Sockets that share the port
//! (`SO_REUSEPORT`) would avoid the hand-over, but the kernel distributes connections by a hash. With the few long-lived
//! connections of a load balancer, one thread could get most of them. In addition, a second server started on the same port
//! by mistake would receive half of the connections instead of an error.

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

/// A pool of worker threads.
///
/// The threads end when the pool is dropped, together with all tasks spawned on them, for example a store's connection. The
/// pool must therefore outlive the stores.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<Handle>,
    _end: DropGuard,
}

impl Workers {
    /// Starts `count` threads.
    ///
    /// # Errors
    ///
    /// Returns the system's error if it cannot start a thread.
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

    /// Serves connections on all threads, like [`run`](crate::run). The [`Limits`](crate::Limits) apply to the whole server.
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
                // It fails only if the semaphore is closed, which never happens.
                let place = places.clone().acquire_owned().await.ok();
                (listener::accept(&mut listener).await, place)
            };
            tokio::select! { biased;
                () = &mut shutdown => break,
                Some(ended) = running.join_next() => propagate_panic(ended),
                ((stream, peer), place) = accepted => hand_over(&workers, stream, peer, place),
            }
        }
        drop((listener, stop));
        while let Some(ended) = running.join_next().await {
            propagate_panic(ended);
        }
    }
}

/// A serving thread.
struct Worker {
    hand: UnboundedSender<Accepted>,
    /// Cloned into each open connection of the thread. Its reference count is the number of connections plus one.
    open: Arc<()>,
}

struct Accepted {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    place: Place,
}

/// A guard that counts a connection in the server and on its thread until it is dropped.
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
            // It fails only while the thread shuts down.
            let _ = worker.hand.send(Accepted { stream, peer, place });
        }
        Err(error) => tracing::warn!(%error, "can't hand a connection over"),
    }
}

/// Propagates a panic of a worker's accept loop. A server that has lost a worker must not keep running.
fn propagate_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// A listener for the connections passed to a thread.
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

/// A connection with its guard.
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
