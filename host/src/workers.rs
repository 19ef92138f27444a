//! A server on several threads. Each connection is served by one thread from accept to close.
//!
//! One task accepts connections and dispatches each one to the thread with the fewest connections. Sockets that share the
//! port (`SO_REUSEPORT`) would avoid the dispatch, but the kernel distributes connections by a hash. With the few long-lived
//! connections of a load balancer, one thread could get most of them. In addition, a second server started on the same port
//! by mistake would receive half of the connections instead of an error.

use std::io;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::thread;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::listener;
use crate::log::Log;
use crate::server::{Services, serve};

/// A pool of worker threads.
///
/// The threads end when the pool is dropped, together with all tasks spawned on them, for example a store's connection. The
/// pool must therefore outlive the stores.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<Handle>,
    _stop: DropGuard,
}

impl Workers {
    /// Starts `count` threads.
    ///
    /// # Errors
    ///
    /// Returns the system's error if it cannot start a thread.
    pub fn start(count: NonZeroUsize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let start = |index| {
            let (runtime, stop) = (Builder::new_current_thread().enable_all().build()?, stop.clone());
            let handle = runtime.handle().clone();
            let thread = thread::Builder::new().name(format!("worker-{index}"));
            thread.spawn(move || runtime.block_on(stop.cancelled_owned()))?;
            Ok(handle)
        };
        let threads = (0..count.get()).map(start).collect::<io::Result<_>>()?;
        Ok(Self { threads, _stop: stop.drop_guard() })
    }

    /// Serves connections on all threads, like [`run`](crate::run). The [`Limits`](crate::Limits) apply to the whole server.
    pub async fn run(
        &self,
        mut listener: TcpListener,
        services: Services,
        shutdown: impl Future<Output = ()>,
    ) {
        let permits = Arc::new(Semaphore::new(services.limits.connections_max.min(Semaphore::MAX_PERMITS)));
        let (stop, log) = (CancellationToken::new(), Log::new());
        let mut running = JoinSet::new();
        let workers: Vec<_> = self
            .threads
            .iter()
            .map(|thread| {
                let (sender, mut receiver) = unbounded_channel();
                let accept = async move || receive(&mut receiver).await;
                let stopped = stop.clone().cancelled_owned();
                running.spawn_on(serve(accept, services.clone(), log.clone(), stopped), thread);
                Worker { sender, connections: Arc::new(()) }
            })
            .collect();
        let stop = stop.drop_guard();

        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = async {
                // It fails only if the semaphore is closed, which never happens.
                let permit = permits.clone().acquire_owned().await.ok();
                (listener::accept(&mut listener).await.0, permit)
            };
            tokio::select! { biased;
                () = &mut shutdown => break,
                Some(stopped) = running.join_next() => propagate_panic(stopped),
                (stream, permit) = accepted => dispatch(&workers, stream, permit),
            }
        }
        drop((listener, stop));
        while let Some(stopped) = running.join_next().await {
            propagate_panic(stopped);
        }
    }
}

/// A serving thread.
struct Worker {
    sender: UnboundedSender<Dispatched>,
    /// Cloned into each open connection of the thread. Its reference count is the number of connections plus one.
    connections: Arc<()>,
}

/// A connection on its way to a thread. It is not registered with any runtime.
struct Dispatched {
    stream: std::net::TcpStream,
    guard: ConnectionGuard,
}

/// Counts a connection in the server and on its thread until it is dropped.
#[derive(Debug)]
struct ConnectionGuard {
    _in_server: Option<OwnedSemaphorePermit>,
    _on_thread: Arc<()>,
}

/// Sends a connection to the thread with the fewest connections.
fn dispatch(workers: &[Worker], stream: TcpStream, permit: Option<OwnedSemaphorePermit>) {
    let connections = |worker: &&Worker| Arc::strong_count(&worker.connections);
    let Some(worker) = workers.iter().min_by_key(connections) else { return };
    match stream.into_std() {
        Ok(stream) => {
            let guard = ConnectionGuard { _in_server: permit, _on_thread: worker.connections.clone() };
            // It fails only while the thread shuts down.
            let _ = worker.sender.send(Dispatched { stream, guard });
        }
        Err(error) => log_failed_dispatch(&error),
    }
}

/// Receives the next connection on its thread. Cancel safe.
async fn receive(dispatched: &mut UnboundedReceiver<Dispatched>) -> (TcpStream, ConnectionGuard) {
    while let Some(Dispatched { stream, guard }) = dispatched.recv().await {
        match TcpStream::from_std(stream) {
            Ok(stream) => return (stream, guard),
            Err(error) => log_failed_dispatch(&error),
        }
    }
    std::future::pending().await
}

fn log_failed_dispatch(error: &io::Error) {
    tracing::warn!(%error, "cannot dispatch a connection to a worker thread; closing it");
}

/// Propagates a panic of a worker's accept loop. A server that has lost a worker must not keep running.
fn propagate_panic(stopped: Result<(), JoinError>) {
    if let Err(error) = stopped
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
